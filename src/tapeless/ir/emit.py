"""Emission: run plain torch code on the values of a graph, get nodes.

An `Emitter` is a dispatch mode. Rules are called with the fake tensors of graph nodes; every ATen call they make
becomes a node. A value may also be a *structural zero*: a fake tensor that stands for "nobody sent this". Calls that
are linear in it are zero again and leave no node, sums forward their other operand, and only what knows nothing about
zeros sees one filled in. The same mechanism specialises a finished graph (specialize/rewrite.py), so there is one
transfer table: the declarations of the rules.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from tapeless.ir import graph as ir
from tapeless.ir.ops import accumulate
from tapeless.ir.symbols import Symbols
from tapeless.ir.undefined import may_be_undefined
from tapeless.torch_internals import fresh

aten = torch.ops.aten

ZeroTransfer = Callable[[OpOverload, Sequence[Any], dict[str, Any], Callable[[Any], bool]], bool]

SUMS = {aten.add.Tensor: 1, aten.sub.Tensor: -1}


class Emitter(TorchDispatchMode):
    """Writes the ATen calls made while it is active into `graph`."""

    def __init__(self, graph: fx.Graph, result_is_zero: ZeroTransfer) -> None:
        super().__init__()
        self.graph = graph
        self.result_is_zero = result_is_zero
        self.symbols = Symbols(graph)
        self.region: ir.Region | None = None
        self.origin: fx.Node | None = None  # without a region: whose source line the nodes are given
        self.addition: Any = accumulate  # `aten.add` where both sides are known to be defined
        self.emitted: set[fx.Node] = set()
        self._nodes: dict[int, tuple[torch.Tensor, fx.Node]] = {}
        self._elements: dict[int, tuple[fx.Node, int]] = {}  # tensors inside a tuple-valued node
        self._zeros: dict[int, torch.Tensor] = {}

    # -- values and nodes --------------------------------------------------------------------------------------------

    def bind(self, val: Any, node: fx.Node) -> Any:
        """From now on the fake tensor (or symbolic number) `val` is the value of `node`."""
        if isinstance(val, torch.Tensor):
            self._nodes[id(val)] = (val, node)
        elif isinstance(val, (tuple, list)):
            self._elements.update({id(element): (node, index) for index, element in enumerate(val)})
        else:
            self.symbols.learn(val, node)
        return val

    def bind_graph(self, nodes: Sequence[fx.Node]) -> None:
        for node in nodes:
            self.bind(ir.value(node), node)

    def zero(self, like: torch.Tensor) -> torch.Tensor:
        """A structural zero with the type of `like`."""
        return self._flag_zero(fresh(like))

    def _flag_zero(self, val: torch.Tensor) -> torch.Tensor:
        self._zeros[id(val)] = val
        return val

    def is_zero(self, val: Any) -> bool:
        return id(val) in self._zeros

    def node(self, val: torch.Tensor) -> fx.Node:
        """The node whose value `val` is. A structural zero is filled in here; an unknown tensor is an error."""
        if id(val) in self._nodes:
            return self._nodes[id(val)][1]
        if id(val) in self._zeros:
            return self._fill(val)
        if id(val) in self._elements:
            node = self.element(*self._elements[id(val)])
            self.bind(val, node)
            return node
        raise AssertionError(f"a rule used a tensor that is no value of this graph: {val}")

    def element(self, source: fx.Node, index: int) -> fx.Node:
        """The `getitem` of a tuple-valued node; made now if nobody needed this element so far."""
        for user in source.users:
            if user.target is operator.getitem and user.args[1] == index:
                return user
        with self.graph.inserting_after(source):
            node = self.graph.call_function(operator.getitem, (source, index))
        node.meta = dict(source.meta)
        ir.set_value(node, ir.value(source)[index])
        return node

    def _fill(self, zero: torch.Tensor) -> fx.Node:
        options = {"dtype": zero.dtype, "device": zero.device, "pin_memory": False}
        node = self._call(aten.full.default, ([self._argument(n) for n in zero.shape], 0), options)
        ir.set_value(node, zero)
        self._nodes[id(zero)] = (zero, node)
        return node

    def defined(self, val: torch.Tensor) -> torch.Tensor:
        """`val` as a tensor that is really there: a structural zero is filled in and counts as defined from now on."""
        return self.bind(fresh(val), self._fill(val)) if self.is_zero(val) else val

    def placeholder(self, name: str, val: Any) -> fx.Node:
        node = self.graph.placeholder(name)
        ir.set_value(node, val)
        self.bind(val, node)
        return node

    # -- dispatch ----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The value of `op(*args, **kwargs)`, leaving a node unless it is zero or plainly one of its operands."""
        if op in (aten.detach.default, aten.alias.default):
            return self._same(op(*args, **kwargs), args[0])
        if op is aten.t.default and (inner := self._untransposed(args[0])) is not None:
            return inner
        if any(self.is_zero(leaf) for leaf in tree_leaves((args, kwargs))):
            known = self._call_with_zeros(op, args, kwargs)
            if known is not None:
                return known
        if isinstance(op, OpOverload) and op._schema.is_mutable:
            raise AssertionError(f"rules must not mutate: {op}")
        val = op(*args, **kwargs)
        return self.emit(op, args, kwargs, val)

    def emit(self, op: Any, args: Any, kwargs: Any, val: Any) -> Any:
        """Append the node for a call whose value is already known to be `val`."""
        if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(val)):
            return val
        node = self._call(op, tree_map(self._argument, tuple(args)), tree_map(self._argument, kwargs))
        ir.set_value(node, val)
        if isinstance(val, torch.Tensor):
            return self.bind(val, node)
        for index, element in enumerate(val):
            if isinstance(element, torch.Tensor):
                item = self._call(operator.getitem, (node, index), {}, "item")
                ir.set_value(item, element)
                self.bind(element, item)
        return val

    def _call(self, op: Any, args: Any, kwargs: Any, name: str | None = None) -> fx.Node:
        name = name or (op.overloadpacket.__name__ if isinstance(op, OpOverload) else None)
        node = self.graph.create_node("call_function", op, args, kwargs, name=name)
        self.emitted.add(node)
        ir.set_region(node, self.region)
        if self.origin is not None:
            ir.set_where(node, self.origin)
        return node

    def _argument(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self.node(leaf)
        if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.symbols.node(leaf)
        return leaf

    # -- structural zeros --------------------------------------------------------------------------------------------

    def _call_with_zeros(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if op in SUMS:
            return self._sum_with_zeros(op, *args, **kwargs)
        if self.result_is_zero(op, args, kwargs, self.is_zero):
            return tree_map_only(torch.Tensor, self._flag_zero, op(*args, **kwargs))
        return None

    def _sum_with_zeros(self, op: Any, a: Any, b: Any, *, alpha: Any = 1) -> Any:
        """a ± α·b where one side is zero: the other, with the type that the sum has."""
        val = op(a, b, alpha=alpha)
        if self.is_zero(a) and self.is_zero(b):
            return self._flag_zero(val)
        if self.is_zero(a) and not isinstance(b, torch.Tensor):
            return None
        factor = SUMS[op] * alpha
        with self:
            other = a if self.is_zero(b) else b if factor == 1 else b * factor
            return _as_type_of(other, val)

    def _untransposed(self, val: torch.Tensor) -> torch.Tensor | None:
        """x, if `val` is x.t(): transposing twice is so common between a linear layer and its gradient."""
        if self.is_zero(val) or (node := self.node(val)).target is not aten.t.default:
            return None
        return self.bind(fresh(ir.value(node.args[0])), node.args[0])  # type: ignore[arg-type]

    def _same(self, val: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        if self.is_zero(source):
            return self._flag_zero(val)
        return self.bind(val, self.node(source))

    # -- accumulation and regions ------------------------------------------------------------------------------------

    def accumulate(self, a: torch.Tensor | None, b: torch.Tensor, of: fx.Node) -> torch.Tensor:
        """The sum of two cotangents of the value `of`, either of which may be undefined."""
        if a is None or self.is_zero(a):
            return b
        if self.is_zero(b):
            return a
        val = fresh(a)
        sides = (self.node(a), self.node(b))
        addition = accumulate if any(map(may_be_undefined, sides)) else self.addition
        node = self._call(addition, sides, {}, f"g_{ir.total_of(of) or of.name}")
        ir.set_total(node, of)
        ir.set_value(node, val)
        return self.bind(val, node)

    @contextlib.contextmanager
    def in_region(self, record: ir.Region | None) -> Iterator[None]:
        outer, self.region = self.region, record
        try:
            yield
        finally:
            self.region = outer


def _as_type_of(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    tensor = tensor if tensor.dtype == like.dtype else tensor.to(like.dtype)
    return tensor if tensor.shape == like.shape else tensor.expand(like.shape)


def is_full_of_zeros(node: fx.Node) -> bool:
    """Is this a structural zero that was filled in?"""
    return node.target is aten.full.default and isinstance(node.args[1], (int, float)) and node.args[1] == 0
