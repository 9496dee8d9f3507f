"""Second derivatives in one direction: the chain that carries them down is run from its other end."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import grad
from torch.fx.experimental.proxy_tensor import make_fx

import tapeless
from tapeless.ir import graph as ir
from tapeless.options import Options
from tapeless.pipeline import preparation, trace
from tapeless.prepare.rowwise import carriers

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


def per_point(net, x):
    """A function of one point, batched."""
    first = torch.func.grad(lambda at: net(at)[0])
    second = torch.func.vmap(torch.func.grad(lambda at: first(at)[0]))
    return (torch.func.vmap(first)(x)[:, 1] - second(x)[:, 0]).square().mean()


def in_sets(net, x):
    """Points in sets: [sets, points, coordinates]."""
    return burgers_of_sets(net, x.reshape(2, -1, x.shape[-1])) if x.shape[0] % 2 == 0 else burgers(net, x)


def burgers_of_sets(net, x):
    du = slope(net(x), x)
    return (du[..., 1] - slope(du[..., 0], x)[..., 0]).square().mean()


PROBLEMS = {f.__name__: f for f in (
    burgers, kept_apart, laplacian, whole_hessian, mixed, along, one_output, third, of_mean,
    functional, per_point, in_sets,
)}  # fmt: skip


def case(problem, act="tanh", hidden=3, points=16, width=24, outputs=1, **how):
    torch.manual_seed(0)
    net = Net([2, *[width] * hidden, outputs], ACTIVATIONS[act], **how).double()
    return (
        net,
        PROBLEMS[problem],
        torch.rand(points, 2, dtype=torch.float64, requires_grad=problem not in ("functional", "per_point")),
    )


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


FORCED = {"prepare": "transpose_chain!"}


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_activations(act):
    assert_as_eager(*case("burgers", act), **FORCED)


@pytest.mark.parametrize(("problem", "residual"), [(name, i % 2 == 0) for i, name in enumerate(PROBLEMS)])
def test_problems(problem, residual):
    net, f, x = case(problem, "silu", residual=residual, outputs=2 if problem == "one_output" else 1)

    assert_as_eager(net, f, x, **FORCED)


@pytest.mark.parametrize("hidden", [1, 2, 5])
def test_depths(hidden):
    assert_as_eager(*case("burgers", "sin", hidden), check=True, **FORCED)


@pytest.mark.parametrize("points", [0, 1])
@pytest.mark.parametrize("problem", ["kept_apart", "along"])
def test_few_points(problem, points):
    net, f, x = case(problem, points=points)

    assert_as_eager(net, lambda net, x: f(net, x).nan_to_num(), x, **FORCED)


def test_any_number_of_points():
    net, f, _ = case("burgers", width=8)
    compiled = torch.compile(
        lambda x: f(net, x), backend="tapeless", dynamic=True, options={"backend": "python", **FORCED}
    )
    for points in (5, 7, 1):
        x = torch.rand(points, 2, dtype=torch.float64, requires_grad=True)
        for a, b in zip(gradients(net, f(net, x), x), gradients(net, compiled(x), x), strict=True):
            torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9) if a is not None else None


def test_derivatives_of_the_compiled_loss():
    net, f, x = case("burgers", points=3, width=4, hidden=2)
    compiled = tapeless.compile(lambda x: f(net, x), backend="python", **FORCED)

    assert torch.autograd.gradcheck(compiled, (x,))
    assert torch.autograd.gradgradcheck(compiled, (x,), atol=1e-4)


def test_a_training_step():
    (net, f, x), (same, _, _) = case("burgers"), case("burgers")
    step = tapeless.train_step(net, f, torch.optim.SGD(net.parameters(), 0.1))
    plain = torch.optim.SGD(same.parameters(), 0.1)
    for _ in range(3):
        plain.zero_grad()
        loss = f(same, x)
        loss.backward()
        plain.step()

        torch.testing.assert_close(step(x), loss.detach())
    for a, b in zip(same.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(b, a)


# -- where it acts -----------------------------------------------------------------------------------------------------

WIDE = {"width": 128, "points": 512}


@pytest.mark.parametrize(
    ("problem", "times"),
    [
        ("burgers", 1),
        ("kept_apart", 1),
        ("laplacian", 2),
        ("along", 1),
        ("one_output", 1),
        ("functional", 1),
        ("per_point", 1),
        ("in_sets", 1),
    ],
)
def test_it_pays_where_tangents_are_known(problem, times):
    assert times == acted(*case(problem, **WIDE))


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_it_acts_whatever_the_activation(act):
    assert 1 == acted(*case("burgers", act, **WIDE))


def test_it_leaves_a_direction_without_tangents():
    assert 0 == acted(*case("mixed", **WIDE), "transpose_chain!")


def test_it_leaves_a_chain_that_somebody_else_reads():
    def f(net, x):
        second = slope(slope(net(x), x)[:, 0], x)
        return second[:, 0].square().mean() + second.square().mean()

    net, _, x = case("burgers", **WIDE)

    assert 0 == acted(net, f, x)


def test_tangents_that_are_cut_off_do_not_stand_for_others():
    def f(x, w):
        with torch.no_grad():
            held = x @ w
        return ((held.sin() @ w.t()) * x).sum(1).square().mean()  # ⟨x wᵀ, sin⟩, but x w has a derivative here

    x, w = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((8, 4), (4, 6)))
    compiled = tapeless.compile(f, backend="python", **FORCED)

    for a, b in zip(grad(f(x, w), (x, w)), grad(compiled(x, w), (x, w)), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9)


def test_a_rounded_quotient_is_not_linear():
    def calls(mode):
        graph = make_fx(lambda x, y: torch.div(x, y, rounding_mode=mode))(torch.ones(3), torch.ones(3)).graph
        return [carriers(node) for node in ir.calls(graph)]

    assert [[]] == calls("floor")
    assert [1] == [len(found) for found in calls(None)]


def products(net, problem, x, option):
    captured = trace(lambda x: problem(net, x), (x,), {})
    graph, _ = preparation(captured, Options(prepare=option))
    return sum(node.target is torch.ops.aten.mm.default for node in ir.calls(graph))


def test_one_product_per_layer_goes():
    net, f, x = case("burgers", hidden=5, **WIDE)

    assert 5 == products(net, f, x, "-transpose_chain") - products(net, f, x, "")
