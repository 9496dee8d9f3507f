"""What calls cost, roughly: one figure that decides between two ways to compute the same value.

Nanoseconds on one core of a common server: arithmetic, memory traffic, and the call itself. Only ratios matter, and
only roughly; each figure was taken from `torch.utils.benchmark` on float32.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

from torch import fx

from tapeless.ir import cost
from tapeless.ir import graph as ir
from tapeless.prepare.facts import is_view
from tapeless.torch_internals import without_modes

FLOPS_PER_NS = 40.0
BYTES_PER_NS = 8.0
CALL, VIEW, ITEM = 2000.0, 800.0, 50.0  # launching a kernel, making a view, taking an element of a tuple


def time(nodes: Iterable[fx.Node]) -> float:
    """Estimated nanoseconds."""
    with without_modes():  # the formulas look at tensors of their own
        return sum(map(_time, nodes))


def _time(node: fx.Node) -> float:
    if node.op != "call_function":
        return 0.0
    if node.target is operator.getitem:
        return ITEM
    if is_view(node):
        return VIEW
    moved = sum(cost.likely_bytes(ir.value(value)) for value in (node, *node.all_input_nodes))
    return CALL + cost.flops([node]) / FLOPS_PER_NS + moved / BYTES_PER_NS
