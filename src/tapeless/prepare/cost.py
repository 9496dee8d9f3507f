"""What a call costs, roughly: one figure that decides between two ways to compute the same value.

Nanoseconds on one core of a common server: arithmetic, memory traffic, and the call itself. Only ratios matter, and
only roughly; each figure was taken from `torch.utils.benchmark` on float32.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare.calls import arguments, operator_name
from tapeless.prepare.facts import is_view

FLOPS_PER_NS = 40.0
BYTES_PER_NS = 8.0
CALL, VIEW, ITEM = 2000.0, 800.0, 50.0  # launching a kernel, making a view, taking an element of a tuple


def time(nodes: Iterable[fx.Node]) -> float:
    """Estimated nanoseconds."""
    return sum(map(_time, nodes))


def _time(node: fx.Node) -> float:
    if node.op != "call_function":
        return 0.0
    if node.target is operator.getitem:
        return ITEM
    if is_view(node):
        return VIEW
    return CALL + flops(node) / FLOPS_PER_NS + moved(node) / BYTES_PER_NS


def flops(node: fx.Node) -> float:
    """Multiplications and additions of products; 0 for everything else, which memory traffic bounds."""
    name, given = operator_name(node), arguments(node)
    if name in ("mm", "bmm"):
        return 2.0 * count(node) * shape(given["self"])[-1]
    if name in ("addmm", "baddbmm"):
        return 2.0 * count(node) * shape(given["mat1" if name == "addmm" else "batch1"])[-1]
    if name == "convolution":
        weight = shape(given["weight"])
        pixels = count(given["input"]) // max(shape(given["input"])[1], 1) if given["transposed"] else count(node)
        channels = math.prod(weight) if given["transposed"] else math.prod(weight[1:])
        return 2.0 * pixels * channels
    return 0.0


def moved(node: fx.Node) -> float:
    """Bytes read and written."""
    return size(node) + sum(map(size, node.all_input_nodes))


def size(node: fx.Node) -> float:
    """Bytes of a value."""
    val = ir.value(node)
    parts = val if isinstance(val, (tuple, list)) else (val,)
    return sum(_number(v.numel()) * v.element_size() for v in parts if isinstance(v, torch.Tensor))


def count(node: fx.Node) -> int:
    return math.prod(shape(node))


def shape(node: Any) -> list[int]:
    return [_number(n) for n in ir.value(node).shape]


def _number(n: Any) -> int:
    """A size; for one that is symbolic, what the example had (asking for the value itself would be a guard)."""
    if not isinstance(n, torch.SymInt):
        return int(n)
    return int(n.node.hint) if n.node.has_hint() else 64
