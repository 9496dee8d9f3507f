"""The most memory that a step has allocated at once, found by walking its two programs as they will run.

Counted is what forward and backward allocate beyond the inputs of the forward: outputs, what is saved, what either
computes on the way, cotangents, and the gradients of all inputs, which are returned together at the end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.convolutions import split_convolutions
from tapeless.ir.copying import copy_graph
from tapeless.ir.cost import likely_bytes
from tapeless.ir.custom import inlined
from tapeless.ir.ops import accumulate
from tapeless.ir.reuse import Terms, own_results
from tapeless.ir.sums import gather_sums
from tapeless.partition.schedule import with_lower_peak
from tapeless.partition.split import Split
from tapeless.partition.storages import Memory, Storage


@dataclass(frozen=True)
class Peak:
    """Bytes alive between forward and backward, and the most that are at any time."""

    between: int
    most: int


def peak(parts: Split) -> Peak:
    """Of a step in which every output that can gets a cotangent, and every gradient is wanted."""
    memory = Memory()
    forward = inlined(parts.forward)
    terms = _terms(parts, own_results(forward))
    backward = _as_it_runs(parts, terms)
    results = memory.run(forward, [()] * len(ir.inputs(forward)))
    held = {storage for storages in results[: parts.real_outputs] for storage in storages}
    between = memory.total
    cotangents = [Storage(likely_bytes(ir.value(node))) for node in ir.inputs(backward)]
    given = [(storage,) for storage in cotangents[: len(parts.cotangent_outputs)]]
    memory.allocate(storage for (storage,) in given)
    captured = [*(() for _ in parts.captured_inputs), *(results[i] for i in parts.captured_outputs)]
    memory.run(backward, [*given, *captured], held, terms)
    return Peak(between, memory.most)


def _terms(parts: Split, own: Collection[int]) -> Terms:
    """How the backward will run once its cotangents are known."""
    first = len(parts.cotangent_outputs) + len(parts.captured_inputs)
    donated = (first + k for k, i in enumerate(parts.captured_outputs) if i in own and i >= parts.real_outputs)
    return Terms(unrecorded=True, donated=tuple(donated), views=True)


def _as_it_runs(parts: Split, terms: Terms) -> fx.Graph:
    """The backward in its final order, once all cotangents are known to be defined and their sums are additions."""
    graph = copy_graph(inlined(parts.backward))
    for node in graph.find_nodes(op="call_function", target=accumulate):
        node.target = torch.ops.aten.add.Tensor
    first = len(parts.cotangent_outputs) + len(parts.captured_inputs)
    saved = (first + k for k, i in enumerate(parts.captured_outputs) if i >= parts.real_outputs)
    temporaries = [*range(len(parts.cotangent_outputs)), *saved]
    return with_lower_peak(split_convolutions(gather_sums(graph)), temporaries, terms)
