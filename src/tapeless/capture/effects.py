"""Effect tokens and constants: what AOTAutograd's graphs carry beyond plain calls, turned into plain calls."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.ir import graph as ir


def remove_tokens(graph: fx.Graph, tokens: int) -> None:
    """Order effects by position instead of by tokens threaded through inputs, `with_effects` calls and outputs."""
    for node in graph.find_nodes(op="call_function", target=torch_internals.with_effects):
        _replace_by_plain_call(graph, node)
    if tokens:
        graph.output_node().args = (ir.outputs(graph)[tokens:],)
        for token in ir.inputs(graph)[:tokens]:
            graph.erase_node(token)


def _replace_by_plain_call(graph: fx.Graph, node: fx.Node) -> None:
    token, op, *args = node.args
    fx.node.has_side_effect(op)  # type: ignore[arg-type]  # from now on dead code removal leaves such calls alone
    with graph.inserting_before(node):
        call = graph.call_function(op, tuple(args), node.kwargs)  # type: ignore[arg-type]
    call.meta = dict(node.meta)
    results = ir.value(node)[1:] if ir.value(node) is not None else ()
    ir.set_value(call, results[0] if len(results) == 1 else tuple(results))
    for item in list(node.users):
        index: Any = item.args[1]
        if index == 0:
            item.replace_all_uses_with(token)  # type: ignore[arg-type]
        elif len(results) == 1:
            item.replace_all_uses_with(call)
        else:
            with graph.inserting_before(item):
                element = graph.call_function(operator.getitem, (call, index - 1))
            element.meta = dict(item.meta)
            item.replace_all_uses_with(element)
        graph.erase_node(item)
    graph.erase_node(node)


def keep_constants(graph: fx.Graph, module: torch.nn.Module) -> None:
    """Tensors that the program closes over stay with the nodes that read them."""
    for node in graph.find_nodes(op="get_attr"):
        constant = getattr(module, str(node.target), None)
        if isinstance(constant, torch.Tensor):
            ir.set_constant(node, constant)
