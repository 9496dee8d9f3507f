"""A step within a bound on its memory: what to compute again, chosen from a family of plans by simulation.

Each plan cuts the forward into some number of segments, keeps what crosses between them, and within the segments saves
what is worth its bytes at some price of time (`cut`). The family does not depend on the bound. The cheapest plan whose
simulated peak keeps the bound is taken; therefore a smaller bound never has a larger peak.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import fx

from tapeless.differentiate.reverse import Joint
from tapeless.ir import graph as ir
from tapeless.ir.cost import likely_bytes, seconds
from tapeless.partition.cut import Values
from tapeless.partition.dropout import write_out_dropouts
from tapeless.partition.peak import peak
from tapeless.partition.segments import Segments
from tapeless.partition.split import Split, again_of_fast, derived_again, divide, needed, read_copy, related, split

Memory = str | int | float  # "fast", "small", a fraction of the peak of "fast" up to 1, or bytes

# What a second of computing again is worth, in bytes: elementwise work pays from 1e9 on, products from 1e8.
CHEAP = (1e10, 3e9, 1e9)
PRICES = (1e8, 1e6)
SEGMENTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48)
SMALL = 2**16  # bytes of an input that is overwritten, up to which it may be saved as a copy
SLACK = 1.01  # "small" takes a plan this close to the smallest peak if it costs less time


@dataclass(frozen=True, eq=False)
class Plan:
    """What is computed again, what that costs in time, and what the step then needs of memory."""

    family: Family
    again: frozenset[fx.Node]
    seconds: float

    @cached_property
    def peak(self) -> int:
        return peak(self.family.split(self.again)).most


def partition(joint: Joint, mutated: Sequence[int] = (), memory: Memory = "fast") -> Split:
    """Forward and backward with what is saved chosen for `memory`."""
    if memory == "fast":
        return split(joint, mutated)
    for node in joint.graph.nodes:
        ir.set_again(node, None)  # a backward that is differentiated in its turn has been planned as one
    write_out_dropouts(joint, lambda result: True)
    _copy_small_inputs(joint, mutated)
    family = Family(joint, mutated)
    chosen = family.choose(memory)
    for node in family.nodes:
        ir.set_again(node, node in chosen.again or node in family.free)
    return family.split(chosen.again)


def _copy_small_inputs(joint: Joint, mutated: Sequence[int]) -> None:
    """Running statistics and the like are overwritten: with copies of them, what reads them can be computed again."""
    for node in (joint.inputs[i] for i in mutated):
        if node.users and likely_bytes(ir.value(node)) <= SMALL:
            read_copy(joint, node, list(node.users))


class Family:
    """The plans for one joint graph."""

    def __init__(self, joint: Joint, mutated: Sequence[int]) -> None:
        self.joint, self.relations = joint, related(joint)
        self.free = derived_again(joint, mutated)
        self.nodes = [n for n in joint.graph.nodes if n not in joint.backward and n.op == "call_function"]
        overwritten = {joint.inputs[i] for i in mutated}
        self.fixed = {node for node in self.nodes if overwritten.intersection(node.all_input_nodes)}
        self.fast = self.plan(frozenset(again_of_fast(joint, self.free, mutated)))

    def split(self, again: frozenset[fx.Node]) -> Split:
        return divide(self.joint, again | self.free, self.relations)

    def choose(self, memory: Memory) -> Plan:
        """The cheapest plan that keeps the bound; where none does, the smallest, with a warning."""
        plans = self.plans()
        if isinstance(memory, str):
            bound = SLACK * min(plan.peak for plan in plans)
        else:
            bound = memory if memory > 1 else memory * self.fast.peak
        fitting = _cheapest(plans, bound)
        if fitting is None:
            fitting = min(plans, key=lambda plan: plan.peak)
            _warn(bound, fitting.peak, self.fast.peak)
        return fitting

    def plans(self) -> list[Plan]:
        """The family, the cheapest first, which computes nothing again that costs time."""
        choices = dict.fromkeys([frozenset[fx.Node](), *self._choices()])
        others = (self.plan(again) for again in choices if again != self.fast.again)
        return sorted([self.fast, *others], key=lambda plan: plan.seconds)

    def plan(self, again: frozenset[fx.Node]) -> Plan:
        return Plan(self, again, sum(map(seconds, again)))

    def _choices(self) -> Iterator[frozenset[fx.Node]]:
        saved = needed(self.joint, self.free)[1]
        values = Values(self.nodes, self.free, set(self.joint.outputs), saved)
        segments = Segments(self.nodes, saved)
        for cuts in dict.fromkeys(tuple(segments.cuts(count)) for count in SEGMENTS):
            kept = self.fixed.union(*(place.crossing for place in cuts))
            after = set(self.nodes[cuts[-1].position + 1 :]) if cuts else set[fx.Node]()
            for price in PRICES if cuts else CHEAP:
                for fixed in (kept, kept | after) if after else (kept,):
                    yield self._needed_of(values.again(price, fixed))

    def _needed_of(self, again: set[fx.Node]) -> frozenset[fx.Node]:
        """What of `again` is needed, beside what is computed again in any case."""
        backward = needed(self.joint, again)[0]
        return frozenset(node for node in backward if node not in self.joint.backward and node not in self.free)


def _cheapest(plans: Sequence[Plan], bound: float) -> Plan | None:
    return next((plan for plan in plans if plan.peak <= bound), None)


def _warn(bound: float, smallest: int, fast: int) -> None:
    warnings.warn(
        f"no way is known to run this step within {bound:,.0f} bytes, gradients included: it takes {smallest:,}, "
        f"or {fast:,} if nothing is computed again that costs time",
        stacklevel=2,
    )
