"""The two gradients of a convolution by two calls, so that the image it read is free before the other is computed.

The kernel that gives both keeps the image until it returns, beside what it lays out anew for each. That of the weights
comes first; that of the image is the transposed convolution of the cotangent, which is the same kernel with the same
numbers, but reads no image. If it takes steps its result is laid out twice, unless channels are last.

Done to graphs that are about to run, where images are large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from tapeless import torch_internals
from tapeless.ir import graph as ir
from tapeless.ir.emit import Emitter

aten = torch.ops.aten

LARGE = 2**20  # bytes of an image
MASK = 10  # the position of `output_mask` among the arguments


def split_convolutions(graph: fx.Graph) -> fx.Graph:
    """Rewrite the backwards of convolutions in `graph`, in place."""
    found = list(filter(_suits, graph.find_nodes(op="call_function", target=aten.convolution_backward.default)))
    if found:
        emitter = Emitter(graph, lambda *_: False)
        fakes = torch_internals.fake_mode_of([ir.value(node.args[0]) for node in found])
        with torch_internals.emission(fakes), emitter:
            for node in found:
                _split(emitter, node)
    return graph


def _suits(node: fx.Node) -> bool:
    """Are both gradients asked, of a large image, and will oneDNN's kernels lay out what they read?"""
    values = [ir.value(a) for a in node.args[:3]]  # type: ignore[arg-type]
    of_image, *others = node.args[MASK]  # type: ignore[misc]
    if _How.of(node).transposed or not of_image or not any(others) or not torch.backends.mkldnn.is_available():
        return False
    return all(map(_is_plain, values)) and values[2].shape[2:].numel() > 1 and values[1].nbytes >= LARGE


def _is_plain(val: Tensor) -> bool:
    known = all(isinstance(n, int) for n in val.shape)
    return known and val.dtype is torch.float32 and val.is_cpu and val.dim() == 4 and val.is_contiguous()


def _split(emitter: Emitter, node: fx.Node) -> None:
    of_image = next(user for user in node.users if user.args[1] == 0)
    g, x, weight = (torch_internals.fresh(ir.value(a)) for a in node.args[:3])  # type: ignore[arg-type]
    for val, argument in zip((g, x, weight), node.args, strict=False):
        emitter.bind(val, argument)  # type: ignore[arg-type]
    with emitter.graph.inserting_before(max(node.users).next), emitter.in_region(ir.region(node)):
        made = emitter.node(_gradient_of_image(g, x.shape, weight, _How.of(node)))
    _keep_others(node)
    of_image.replace_all_uses_with(made)
    emitter.graph.erase_node(of_image)
    ir.take_name(made, of_image)


def _keep_others(node: fx.Node) -> None:
    mask = (False, *node.args[MASK][1:])  # type: ignore[index]
    node.update_arg(MASK, list(mask))
    ir.set_value(node, tuple(v if keep else None for v, keep in zip(ir.value(node), mask, strict=True)))


@dataclass(frozen=True)
class _How:
    """The settings of a convolution of images."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    @classmethod
    def of(cls, node: fx.Node) -> _How:
        found: tuple[Any, ...] = node.args[4:MASK]
        return cls(*found)


def _gradient_of_image(g: Tensor, size: Sequence[int], weight: Tensor, how: _How) -> Tensor:
    """x̄ = convᵀ(ȳ, w)."""
    sizes = zip(size[2:], g.shape[2:], weight.shape[2:], how.stride, how.padding, how.dilation, strict=True)
    unread = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, k, s, p, d in sizes]  # at the end of each row
    rest = (None, how.stride, how.padding, how.dilation, True, unread, how.groups)
    if max(how.stride) == 1 or how.groups > 1:
        return aten.convolution(g, weight, *rest)
    return aten.convolution(g.contiguous(memory_format=torch.channels_last), weight, *rest).contiguous()
