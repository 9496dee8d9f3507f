"""Gradients that are there and known to be zero are not pulled back through a network."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import tapeless
from comparing import assert_values, seeded

aten = torch.ops.aten


class Calls(TorchDispatchMode):
    """Counts the operators that run."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **kwargs or {})


class Critic(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 2, 3, padding=1)
        self.activation = activation

    def forward(self, x):
        return F.max_pool2d(self.activation(self.second(self.activation(self.first(x)))), 2).sum((1, 2, 3))


ACTIVATIONS = (nn.ReLU(), nn.LeakyReLU(0.2), nn.Hardtanh(), nn.PReLU(), nn.Softshrink(), nn.SiLU(), nn.CELU())


def penalty(network, x):
    (slope,) = torch.autograd.grad(network(x).sum(), x, create_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1).square().mean()


@pytest.mark.parametrize("inside", [False, True], ids=["gradient outside", "gradient inside"])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: type(a).__name__)
def test_penalty(activation, inside):
    """Gradients as in eager; zeros are zeros and None is None, for the inputs of the network too."""
    found = []
    for compile in (lambda f: f, lambda f: tapeless.compile(f)):
        network = seeded(0, lambda: Critic(activation)).double()
        x = seeded(0, lambda: torch.randn(2, 2, 4, 4, dtype=torch.float64)).requires_grad_()
        if inside:
            compile(penalty)(network, x).backward()
        else:
            penalty(compile(network), x).backward()
        found.append([x.grad, *(p.grad for p in network.parameters())])
        network.zero_grad()
    assert_values(found[1], found[0])


@pytest.mark.parametrize("inside", [False, True], ids=["gradient outside", "gradient inside"])
def test_nothing_is_pulled_back(inside):
    """The slope of a ReLU does not depend on what is below it: no convolution is needed to say so."""
    network, x = Critic(nn.ReLU()), torch.randn(2, 2, 4, 4, requires_grad=True)
    compiled, inner = torch.compile(network, backend="tapeless"), tapeless.compile(penalty)
    ours = (lambda: inner(network, x)) if inside else (lambda: penalty(compiled, x))
    ours().backward()  # builds the programs
    found = [_convolutions(value) for value in (ours(), penalty(network, x))]
    assert found == [3, 6]  # one for the cotangent between the layers, one for each weight


def _convolutions(value):
    with Calls() as calls:
        value.backward()
    return calls.seen.count(aten.convolution.default) + calls.seen.count(aten.convolution_backward.default)


def test_third_order():
    """Zeros that travel between programs, which are differentiated again."""

    def third(f, x):
        for _ in range(3):
            (x_,) = torch.autograd.grad(f(x).sum() if callable(f) else f, x, create_graph=True)
            f = (x_ * x_).sum()
        return x_

    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.Softplus(), nn.Linear(3, 2), nn.LeakyReLU())
    network = network.double()
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    found = third(torch.compile(network, backend="tapeless"), x)
    assert_values(found, third(network, x))
    assert_values(
        torch.autograd.grad(
            third(torch.compile(network, backend="tapeless"), x).sum(), [x, *network.parameters()], allow_unused=True
        ),
        torch.autograd.grad(third(network, x).sum(), [x, *network.parameters()], allow_unused=True),
    )


def test_gradients_that_are_zero_can_be_written_to():
    """What the user gets is a tensor like any other."""
    x = torch.randn(4, 3, requires_grad=True)
    network = torch.compile(lambda x: F.relu(x * 2), backend="tapeless")
    (slope,) = torch.autograd.grad(network(x).sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.square().sum(), x)
    assert curvature.add_(1).eq(1).all()


def test_rounding():
    """A first derivative that is zero ends the program, too."""
    weight = torch.randn(3, 3, requires_grad=True)
    gradient = tapeless.grad(lambda w: (w @ w).round().sum())
    assert "mm" not in str(gradient.program(weight))
    assert gradient(weight).eq(0).all()


def test_user_s_own_zeros_are_numbers():
    """Only what a backward knows is left out: the program itself computes 0 · ∞ as eager does."""

    def f(x):
        return (x / torch.zeros_like(x)) * torch.zeros(3)

    x = torch.ones(3)
    gradient, value = tapeless.grad(lambda x: f(x).sum())(x), tapeless.compile(f)(x)
    assert gradient.isnan().all() and value.isnan().all()


def test_a_derivative_of_one_s_own_sees_zeros():
    """Nothing says that it is linear."""

    class Shifted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g + 1

    x = torch.randn(3, requires_grad=True)
    found = [torch.autograd.grad(f(x).sum(), x)[0] for f in _twice(lambda x: Shifted.apply(x).round())]
    assert_values(found[1], found[0])


def _twice(f):
    return f, torch.compile(f, backend="tapeless")


def test_long_backward_at_a_mask_met_for_the_first_time():
    """Such a backward runs in its general form, whose tests no other line reads: they must not go for that."""

    def head(x):
        for _ in range(40):
            x = (x.sin() * x.cos() + x) * 0.5
        return x

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    found = [torch.autograd.grad(f(x)[1].sum(), x) for f in _twice(lambda x: (head(x), head(x.exp())))]
    assert_values(found[0], found[1])


def test_sizes_of_zeros_are_not_read_from_what_is_undefined():
    """A known zero of symbolic size, in a backward in which the cotangent that has this size never arrives."""

    def drawn(x):
        return torch.bernoulli(x.sigmoid()) * x

    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    found = []
    for call in (drawn, torch.compile(drawn, backend="tapeless", dynamic=True)):
        torch.manual_seed(0)
        (first,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        found.append((first.detach(), *torch.autograd.grad(first.sin().sum(), x)))

    torch.testing.assert_close(found[0], found[1])
