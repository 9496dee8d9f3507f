"""Products of matrices in another order. FLOPs decide."""

from __future__ import annotations

from typing import Any

import torch

from tapeless.prepare.boxes import box_of
from tapeless.prepare.calls import operator_name
from tapeless.prepare.editor import Site
from tapeless.prepare.passes import Pass, Phase, rewrite
from tapeless.prepare.pattern import anything, op, tensors

x, y, z, bias, bias2 = tensors("x y z bias bias2")
start, end, start2, end2, dim, size = anything("start end start2 end2 dim size")

Tensor = torch.Tensor

WORTH = 2.0  # a product must get this much cheaper: another order rounds differently


@rewrite(op.mm(op.mm(x, y), z), op.bmm(op.bmm(x, y), z), phase=Phase.ALGEBRA)
def reassociate_left(x: Tensor, y: Tensor, z: Tensor) -> Any:
    """(x y) z = x (y z)."""
    m, k, n, p = x.shape[-2], x.shape[-1], y.shape[-1], z.shape[-1]
    return x @ (y @ z) if _pays(m * k * n + m * n * p, k * n * p + m * k * p) and k * p <= m * n else None


@rewrite(op.mm(x, op.mm(y, z)), op.bmm(x, op.bmm(y, z)), phase=Phase.ALGEBRA)
def reassociate_right(x: Tensor, y: Tensor, z: Tensor) -> Any:
    """x (y z) = (x y) z."""
    m, k, n, p = x.shape[-2], x.shape[-1], y.shape[-1], z.shape[-1]
    return (x @ y) @ z if _pays(k * n * p + m * k * p, m * k * n + m * n * p) and m * n <= k * p else None


@rewrite(op.addmm(bias2, op.addmm(bias, x, y), z), op.addmm(bias2, op.mm(x, y), z), phase=Phase.ALGEBRA)
def merge_linears(x: Tensor, y: Tensor, z: Tensor, bias2: Tensor, site: Site) -> Any:
    """(x y + b) z + c = x (y z) + (b z + c): two linear layers with nothing between them are one."""
    m, k, n, p = x.shape[-2], x.shape[-1], y.shape[-1], z.shape[-1]
    if bias2.dim() != 1 or not _pays(m * k * n + m * n * p, k * n * p + m * k * p) or k * p > m * n:
        return None
    inner = site.value(site.through[1].args[0]) if len(site.through[1].args) == 3 else None
    if inner is not None and inner.dim() != 1:
        return None
    shift = bias2 if inner is None else torch.addmm(bias2.unsqueeze(0), inner.unsqueeze(0), z).squeeze(0)
    return torch.addmm(shift, x, y @ z)


@rewrite(
    op.add(op.mm(op.slice(x, 1, start, end), y), op.mm(op.slice(x, 1, start2, end2), z)),
    op.add(op.addmm(bias, op.slice(x, 1, start, end), y), op.mm(op.slice(x, 1, start2, end2), z)),
    op.add(op.mm(op.getitem(op.split(x, size, 1), start), y), op.mm(op.getitem(op.split(x, size, 1), start2), z)),
    op.add(
        op.mm(op.getitem(op.split_with_sizes(x, size, 1), start), y),
        op.mm(op.getitem(op.split_with_sizes(x, size, 1), start2), z),
    ),
    phase=Phase.ALGEBRA,
)
def join_split_linears(x: Tensor, y: Tensor, z: Tensor, out: Tensor, site: Site) -> Any:
    """x₁ y + x₂ z = [x₁ x₂] [y; z] where x₁ and x₂ are the two parts of x."""
    products: list[Any] = [node for node in site.through if operator_name(node) in ("mm", "addmm")]
    boxes = [box_of(node.args[-2]) for node in products]
    whole = sorted(((box.begin[1], box.size[1], i) for i, box in enumerate(boxes)))
    if [box.source for box in boxes] != [boxes[0].source] * 2 or len(products) != 2:
        return None
    (begin, length, i), (begin2, length2, j) = whole
    if begin != 0 or begin2 != length or length + length2 != x.shape[1] or y.shape[1] != z.shape[1]:
        return None
    weights = torch.cat([site.value(products[i].args[-1]), site.value(products[j].args[-1])])
    biased = next((node for node in products if len(node.args) == 3), None)
    return torch.mm(x, weights) if biased is None else torch.addmm(site.value(biased.args[0]), x, weights)


@rewrite(op.bmm(x, y), phase=Phase.ALGEBRA)
def thin_product_to_pointwise(x: Tensor, y: Tensor, out: Tensor) -> Any:
    """A batch of vectors times matrices (einsum abc,abcd→abd) as a product and a sum, where that moves less."""
    if x.shape[1] != 1 or x.dtype != y.dtype:
        return None
    return (x.transpose(1, 2) * y).sum(1, keepdim=True)


def _pays(before: float, after: float) -> bool:
    return before >= WORTH * after


PRODUCTS: tuple[Pass, ...] = (
    reassociate_left,
    reassociate_right,
    merge_linears,
    join_split_linears,
    thin_product_to_pointwise,
)
