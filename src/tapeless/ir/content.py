"""A graph as text that says all there is to know about it: two graphs with the same content compute the same.

The printer (`text`) writes for readers and leaves out what they do not ask for: strides, devices, where a gradient was
cut. What is kept for later is found again by what stands here.
"""

from __future__ import annotations

import builtins
import enum
import sys
from functools import cache, reduce
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import _get_qualified_name

from tapeless.ir import graph as ir

# What a node says besides its call, as far as the compiler reads it.
FACTS = ("stack_trace", "custom", "recompute", "again", "ac_graph_id", "total_of", "origin", "region")
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class Indescribable(Exception):
    """Text cannot say what this is: a constant tensor, a symbolic size, a function of the user's own."""


def content(graph: fx.Graph) -> str:
    """Every node with its arguments, its type and what is known about it."""
    return "\n".join(map(_line, graph.nodes))


def _line(node: fx.Node) -> str:
    called = node.target if isinstance(node.target, str) else _target(node.target)
    if node.op not in ("placeholder", "call_function", "call_method", "output"):
        raise Indescribable(f"{node.op} {called}")
    facts = [f"{key}={describe(node.meta[key])}" for key in FACTS if node.meta.get(key) is not None]
    parts = [node.op, node.name, called, describe(node.args), describe(node.kwargs), describe(ir.value(node)), *facts]
    return " ".join(parts)


@cache
def _target(target: Any) -> str:
    """The name by which a function is found, and only it."""
    if isinstance(target, OpOverload):
        return str(target)
    try:
        name = _get_qualified_name(target)
    except (AttributeError, RuntimeError) as problem:
        raise Indescribable(repr(target)) from problem
    if _named(name) is not target:
        raise Indescribable(repr(target))
    return name


def _named(name: str) -> Any:
    """What is found under this name, if anything."""
    root, *rest = name.split(".")
    try:
        return reduce(getattr, rest, sys.modules[root]) if rest else getattr(builtins, root)
    except (AttributeError, KeyError):
        return None


def describe(value: Any) -> str:
    """A value as text; nodes by their names, tensors by their types."""
    if isinstance(value, fx.Node):
        return f"%{value.name}"
    if type(value) in PLAIN or type(value) in TORCH:
        return repr(value)
    if isinstance(value, torch.Tensor):
        return tensor_type(value)
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(describe, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{describe(key)}: {describe(item)}' for key, item in value.items())}}}"
    if isinstance(value, slice):
        return f"slice{describe([value.start, value.stop, value.step])}"
    if isinstance(value, (enum.Enum, ir.Region, ir.Origin)):
        return repr(value)
    raise Indescribable(repr(value))


def tensor_type(tensor: torch.Tensor) -> str:
    """Element type, sizes, strides, device: all that is known of a tensor before it has contents."""
    numbers = (*tensor.shape, *tensor.stride()) if tensor.layout is torch.strided else (None,)
    if not all(type(n) is int for n in (*numbers, tensor.storage_offset())):
        raise Indescribable("a tensor of symbolic size, or one without strides")
    lazy = f" conj={tensor.is_conj()} neg={tensor.is_neg()}" if tensor.is_conj() or tensor.is_neg() else ""
    return f"{tensor.dtype}{[*tensor.shape]}{[*tensor.stride()]}+{tensor.storage_offset()} {tensor.device}{lazy}"


def is_torchs_own(graph: fx.Graph) -> bool:
    """Is every function of the graph one of Python's or of torch's, which change with their version alone?"""
    return all(_is_torchs(node.target) for node in graph.nodes if node.op == "call_function")


def _is_torchs(target: Any) -> bool:
    if isinstance(target, OpOverload):
        return target.namespace in ("aten", "prims", "tapeless")
    name = _target(target)
    return "." not in name or name.partition(".")[0] in ("torch", "_operator", "math", "tapeless")
