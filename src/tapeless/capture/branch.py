"""`torch.cond` in a traced graph: the two traced bodies become the target of one node."""

from __future__ import annotations

from typing import Any, cast

from torch import fx

from tapeless import torch_internals
from tapeless.capture.effects import keep_constants
from tapeless.ir import graph as ir
from tapeless.ir.branch import Branch


def resolve_branches(graph: fx.Graph, module: fx.GraphModule) -> None:
    """Replace calls of `cond` by `Branch` nodes, inside the bodies too."""
    for node in graph.find_nodes(op="call_function", target=torch_internals.cond):
        predicate, true, false, operands = cast(tuple[Any, Any, Any, Any], node.args)
        node.target = Branch(_body(module, true), _body(module, false))
        node.args = (predicate, *operands)
    graph.eliminate_dead_code()


def _body(module: fx.GraphModule, side: Any) -> fx.Graph:
    body = getattr(module, str(side.target))
    keep_constants(body.graph, body)
    for node in body.graph.find_nodes(op="get_attr"):
        ir.rename(node, f"{side.target}_{node.name}")  # the text keeps all constants in one place
    resolve_branches(body.graph, body)
    return body.graph
