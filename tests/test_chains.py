"""Second derivatives in one direction: the chain that carries them down is run from its other end."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import grad

import tapeless
from tapeless.ir import graph as ir
from tapeless.options import Options
from tapeless.pipeline import preparation, trace

ACTIVATIONS = {
    "tanh": torch.tanh, "silu": F.silu, "gelu": F.gelu, "sin": torch.sin, "sigmoid": torch.sigmoid,
    "softplus": F.softplus, "mish": F.mish, "square": torch.square, "written out": lambda x: x * torch.sigmoid(x),
}  # fmt: skip


class Net(nn.Module):
    def __init__(self, sizes, act=torch.tanh, residual=False, bias=True):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b, bias) for a, b in zip(sizes, sizes[1:], strict=False))
        self.act, self.residual = act, residual

    def forward(self, x):
        *hidden, last = self.layers
        for layer in hidden:
            new = self.act(layer(x))
            x = x + new if self.residual and x.shape == new.shape else new
        return last(x)


def slope(u, x):
    return grad(u.sum(), x, create_graph=True)[0]


def burgers(net, x):
    u = net(x)
    du = slope(u, x)
    return (du[:, 1] + u[:, 0] * du[:, 0] - 0.01 * slope(du[:, 0], x)[:, 0]).square().mean()


def kept_apart(net, x):
    """Each coordinate a column of its own, as many programs have it."""
    a, b = x[:, :1].detach().requires_grad_(), x[:, 1:2].detach().requires_grad_()
    u = net(torch.cat([a, b], 1))
    (u_a,) = grad(u, a, torch.ones_like(u), create_graph=True)
    (u_aa,) = grad(u_a, a, torch.ones_like(u_a), create_graph=True)
    (u_b,) = grad(u, b, torch.ones_like(u), create_graph=True)
    return (u_b - u_aa).square().mean() + x.square().sum()


def laplacian(net, x):
    du = slope(net(x), x)
    return sum(slope(du[:, i], x)[:, i] for i in range(x.shape[1])).square().mean()


def whole_hessian(net, x):
    du = slope(net(x), x)
    rows = [slope(du[:, i], x) for i in range(2)]
    return (rows[0][:, 0] * rows[1][:, 1] - rows[0][:, 1] * rows[1][:, 0]).square().mean()


def mixed(net, x):
    return slope(slope(net(x), x)[:, 0], x)[:, 1].square().mean()


def along(net, x):
    """In a direction that depends on the point."""
    v = x.sin().detach()
    return (slope((slope(net(x), x) * v).sum(1), x) * v).sum(1).square().mean()


def one_output(net, x):
    u = net(x)
    return sum(slope(slope(u[:, i], x)[:, 0], x)[:, 0].square().mean() for i in range(u.shape[1]))


def third(net, x):
    du = slope(net(x), x)[:, 0]
    return slope(slope(du, x)[:, 0], x)[:, 0].square().mean()


def of_mean(net, x):
    """No sum over points: a functional of all of them."""
    return slope(slope(net(x), x)[:, 0], x)[:, 0].sum().square()


def functional(net, x):
    first = torch.func.grad(lambda at: net(at).sum())
    second = torch.func.grad(lambda at: first(at)[:, 0].sum())
    return (first(x)[:, 1] - second(x)[:, 0]).square().mean()


def in_sets(net, x):
    """Points in sets: [sets, points, coordinates]."""
    return burgers_of_sets(net, x.reshape(2, -1, x.shape[-1])) if x.shape[0] % 2 == 0 else burgers(net, x)


def burgers_of_sets(net, x):
    du = slope(net(x), x)
    return (du[..., 1] - slope(du[..., 0], x)[..., 0]).square().mean()


PROBLEMS = {f.__name__: f for f in (
    burgers, kept_apart, laplacian, whole_hessian, mixed, along, one_output, third, of_mean, functional, in_sets,
)}  # fmt: skip


def case(problem, act="tanh", hidden=3, points=16, width=24, outputs=1, **how):
    torch.manual_seed(0)
    net = Net([2, *[width] * hidden, outputs], ACTIVATIONS[act], **how).double()
    return net, PROBLEMS[problem], torch.rand(points, 2, dtype=torch.float64, requires_grad=problem != "functional")


def gradients(net, loss, x):
    found = grad(loss, [*net.parameters(), *([x] if x.requires_grad else [])], allow_unused=True)
    return [loss.detach(), *found]


def assert_as_eager(net, problem, x, **options):
    compiled = tapeless.compile(lambda x: problem(net, x), backend="python", cache=False, **options)
    expected, actual = gradients(net, problem(net, x), x), gradients(net, compiled(x), x)
    for a, b in zip(expected, actual, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9)


def acted(net, problem, x, option=""):
    """How often the pass acted."""
    captured = trace(lambda x: problem(net, x), (x,), {})
    return preparation(captured, Options(prepare=option))[1].applied["transpose_chain"]


FORCED = {"prepare": "transpose_chain!", "check": True}


@pytest.mark.parametrize("act", ACTIVATIONS)
@pytest.mark.parametrize("problem", ["burgers", "laplacian"])
def test_activations(problem, act):
    assert_as_eager(*case(problem, act), **FORCED)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_problems(problem, residual):
    net, f, x = case(problem, "silu", residual=residual, outputs=2 if problem == "one_output" else 1)

    assert_as_eager(net, f, x, **FORCED)


@pytest.mark.parametrize("hidden", [1, 2, 3, 4, 5])
def test_depths(hidden):
    assert_as_eager(*case("burgers", "sin", hidden), **FORCED)


@pytest.mark.parametrize("points", [0, 1, 2])
@pytest.mark.parametrize("problem", ["burgers", "kept_apart", "along"])
def test_few_points(problem, points):
    net, f, x = case(problem, points=points)
    assert_as_eager(net, lambda net, x: f(net, x).nan_to_num(), x, **FORCED)
