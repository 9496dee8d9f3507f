"""Control flow in a Dynamo graph: its bodies are traced to ATen and become the target of one node.

Torch has derivatives of its own for these operators, made while they are traced. They are not wanted here, and not all
of them can be had, so each call is replaced by one that autograd sees and does not look into.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from tapeless import torch_internals
from tapeless.capture.effects import keep_constants
from tapeless.capture.facts import graph_modules
from tapeless.ir import graph as ir
from tapeless.ir.control import Branch, Scan, While


class _Undifferentiated(torch.autograd.Function):
    """The results of a call, of which autograd knows that they depend on its arguments, and nothing else."""

    @staticmethod
    def forward(call: Callable[..., Any], *tensors: torch.Tensor) -> Any:
        with torch_internals.below_autograd():
            return call(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is saved; but `torch.func` asks for it."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """A batch of calls, which torch writes as one."""
        call, *tensors = args
        batched = torch.func.vmap(lambda *each: call(each), in_dims[1:], randomness=info.randomness)
        outs = _Undifferentiated.apply(lambda whole: batched(*whole), *tensors)
        return outs, (0,) * len(outs)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise AssertionError("control flow is differentiated as a graph, never by autograd")


def _undifferentiated(op: Any) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        leaves, spec = tree_flatten(args)
        positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def run(tensors: Any) -> Any:
            filled = list(leaves)
            for position, tensor in zip(positions, tensors, strict=True):
                filled[position] = tensor
            return tuple(op(*tree_unflatten(filled, spec)))

        return _Undifferentiated.apply(run, *(leaves[i] for i in positions))

    call.__name__ = op.__name__
    return call


@contextlib.contextmanager
def undifferentiated_control_flow(module: fx.GraphModule) -> Iterator[None]:
    """While it lasts, control flow in a Dynamo graph is traced without its derivative."""
    nodes = [n for part in graph_modules(module) for n in part.graph.nodes if n.op == "call_function"]
    calls = {node: node.target for node in nodes if node.target in RESOLVE}
    for node, op in calls.items():
        node.target = _undifferentiated(op)
    try:
        yield
    finally:
        for node, op in calls.items():
            node.target = op


def resolve_control_flow(graph: fx.Graph, module: fx.GraphModule, path: str = "") -> None:
    """In the traced graph: calls of higher order operators become `Branch`, `Scan` and `While` nodes."""
    for node in ir.calls(graph):
        resolve = RESOLVE.get(node.target)
        if resolve is not None:
            resolve(node, lambda side: _body(module, side, path))
    graph.eliminate_dead_code()


Bodies = Callable[[Any], fx.Graph]  # from a `get_attr` node to the body that it stands for


def _cond(node: fx.Node, bodies: Bodies) -> None:
    predicate, true, false, operands = cast(tuple[Any, ...], node.args)
    node.target = Branch(bodies(true), bodies(false))
    node.args = (predicate, *operands)


def _scan(node: fx.Node, bodies: Bodies) -> None:
    body, carries, rows, operands = cast(tuple[Any, ...], node.args)
    node.target = Scan(bodies(body), len(carries))
    node.args = (_length(node, rows[0]), list(carries), list(rows), list(operands))


def _map(node: fx.Node, bodies: Bodies) -> None:
    body, rows, operands = cast(tuple[Any, ...], node.args)
    node.target = Scan(bodies(body), 0)
    node.args = (_length(node, rows[0]), [], list(rows), list(operands))


def _while(node: fx.Node, bodies: Bodies) -> None:
    condition, body, carries, operands = cast(tuple[Any, ...], node.args)
    node.target = While(bodies(condition), bodies(body), len(carries))
    node.args = (list(carries), list(operands))


RESOLVE: dict[Any, Callable[[fx.Node, Bodies], None]] = {
    torch_internals.cond: _cond,
    torch_internals.scan: _scan,
    torch_internals.map_: _map,
    torch_internals.while_loop: _while,
}


def _length(node: fx.Node, rows: fx.Node) -> int | fx.Node:
    """How many rows there are: a number, or the node of a symbolic one."""
    length = ir.value(rows).shape[0]
    if isinstance(length, int):
        return length
    with node.graph.inserting_before(node):
        size = node.graph.call_function(torch.ops.aten.sym_size.int, (rows, 0))
    ir.set_value(size, length)
    return size


def _body(module: fx.GraphModule, side: Any, path: str) -> fx.Graph:
    body, path = getattr(module, str(side.target)), f"{path}{side.target}_"
    result = body.graph.output_node().args[0]
    if isinstance(result, fx.Node):
        body.graph.output_node().args = ([result],)
    keep_constants(body.graph, body)
    for node in body.graph.find_nodes(op="get_attr"):
        ir.rename(node, f"{path}{node.name}")  # the text keeps all constants in one place
    resolve_control_flow(body.graph, body, path)
    return body.graph
