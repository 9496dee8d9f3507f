"""What a backward reads of a large value without needing its elements: less is saved for that.

- The argument of a pooling, for its shape: it reads a single one, repeated.
- Where the largest elements were, in eight bytes each: within one image, two or four are enough.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor, fx

from tapeless import torch_internals
from tapeless.differentiate.apply import result_is_zero
from tapeless.differentiate.reverse import Joint
from tapeless.ir import graph as ir
from tapeless.ir.cost import likely_bytes
from tapeless.ir.emit import Emitter

aten = torch.ops.aten

LARGE = 2**18  # bytes: for fewer, two small calls take longer than the memory is worth

# Backwards of poolings, and the position of the argument of which they read nothing but what kind of tensor it is.
SHAPE_ONLY: dict[Any, int] = {
    aten.max_pool2d_with_indices_backward.default: 1,
    aten.avg_pool2d_backward.default: 1,
    aten._adaptive_avg_pool2d_backward.default: 1,
}

POOLED_DIMS: dict[Any, int] = {
    aten.max_pool2d_with_indices.default: 2,
    aten.max_pool3d_with_indices.default: 3,
    aten.adaptive_max_pool2d.default: 2,
    aten.adaptive_max_pool3d.default: 3,
}


def read_less(joint: Joint) -> None:
    """Let the backward read shapes, and short integers, of what the forward makes."""
    shapes = [node for node in joint.graph.nodes if node in joint.backward and _reads_shape(joint, node)]
    indices = [node for node in joint.graph.nodes if _is_index(joint, node)]
    if not shapes and not indices:
        return
    emitter = Emitter(joint.graph, result_is_zero)
    emitter.bind_graph([*joint.graph.nodes])
    with torch_internals.emission(torch_internals.fake_mode_of([ir.value(n) for n in (*shapes, *indices)])), emitter:
        for node in shapes:
            _read_ones(joint, emitter, node)
        for node in indices:
            _read_short(joint, emitter, node)


def _reads_shape(joint: Joint, node: fx.Node) -> bool:
    position = SHAPE_ONLY.get(node.target)
    if position is None:
        return False
    like: fx.Node = node.args[position]  # type: ignore[assignment]
    return like not in joint.backward and _is_large(like) and ir.value(like).is_contiguous()


def _is_index(joint: Joint, node: fx.Node) -> bool:
    if node.target is not operator.getitem or node.args[1] != 1 or node in joint.outputs:
        return False
    pooling: fx.Node = node.args[0]  # type: ignore[assignment]
    if pooling.target not in POOLED_DIMS or not _is_large(node):
        return False
    return any(user in joint.backward for user in node.users)


def _is_large(node: fx.Node) -> bool:
    val = ir.value(node)
    return all(isinstance(n, int) for n in val.shape) and likely_bytes(val) >= LARGE


def _read_ones(joint: Joint, emitter: Emitter, node: fx.Node) -> None:
    position = SHAPE_ONLY[node.target]
    before = set(joint.graph.nodes)
    with joint.graph.inserting_before(node), emitter.in_region(ir.region(node)):
        ones = emitter.node(_ones_like(ir.value(node.args[position])))  # type: ignore[arg-type]
    joint.backward.update(set(joint.graph.nodes).difference(before))
    node.update_arg(position, ones)


def _ones_like(x: Tensor) -> Tensor:
    return torch.full((), 1, dtype=x.dtype, device=x.device).expand(x.shape)  # zeros would be filled in


def _read_short(joint: Joint, emitter: Emitter, node: fx.Node) -> None:
    readers = [user for user in node.users if user in joint.backward]
    pooling: fx.Node = node.args[0]  # type: ignore[assignment]
    image: fx.Node = pooling.args[0]  # type: ignore[assignment]
    elements = math.prod(ir.value(image).shape[-POOLED_DIMS[pooling.target] :])
    dtype = _short(elements)
    known = (user for user in node.users if _is_copy(user, dtype))  # of second order the forward makes it already
    wide = _copy(next(known, None) or _copy(node, dtype), torch.int64)
    for reader in readers:
        reader.replace_input_with(node, wide)


def _is_copy(node: fx.Node, dtype: torch.dtype) -> bool:
    return node.target is aten._to_copy.default and node.kwargs == {"dtype": dtype}


def _copy(node: fx.Node, dtype: torch.dtype) -> fx.Node:
    with node.graph.inserting_after(node):
        made = node.graph.call_function(aten._to_copy.default, (node,), {"dtype": dtype})
    made.meta = dict(node.meta)
    ir.set_again(made, None)  # what was decided for the original says nothing about a copy of it
    ir.set_value(made, ir.value(node).to(dtype))
    return made


def _short(elements: int) -> torch.dtype:
    return torch.int16 if elements <= 2**15 else torch.int32
