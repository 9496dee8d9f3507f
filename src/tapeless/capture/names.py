"""Readable names: the user's variables and parameters instead of arg0_1 and addmm_3."""

from __future__ import annotations

import re
from typing import Any

from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.control import Branch, Loop, control_flow
from tapeless.torch_internals import Convention


def name_values(graph: fx.Graph, source: fx.Graph, convention: Convention) -> None:
    """Name inputs as Dynamo does, and the last ATen node of each Dynamo node after the user's variable."""
    arguments = ir.inputs(source)
    for placeholder in ir.inputs(graph):
        index = convention.argument_of(placeholder)
        if index is not None and index < len(arguments):
            ir.rename(placeholder, _input_name(arguments[index]))
    _name_calls(graph)
    _name_bodies(graph)


def _name_calls(graph: fx.Graph) -> None:
    last = {node.meta["custom"]["name"]: node for node in ir.calls(graph) if "name" in (node.meta.get("custom") or {})}
    for name, node in last.items():
        if node.op == "call_function":
            ir.rename(node, name)


def _name_bodies(graph: fx.Graph) -> None:
    """In the bodies of control flow: an operand has the name it has outside, a row that of what it is a row of."""
    for node, control in control_flow(graph):
        names = _body_inputs(node)
        for body in control.bodies.values():
            for name, placeholder in zip(names, ir.inputs(body), strict=True):
                ir.rename(placeholder, name)
            _name_calls(body)
            _name_bodies(body)


def _body_inputs(node: fx.Node) -> list[str]:
    if isinstance(node.target, Branch):
        return [_name(operand, "operand") for operand in node.args[1:]]
    loop = Loop.of(node)
    rows = [f"{_name(x, 'rows')}_row" for x in loop.rows]
    return ["carry"] * len(loop.carries) + rows + [_name(operand, "operand") for operand in loop.operands]


def _name(given: Any, otherwise: str) -> str:
    return given.name if isinstance(given, fx.Node) else otherwise


def _input_name(node: fx.Node) -> str:
    """`L_self_modules_fc_parameters_weight_` → `fc_weight`; `L_x_` → `x`."""
    name = str(node.target).removeprefix("L_").strip("_")
    name = re.sub(r"^\w+?_(?=(modules|parameters|buffers)_)", "", name)
    return re.sub(r"(^|_)(modules|parameters|buffers)_", "_", name).strip("_") or node.name
