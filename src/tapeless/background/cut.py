"""Where a joint graph is cut into forward and backward: what is saved, and what kernels compute once more.

The partitioner does not recompute what a forward reads long after it was made: no backward is to run through a whole
residual stream again. But in a forward that takes gradients itself everything is read twice, on the way up and on the
way down, so that nearly everything is saved. See docs/decisions/0027-cuts.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.background.lean import save_less
from tapeless.ir import graph as ir

LEAST = 8_000_000  # bytes that are saved; fewer stay in the caches of a processor anyway
PART = 0.9  # of the bytes that a cut may save to be taken instead of the usual one
BYTES = 2.0  # that have to be spared by each element that is computed again


def cut(
    joint: fx.GraphModule, inputs: int, outputs: int, static: Sequence[int]
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The usual cut of a joint graph, or the one that recomputes more freely if much less is saved then; of what is
    saved, the backward makes itself what it easily can."""
    usual = torch_internals.min_cut(joint, inputs, outputs, static)
    if _varies(joint) or _saved(usual[0], outputs) < LEAST:
        return usual[0], usual[1]
    free = torch_internals.min_cut(joint, inputs, outputs, static, freely=True)
    forward, backward = free if _pays(usual, free, outputs) else usual
    save_less(forward, backward, outputs)
    return forward, backward


def _pays(usual: Sequence[fx.GraphModule], free: Sequence[fx.GraphModule], outputs: int) -> bool:
    """Are many bytes spared, and more than what it takes to compute them again?"""
    before, after = (_saved(forward, outputs) for forward, _ in (usual, free))
    again = sum(map(_elements, free)) - sum(map(_elements, usual))
    return after <= PART * before and before - after >= BYTES * again


def _varies(joint: fx.GraphModule) -> bool:
    """Are there sizes that are not known?"""
    return any(isinstance(n, torch.SymInt) for value in _values(joint.graph.nodes) for n in value.shape)


def _saved(forward: fx.GraphModule, outputs: int) -> int:
    """Bytes that a forward makes for its backward alone."""
    results: Sequence[fx.Node] = forward.graph.output_node().args[0][outputs:]  # type: ignore[index,assignment]
    made = dict.fromkeys(node for node in results if node.op != "placeholder")
    return sum(value.numel() * value.element_size() for value in _values(made))


def _elements(module: fx.GraphModule) -> int:
    """Elements that are computed one by one."""
    calls = (node for node in ir.calls(module.graph) if torch.Tag.pointwise in getattr(node.target, "tags", ()))
    return sum(value.numel() for value in _values(calls))


def _values(nodes: Iterable[fx.Node]) -> list[torch.Tensor]:
    return [ir.value(node) for node in nodes if ir.is_tensor(node)]
