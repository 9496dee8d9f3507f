"""A step within a bound on its memory: what to compute again, chosen from a family of plans by simulation.

Each plan cuts the forward into some number of segments, keeps what crosses between them, and within the segments saves
what is worth its bytes at some price of time (`cut`). The family does not depend on the bound. The cheapest plan whose
simulated peak keeps the bound is taken; therefore a smaller bound never has a larger peak.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import fx

from tapeless.differentiate.reverse import Joint
from tapeless.ir import graph as ir
from tapeless.ir.cost import likely_bytes, seconds
from tapeless.partition.cut import Values
from tapeless.partition.peak import peak
from tapeless.partition.segments import Segments
from tapeless.partition.split import Split, derived_again, divide, needed, read_copy, split

Memory = str | int | float  # "fast", "small", a fraction of the peak of "fast" up to 1, or bytes

PRICES = (1e10, 3e9, 1e9, 3e8, 1e8, 1e6)  # bytes per second of computing again: from almost nothing to almost all
SEGMENTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
SMALL = 2**16  # bytes of an input that is overwritten, up to which it may be saved as a copy
SLACK = 1.01  # "small" takes a plan this close to the smallest peak if it costs less time


@dataclass(frozen=True)
class Plan:
    """A way to divide the work, what it costs in time and what it needs of memory."""

    again: frozenset[fx.Node]
    seconds: float
    peak: int


def partition(joint: Joint, mutated: Sequence[int] = (), memory: Memory = "fast") -> Split:
    """Forward and backward with what is saved chosen for `memory`."""
    if memory == "fast":
        return split(joint, mutated)
    _copy_small_inputs(joint, mutated)
    free = derived_again(joint, mutated)
    chosen = _choose(list(_plans(joint, mutated, free)), memory)
    for node in chosen.again:
        ir.set_again(node)
    return divide(joint, chosen.again | free)


def _copy_small_inputs(joint: Joint, mutated: Sequence[int]) -> None:
    """Running statistics and the like are overwritten: with copies of them, what reads them can be computed again."""
    for node in (joint.inputs[i] for i in mutated):
        if node.users and likely_bytes(ir.value(node)) <= SMALL:
            read_copy(joint, node, list(node.users))


def _plans(joint: Joint, mutated: Sequence[int], free: set[fx.Node]) -> Iterator[Plan]:
    """The family, each plan once; the first computes nothing again that costs time."""
    yield _plan(joint, free, frozenset())
    seen = {frozenset[fx.Node]()}
    for again in _choices(joint, mutated, free):
        if again not in seen:
            seen.add(again)
            yield _plan(joint, free, again)


def _choices(joint: Joint, mutated: Sequence[int], free: set[fx.Node]) -> Iterator[frozenset[fx.Node]]:
    nodes = [node for node in joint.graph.nodes if node not in joint.backward and node.op == "call_function"]
    saved = needed(joint, free)[1]
    values = Values(nodes, free, set(joint.outputs), saved)
    segments = Segments(nodes, saved)
    overwritten = {joint.inputs[i] for i in mutated}
    fixed = {node for node in nodes if overwritten.intersection(node.all_input_nodes)}
    for cuts in dict.fromkeys(tuple(segments.cuts(count)) for count in SEGMENTS):
        kept = fixed.union(*(place.crossing for place in cuts))
        for price in PRICES:
            again = values.again(price, lambda node, kept=kept: node not in kept)
            backward = needed(joint, again)[0]
            yield frozenset(node for node in backward if node not in joint.backward and node not in free)


def _plan(joint: Joint, free: set[fx.Node], again: frozenset[fx.Node]) -> Plan:
    return Plan(again, sum(map(seconds, again)), peak(divide(joint, again | free)).most)


def _choose(plans: Sequence[Plan], memory: Memory) -> Plan:
    smallest = min(plan.peak for plan in plans)
    bound = SLACK * smallest if isinstance(memory, str) else memory if memory > 1 else memory * plans[0].peak
    fitting = [plan for plan in plans if plan.peak <= max(bound, smallest)]
    if bound < smallest:
        warnings.warn(
            f"a step within {bound:,.0f} bytes is not known here: it takes {smallest:,} (with all saved "
            f"{plans[0].peak:,}), gradients included",
            stacklevel=2,
        )
    return min(fitting, key=lambda plan: (plan.seconds, plan.peak))
