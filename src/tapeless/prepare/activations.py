"""Activations written out by hand: one operator knows them, and its backward reads their argument alone."""

from __future__ import annotations

import math

import torch

from tapeless.prepare.calls import number
from tapeless.prepare.editor import Site
from tapeless.prepare.passes import Pass, Phase, rewrite
from tapeless.prepare.pattern import MISSING, Call, Either, Wild, numbers, op, tensors

x, u = tensors("x u")
scale, cubic = numbers("scale cubic")

Tensor = torch.Tensor

BY_NORMAL = math.sqrt(1 / 2)
BY_TANH, CUBIC = math.sqrt(2 / math.pi), 0.044715


def _inverse(value: object) -> object:
    found = number(value)
    return 1 / found if found else MISSING


def _half(value: Call | Wild) -> Either:
    return Either((op.mul(value, 0.5), op.div(value, 2)))


def _gated(curve: Call | Either) -> tuple[Call, ...]:
    """x · ½ (1 + curve), factors in any order."""
    gate = op.add(curve, 1)
    return (*(op.mul(x, half) for half in _half(gate).patterns),
            op.mul(_half(x), gate),
            *_half(op.mul(x, gate)).patterns)  # fmt: skip


SQUARE = Either((op.pow(x, 2), op.mul(x, x)))
CUBE = Either((op.pow(x, 3), op.mul(SQUARE, x)))
SCALED_CUBE = Either((op.mul(CUBE, cubic), op.mul(op.mul(op.mul(x, cubic), x), x)))
WITH_CUBE = op.mul(op.add(x, SCALED_CUBE), scale)
FACTORED = op.mul(op.mul(x, scale), op.add(Either((op.mul(op.mul(x, cubic), x), op.mul(SQUARE, cubic))), 1))
SCALED = Either((op.mul(x, scale), op.div(x, Wild("scale", _inverse))))


@rewrite(*_gated(op.tanh(Either((WITH_CUBE, FACTORED)))), phase=Phase.ALGEBRA, symbolic=True)
def gelu_by_tanh(x: Tensor, scale: float, cubic: float, site: Site) -> Tensor | None:
    """x · ½ (1 + tanh(√(2/π)(x + 0.044715 x³))) is one operator: its backward makes nothing of that again."""
    if not (_is(scale, BY_TANH, x) and _is(cubic, CUBIC, x) and _is_alone(site)):
        return None
    return torch.nn.functional.gelu(x, approximate="tanh")


@rewrite(*_gated(op.erf(SCALED)), phase=Phase.ALGEBRA, symbolic=True)
def gelu_by_erf(x: Tensor, scale: float, site: Site) -> Tensor | None:
    """x · ½ (1 + erf(x/√2)) is one operator."""
    return torch.nn.functional.gelu(x) if _is(scale, BY_NORMAL, x) and _is_alone(site) else None


@rewrite(op.mul(x, op.sigmoid(x)), phase=Phase.ALGEBRA, symbolic=True)
def silu(x: Tensor, site: Site) -> Tensor | None:
    """x · σ(x) is one operator."""
    return torch.nn.functional.silu(x) if _is_precise(x) and _is_alone(site) else None


def _is(value: float, wanted: float, x: Tensor) -> bool:
    """Is it the same number, but for the last digit of what `x` holds?"""
    return _is_precise(x) and math.isclose(value, wanted, rel_tol=4 * torch.finfo(x.dtype).eps)


def _is_precise(x: Tensor) -> bool:
    """In fewer digits eager rounds each step visibly."""
    return x.dtype in (torch.float32, torch.float64)


def _is_alone(site: Site) -> bool:
    """Does nobody else read what the activation is made of?"""
    return all(user in site.through for node in site.through if node is not site.node for user in node.users)


ACTIVATIONS: tuple[Pass, ...] = (gelu_by_tanh, gelu_by_erf, silu)
