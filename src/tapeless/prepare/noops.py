"""Calls that return their argument: remove them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare import facts
from tapeless.prepare.editor import Site
from tapeless.prepare.facts import same_layout, same_type
from tapeless.prepare.passes import Pass, rewrite
from tapeless.prepare.pattern import anything, numbers, op, tensors

(x,) = tensors("x")
(zero,) = numbers("zero")
format, dtype, inner, a, b, c = anything("format dtype inner a b c")

Tensor = torch.Tensor


@rewrite(op.mul(x, 1), op.div(x, 1), op.pow(x, 1), symbolic=True)
def drop_factor_one(x: Tensor, out: Tensor) -> Any:
    """x · 1 = x / 1 = x¹ = x, to the last bit."""
    return x if same_type(x, out) else None


@rewrite(op.add(x, zero), symbolic=True)
def drop_zero_term(x: Tensor, zero: float, out: Tensor) -> Any:
    """x + 0 = x for integers, x + (−0.0) = x for all. With +0.0 a negative zero would change its sign."""
    exact = not x.is_floating_point() and not x.is_complex()
    return x if zero == 0 and same_type(x, out) and (exact or math.copysign(1, zero) < 0) else None


@rewrite(op.sub(x, zero), symbolic=True)
def drop_zero_subtracted(x: Tensor, zero: float, out: Tensor) -> Any:
    """x − 0 = x, to the last bit."""
    return x if zero == 0 and math.copysign(1, zero) > 0 and same_type(x, out) else None


@rewrite(op.add(x, zero), symbolic=True, default=False)
def drop_unsigned_zero_term(x: Tensor, zero: float, out: Tensor) -> Any:
    """x + 0 = x if nobody asks for the sign of a zero."""
    return x if zero == 0 and same_type(x, out) else None


@rewrite(op.clone(x, memory_format=format), op._to_copy(x, dtype=dtype), symbolic=True)
def drop_copy(x: Tensor, out: Tensor, site: Site) -> Any:
    """A copy of a value that nobody can change. One of an input stays: the caller may change that before backward."""
    home = facts.memory(site.node.all_input_nodes[0])
    return x if home.op == "call_function" and same_type(x, out) else None


@rewrite(op._to_copy(op._to_copy(x, dtype=inner), dtype=dtype))
def drop_round_trip_cast(x: Tensor, inner: torch.dtype, out: Tensor, site: Site) -> Any:
    """A cast to a wider type and back loses nothing."""
    widened = inner.is_floating_point == x.is_floating_point() and torch.promote_types(inner, x.dtype) == inner
    home = facts.memory(site.through[1].all_input_nodes[0])
    return x if widened and home.op == "call_function" and same_type(x, out) else None


LIKES = (op.empty_like, op.zeros_like, op.ones_like)


@rewrite(*(make(x, dtype=dtype, layout=a, device=b, pin_memory=c, memory_format=format) for make in LIKES))
def shape_from_source(x: Tensor, site: Site) -> Any:
    """What only needs to know a shape takes it from an earlier value, so that nobody computes the later one."""
    node = source = site.node.all_input_nodes[0]
    while source.all_input_nodes and _is_alike(source.all_input_nodes[0], node):
        source = source.all_input_nodes[0]
    return None if source is node else site.node.target(site.value(source), **site.node.kwargs)  # type: ignore[operator]


def _is_alike(a: fx.Node, b: fx.Node) -> bool:
    values = ir.value(a), ir.value(b)
    return ir.is_tensor(a) and ir.is_tensor(b) and same_type(*values) and same_layout(*values)


NOOPS: tuple[Pass, ...] = (
    drop_factor_one,
    drop_zero_term,
    drop_zero_subtracted,
    drop_unsigned_zero_term,
    drop_copy,
    drop_round_trip_cast,
    shape_from_source,
)
