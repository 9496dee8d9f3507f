"""What enters each `grad_of` region."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import fx

from tapeless.ir import graph as ir


@dataclass(frozen=True)
class RegionCotangents:
    """What enters each region from outside, among the values that depend on a cotangent at all."""

    dependent: set[fx.Node]
    of: dict[ir.Region, list[fx.Node]]


def region_cotangents(backward: fx.Graph, cotangents: Collection[fx.Node]) -> RegionCotangents:
    dependent = set(cotangents)
    entering: dict[ir.Region, list[fx.Node]] = {}
    for node in ir.calls(backward):
        arguments = [a for a in node.all_input_nodes if a in dependent]
        if not arguments:
            continue
        dependent.add(node)
        record = ir.region(node)
        if record is not None:
            entering.setdefault(record, []).extend(a for a in arguments if ir.region(a) is not record)
    return RegionCotangents(dependent, entering)
