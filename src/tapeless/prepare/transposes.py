"""Products of transposed matrices: kernels read either order, so a transpose beside a product costs nothing or goes."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare import facts
from tapeless.prepare.calls import operator_name
from tapeless.prepare.editor import Site
from tapeless.prepare.passes import Pass, Phase, rewrite
from tapeless.prepare.pattern import Call, anything, op, tensors
from tapeless.prepare.views import TRANSPOSES, axes

x, y, bias, weight = tensors("x y bias weight")
a, b, c, d, format, size, size2 = anything("a b c d format size size2")

Tensor = torch.Tensor


def _swapped(of: Any, first: Any, second: Any) -> tuple[Call, Call]:
    return op.transpose(of, first, second), op.permute(of, first)


@rewrite(
    op.t(op.mm(op.t(x), op.t(y))),
    *(
        whole
        for left in _swapped(x, a, b)
        for right in _swapped(y, c, d)
        for whole in _swapped(op.bmm(left, right), size, size2)
    ),
    phase=Phase.ALGEBRA, relayout=True,
)  # fmt: skip
def transpose_of_product(x: Tensor, y: Tensor, site: Site) -> Any:
    """(xᵀ yᵀ)ᵀ = y x."""
    turns = [node for node in site.through if operator_name(node) in TRANSPOSES]
    return y @ x if all(map(_swaps_matrices, turns)) else None


COPY = op.clone(x, memory_format=format)


PRODUCTS = (
    *(make(*factors) for make in (op.mm, op.bmm) for factors in ((COPY, y), (y, COPY))),
    *(make(bias, *factors) for make in (op.addmm, op.baddbmm) for factors in ((COPY, y), (y, COPY))),
)


@rewrite(*PRODUCTS, phase=Phase.ALGEBRA)
def transpose_into_product(x: Tensor, site: Site) -> Any:
    """A transposed matrix that is copied only to be multiplied is multiplied as it lies."""
    product, copy = site.through
    home = facts.memory(copy.all_input_nodes[0])
    if home.op != "call_function" or not _is_read_as_it_lies(x):
        return None  # of an input: the caller may change that before the backward
    args = [x if argument is copy else site.value(argument) for argument in product.args]
    return product.target(*args)  # type: ignore[operator]


LINEAR = (
    op.view(op.addmm(bias, op.view(x, size), op.t(weight)), size2),
    op.view(op.mm(op.view(x, size), op.t(weight)), size2),
)


@rewrite(
    *(op.clone(turned, memory_format=format) for linear in LINEAR for turned in _swapped(linear, a, b)),
    phase=Phase.ALGEBRA,
)  # fmt: skip
def transpose_into_linear(x: Tensor, weight: Tensor, out: Tensor, site: Site) -> Any:
    """(x Wᵀ + b)ᵀ = W xᵀ + b per member: what is copied into the other order is made in it."""
    _, turn, view, product, *_ = site.through
    shared: Any = site.through[-1].args[0]
    if x.dim() != 3 or not _swaps_matrices(turn) or ir.value(view).shape[:2] != x.shape[:2]:
        return None
    if not out.is_contiguous() or (site.trains(shared) and not site.forced):
        return None  # where it trains, the gradient of the weight would be made per member and summed
    bias = site.value(product.args[0]) if operator_name(product) == "addmm" else None
    many = weight.expand(x.shape[0], *weight.shape)
    if bias is None:
        return torch.bmm(many, x.transpose(1, 2))
    return torch.baddbmm(bias.view(-1, 1), many, x.transpose(1, 2)) if bias.dim() == 1 else None


def _swaps_matrices(node: fx.Node) -> bool:
    """A permutation of the last two dimensions, and of no others."""
    order = axes(node)
    return order == [*range(len(order) - 2), len(order) - 1, len(order) - 2]


def _is_read_as_it_lies(x: Tensor) -> bool:
    """Rows or columns without gaps: BLAS takes it."""
    (rows, columns), (size, size2) = x.stride()[-2:], x.shape[-2:]
    return (rows == 1 and columns >= max(size, 1)) or (columns == 1 and rows >= max(size2, 1))


TRANSPOSED: tuple[Pass, ...] = (
    transpose_of_product,
    transpose_into_product,
    transpose_into_linear,
)
