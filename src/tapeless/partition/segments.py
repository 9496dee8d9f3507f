"""Where a forward is narrow: places that few bytes cross, at which it can be cut into segments.

A backward that computes a whole segment again needs what entered it, and has all of the segment alive at once. So the
segments should be alike in what they would save, and end where little has to be kept: between two layers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.cost import likely_bytes
from tapeless.partition.rederive import is_view


@dataclass(frozen=True)
class Place:
    """A place in the forward, after its call number `position`: what is computed before it and read after it."""

    position: int
    crossing: frozenset[fx.Node]
    size: int


class Segments:
    """The ways to cut a forward."""

    def __init__(self, nodes: Sequence[fx.Node], saved: Collection[fx.Node]) -> None:
        self.order = {node: i for i, node in enumerate(nodes)}
        self.places = _places(nodes)
        sizes = [likely_bytes(ir.value(node)) if node in saved else 0 for node in nodes]
        self.before = list(accumulate(sizes))  # what is saved up to each call

    def cuts(self, count: int) -> list[Place]:
        """The places that divide the forward into `count` segments, or fewer."""
        total = self.before[-1] if self.before else 0
        found: list[Place] = []
        for k in range(1, count):
            low, high = (total * (2 * k + side) / (2 * count) for side in (-1, 1))
            window = [place for place in self.places if low <= self.before[place.position] <= high]
            if window:
                found.append(min(window, key=lambda place: (place.size, place.position)))
        return list(dict.fromkeys(found))


def _places(nodes: Sequence[fx.Node]) -> list[Place]:
    last = {root: i for i, node in enumerate(nodes) for a in node.all_input_nodes if (root := _root(a))}
    alive: dict[fx.Node, int] = {}
    found: list[Place] = []
    for i, node in enumerate(nodes):
        if _root(node) is node:
            alive[node] = likely_bytes(ir.value(node))
        for dead in [root for root in alive if last.get(root, 0) <= i]:
            del alive[dead]
        found.append(Place(i, frozenset(alive), sum(alive.values())))
    return found


def _root(node: fx.Node) -> fx.Node | None:
    """The value whose memory a view shows; None if that is an input."""
    while is_view(node):
        node = node.all_input_nodes[0]
    return node if node.op == "call_function" else None
