"""A graph as calls that torch's own transforms can go through: one operator after the other, each of its own memory.

Some operators that capture writes are none that people call, and torch's rules for them are missing or wrong. They are
written as others here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_graph
from tapeless.ir.custom import inline_custom

aten = torch.ops.aten


def functional_module(graph: fx.Graph) -> fx.GraphModule:
    """The graph as a module that calls one operator after the other."""
    graph = inline_custom(copy_graph(graph))
    for target, instead in INSTEAD.items():
        for node in graph.find_nodes(op="call_function", target=target):
            node.target = instead
    return fx.GraphModule({str(n.target): ir.constant(n) for n in graph.find_nodes(op="get_attr")}, graph)


def copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Torch has no derivative of `aten.copy`."""
    return src.to(self.device, self.dtype).expand(self.shape).clone()


def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Torch writes a batch of these as a scatter of each value to its place many times, and so counts its gradient."""
    start = index % self.shape[dim]
    return aten.slice_scatter(self, src.unsqueeze(dim), dim, start, start + 1)


def slice_scatter(self: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """`x[1:] = y` is captured with the largest integer as its end, which torch's rule for batches does not take."""
    return aten.slice_scatter(self, src, dim, start, None if end is None else min(end, self.shape[dim]), step)


INSTEAD: dict[Callable[..., Any], Callable[..., Any]] = {
    aten.view.default: aten.reshape.default,  # a batch may be laid out as no single value is
    aten.copy.default: copy,
    aten.select_scatter.default: select_scatter,
    aten.slice_scatter.default: slice_scatter,
}
