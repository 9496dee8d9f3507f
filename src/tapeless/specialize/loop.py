"""A scan some of whose cotangents never arrive: its body is specialised, and carries that stay zero are dropped."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from tapeless.ir import graph as ir
from tapeless.ir.control import Scan
from tapeless.ir.copying import copy_nodes
from tapeless.ir.emit import Emitter
from tapeless.specialize.rewrite import without_undefined
from tapeless.specialize.zeros import with_zeros
from tapeless.torch_internals import fresh, without_modes

aten = torch.ops.aten


@with_zeros.register
def _(scan: Scan, emitter: Emitter, node: fx.Node, args: Any, kwargs: Any) -> Any:
    length, *sections = args
    values = [value for section in sections for value in section]
    zero = {i for i in scan.linear if emitter.is_zero(values[i])}
    with without_modes():
        body, zero, ended = _specialized(scan, zero)
    results = ir.outputs(body)
    kept = [i for i, result in enumerate(results) if result is not None]
    read = [i for i in range(len(values)) if i not in zero]
    inputs = ir.inputs(body)
    smaller = Scan(
        copy_nodes([], [inputs[i] for i in read], [results[i] for i in kept]),
        carries=len([i for i in kept if i < scan.carries]),
        totals=len([i for i in kept if scan.carries <= i < scan.carries + scan.totals]),
        reverse=scan.reverse,
        linear=tuple(k for k, i in enumerate(read) if i in scan.linear),
    )
    types = ir.value(node)
    found = emitter.emit(smaller, (length, *_remaining(sections, zero)), {}, tuple(fresh(types[i]) for i in kept))
    by_position = dict(zip(kept, found, strict=True))
    for i in () if free_unbacked_symbols(length) else ended:
        del by_position[i]  # there is a round, and it ends at zero
    return [by_position[i] if i in by_position else emitter.zero(val) for i, val in enumerate(types)]


def _specialized(scan: Scan, zero: set[int]) -> tuple[fx.Graph, set[int], list[int]]:
    """The body where the inputs `zero` are undefined, which of them are so in every round, and which carries end zero.

    A carry that starts undefined stays so only if a round leaves it undefined. One that starts defined, and that a
    round leaves undefined, is filled in for the next.
    """
    while True:
        body = without_undefined(scan.body, scan.linear, zero)
        results = ir.outputs(body)
        wrong = {i for i in zero if i < scan.carries and results[i] is not None}
        if not wrong:
            break
        zero = zero - wrong
    ended = [i for i in range(scan.carries) if results[i] is None and i not in zero]
    for i in ended:
        results[i] = _zeros(body, ir.inputs(body)[i])
    body.output_node().args = (results,)
    return body, zero, ended


def _zeros(body: fx.Graph, like: fx.Node) -> fx.Node:
    with body.inserting_before(body.output_node()):
        node = body.call_function(aten.zeros_like.default, (like,))
    ir.set_value(node, fresh(ir.value(like)))
    return node


def _remaining(sections: list[list[Any]], zero: set[int]) -> list[list[Any]]:
    first, found = 0, []
    for section in sections:
        found.append([value for i, value in enumerate(section, first) if i not in zero])
        first += len(section)
    return found
