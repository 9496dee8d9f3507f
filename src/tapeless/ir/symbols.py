"""Symbolic sizes as graph nodes: `s0 * 2` in a rule becomes integer arithmetic on the sizes of inputs."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch import fx
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from tapeless.ir import graph as ir

Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool


class Symbols:
    """Finds or builds the node of a symbolic number."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.undefined: set[fx.Node] = set()  # inputs that are not there to be asked for their size
        self._known: dict[sympy.Basic, fx.Node] = {}

    def learn(self, val: Any, node: fx.Node) -> None:
        """`node` computes the symbolic number `val`; the first that does is used."""
        if _is_symbolic(val):
            self._known.setdefault(val.node.expr, node)

    def node(self, number: Symbolic) -> fx.Node | int | float | bool:
        expression = number.node.expr
        if expression.is_number or expression in (sympy.true, sympy.false):
            return number.node.pytype(expression)
        if expression not in self._known:
            self._known[expression] = self._build(number, expression)
        return self._known[expression]

    def _build(self, number: Symbolic, expression: Any) -> fx.Node:
        if isinstance(expression, sympy.Symbol):
            return self._size(expression)
        tracer = GraphAppendingTracer(self.graph)
        atoms = {s: fx.Proxy(self._atom(s), tracer) for s in expression.free_symbols}
        node = sympy_interp(PythonReferenceAnalysis, atoms, expression).node
        ir.set_value(node, number)
        return node

    def _atom(self, symbol: sympy.Symbol) -> fx.Node:
        if symbol not in self._known:
            self._known[symbol] = self._size(symbol)
        return self._known[symbol]

    def _size(self, symbol: sympy.Symbol) -> fx.Node:
        """The size of some input that is just this symbol, read before anything else happens."""
        last = ir.inputs(self.graph)[-1]
        for placeholder in (node for node in ir.inputs(self.graph) if node not in self.undefined):
            for dim, size in enumerate(_shape(placeholder)):
                if _is_symbolic(size) and size.node.expr == symbol:
                    with self.graph.inserting_after(last):
                        node = self.graph.call_function(torch.ops.aten.sym_size.int, (placeholder, dim))
                    ir.set_value(node, size)
                    return node
        raise AssertionError(f"no input has the size {symbol}")


def has_symbols(node: fx.Node) -> bool:
    """Is the node a symbolic number, or a tensor of which a size is one?"""
    return _is_symbolic(ir.value(node)) or any(map(_is_symbolic, _shape(node)))


def _shape(node: fx.Node) -> Any:
    val = ir.value(node)
    return val.shape if isinstance(val, torch.Tensor) else ()


def _is_symbolic(val: Any) -> bool:
    return isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool))
