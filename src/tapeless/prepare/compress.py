"""Products of parts put side by side, some of them products themselves: the small factor is applied first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tapeless.ir import cost
from tapeless.ir import graph as ir
from tapeless.prepare.calls import operator_name
from tapeless.prepare.editor import Site
from tapeless.prepare.passes import Pass, Phase, rewrite
from tapeless.prepare.pattern import anything, op, tensors
from tapeless.prepare.products import WORTH
from tapeless.torch_internals import without_modes

(y,) = tensors("y")
parts, dim = anything("parts dim")

Tensor = torch.Tensor


@rewrite(op.mm(op.cat(parts, dim), y), op.bmm(op.cat(parts, dim), y), phase=Phase.ALGEBRA)
def compress_product_of_cat(parts: list[Tensor], dim: int, y: Tensor, out: Tensor, site: Site) -> Any:
    """[u v | w] y = u (v y₁) + w y₂ and [u v ; w] y = [u (v y) ; w y], where FLOPs fall: nobody makes u v."""
    product, cat = site.through
    given: Any = cat.args[0]
    rank, dim = out.dim(), dim % out.dim()
    factored = [_factors(node, cat, operator_name(product)) for node in given]
    inner = [node for node, factors in zip(given, factored, strict=True) if factors]
    if dim < rank - 2 or not inner or len({part.dtype for part in parts}) != 1 or not site.reach(inner):
        return None
    contracted = dim == rank - 1
    pieces = y.split([part.shape[dim] for part in parts], rank - 2) if contracted else [y] * len(parts)
    with without_modes():
        before = cost.flops([product, *inner])
    if before < WORTH * sum(_work(p, f, q) for p, f, q in zip(parts, factored, pieces, strict=True)):
        return None
    made = [_applied(p, site.value(f), q) for p, f, q in zip(parts, factored, pieces, strict=True)]
    return _sum(made) if contracted else torch.cat(made, dim)


def _factors(node: fx.Node, cat: fx.Node, name: str) -> tuple[Any, ...]:
    """u and v, if the part is a product u v that nobody else reads."""
    return node.args if operator_name(node) == name and list(node.users) == [cat] else ()


def _work(part: Tensor, factors: Sequence[Any], y: Tensor) -> float:
    """FLOPs of a part times y."""
    batch, rows, inner, columns = _batch(y), part.shape[-2], part.shape[-1], y.shape[-1]
    if not factors:
        return 2.0 * batch * rows * inner * columns
    rank = ir.value(factors[0]).shape[-1]
    return 2.0 * batch * rank * columns * (inner + rows)


def _batch(y: Tensor) -> int:
    return y.shape[0] if y.dim() == 3 else 1


def _applied(part: Tensor, factors: Sequence[Tensor], y: Tensor) -> Tensor:
    if not factors:
        return part @ y
    u, v = factors
    return u @ (v @ y)


def _sum(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


COMPRESS: tuple[Pass, ...] = (compress_product_of_cat,)
