"""specialize(backward, undefined): the backward that is left when some cotangents never arrive.

The graph is replayed through an Emitter in which the undefined cotangents are structural zeros. Nodes that no zero
reaches are copied as they stand. A region none of whose cotangents is defined vanishes whatever stands inside: a vjp
is linear. In a region with some, a zero removes what is linear in it, lets sums forward their other operand, and is
filled in only for operators that know nothing of zeros. Then dead code goes, and with it the captures nobody reads
any more.

A gradient may also be there and be known to be zero: that of rounding, or of the slope of a ReLU. A second walk takes
these for zeros too, and makes tensors of them only where they are returned (docs/decisions/0019-known-zeros.md).
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

from tapeless import torch_internals
from tapeless.differentiate.apply import result_is_zero
from tapeless.ir import graph as ir
from tapeless.ir.emit import Emitter, is_full_of_zeros
from tapeless.ir.narrow import narrow
from tapeless.ir.ops import accumulate
from tapeless.specialize.regions import RegionCotangents, region_cotangents
from tapeless.specialize.zeros import with_zeros

aten = torch.ops.aten


def specialize(
    backward: fx.Graph,
    cotangents: int,
    undefined: Collection[int] = (),
    unwanted: Collection[int] = (),
    zero: Collection[int] = (),
) -> fx.Graph:
    """`backward` as it runs when the inputs `undefined` are None and the outputs `unwanted` are not asked for.

    The first inputs are `cotangents`; `undefined` are among them, and so are those that are known to be `zero`.
    Inputs and outputs keep their positions: see `without_undefined`. What is not undefined is known to be defined.
    """
    graph = without_undefined(backward, range(cotangents), undefined, unwanted)
    if zero or any(map(_is_known_zero, ir.calls(graph))):
        # What is undefined is read no more, not even for a size: it must not be taken for a tensor that is there.
        graph = narrow(_replayed(_KnownZeros(graph, range(cotangents)), {*zero, *undefined}))
    return graph


def without_undefined(
    backward: fx.Graph,
    cotangents: Collection[int],
    undefined: Collection[int] = (),
    unwanted: Collection[int] = (),
    settle: bool = True,
) -> fx.Graph:
    """`backward` without what only the inputs `undefined`, among the `cotangents`, or the outputs `unwanted` need.

    Inputs and outputs keep their positions: an input that is not read any more stays as an unused placeholder, an
    output that is structurally zero or unwanted becomes None. With `settle`, what is not undefined is known to be
    defined: `accumulate` becomes `aten.add`.
    """
    return narrow(_replayed(_Replay(backward, cotangents, settle), undefined, unwanted))


def _replayed(replay: _Replay, zero: Collection[int], unwanted: Collection[int] = ()) -> fx.Graph:
    """The graph written anew, with zeros for the inputs `zero`."""
    inputs = ir.inputs(replay.source)
    with torch_internals.emission(torch_internals.fake_mode_of([ir.value(node) for node in inputs])), replay.emitter:
        for position, node in enumerate(inputs):
            replay.input(node, position in zero)
        for node in ir.calls(replay.source):
            replay.call(node)
        results = [None if i in unwanted else replay.result(r) for i, r in enumerate(ir.outputs(replay.source))]
    replay.graph.output(results)
    replay.graph.eliminate_dead_code()
    return replay.graph


def _may_use_zeros(node: fx.Node) -> bool:
    """A custom backward sees zeros filled in, as eager fills them: nothing says that it is linear."""
    record = ir.region(node)
    return record is None or record.linear


class _Replay:
    """A walk over a graph that writes it anew."""

    def __init__(self, source: fx.Graph, cotangents: Collection[int], settle: bool = True) -> None:
        inputs = ir.inputs(source)
        self.source, self.graph = source, fx.Graph()
        self.cotangents: RegionCotangents = region_cotangents(source, [inputs[i] for i in cotangents])
        self.emitter = Emitter(self.graph, result_is_zero)
        self.emitter.addition = aten.add.Tensor if settle else accumulate
        self.values: dict[fx.Node, Any] = {}
        self.copies: dict[fx.Node, fx.Node] = {}  # nodes that no zero reached

    def input(self, node: fx.Node, undefined: bool) -> None:
        copy = self.emitter.placeholder(node.name, ir.value(node))
        copy.meta = dict(node.meta)
        self.values[node] = self.emitter.zero(ir.value(node)) if undefined else ir.value(node)
        if undefined:
            self.emitter.symbols.undefined.add(copy)
        else:
            self.copies[node] = copy

    def call(self, node: fx.Node) -> None:
        args, kwargs = tree_map_only(fx.Node, self.values.__getitem__, (node.args, node.kwargs))
        with self.emitter.in_region(ir.region(node)):
            if self._in_dead_region(node):
                self.values[node] = tree_map_only(torch.Tensor, self.emitter.zero, ir.value(node))
            elif node.target is accumulate:
                self.values[node] = self.emitter.accumulate(*args, of=node)
            elif node.target is operator.getitem and node.args[0] not in self.copies:
                self.values[node] = args[0][args[1]]
            elif _may_use_zeros(node) and any(self.emitter.is_zero(leaf) for leaf in tree_leaves((args, kwargs))):
                self.values[node] = with_zeros(node.target, self.emitter, node, args, kwargs)
            else:
                self._copy(node)

    def _in_dead_region(self, node: fx.Node) -> bool:
        """Does the node belong to a region none of whose cotangents is defined?"""
        record = ir.region(node)
        if record is None or node not in self.cotangents.dependent:
            return False
        return all(self.emitter.is_zero(self.values[g]) for g in self.cotangents.of[record])

    def _copy(self, node: fx.Node) -> None:
        copy = self.graph.node_copy(node, lambda a: self.copies.get(a) or self.emitter.node(self.values[a]))
        copy._rename(node.name)
        self.copies[node], self.values[node] = copy, ir.value(node)
        self.emitter.bind(ir.value(node), copy)

    def result(self, result: Any) -> fx.Node | None:
        if not isinstance(result, fx.Node) or self.emitter.is_zero(self.values[result]):
            return None
        return self.emitter.node(self.values[result])


# -- defined, and known to be zero -------------------------------------------------------------------------------------


class _KnownZeros(_Replay):
    """A walk in which zeros are tensors that are there: a result that is zero is filled in."""

    def call(self, node: fx.Node) -> None:
        if _is_known_zero(node):
            self.values[node] = self.emitter.zero(ir.value(node))
        elif isinstance(node.target, OpOverload) or node.target is operator.getitem:
            super().call(node)
        else:
            self._copy(node)  # which may tell zeros from what is undefined

    def _in_dead_region(self, node: fx.Node) -> bool:
        return _may_use_zeros(node) and super()._in_dead_region(node)

    def result(self, result: Any) -> fx.Node | None:
        return self.emitter.node(self.values[result]) if isinstance(result, fx.Node) else None


def _is_known_zero(node: fx.Node) -> bool:
    """Does a backward make a tensor of zeros here? In the user's own program zeros are numbers like others."""
    if ir.region(node) is None:
        return False
    return node.target is aten.zeros_like.default or is_full_of_zeros(node)
