"""What computes several results at once is told which ones are read."""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless.ir import graph as ir
from tapeless.ir.control import Scan, While
from tapeless.ir.opaque import AutogradVjp
from tapeless.ir.unused import narrow_loop

MASKS = ("output_mask", "grad_input_mask")

# Results a kernel writes without asking its mask: group norm's, on channels-last memory, crashes in eager too.
UNASKED = {torch.ops.aten.native_group_norm_backward.default: 0}


def narrow(graph: fx.Graph) -> fx.Graph:
    """Let every operator that has an `output_mask`, every opaque backward and every loop give what somebody uses."""
    for node in reversed(ir.calls(graph)):  # what one loop no longer reads, the one before need not give
        if isinstance(node.target, AutogradVjp):
            _narrow_opaque(node, node.target)
        elif isinstance(node.target, (Scan, While)):
            narrow_loop(node)
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


def _narrow_opaque(node: fx.Node, vjp: AutogradVjp) -> None:
    """Ask an opaque backward, which looks at `needs_input_grad`, for the gradients that are read."""
    used = sorted({index for user in node.users if isinstance(index := user.args[1], int)})
    node.target = vjp.narrowed(used)
    ir.set_value(node, tuple(ir.value(node)[i] for i in used))
    for user in list(node.users):
        user.update_arg(1, used.index(user.args[1]))  # type: ignore[arg-type]


def _mask_position(node: fx.Node) -> int | None:
    if not isinstance(node.target, OpOverload):
        return None
    names = [argument.name for argument in node.target._schema.arguments]
    return next((names.index(mask) for mask in MASKS if mask in names and names.index(mask) < len(node.args)), None)
