"""Calls in an order in which each stands behind what it reads."""

from __future__ import annotations

from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare import facts


def sort_calls(graph: fx.Graph) -> None:
    """Move calls that stand before one of their arguments; random numbers and effects keep their order."""
    last: fx.Node | None = None
    missing: dict[fx.Node, set[fx.Node]] = {}
    readers: dict[fx.Node, list[fx.Node]] = {}
    for node in ir.calls(graph):
        needs = set(node.all_input_nodes)
        if node.op == "call_function" and not facts.is_pure(node):
            needs |= {last} if last is not None else set()
            last = node
        missing[node] = {a for a in needs if a.op in ("call_function", "get_attr")}
        for argument in missing[node]:
            readers.setdefault(argument, []).append(node)
    placed: list[fx.Node] = []
    for node in ir.calls(graph):
        ready = [node] if not missing[node] else []
        while ready:
            current = ready.pop(0)
            placed.append(current)
            for reader in readers.get(current, ()):
                missing[reader].discard(current)
                if not missing[reader] and reader < node:
                    ready.append(reader)  # its turn is over: it was waiting
    end = graph.output_node()
    for node in placed:
        end.prepend(node)
