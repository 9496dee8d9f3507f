"""What to save and what to compute again, at a given price of time: a minimum cut.

Each forward value that the backward needs is saved, which costs its bytes, or computed again, which costs its time and
needs its operands in turn. The cheapest choice for all values together is a minimum cut: two nodes for each value,
"there" and "again", on the side of the source where they hold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import networkx
from torch import fx
from torch._ops import OpOverload

from tapeless.ir import graph as ir
from tapeless.ir.cost import likely_bytes, seconds
from tapeless.partition.rederive import draws_numbers

SOURCE, SINK = "source", "sink"
NUMBER = 8  # bytes: sizes are saved, never computed again

UNWRITTEN = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")


@dataclass(frozen=True)
class Values:
    """The values of a forward, and what it costs to have them in the backward."""

    nodes: list[fx.Node]
    free: Collection[fx.Node]  # computed again in any case
    alive: Collection[fx.Node]  # kept by somebody else: outputs
    needed: Collection[fx.Node]  # what the reverse part reads
    time: Callable[[fx.Node], float] = field(default_factory=lambda: cache(seconds))

    def again(self, price: float, fixed: Collection[fx.Node]) -> set[fx.Node]:
        """What is computed again if a second costs as much as `price` bytes; nothing that is `fixed`."""
        graph = networkx.DiGraph()
        for node in self._reached():
            self._add(graph, node, price, node in self.free or (node not in fixed and is_repeatable(node)))
        if SOURCE not in graph:
            return set(self.free)
        _, (there, _) = networkx.minimum_cut(graph, SOURCE, SINK, flow_func=networkx.flow.boykov_kolmogorov)
        return {node for node in self.nodes if node in self.free or (node, "again") in there}

    def _reached(self) -> list[fx.Node]:
        """What the backward may come to need, as operands of what it computes again."""
        found: set[fx.Node] = set()
        stack = list(self.needed)
        while stack:
            node = stack.pop()
            if node not in found and node.op == "call_function":
                found.add(node)
                stack.extend(node.all_input_nodes)
        return [node for node in self.nodes if node in found]

    def _add(self, graph: networkx.DiGraph[Any], node: fx.Node, price: float, repeatable: bool) -> None:
        there, again = (node, "there"), (node, "again") if repeatable else SINK
        if node in self.needed:
            graph.add_edge(SOURCE, there)  # no capacity: may not be cut
        if node in self.free or isinstance(ir.value(node), (tuple, list)):
            graph.add_edge(there, again)
        else:
            graph.add_edge(there, again, capacity=self._bytes(node))
        if repeatable:
            graph.add_edge(again, SINK, capacity=0.0 if node in self.free else price * self.time(node))
            for operand in node.all_input_nodes:
                if operand.op == "call_function":
                    graph.add_edge(again, (operand, "there"))

    def _bytes(self, node: fx.Node) -> float:
        if node in self.alive:
            return 0.0
        return likely_bytes(ir.value(node)) if ir.is_tensor(node) else NUMBER


def is_repeatable(node: fx.Node) -> bool:
    """Does the call, made once more, give the same tensor? Not what is random, or written by others than us."""
    if node.target is operator.getitem:
        return not draws_numbers(node)
    if not isinstance(node.target, OpOverload):
        return False
    if node.target.namespace != "aten" or node.target._schema.is_mutable or draws_numbers(node):
        return False
    if node.target.overloadpacket.__name__ in UNWRITTEN or _must_be_saved(node):
        return False
    return ir.is_tensor(node) or isinstance(ir.value(node), (tuple, list))


def _must_be_saved(node: fx.Node) -> bool:
    mark = node.meta.get("recompute")
    return mark is not None and mark.name in ("MUST_SAVE", "PREFER_SAVE")
