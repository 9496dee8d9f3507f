"""Gradients that only the run finds to be undefined."""

from __future__ import annotations

import operator
from typing import Any

from torch import fx

from tapeless.ir.control import Scan
from tapeless.ir.opaque import AutogradVjp


def may_be_undefined(node: fx.Node) -> bool:
    """Is this what an opaque backward may leave out, or a sum over the rounds of a loop that may make none?"""
    if node.target is not operator.getitem:
        return False
    source: Any = node.args[0]
    index: Any = node.args[1]
    if isinstance(source.target, Scan):
        scan, length = source.target, source.args[0]
        return scan.carries <= index < scan.carries + scan.totals and isinstance(length, fx.Node)
    return isinstance(source.target, AutogradVjp)
