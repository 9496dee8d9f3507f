"""Recurrent layers in programs that are captured whole: eager's values, gradients and random numbers."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import tapeless

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
SETTINGS = {
    "plain": {},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
    "three layers": {"num_layers": 3},
    "both directions": {"bidirectional": True, "num_layers": 2, "batch_first": True},
    "dropout": {"dropout": 0.5, "num_layers": 3, "batch_first": True},
    "all of it": {"dropout": 0.5, "num_layers": 2, "bidirectional": True, "bias": False},
}
CASES = [
    *((nn.LSTM, settings) for settings in SETTINGS.values()),
    *((kind, settings) for kind in (nn.GRU, nn.RNN) for settings in (SETTINGS["dropout"], SETTINGS["all of it"])),
    (nn.LSTM, {"proj_size": 2, "num_layers": 2, "bidirectional": True}),
    (nn.RNN, {"nonlinearity": "relu"}),
]


def names(value):
    return value.__name__ if isinstance(value, type) else ",".join(map(str, value)) or "plain"


def given(kind, settings, dtype):
    """A layer, an input, and a state to begin with."""
    torch.manual_seed(0)
    layer = kind(4, 3, **settings).to(dtype)
    copies = layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = [layer.proj_size or 3, 3] if kind is nn.LSTM else [3]
    batch = 5 if layer.batch_first else 2
    states = tuple(torch.randn(copies, batch, size, dtype=dtype) for size in sizes)
    return layer, torch.randn(5, 2, 4, dtype=dtype), states if kind is nn.LSTM else states[0]


def total(results):
    """A number that depends on all results, on each in another way."""
    leaves = torch.utils._pytree.tree_leaves(results)
    return sum((leaf * (leaf + k + 1)).sum() for k, leaf in enumerate(leaves))


def after_steps(layer, *inputs, by_tapeless=True):
    """The parameters after three steps."""
    optimizer = optim.SGD(layer.parameters(), 0.1)

    def eagerly(*inputs):
        optimizer.zero_grad()
        loss = total(layer(*inputs))
        loss.backward()
        optimizer.step()
        return loss

    step = tapeless.train_step(layer, lambda m, *x: total(m(*x)), optimizer, backend="python")
    torch.manual_seed(1)
    losses = [(step if by_tapeless else eagerly)(*inputs).detach() for _ in range(3)]
    return losses, list(layer.parameters())


@BOTH
@pytest.mark.parametrize("kind, settings", CASES, ids=names)
def test_steps(kind, settings, dtype):
    layer, x, states = given(kind, settings, dtype)
    inputs = (x, states) if len(settings) % 2 else (x,)
    expected = after_steps(copy.deepcopy(layer), *inputs, by_tapeless=False)

    torch.testing.assert_close(expected, after_steps(layer, *inputs))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=names)
def test_an_lstm_is_one_call_for_each_layer_and_direction(settings):
    layer, x, states = given(nn.LSTM, settings, torch.float32)
    gradient = tapeless.differentiate(lambda x, *states: layer(x, states)[0], x.requires_grad_(), *states)
    expected = layer.num_layers * (2 if layer.bidirectional else 1)

    assert expected == str(gradient.forward).count("= kernels.lstm_layer(")
    assert expected == str(gradient.backward).count("= aten.mkldnn_rnn_layer_backward.default(")


@pytest.mark.parametrize("settings", [{}, {"bidirectional": True, "num_layers": 2}], ids=names)
def test_derivatives_of_higher_order(settings):
    """The first derivative is the kernel's, the others are written out; torch has a gradient of a gradient too."""
    layer, x, (hidden, cell) = given(nn.LSTM, settings, torch.float32)
    weights, directions = layer._flat_weights, 2 if layer.bidirectional else 1
    flags = (True, layer.num_layers, 0.0, False, directions == 2, False)

    def loss(x, hidden, cell, *weights):
        return total(torch.lstm(x, (hidden, cell), weights, *flags))

    def penalty(*inputs):
        return sum(g.square().sum() for g in torch.autograd.grad(loss(*inputs), inputs, create_graph=True))

    inputs = [t.detach().requires_grad_() for t in (x, hidden, cell, *weights)]
    expected = torch.autograd.grad(penalty(*inputs), inputs)
    doubles = [t.detach().double() for t in inputs]
    every = tuple(range(len(inputs)))
    _, tangent = torch.func.jvp(loss, tuple(doubles), tuple(map(torch.ones_like, doubles)))
    close = {"rtol": 1e-3, "atol": 1e-3}

    torch.testing.assert_close(expected, tapeless.grad(penalty, every)(*inputs), **close)
    inputs = tuple(t.detach() for t in inputs)
    _, found = tapeless.jvp(loss, inputs, tuple(map(torch.ones_like, inputs)))
    torch.testing.assert_close(tangent.float(), found, **close)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences_are_refused(kind):
    """Their sizes are numbers in a tensor, which Dynamo does not see."""
    layer, x, _ = given(kind, {}, torch.float32)
    packed = pack_padded_sequence(x, torch.tensor([5, 3]))

    with pytest.raises(tapeless.errors.TapelessError, match="data-dependent"):
        tapeless.train_step(
            layer, lambda m, *x: m(PackedSequence(*x))[0].data.sum(), optim.SGD(layer.parameters(), 0.1)
        )(packed.data, packed.batch_sizes)


def test_sequences_of_several_lengths():
    """The second length makes them symbolic."""
    layer, *_ = given(nn.LSTM, {"num_layers": 2, "bidirectional": True}, torch.float32)
    other = copy.deepcopy(layer)
    step = tapeless.train_step(layer, lambda m, x: total(m(x)), optim.SGD(layer.parameters(), 0.1), backend="python")
    optimizer = optim.SGD(other.parameters(), 0.1)
    for length in (5, 6, 7):
        x = torch.randn(length, 2 + length % 2, 4)
        optimizer.zero_grad()
        expected = total(other(x))
        expected.backward()
        optimizer.step()

        torch.testing.assert_close(expected, step(x))
    torch.testing.assert_close(list(other.parameters()), list(layer.parameters()))
    assert "kernels.lstm_layer(" in str(step)


def test_steps_by_inductor():
    layer, x, _ = given(nn.LSTM, {"num_layers": 2}, torch.float32)
    head = nn.Linear(3, 2)
    model, y = nn.ModuleList([layer, head]), torch.randn(5, 2, 2)
    step = tapeless.train_step(
        model, lambda m, x, y: F.mse_loss(m[1](m[0](x)[0]), y), optim.SGD(model.parameters(), 0.1), backend="inductor"
    )
    other = copy.deepcopy(model)
    optimizer = optim.SGD(other.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        expected = F.mse_loss(other[1](other[0](x)[0]), y)
        expected.backward()
        optimizer.step()

        torch.testing.assert_close(expected, step(x, y))
    torch.testing.assert_close(list(other.parameters()), list(model.parameters()))
