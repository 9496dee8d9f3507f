"""Copying graphs, whole or in part."""

from __future__ import annotations

from typing import Any

from torch import fx

from tapeless.ir import graph as ir


def copy_nodes(nodes: list[fx.Node], arguments: list[Any], results: list[Any]) -> fx.Graph:
    """A new graph with inputs `arguments`, the calls among `nodes`, and outputs `results`; dead code removed."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in arguments:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)

    def copy(node: fx.Node) -> fx.Node:
        """The node's copy; one that is derived again stands just before its first use, not where the forward had it."""
        stack = [node]
        while stack:
            missing = [a for a in stack[-1].all_input_nodes if a not in copies]
            stack.extend(missing)
            if not missing and (top := stack.pop()) not in copies:
                copies[top] = graph.node_copy(top, copies.__getitem__)
                copies[top]._rename(top.name)
        return copies[node]

    for node in nodes:
        if node.op in ("call_function", "get_attr"):
            copy(node)
    graph.output([copy(r) if isinstance(r, fx.Node) else r for r in results])
    graph.eliminate_dead_code()
    return graph


def copy_graph(graph: fx.Graph) -> fx.Graph:
    return copy_nodes(ir.calls(graph), ir.inputs(graph), ir.outputs(graph))


def prune_inputs(graph: fx.Graph) -> list[int]:
    """Remove the inputs that nobody reads; the positions of those that stay."""
    kept = []
    for position, node in enumerate(ir.inputs(graph)):
        if node.users:
            kept.append(position)
        else:
            graph.erase_node(node)
    return kept
