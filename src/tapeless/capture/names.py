"""Readable names: the user's variables and parameters instead of arg0_1 and addmm_3."""

from __future__ import annotations

import re

from torch import fx

from tapeless.ir import graph as ir
from tapeless.torch_internals import Convention


def name_values(graph: fx.Graph, source: fx.Graph, convention: Convention) -> None:
    """Name inputs as Dynamo does, and the last ATen node of each Dynamo node after the user's variable."""
    arguments = ir.inputs(source)
    for placeholder in ir.inputs(graph):
        index = convention.argument_of(placeholder)
        if index is not None and index < len(arguments):
            ir.rename(placeholder, _input_name(arguments[index]))
    last = {node.meta["custom"]["name"]: node for node in ir.calls(graph) if "name" in (node.meta.get("custom") or {})}
    for name, node in last.items():
        ir.rename(node, name)


def _input_name(node: fx.Node) -> str:
    """`L_self_modules_fc_parameters_weight_` → `fc_weight`; `L_x_` → `x`."""
    name = str(node.target).removeprefix("L_").strip("_")
    name = re.sub(r"^\w+?_(?=(modules|parameters|buffers)_)", "", name)
    return re.sub(r"(^|_)(modules|parameters|buffers)_", "_", name).strip("_") or node.name
