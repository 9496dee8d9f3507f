"""Gradients that only the run finds to be undefined."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.control import Scan
from tapeless.ir.opaque import AutogradVjp
from tapeless.ir.ops import accumulate, zeros_if_undefined
from tapeless.ir.symbols import Symbols

aten = torch.ops.aten


def settled(body: fx.Graph) -> fx.Graph:
    """A body of control flow gives tensors: what only the run finds to be undefined is filled in, sums are plain."""
    for node in [node for node in ir.calls(body) if may_be_undefined(node)]:
        users = [user for user in node.users if user.target is not zeros_if_undefined]
        filled = _filled(body, node)
        for user in users:
            user.replace_input_with(node, filled)
    for node in body.find_nodes(op="call_function", target=accumulate):
        node.target = aten.add.Tensor
    body.eliminate_dead_code()
    return body


def _filled(body: fx.Graph, node: fx.Node) -> fx.Node:
    val, symbols = ir.value(node), Symbols(body)
    with body.inserting_before(node.next):
        size = [symbols.node(n) if isinstance(n, torch.SymInt) else n for n in val.shape]
        filled = body.call_function(zeros_if_undefined, (node, size, val.dtype, val.device))
    filled.meta = dict(node.meta)
    return filled


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
