"""Recurrent layers as eager runs them: one after the other, an LSTM by its kernel.

Torch's own way of tracing them writes every step out, also where eager has a kernel, and forgets the dropout between
layers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from tapeless import torch_internals
from tapeless.capture.facts import graph_modules
from tapeless.ir import graph as ir
from tapeless.ir import kernels

aten = torch.ops.aten

OWN = [argument.name for argument in kernels.ops.lstm_layer.default._schema.arguments]  # ATen's layer has more
Tensors = Sequence[Tensor]
Layer = Callable[[Tensor, Tensors, Tensors], Sequence[Tensor]]  # (inputs, states, weights) → (outputs, *last states)


@contextlib.contextmanager
def recurrent_layers_kept(module: fx.GraphModule) -> Iterator[None]:
    """Meanwhile a Dynamo graph with recurrent layers calls one at a time."""
    nodes = [node for part in graph_modules(module) for node in part.graph.nodes]
    calls = {node: node.target for node in nodes if node.op == "call_function" and _is_layer(node)}
    for node, function in calls.items():
        node.target = INSTEAD[function]
    try:
        yield
    finally:
        for node, function in calls.items():
            node.target = function


def _is_layer(node: fx.Node) -> bool:
    """Of sequences that are packed, whose fourth argument holds the weights, Dynamo has nothing to trace."""
    return node.target in INSTEAD and isinstance(node.args[3], bool)


def keep_workspaces(graph: fx.Graph) -> None:
    """Let each LSTM keep what its backward reads, also where autograd does not watch."""
    for node in graph.find_nodes(op="call_function", target=aten.mkldnn_rnn_layer.default):
        if node.args[len(OWN) :] == _settings(node.args[OWN.index("hidden")]):
            node.target, node.args = kernels.ops.lstm_layer.default, node.args[: len(OWN)]


def _settings(hidden: Any) -> tuple[Any, ...]:
    """What ATen's operator is called with besides: one layer, with biases, in one direction, being trained."""
    size = (ir.value(hidden) if isinstance(hidden, fx.Node) else hidden).shape[-1]
    return [], torch_internals.LSTM, size, 1, True, False, False, True


def _recurrent(
    function: Any, inputs: Tensor, states: Any, weights: Tensors, has_biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What `torch.lstm` and its like do."""
    states = _listed(states)
    by_kernel = function is torch.lstm and _has_kernel(inputs, states, weights)
    settings = [has_biases, 1, 0.0, train, bidirectional, False]
    layer = partial(_lstm_layer, bidirectional) if by_kernel else partial(_layer, function, settings)
    given = inputs.transpose(0, 1) if batch_first else inputs
    outputs, *last = _stacked(layer, given, states, weights, layers, dropout if train else 0.0)
    return outputs.transpose(0, 1) if batch_first else outputs, *last


def _listed(states: Any) -> list[Tensor]:
    return [states] if isinstance(states, Tensor) else list(states)


def _stacked(
    layer: Layer, inputs: Tensor, states: Tensors, weights: Tensors, layers: int, dropout: float
) -> tuple[Tensor, ...]:
    """Layers on top of each other, with dropout between them."""
    last = []
    for k, own in enumerate(zip(*(state.chunk(layers) for state in states), strict=True)):
        inputs = torch.dropout(inputs, dropout, True) if k and dropout else inputs
        size = len(weights) // layers
        inputs, *ends = layer(inputs, own, weights[k * size : (k + 1) * size])
        last.append(ends)
    return inputs, *map(torch.cat, zip(*last, strict=True))


def _layer(function: Any, settings: list[Any], inputs: Tensor, states: Tensors, weights: Tensors) -> Sequence[Tensor]:
    """By torch's own function."""
    return function(inputs, states[0] if len(states) == 1 else list(states), list(weights), *settings)


def _has_kernel(inputs: Tensor, states: Tensors, weights: Tensors) -> bool:
    """Not with projections, by which hidden states are smaller than cells, under autocast or under a transform."""
    hidden, cell = states
    if hidden.shape[-1] != cell.shape[-1] or torch_internals.autocast_enabled() or torch_internals.in_functorch():
        return False
    return torch_internals.has_lstm_layer([inputs, *states, *weights])


def _lstm_layer(bidirectional: bool, inputs: Tensor, states: Tensors, weights: Tensors) -> Sequence[Tensor]:
    """By oneDNN, there and perhaps back."""
    directions = 2 if bidirectional else 1
    size = len(weights) // directions
    found = []
    for k in range(directions):
        weight, recurrent, *biases = weights[k * size : (k + 1) * size]
        biases = biases or [weight.new_zeros(weight.shape[0])] * 2
        own = [state[k].contiguous() for state in states]
        given = (inputs.contiguous(), weight, recurrent, *biases, *own, k == 1)
        found.append(aten.mkldnn_rnn_layer(*given, *_settings(own[0]))[:3])
    outputs, *last = zip(*found, strict=True)
    return torch.cat(outputs, -1) if bidirectional else outputs[0], *map(torch.stack, last)


INSTEAD: dict[Any, Callable[..., tuple[Tensor, ...]]] = {
    function: partial(_recurrent, function) for function in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
}
