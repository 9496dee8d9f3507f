"""A backward in the order in which it needs least memory.

The gradient of a weight stays until the end, while what it was computed from is freed: computed at once it may come at
the worst moment, later at none. Calls that lead to a single result wait until there is room for them below a bound;
everything else keeps its order. Some bounds are tried, each in one walk, and the best order is taken if an exact walk
finds that it is worth it. The calls are the same, and so are their numbers.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless.ir import graph as ir
from tapeless.ir.cost import likely_bytes, workspace
from tapeless.ir.reuse import Terms
from tapeless.partition.storages import Memory, Storage, Storages, places

SMALL = 2**20  # bytes: below that, no order is looked for
WORTH = 0.999  # of the peak as it is: what a better order has at most
BOUNDS = 8  # that are tried
NOTICED = 0.02  # of the peak: what a call takes for a moment, and no product is made slower for less
AHEAD = 32  # calls that wait, of which one is looked for that fits


def with_lower_peak(graph: fx.Graph, temporaries: Collection[int], terms: Terms) -> fx.Graph:
    """Reorder `graph`, in place. Its inputs at `temporaries` are freed when they have been read.

    Those are cotangents, and what was saved for it alone.
    """
    given = _given(graph, temporaries)
    before, most = ir.calls(graph), _peak(graph, given, terms)
    waiting = _deferrable(graph)
    if most < SMALL or not waiting or any(_is_random(node) for node in before):
        return graph
    order = _Walk.of(graph, given, terms, waiting).best(most)
    _arrange(graph, order)
    if _peak(graph, given, terms) > WORTH * most:
        _arrange(graph, before)
    return graph


def at_the_peak(graph: fx.Graph, temporaries: Collection[int], terms: Terms, room: int) -> set[fx.Node]:
    """The calls during which there is less room than that below the peak, if it takes so much to notice.

    Otherwise as `with_lower_peak`.
    """
    memory = _walked(graph, _given(graph, temporaries), terms)
    if room < NOTICED * memory.most:
        return set()
    return {node for node, total in memory.during.items() if total + room > memory.most}


def _given(graph: fx.Graph, temporaries: Collection[int]) -> list[Storages]:
    return [
        (Storage(likely_bytes(ir.value(node))),) if k in temporaries else () for k, node in enumerate(ir.inputs(graph))
    ]


def _peak(graph: fx.Graph, given: Sequence[Storages], terms: Terms) -> int:
    return _walked(graph, given, terms).most


def _walked(graph: fx.Graph, given: Sequence[Storages], terms: Terms) -> Memory:
    memory = Memory()
    memory.allocate(storage for storages in given for storage in storages)
    memory.run(graph, given, (), terms)
    return memory


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _arrange(graph: fx.Graph, order: Sequence[fx.Node]) -> None:
    end = graph.output_node()
    for node in order:
        end.prepend(node)


def _deferrable(graph: fx.Graph) -> set[fx.Node]:
    """Calls of torch's own operators that lead, through such calls only, to a single result."""
    end = graph.output_node()
    leads_to: dict[fx.Node, fx.Node | None] = {}
    for node in reversed(ir.calls(graph)):
        ways = {node if user is end else leads_to.get(user) for user in node.users}
        is_plain = node.target is operator.getitem or isinstance(node.target, OpOverload)
        leads_to[node] = ways.pop() if len(ways) == 1 and is_plain else None
    return {node for node, result in leads_to.items() if result is not None}


@dataclass
class _Walk:
    """A graph that is walked in one order after the other."""

    calls: list[fx.Node]
    deferrable: set[fx.Node]
    reads: dict[fx.Node, set[Storage]]
    operands: dict[fx.Node, list[fx.Node]]  # the calls among them
    made: dict[fx.Node, int]  # bytes
    during: dict[fx.Node, int]  # bytes besides, while it runs
    start: int  # bytes alive when it begins
    kept: set[Storage]  # until its end
    readers: Counter[Storage] = field(default_factory=Counter)

    @classmethod
    def of(cls, graph: fx.Graph, given: Sequence[Storages], terms: Terms, deferrable: set[fx.Node]) -> _Walk:
        lives, made = places(graph, given, terms)
        calls = ir.calls(graph)
        reads = {node: {s for a in (node, *node.all_input_nodes) for s in lives[a]} for node in calls}
        kept = {s for r in ir.outputs(graph) if isinstance(r, fx.Node) for s in lives[r]}
        start = sum(storage.size for storages in given for storage in storages)
        readers = Counter(storage for storages in reads.values() for storage in storages)
        operands = {node: [a for a in node.all_input_nodes if a.op == "call_function"] for node in calls}
        sizes = {node: sum(storage.size for storage in made.get(node, ())) for node in calls}
        during = {node: workspace(node) for node in calls}
        return cls(calls, deferrable, reads, operands, sizes, during, start, kept, readers)

    def best(self, most: int) -> list[fx.Node]:
        """The order with the lowest peak among those for some bounds between what is there anyway and `most`."""
        bounds = (self.start + (most - self.start) * k // BOUNDS for k in range(BOUNDS))
        found = [(self.calls, most), *(_Attempt(self, bound).run() for bound in bounds)]
        return min(found, key=lambda each: each[1])[0]


class _Attempt:
    """One walk: what may wait runs as soon as it fits below the bound."""

    def __init__(self, walk: _Walk, bound: int) -> None:
        self.walk, self.bound = walk, bound
        self.total = self.most = walk.start
        self.left = Counter(walk.readers)
        self.done: dict[fx.Node, None] = {}
        self.waiting: list[fx.Node] = []

    def run(self) -> tuple[list[fx.Node], int]:
        """The order, and the most bytes that are alive in it."""
        for node in self.walk.calls:
            if node in self.walk.deferrable:
                self.waiting.append(node)
                self._catch_up()
            else:
                self._call(node)
                self._catch_up()
        while self.waiting:
            self._call(self.waiting.pop(0))
            self._catch_up()
        return list(self.done), self.most

    def _catch_up(self) -> None:
        while (node := next(filter(self._fits, self.waiting[:AHEAD]), None)) is not None:
            self.waiting.remove(node)
            self._call(node)

    def _fits(self, node: fx.Node) -> bool:
        return self._then(node) <= self.bound and all(a in self.done for a in self.walk.operands[node])

    def _then(self, node: fx.Node) -> int:
        """The bytes that are alive while it runs."""
        return self.total + self.walk.made[node] + self.walk.during[node]

    def _call(self, node: fx.Node) -> None:
        self.done[node] = None
        self.most = max(self.most, self._then(node))
        self.total += self.walk.made[node]
        for storage in self.walk.reads[node]:
            self.left[storage] -= 1
            if not self.left[storage] and storage not in self.walk.kept:
                self.total -= storage.size
