"""The memory that a program has allocated at once, found by walking it.

The walk knows what the printed text does: views share memory, some calls write into an operand, values die at their
last use.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.cost import likely_bytes, workspace
from tapeless.ir.reuse import Terms, reusable_operands
from tapeless.partition.rederive import is_view

UNRECORDED = Terms(unrecorded=True)


@dataclass(frozen=True, eq=False)
class Storage:
    """A piece of memory, in which several values may live."""

    size: int


Storages = tuple[Storage, ...]


@dataclass
class Memory:
    """The storages that are alive, and the most bytes that were."""

    alive: set[Storage] = field(default_factory=set)
    total: int = 0
    most: int = 0
    during: dict[fx.Node, int] = field(default_factory=dict)  # the bytes that are alive during a call

    def allocate(self, storages: Iterable[Storage], beside: int = 0) -> None:
        """Room for `storages`, and for as much `beside` that is given back at once."""
        for storage in storages:
            self.alive.add(storage)
            self.total += storage.size
        self.most = max(self.most, self.total + beside)

    def free(self, storages: Iterable[Storage]) -> None:
        for storage in self.alive.intersection(storages):
            self.alive.remove(storage)
            self.total -= storage.size

    def run(
        self, graph: fx.Graph, given: Sequence[Storages], held: Iterable[Storage] = (), terms: Terms = UNRECORDED
    ) -> list[Storages]:
        """Walk a program whose inputs live in the storages `given`; those of its results, which stay alive."""
        lives, made = places(graph, given, terms)
        results = [lives[r] if isinstance(r, fx.Node) else () for r in ir.outputs(graph)]
        kept = {storage for storages in results for storage in storages}.union(held)
        last = {s: node for node in graph.nodes for a in (node, *node.all_input_nodes) for s in lives.get(a, ())}
        dying: dict[fx.Node, list[Storage]] = {}
        for storage, node in last.items():
            if storage not in kept:
                dying.setdefault(node, []).append(storage)
        for node in graph.nodes:
            self.allocate(made.get(node, ()), workspace(node))
            self.during[node] = self.total + workspace(node)
            self.free(dying.get(node, ()))
        return results


def places(
    graph: fx.Graph, given: Sequence[Storages], terms: Terms
) -> tuple[dict[fx.Node, Storages], dict[fx.Node, list[Storage]]]:
    """The storages in which each value lives, and those that each call makes."""
    lives: dict[fx.Node, Storages] = dict(zip(ir.inputs(graph), given, strict=True))
    taken = reusable_operands(graph, terms)
    made: dict[fx.Node, list[Storage]] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            lives.setdefault(node, ())
        elif node.target is operator.getitem and not is_view(node):
            source, index = node.args
            lives[node] = lives[source][index : index + 1]
        elif node in taken or is_view(node):
            lives[node] = lives[taken.get(node) or node.all_input_nodes[0]]
        else:
            made[node] = [Storage(likely_bytes(part)) for part in _parts(ir.value(node))]
            lives[node] = tuple(made[node])
    return lives, made


def _parts(val: Any) -> Sequence[Any]:
    return val if isinstance(val, (tuple, list)) else [val]
