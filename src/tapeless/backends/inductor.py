"""Backend `inductor`: a graph compiled by Inductor at its first call, when the layouts of its inputs are known.

What Inductor cannot take, or fails on, runs as generated Python: a choice or a loop whose course only the run knows
without a word, a failure with one warning.
"""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless import torch_internals
from tapeless.backends import python
from tapeless.background.products import prefer_faster_products
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_graph
from tapeless.ir.ops import accumulate

Boxed = Callable[[list[Any]], list[Any]]


def compile_graph(graph: fx.Graph, name: str = "forward") -> Boxed:
    """A function of one list (which it empties) to a list."""
    return Compiled(graph, name) if all(map(_is_plain, ir.calls(graph))) else python.compile_graph(graph, name)


def _is_plain(node: fx.Node) -> bool:
    """An operator that Inductor can trace through: of torch's, or arithmetic on sizes."""
    module = getattr(node.target, "__module__", "")
    known = isinstance(node.target, OpOverload) or node.target in (operator.getitem, accumulate)
    return node.op == "get_attr" or known or module in ("_operator", "math", "torch")


class Compiled:
    """A graph that is compiled when it is first called."""

    def __init__(self, graph: fx.Graph, name: str) -> None:
        self.graph, self.name = graph, name
        self._run: Boxed | None = None
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> list[Any]:
        run = self._run
        if run is None:
            with self._lock:
                run = self._run = self._run or self._compile(args)
        return run(args)

    def _compile(self, args: list[Any]) -> Boxed:
        graph = copy_graph(self.graph)
        module = fx.GraphModule({str(n.target): ir.constant(n) for n in graph.find_nodes(op="get_attr")}, graph)
        examples = [ir.value(node) for node in ir.inputs(graph)]
        try:
            compiled = torch_internals.compile_with_inductor(
                module, examples, args, self.name == "backward", prefer_faster_products
            )
        except Exception as problem:
            reason = f"{type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem) else ''}"
            warnings.warn(f"Inductor failed on a {self.name}, which runs as generated Python: {reason}", stacklevel=2)
            return python.compile_graph(self.graph, self.name)
        return without_gradients(compiled)


def without_gradients(compiled: Callable[[list[Any]], Any]) -> Boxed:
    """Kernels that write into given memory run outside grad mode only, and unseen by Dynamo.

    It would trace their code where a graph breaks at `torch.autograd.grad`, which runs a backward in a compiled frame.
    """
    unseen: Any = torch.compiler.disable(compiled)

    def run(args: list[Any]) -> list[Any]:
        with torch.no_grad():
            return list(unseen(args))

    return run
