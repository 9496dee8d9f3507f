"""What calls cost together: one figure that decides between two ways to compute the same value."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from torch import fx

from tapeless.ir.cost import CALL, seconds
from tapeless.prepare.facts import is_view
from tapeless.torch_internals import without_modes

VIEW, ITEM = CALL / 2.5, CALL / 40  # making a view, taking an element of a tuple: nothing is computed or moved


def time(nodes: Iterable[fx.Node]) -> float:
    """Estimated nanoseconds."""
    with without_modes():  # the formulas look at tensors of their own
        return sum(map(_seconds, nodes)) * 1e9


def _seconds(node: fx.Node) -> float:
    if node.op != "call_function":
        return 0.0
    if node.target is operator.getitem:
        return ITEM
    return VIEW if is_view(node) else seconds(node)
