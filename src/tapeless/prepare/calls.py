"""A call as its schema names it."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless.ir import graph as ir
from tapeless.ir import kernels

# Whose operators are known to compute and nothing else.
NAMESPACES = (
    "aten",
    "prims",
    "quantized_decomposed",
    kernels.NAMESPACE,
)


def operator_name(node: Any) -> str:
    """The name of a call's operator without its overload; "" for what is no such call."""
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return ""
    if node.target is operator.getitem:
        return "getitem"
    target: Any = node.target
    known = isinstance(target, OpOverload) and target.namespace in NAMESPACES
    return target._overloadpacket.__name__ if known else ""


def arguments(node: fx.Node) -> dict[str, Any]:
    """All arguments of a call by the names of its schema, defaults filled in."""
    if not isinstance(node.target, OpOverload):
        return dict(enumerate(node.args))  # type: ignore[arg-type]
    names, defaults = schema(node.target)
    return {**defaults, **dict(zip(names, node.args, strict=False)), **node.kwargs}


@cache
def schema(overload: OpOverload) -> tuple[tuple[str, ...], dict[str, Any]]:
    given = overload._schema.arguments
    return tuple(a.name for a in given), {a.name: a.default_value for a in given if a.has_default_value()}


FILLED = {"ones": 1, "zeros": 0, "new_ones": 1, "new_zeros": 0, "ones_like": 1, "zeros_like": 0}
FILLS = {"full": "fill_value", "full_like": "fill_value", "new_full": "fill_value", "scalar_tensor": "s"}
KEEP = (
    "view",
    "_unsafe_view",
    "expand",
    "unsqueeze",
    "squeeze",
    "permute",
    "transpose",
    "t",
    "clone",
    "_to_copy",
    "slice",
)


def number(value: Any) -> int | float | bool | None:
    """The Python number that an argument is, or that every element of it is."""
    if isinstance(value, (int, float)):
        return value
    while operator_name(value) in KEEP:
        source = value.args[0]
        if isinstance(source, (int, float)):  # operators take numbers for tensors
            return _as_stored(source, ir.value(value))
        if ir.value(value).dtype != ir.value(source).dtype:
            return None
        value = source
    name = operator_name(value)
    found = FILLED.get(name, arguments(value).get(FILLS[name]) if name in FILLS else None)
    return _as_stored(found, ir.value(value)) if isinstance(found, (int, float)) else None


def _as_stored(found: int | float, val: torch.Tensor) -> int | float | bool | None:
    """The number as the tensor's dtype holds it."""
    if val.dtype is torch.bool:
        return bool(found)
    if not val.is_floating_point():
        return int(found) if not val.is_complex() and found == int(found) else None
    return float(found) if val.dtype is torch.float64 or float(found) in (0.0, 1.0, -1.0) else None
