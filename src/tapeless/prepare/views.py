"""Chains of views become one view, or none."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare.calls import arguments, operator_name
from tapeless.prepare.editor import Site
from tapeless.prepare.facts import same_layout, same_type
from tapeless.prepare.passes import Pass, rewrite
from tapeless.prepare.pattern import Call, anything, op, tensors

(x,) = tensors("x")
a, b, c, d, e, f = anything("a b c d e f")

Tensor = torch.Tensor

RESHAPES = (op.view, op._unsafe_view, op.unsqueeze, op.squeeze)
TRANSPOSES = ("permute", "transpose", "t")


def _reshape(make: Any, of: Any, rest: Any) -> tuple[Call, ...]:
    """The pattern of a reshape, with or without its argument."""
    return (make(of, rest), make(of)) if make is op.squeeze else (make(of, rest),)


def _permutation(name: str, of: Any, first: Any, second: Any) -> Call:
    return {"permute": op.permute(of, first), "transpose": op.transpose(of, first, second), "t": op.t(of)}[name]


def axes(node: fx.Node) -> list[int]:
    """Which dimension of its argument each dimension of a permutation is."""
    given, rank = arguments(node), ir.value(node).dim()
    if operator_name(node) == "permute":
        return [n % rank for n in given["dims"]]
    order = list(range(rank))
    i, j = (given["dim0"] % rank, given["dim1"] % rank) if operator_name(node) == "transpose" and rank else (0, -1)
    if rank:
        order[i], order[j] = order[j], order[i]
    return order


def permuted(x: Tensor, order: list[int]) -> Tensor:
    """x with its dimensions in this order, spelled as capture spells it."""
    if order == sorted(order):
        return x
    return x.t() if len(order) == 2 else x.permute(order)


@rewrite(
    op.view(x, a), op._unsafe_view(x, a), op.expand(x, a), op.permute(x, a), op.transpose(x, a, b), op.squeeze(x),
    op.squeeze(x, a), op.slice(x, a, b, c), op.alias(x),
)  # fmt: skip
def drop_idle_view(x: Tensor, out: Tensor) -> Any:
    """A view with the sizes and strides of what it views, beginning where that begins."""
    return x if same_type(x, out) and same_layout(x, out) else None


@rewrite(*(p for f1 in RESHAPES for f2 in RESHAPES for q in _reshape(f2, x, b) for p in _reshape(f1, q, a)))
def merge_reshapes(x: Tensor, out: Tensor) -> Any:
    """A reshape of a reshape is a reshape: elements keep their order through both."""
    return x.view(out.shape) if x.is_contiguous() else x.reshape(out.shape)


@rewrite(*(_permutation(m, _permutation(n, x, c, d), a, b) for m in TRANSPOSES for n in TRANSPOSES))
def merge_permutes(x: Tensor, site: Site) -> Any:
    """permute(permute(x, p), q) = permute(x, p∘q)."""
    outer, inner = axes(site.through[0]), axes(site.through[1])
    return permuted(x, [inner[i] for i in outer])


@rewrite(op.expand(op.expand(x, a), b))
def merge_expands(x: Tensor, out: Tensor) -> Any:
    """Broadcasting twice is broadcasting to the last shape."""
    return x.expand(out.shape)


@rewrite(op.slice(op.slice(x, a, b, c), d, e, f))
def merge_slices(x: Tensor, out: Tensor, a: int, d: int, site: Site) -> Any:
    """A slice of a slice of the same dimension."""
    dim, rank = d % x.dim(), x.dim()
    first, second = (_bounds(node) for node in site.through)
    if a % rank != dim:
        return None
    return x.narrow(dim, second + first, out.shape[dim])


def _bounds(node: fx.Node) -> int:
    """Where a slice begins."""
    given = arguments(node)
    size = ir.value(given["self"]).shape[given["dim"]]
    return slice(given["start"], given["end"]).indices(size)[0]


VIEWS: tuple[Pass, ...] = (drop_idle_view, merge_reshapes, merge_permutes, merge_expands, merge_slices)
