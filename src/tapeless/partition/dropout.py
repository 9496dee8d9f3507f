"""Dropout as the drawing of a mask, which is done once, and two products, which may be made again.

As one operator its result could only be saved: computed again it would draw other numbers. The calls are those of the
kernel, so the numbers drawn, the products and their rounding are the same; in half precision it rounds otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import Tensor, fx

from tapeless import torch_internals
from tapeless.differentiate.apply import result_is_zero
from tapeless.differentiate.reverse import Joint
from tapeless.ir import graph as ir
from tapeless.ir.emit import Emitter

aten = torch.ops.aten


def write_out_dropouts(joint: Joint, wanted: Callable[[fx.Node], bool]) -> None:
    """Replace the dropouts of the forward whose result is `wanted` to be computed again."""
    found = [node for node in joint.graph.nodes if node not in joint.backward and _is_kept(node, wanted)]
    if not found:
        return
    emitter = Emitter(joint.graph, result_is_zero)
    emitter.bind_graph([*joint.graph.nodes])
    with torch_internals.emission(torch_internals.fake_mode_of([ir.value(node) for node in found])), emitter:
        for result in found:
            _replace(joint, emitter, result)


def _is_kept(node: fx.Node, wanted: Callable[[fx.Node], bool]) -> bool:
    """Is `node` the result of a dropout of some elements? Drawing alone takes no layout but the usual one."""
    if node.target is not operator.getitem or node.args[1] != 0 or not wanted(node):
        return False
    source = node.args[0]
    if not isinstance(source, fx.Node) or source.target is not aten.native_dropout.default:
        return False
    given, p, train = source.args
    val = ir.value(given)  # type: ignore[arg-type]
    if train is False or p == 1 or val.dtype not in (torch.float32, torch.float64):
        return False
    return val.is_contiguous()


def _replace(joint: Joint, emitter: Emitter, result: fx.Node) -> None:
    dropout: fx.Node = result.args[0]  # type: ignore[assignment]
    given, p = dropout.args[:2]
    before = set(joint.graph.nodes)
    with joint.graph.inserting_before(dropout):
        made = [emitter.node(value) for value in _dropout(ir.value(given), p)]  # type: ignore[arg-type]
    for node in set(joint.graph.nodes).difference(before):
        node.meta = {**result.meta, "val": ir.value(node)}
    for item in list(dropout.users):
        instead = made[item.args[1]]  # type: ignore[index]
        item.replace_all_uses_with(instead)
        joint.outputs[:] = [instead if node is item else node for node in joint.outputs]
        joint.graph.erase_node(item)
        ir.take_name(instead, item)
    joint.graph.erase_node(dropout)
    for values in (joint.active, joint.reached):
        if result in values:
            values.update(made[:1], made[0].all_input_nodes[:1])
            values.discard(result)


def _dropout(x: Tensor, p: float) -> tuple[Tensor, Tensor]:
    mask = torch.bernoulli(x.new_empty(x.shape, dtype=torch.bool), 1 - p)
    return x * mask * (1 / (1 - p)), mask
