"""Operators that ATen does not have: for inference weights packed as kernels read them, and products with such; for
training a recurrent layer.

ATen's own convolution brings its weights into that order at every call. Here packing is a call of its own, whose
result can be kept (`runtime/kept.py`). They have no derivative: where one is asked after all, `written_out` has the
same program in ATen's operators. The layer has one, see `rules/rnn.py`: ATen's own does not keep what that reads in a
program that autograd does not watch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map_only

from tapeless import torch_internals
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_graph
from tapeless.ir.emit import Emitter
from tapeless.torch_internals import lstm_layer
from tapeless.torch_internals.packed import convolve_packed, multiply_packed, pack_bias, pack_filters, pack_matrix

Tensor = torch.Tensor
aten = torch.ops.aten

NAMESPACE = "tapeless"


def _fake_packed(weight: Tensor, *settings: Any) -> Tensor:
    return weight.new_empty(weight.shape)


def _convolved(x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    image = x.contiguous(memory_format=torch.channels_last)
    return aten.convolution(image, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)


def _fake_convolved(x: Tensor, packed: Tensor, *settings: Any) -> Tensor:
    return torch.empty_like(_convolved(x, packed, *settings), memory_format=torch.channels_last)


def _fake_product(x: Tensor, packed: Tensor, bias: Any) -> Tensor:
    return x.new_empty((x.shape[0], packed.shape[0]))


def _fake_lstm_layer(x: Tensor, *weights_and_states: Any) -> tuple[Tensor, ...]:
    """oneDNN alone knows how large its workspace is."""
    *_, hidden, cell, _reverse = weights_and_states
    outputs = x.new_empty((*x.shape[:-1], hidden.shape[-1]))
    return outputs, hidden.new_empty(hidden.shape), cell.new_empty(cell.shape), x.new_empty(0, dtype=torch.uint8)


_WEIGHTS = "Tensor weight, Tensor recurrent, Tensor bias, Tensor other_bias"
_LAYER = "Tensor outputs, Tensor last_hidden, Tensor last_cell, Tensor workspace"
_WINDOW = "int[] stride, int[] padding, int[] dilation, int groups"
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
for schema, real, fake in (
    (f"pack_filters(Tensor weight, {_WINDOW}, int[] size) -> Tensor", pack_filters, _fake_packed),
    (f"convolve_packed(Tensor x, Tensor packed, Tensor? bias, {_WINDOW}) -> Tensor", convolve_packed, _fake_convolved),
    ("pack_bias(Tensor bias) -> Tensor", pack_bias, _fake_packed),
    ("pack_matrix(Tensor weight, int rows) -> Tensor", pack_matrix, _fake_packed),
    ("multiply_packed(Tensor x, Tensor packed, Tensor? bias) -> Tensor", multiply_packed, _fake_product),
    (
        f"lstm_layer(Tensor x, {_WEIGHTS}, Tensor hidden, Tensor cell, bool reverse) -> ({_LAYER})",
        lstm_layer, _fake_lstm_layer,
    ),
):  # fmt: skip
    _LIBRARY.define(schema)
    _LIBRARY.impl(real.__name__, real, "CompositeExplicitAutograd")
    _LIBRARY.impl(real.__name__, fake, "Meta")

ops = torch.ops.tapeless


def written_out(graph: fx.Graph) -> fx.Graph:
    """The same program in ATen's operators; `graph` itself if it calls none of these."""
    if not any(node.target in WRITTEN_OUT for node in ir.calls(graph)):
        return graph
    graph = copy_graph(graph)
    emitter = Emitter(graph, lambda *_: False)
    emitter.bind_graph(list(graph.nodes))
    with torch_internals.emission(torch_internals.fake_mode_of(list(map(ir.value, ir.inputs(graph))))), emitter:
        for node in ir.calls(graph):
            if node.target in WRITTEN_OUT:
                _write_out(emitter, node)
    return graph


def _write_out(emitter: Emitter, node: fx.Node) -> None:
    with node.graph.inserting_before(node):
        result = WRITTEN_OUT[node.target](*tree_map_only(fx.Node, ir.value, node.args))
    node.replace_all_uses_with(emitter.node(result))
    node.graph.erase_node(node)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


WRITTEN_OUT: dict[Any, Callable[..., Tensor]] = {
    ops.pack_filters.default: lambda weight, *settings: weight,
    ops.pack_bias.default: lambda bias: bias,
    ops.convolve_packed.default: _convolved,
    ops.pack_matrix.default: lambda weight, rows: weight,
    ops.multiply_packed.default: _product,
}
