"""A graph as calls that torch's own transforms can go through: one operator after the other, each of its own memory.

Some operators that capture writes are none that people call, and torch's rules for them are missing or wrong. They are
written as others here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from tapeless.errors import TapelessError, Unsupported, Where
from tapeless.ir import graph as ir
from tapeless.ir.control import Branch, Control, Scan, While, control_flow
from tapeless.ir.copying import copy_graph
from tapeless.ir.custom import inline_custom
from tapeless.ir.opaque import AutogradVjp

aten = torch.ops.aten


def functional_module(graph: fx.Graph) -> fx.GraphModule:
    """The graph as a module that calls one operator after the other."""
    graph = inline_custom(copy_graph(graph))
    for target, instead in INSTEAD.items():
        for node in graph.find_nodes(op="call_function", target=target):
            node.target = instead
    return fx.GraphModule({str(n.target): ir.constant(n) for n in graph.find_nodes(op="get_attr")}, graph)


def refuse_choices(graph: fx.Graph, what: str) -> None:
    """A batch is computed at once, as one program; what is decided while a program runs is not known to it."""
    for node in ir.calls(graph):
        if isinstance(node.target, (Branch, While, AutogradVjp)) or _has_unknown_length(node):
            region = ir.region(node)
            op, where = (region.op, region.where) if region else (node.target, _where(node))
            raise Unsupported(
                f"{what} {op}, which decides while it runs\n  at {where}\n"
                "  Use `vjp` or `jvp`, one row or column at a time, or write `torch.where` for `torch.cond`."
            )
        if isinstance(node.target, Scan):
            refuse_choices(node.target.body, what)


def _has_unknown_length(node: fx.Node) -> bool:
    return isinstance(node.target, Scan) and isinstance(node.args[0], fx.Node)


def _where(node: fx.Node) -> Where:
    """Where it stands in the program; of a derivative, what is inside knows."""
    bodies = node.target.bodies.values() if isinstance(node.target, Control) else ()
    places = map(ir.where, [node, *(inner for body in bodies for inner in ir.calls(body))])
    return next((place for place in places if place.file), Where())


@contextlib.contextmanager
def naming_control_flow(graph: fx.Graph) -> Iterator[None]:
    """Around transforms of torch's own: they go through control flow in few cases, and fail in words of their own."""
    try:
        yield
    except TapelessError:
        raise
    except Exception as problem:
        for node, control in control_flow(graph):
            raise Unsupported(
                f"`{control}` under a transform that is left to torch, which fails\n  at {_where(node)}\n"
                f"  {type(problem).__name__}: {str(problem).strip().splitlines()[0]}\n"
                "  `tapeless.grad`, `vjp` and `jvp` go through control flow and each other; batches of it do not."
                " Loop over the batch in Python, or write `torch.where` for `torch.cond`."
            ) from problem
        raise


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
