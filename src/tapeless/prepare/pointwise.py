"""Elementwise calls that undo, repeat or contain each other."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from tapeless.prepare.calls import arguments
from tapeless.prepare.editor import Site
from tapeless.prepare.facts import same_type
from tapeless.prepare.passes import Pass, Phase, rewrite
from tapeless.prepare.pattern import anything, numbers, op, tensors

x, y = tensors("x y")
(number,) = numbers("number")
low, high, low2, high2, parts, dim, a, b, c, d, e, f = anything("low high low2 high2 parts dim a b c d e f")

Tensor = torch.Tensor

# relu changes nothing behind these. Where they are 0 their own derivative is 0 too, so that of relu does not matter.
NOT_NEGATIVE = (op.relu(x), op.exp(x), op.sigmoid(x), op.abs(x), op._softmax(x, a, b))

IDEMPOTENT = (op.abs, op.floor, op.ceil, op.round, op.trunc, op.sign)


@rewrite(*(op.relu(inner) for inner in NOT_NEGATIVE))
def drop_relu_of_nonnegative(site: Site) -> Any:
    """relu(y) = y where y ≥ 0 whatever its argument is."""
    return site.value(site.node.args[0])


@rewrite(*(make(make(x)) for make in IDEMPOTENT), op.nan_to_num(op.nan_to_num(x, a, b, c), a, b, c))
def drop_repeated(site: Site) -> Any:
    """f(f(x)) = f(x)."""
    return site.value(site.node.args[0])


@rewrite(op.nan_to_num(op.relu(op.nan_to_num(x, a, b, c)), d, e, f))
def drop_nan_to_num_of_finite(a: Any, b: Any, c: Any, site: Site) -> Any:
    """relu of finite numbers is finite: nothing is left to replace."""
    finite = all(bound is None or math.isfinite(bound) for bound in (a, b, c))
    return site.value(site.node.args[0]) if finite else None


@rewrite(op.neg(op.neg(x)), op.logical_not(op.logical_not(x)), op.bitwise_not(op.bitwise_not(x)))
def drop_inverse(x: Tensor, out: Tensor) -> Any:
    """f(f(x)) = x."""
    return x if same_type(x, out) else None


@rewrite(op.clamp(op.clamp(x, low, high), low2, high2))
def merge_clamps(x: Tensor, low: Any, high: Any, low2: Any, high2: Any, out: Tensor) -> Any:
    """Two intervals that overlap: clamp to their intersection. At its ends the derivative is that of both."""
    if any(isinstance(bound, Tensor) for bound in (low, high, low2, high2)) or not same_type(x, out):
        return None
    least = max((bound for bound in (low, low2) if bound is not None), default=None)
    most = min((bound for bound in (high, high2) if bound is not None), default=None)
    empty = least is not None and most is not None and least > most
    return None if empty else torch.clamp(x, least, most)


@rewrite(op.bitwise_and(x, True), op.logical_and(x, True), op.bitwise_or(x, False), op.logical_or(x, False))
def drop_neutral_truth(x: Tensor, out: Tensor) -> Any:
    """x ∧ true = x ∨ false = x."""
    return x if x.dtype is torch.bool and same_type(x, out) else None


@rewrite(op.reciprocal(op.sqrt(x)), op.pow(op.sqrt(x), -1))
def reciprocal_of_root(x: Tensor) -> Any:
    """1/√x is one call."""
    return x.rsqrt()


@rewrite(op.log(op.exp(x)), op.exp(op.log(x)), default=False)
def drop_log_of_exp(x: Tensor, out: Tensor) -> Any:
    """log(eˣ) = x where eˣ does not overflow, e^log(x) = x where x is positive; hence on request only."""
    return x if same_type(x, out) else None


@rewrite(op.log(op._softmax(x, dim, False)), default=False)
def log_of_softmax(x: Tensor, dim: int) -> Any:
    """log(softmax(x)) = log_softmax(x). Where softmax underflows eager has −∞; hence on request only."""
    return torch.ops.aten._log_softmax(x, dim, False)


UNARY = ("relu", "tanh", "sigmoid", "exp", "sin", "cos", "neg", "abs", "gelu", "silu", "sqrt", "rsqrt", "log", "erf")
VIEWED = (op.view(op.cat(parts, dim), e), op._unsafe_view(op.cat(parts, dim), e))


@rewrite(
    *(getattr(op, name)(inner) for name in UNARY for inner in (op.cat(parts, dim), *VIEWED)),
    phase=Phase.ALGEBRA,
)
def sink_cat(parts: list[Tensor], dim: int, out: Tensor, site: Site) -> Any:
    """f(cat([a, b])) = cat([f(a), f(b)]), views in between kept: f meets its argument where that is made."""
    if len({part.dtype for part in parts}) != 1:
        return None
    whole = torch.cat([_called(site.node, part) for part in parts], dim)
    return whole if whole.shape == out.shape else whole.reshape(out.shape)


def _called(node: fx.Node, operand: Tensor) -> Tensor:
    """The elementwise call `node` on another operand."""
    given = arguments(node)
    rest = {name: value for name, value in given.items() if name != "self"}
    return node.target(operand, **rest)  # type: ignore[operator]


POINTWISE: tuple[Pass, ...] = (
    drop_relu_of_nonnegative,
    drop_repeated,
    drop_nan_to_num_of_finite,
    drop_inverse,
    merge_clamps,
    drop_neutral_truth,
    reciprocal_of_root,
    drop_log_of_exp,
    log_of_softmax,
    sink_cat,
)
