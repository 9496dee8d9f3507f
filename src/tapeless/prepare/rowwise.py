"""Operators that are linear and keep rows apart: which arguments carry a value on, and where its rows are.

The first `rows` dimensions of a value are its rows. Row i of the result depends on row i of the arguments that carry it
on, and on nothing else of them; what is linear here, and how it is transposed, torch's own derivatives say
(`chains.py`). Listed are operators that occur in gradients of networks; any other ends the walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from tapeless.ir import graph as ir
from tapeless.prepare.calls import arguments, operator_name

SLOPES = frozenset(f"{name}_backward" for name in (
    "tanh", "sigmoid", "silu", "gelu", "threshold", "elu", "leaky_relu", "softplus", "hardtanh", "hardswish",
    "hardsigmoid", "mish",
))  # fmt: skip
RESHAPES = ("view", "_unsafe_view", "unsqueeze", "squeeze")
PRODUCTS = {"mm": 1, "bmm": 2}  # how many dimensions are rows of the left factor

Carried = dict[str, fx.Node]  # by the names of the arguments

# Each tuple of arguments is one in which the operator is linear, the others being held.
CARRIERS: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("add", "sub"), (("self", "other"),)),
    "mul": (("self",), ("other",)),
    **dict.fromkeys(("neg", "div", "clone", "select", "slice", "sum", *RESHAPES, *PRODUCTS), (("self",),)),
    **dict.fromkeys(("select_backward", "slice_backward", *SLOPES), (("grad_output",),)),
}


def carriers(node: fx.Node) -> list[Carried]:
    """The sets of arguments, all tensors of the result's type, in each of which this call is linear."""
    name = operator_name(node)
    given = arguments(node) if name in CARRIERS and ir.is_tensor(node) else {}
    if given.get("rounding_mode") is not None:
        return []  # a quotient that is rounded
    found: list[Any] = [{name: given.get(name) for name in names} for names in CARRIERS.get(name, ())]
    return [group for group in found if all(_is_like(node, argument) for argument in group.values())]


def _is_like(node: fx.Node, argument: Any) -> bool:
    return ir.is_tensor(argument) and ir.value(argument).dtype == ir.value(node).dtype


def rows_before(node: fx.Node, argument: fx.Node, rows: int) -> int | None:
    """How many dimensions of the argument are rows, if `rows` of the result are; None if they do not stay apart."""
    name, given = operator_name(node), arguments(node)
    before, after = ir.value(argument).shape, ir.value(node).shape
    if name in RESHAPES:
        return _kept_by_reshape(before, after, rows)
    if name in PRODUCTS:
        return rows if rows <= PRODUCTS[name] else None
    if name == "sum":
        dims = given.get("dim") or range(len(before))
        return rows if all(d % len(before) >= rows for d in dims) else None
    if "dim" in given:  # select, slice and their transposes
        return rows if given["dim"] % max(len(before), len(after)) >= rows else None
    return rows if _are_same(before, after) else None  # elementwise, and the argument is not broadcast


def _kept_by_reshape(before: Sequence[Any], after: Sequence[Any], rows: int) -> int | None:
    """As many leading dimensions as hold the same number of rows: (b·t, n) for (b, t, n)."""
    if _are_same(before[:rows], after[:rows]):
        return rows
    counts = (i for i in range(len(before) + 1) if statically_known_true(prod(before[:i]) == prod(after[:rows])))
    return next(counts, None)


def _are_same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return [*map(str, a)] == [*map(str, b)]
