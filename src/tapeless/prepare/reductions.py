"""Sums and means of what was repeated or scaled: reduce first."""

from __future__ import annotations

from typing import Any

import torch

from tapeless.prepare.passes import Pass, Phase, rewrite
from tapeless.prepare.pattern import anything, numbers, op, tensors

(x,) = tensors("x")
(factor,) = numbers("factor")
shape, dims, keep = anything("shape dims keep")

Tensor = torch.Tensor


@rewrite(op.sum(op.expand(x, shape), dims, keep), op.mean(op.expand(x, shape), dims, keep), phase=Phase.ALGEBRA)
def reduce_before_expand(x: Tensor, dims: Any, keep: bool, out: Tensor, site: Any) -> Any:
    """The sum of n copies is n times the value, their mean the value itself."""
    expanded = site.value(site.node.args[0])
    rank = expanded.dim()
    reduced = {d % rank for d in dims} if dims else set(range(rank))
    sizes = [1] * (rank - x.dim()) + list(x.shape)
    copies = [d for d in reduced if sizes[d] != expanded.shape[d]]
    if not copies or x.dtype != out.dtype or not out.is_floating_point():
        return None
    times = 1
    for d in copies:
        times *= expanded.shape[d]
    small = x.reshape(sizes)
    rest = [d for d in reduced if d not in copies and sizes[d] != 1]
    is_sum = str(site.node.target).startswith("aten.sum")
    small = (small.sum(rest, keepdim=True) if is_sum else small.mean(rest, keepdim=True)) if rest else small
    whole = small * times if is_sum else small
    kept = [1 if d in reduced else expanded.shape[d] for d in range(rank)]
    whole = whole.expand(kept) if list(whole.shape) != kept else whole
    return whole if keep else whole.reshape(out.shape)


@rewrite(op.sum(op.mul(x, factor), dims, keep), op.mean(op.mul(x, factor), dims, keep), phase=Phase.ALGEBRA)
def scale_after_reduction(x: Tensor, factor: float, dims: Any, keep: bool, out: Tensor, site: Any) -> Any:
    """Σ c·x = c·Σ x: one product instead of many."""
    if x.dtype != out.dtype or not out.is_floating_point():
        return None
    is_sum = str(site.node.target).startswith("aten.sum")
    return (x.sum(dims, keepdim=keep) if is_sum else x.mean(dims, keepdim=keep)) * factor


REDUCTIONS: tuple[Pass, ...] = (reduce_before_expand, scale_after_reduction)
