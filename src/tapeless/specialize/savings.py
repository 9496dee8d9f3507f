"""What a specialised backward no longer does, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.cost import flops, likely_bytes


@dataclass(frozen=True)
class Removed:
    """A region that is gone, or smaller than it was."""

    region: ir.Region
    calls: int  # fewer
    calls_left: int
    why: str

    def __str__(self) -> str:
        what = "gone" if not self.calls_left else f"{self.calls} of {self.calls + self.calls_left} calls gone"
        return f"grad_of {self.region.forward} ({self.region.op}) {what}: {self.why}"


@dataclass(frozen=True)
class Savings:
    """The difference that specialization makes to a backward."""

    removed: tuple[Removed, ...]
    regions: int  # before
    flops: int
    bytes: int  # of captured values that nobody reads any more

    @property
    def regions_removed(self) -> int:
        return sum(not r.calls_left for r in self.removed)

    @property
    def regions_shrunk(self) -> int:
        return len(self.removed) - self.regions_removed

    def __str__(self) -> str:
        parts = {
            f"{self.regions_removed} of {self.regions} regions removed": self.regions_removed,
            f"{self.regions_shrunk} of {self.regions} regions smaller": self.regions_shrunk,
            f"{self.flops:,} FLOPs less": self.flops,
            f"{self.bytes:,} bytes less to keep": self.bytes,
        }
        return ", ".join(part for part, count in parts.items() if count) or "nothing removed"

    def details(self, most: int = 20) -> str:
        """The summary and a line for each region."""
        lines = [str(self), *(f"  {removed}" for removed in self.removed[:most])]
        return "\n".join([*lines, *([f"  and {len(self.removed) - most} more"] if len(self.removed) > most else [])])


def savings(before: fx.Graph, after: fx.Graph, undefined: Collection[fx.Node], kept: Iterable[fx.Node]) -> Savings:
    """What became of `before` when it was specialised to `after`.

    `undefined` are the inputs of `before` that never arrive, `kept` those that are kept in memory for it alone.
    """
    calls_before, calls_after = _by_region(before), _by_region(after)
    missing = _undefined_above(before, undefined)
    read = {node.name for node in ir.inputs(after) if node.users}
    return Savings(
        removed=tuple(
            Removed(region, len(calls) - left, left, _why(calls, missing))
            for region, calls in calls_before.items()
            if (left := len(calls_after.get(region, ()))) < len(calls)
        ),
        regions=len(calls_before),
        flops=flops(ir.calls(before)) - flops(ir.calls(after)),
        bytes=sum(likely_bytes(ir.value(node)) for node in kept if node.name not in read),
    )


def _by_region(graph: fx.Graph) -> dict[ir.Region, list[fx.Node]]:
    found: dict[ir.Region, list[fx.Node]] = {}
    for node in ir.calls(graph):
        if (region := ir.region(node)) is not None:
            found.setdefault(region, []).append(node)
    return found


def _undefined_above(graph: fx.Graph, undefined: Collection[fx.Node]) -> dict[fx.Node, frozenset[fx.Node]]:
    """For each value, the undefined cotangents that it depends on."""
    above = {node: frozenset([node]) for node in undefined}
    for node in ir.calls(graph):
        above[node] = frozenset[fx.Node]().union(*(above.get(a, frozenset()) for a in node.all_input_nodes))
    return above


def _why(calls: list[fx.Node], missing: dict[fx.Node, frozenset[fx.Node]]) -> str:
    names = sorted({node.name.removeprefix("g_") for call in calls for node in missing[call]})
    return f"no gradient arrives at {', '.join(names)}" if names else "nobody asks for its gradient"
