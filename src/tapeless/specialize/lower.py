"""lower_grad_of(backward): what stays undecided becomes a runtime test on the cotangents.

Each region that depends on a cotangent gets a condition, "is any of its cotangents defined?", which the printer
writes as a plain `if`. Inside, a cotangent that is missing beside one that arrived is filled in. So one program is
right for every pattern of None.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.opaque import AutogradVjp
from tapeless.ir.ops import accumulate, any_defined, zeros_if_undefined
from tapeless.specialize.regions import RegionCotangents, region_cotangents


def lower_grad_of(backward: fx.Graph, cotangents: int) -> fx.Graph:
    """`backward` in which every region is guarded by its cotangents. The first `cotangents` inputs may then be None."""
    if any(ir.guard(node) is not None for node in ir.calls(backward)):
        return backward
    found = region_cotangents(backward, ir.inputs(backward)[:cotangents])
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    lowering = _Lowering(graph, found, copies)
    for node in backward.nodes:
        lowering.copy(node)
    return graph


class _Lowering:
    def __init__(self, graph: fx.Graph, found: RegionCotangents, copies: dict[fx.Node, fx.Node]) -> None:
        self.graph, self.found, self.copies = graph, found, copies
        self.guards: dict[ir.Region, fx.Node] = {}
        self.filled: dict[tuple[ir.Region, fx.Node], fx.Node] = {}

    def copy(self, node: fx.Node) -> None:
        record = ir.region(node)
        if record is None or record not in self.found.of or node.target is accumulate:  # which knows of None itself
            self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
            return
        guard = self._guard(record)
        filled = partial(self._argument, record=record, guard=guard)
        copy = self.graph.node_copy(node, self.copies.__getitem__ if isinstance(node.target, AutogradVjp) else filled)
        ir.set_guard(copy, guard)
        self.copies[node] = copy

    def _guard(self, record: ir.Region) -> fx.Node:
        if record not in self.guards:
            arriving = dict.fromkeys(self.copies[g] for g in self.found.of[record])
            self.guards[record] = self.graph.create_node("call_function", any_defined, tuple(arriving), name="arrived")
            ir.set_region(self.guards[record], record)
        return self.guards[record]

    def _argument(self, argument: fx.Node, record: ir.Region, guard: fx.Node) -> fx.Node:
        """Inside a region: a cotangent that may be missing beside another one is filled in."""
        cotangents = self.found.of[record]
        if argument not in cotangents or len(set(cotangents)) == 1:
            return self.copies[argument]
        key = (record, argument)
        if key not in self.filled:
            val = ir.value(argument)
            assert isinstance(val, torch.Tensor)
            arguments = (self.copies[argument], list(val.shape), val.dtype, val.device)
            fill = self.graph.create_node("call_function", zeros_if_undefined, arguments, name="g")
            ir.set_value(fill, val)
            ir.set_region(fill, record)
            ir.set_guard(fill, guard)
            self.filled[key] = fill
        return self.filled[key]
