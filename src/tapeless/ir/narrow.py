"""Fused backward operators compute several gradients at once: tell them which ones are read."""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless.ir import graph as ir

MASKS = ("output_mask", "grad_input_mask")

# Results a kernel writes without asking its mask: group norm's, on channels-last memory, crashes in eager too.
UNASKED = {torch.ops.aten.native_group_norm_backward.default: 0}


def narrow(graph: fx.Graph) -> fx.Graph:
    """Set `output_mask` of every operator that has one to the results that somebody uses."""
    for node in ir.calls(graph):
        position = _mask_position(node)
        if position is not None and all(user.target is operator.getitem for user in node.users):
            _narrow(node, position)
    return graph


def _narrow(node: fx.Node, position: int) -> None:
    used = {user.args[1] for user in node.users} | {UNASKED.get(node.target)}  # type: ignore[arg-type]
    mask = [bool(flag) and i in used for i, flag in enumerate(node.args[position])]  # type: ignore[arg-type]
    node.update_arg(position, mask)
    val = ir.value(node)
    if isinstance(val, (tuple, list)):
        ir.set_value(node, tuple(v if i >= len(mask) or mask[i] else None for i, v in enumerate(val)))


def _mask_position(node: fx.Node) -> int | None:
    if not isinstance(node.target, OpOverload):
        return None
    names = [argument.name for argument in node.target._schema.arguments]
    return next((names.index(mask) for mask in MASKS if mask in names and names.index(mask) < len(node.args)), None)
