"""Programs whose loss contains gradients: the gradient call inside or outside the compiled function, equal to eager."""

import functools
import gc
import weakref

import pytest
import torch
from torch import nn

import tapeless
from comparing import assert_values, seeded
from models import SchNet
from tapeless.runtime.program import LIVE

STEPS = 20


def mlp(inputs, outputs=1, width=8):
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs)).double()


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64)


def gradient(value, x, **options):
    return torch.autograd.grad(value.sum(), x, create_graph=True, **options)[0]


# --- the programs: model, data → loss. `call` is what evaluates the model -------------------------------------------


def heat(model, call, data):
    """u_t = u_xx"""
    u = call(model, data["x"])
    g = gradient(u, data["x"])
    return (g[:, 1:] - gradient(g[:, :1], data["x"])[:, :1]).square().mean() + u.square().mean()


def burgers(model, call, data):
    """u_t + u u_x = ν u_xx"""
    u = call(model, data["x"])
    g = gradient(u, data["x"])
    second = gradient(g[:, :1], data["x"])[:, :1]
    return (g[:, 1:] + u * g[:, :1] - 0.01 * second).square().mean()


def poisson(model, call, data):
    """Δu = 1, the Laplacian by two nested gradients"""
    g = gradient(call(model, data["x"]), data["x"])
    laplacian = sum(gradient(g[:, i], data["x"])[:, i] for i in range(2))
    return (laplacian - 1).square().mean()


def gradient_penalty(model, call, data):
    """WGAN-GP's critic"""
    norm = gradient(call(model, data["x"]), data["x"]).norm(dim=1)
    return call(model, data["y"]).mean() - call(model, data["z"]).mean() + 10 * (norm - 1).square().mean()


def force_field(model, call, data):
    """The loss reads energy, forces and stress, which are derivatives by positions and strain."""
    shear = torch.eye(3, dtype=torch.float64) + (data["strain"] + data["strain"].mT) / 2
    moved = data["positions"] @ shear
    energy = call(model, data["species"], moved[data["i"]] - moved[data["j"]], data["i"], data["j"])
    force, stress = torch.autograd.grad(energy, (data["positions"], data["strain"]), create_graph=True)
    return energy.square() + (force - data["force"]).square().mean() + stress.square().mean()


def maml(model, call, data):
    """The loss after an inner step, by the parameters before it"""
    parameters = dict(model.named_parameters())
    apply = functools.partial(torch.func.functional_call, model)
    inner = call(apply, parameters, (data["x"],)).square().mean()
    found = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
    adapted = {name: p - 0.1 * g for (name, p), g in zip(parameters.items(), found, strict=True)}
    return (call(apply, adapted, (data["y"],)) - 1).square().mean()


class Adjoint(torch.autograd.Function):
    """Euler's method for ẋ = f(x); the backward integrates the adjoint equation ȧ = −(∂f/∂x)ᵀ a back in time."""

    @staticmethod
    def forward(ctx, x, w, v):
        states = [x]
        for _ in range(TIMES):
            states.append(states[-1] + (states[-1] @ w).tanh() @ v / TIMES)
        ctx.save_for_backward(w, v, *states)
        return states[-1]

    @staticmethod
    def backward(ctx, a):
        w, v, *states = ctx.saved_tensors
        w_bar, v_bar = torch.zeros_like(w), torch.zeros_like(v)
        for x in reversed(states[:-1]):
            h = (x @ w).tanh()
            inner = (a @ v.mT) * (1 - h * h) / TIMES
            w_bar, v_bar = w_bar + x.mT @ inner, v_bar + h.mT @ a / TIMES
            a = a + inner @ w.mT
        return a, w_bar, v_bar


TIMES = 4


def neural_ode(model, call, data):
    """The gradient by the adjoint method, in a custom function; the loss also asks for the flow's own slope."""
    end = call(Adjoint.apply, data["x"], model[0].weight.mT, model[2].weight.mT.expand(-1, 2))
    return (end - data["y"]).square().mean() + gradient(end, data["x"]).square().mean()


def neural_ode_by_hand(model, call, data):
    """The adjoint equation with vector-Jacobian products from `torch.autograd.grad`, as a library would write it."""
    x, states = data["x"], [data["x"]]
    for _ in range(TIMES):
        states.append(states[-1] + call(model, states[-1]) / TIMES)
    a = states[-1] - data["y"]
    for state in reversed(states[:-1]):
        slope = call(model, state)
        a = a + torch.autograd.grad(slope, state, a.sum(1, keepdim=True) / TIMES, create_graph=True)[0]
    return a.square().mean() + (states[-1] - x).square().mean()


def newton_cg(model, call, data):
    """Half of g ᵀ H⁻¹ g, by three steps of conjugate gradients on Hessian-vector products"""
    parameters = [p for p in model.parameters() if p.dim() == 2]
    value = (call(model, data["x"]) - data["y"]).square().mean()
    found = torch.autograd.grad(value, parameters, create_graph=True)
    step, residual = [torch.zeros_like(g) for g in found], [-g for g in found]
    direction = residual
    for _ in range(3):
        image = torch.autograd.grad(found, parameters, direction, create_graph=True)
        image = [i + d for i, d in zip(image, direction, strict=True)]  # damped
        length = dot(residual, residual) / dot(direction, image)
        step = [s + length * d for s, d in zip(step, direction, strict=True)]
        new = [r - length * i for r, i in zip(residual, image, strict=True)]
        ratio = dot(new, new) / dot(residual, residual)
        direction = [n + ratio * d for n, d in zip(new, direction, strict=True)]
        residual = new
    return -dot(step, found) / 2 + value


def dot(left, right):
    return sum((a * b).sum() for a, b in zip(left, right, strict=True))


PROGRAMS = {
    "heat": heat,
    "burgers": burgers,
    "poisson": poisson,
    "penalty": gradient_penalty,
    "maml": maml,
    "neural ode": neural_ode,
    "neural ode by hand": neural_ode_by_hand,
    "newton-cg": newton_cg,
}


def points():
    data = {name: normal(5, 2) for name in "xyz"}
    return mlp(2), {**data, "x": data["x"].requires_grad_()}


def molecule():
    i, j = torch.nonzero(~torch.eye(6, dtype=torch.bool)).T
    positions, strain = normal(6, 3).requires_grad_(), torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    data = {"positions": positions, "strain": strain, "force": normal(6, 3), "species": torch.randint(3, (6,))}
    return SchNet().double(), {**data, "i": i, "j": j}


def plain(model, *args):
    return model(*args)


def train(program, make, loss, steps=STEPS):
    """Losses and parameters of a few optimizer steps."""
    model, data = seeded(0, make)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(program, model, data)
        value.backward(inputs=list(model.parameters()))
        optimizer.step()
        losses.append(value)
    return [*losses, *model.parameters()]  # a step that differs shows in the loss of the next


def eager(program, model, data):
    return program(model, plain, data)


def inside(compile):
    """The whole loss, gradient calls and all, is one compiled function."""
    compiled = {}

    def loss(program, model, data):
        if program not in compiled:
            compiled[program] = compile(lambda model, data: program(model, plain, data))
        return compiled[program](model, data)

    return loss


def outside(compile):
    """Only the model is compiled; the program around it asks for gradients."""
    call = compile(plain)
    return lambda program, model, data: program(model, call, data)


WAYS = {
    "inside": lambda: inside(functools.partial(tapeless.compile, fullgraph=True)),
    "inside, across graph breaks": lambda: inside(functools.partial(torch.compile, backend="tapeless")),
    "outside": lambda: outside(functools.partial(tapeless.compile, fullgraph=True)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_training(name, way):
    expected = train(PROGRAMS[name], points, eager)

    assert_values(expected, train(PROGRAMS[name], points, WAYS[way]()))


@pytest.mark.parametrize("way", WAYS)
def test_force_field(way):
    expected = train(force_field, molecule, eager)

    assert_values(expected, train(force_field, molecule, WAYS[way]()))


def adversaries():
    """A generator and its critic, alternating; each loss is a function of both."""
    torch.manual_seed(0)
    nets = nn.ModuleDict({"generator": mlp(3, 2), "critic": mlp(2)})
    return nets, {name: torch.optim.Adam(net.parameters(), lr=1e-2) for name, net in nets.items()}


def critic_loss(nets, call, data):
    fake = call(nets["generator"], data["noise"]).detach()
    between = (data["mix"] * data["real"] + (1 - data["mix"]) * fake).requires_grad_()
    penalty = (gradient(call(nets["critic"], between), between).norm(dim=1) - 1).square().mean()
    return call(nets["critic"], fake).mean() - call(nets["critic"], data["real"]).mean() + 10 * penalty


def generator_loss(nets, call, data):
    return -call(nets["critic"], call(nets["generator"], data["noise"])).mean()


def train_adversaries(loss):
    (nets, optimizers), losses = adversaries(), []
    for _ in range(STEPS):
        data = {"real": normal(6, 2), "noise": normal(6, 3), "mix": torch.rand(6, 1, dtype=torch.float64)}
        for name, program in (("critic", critic_loss), ("generator", generator_loss)):
            nets.zero_grad()
            value = loss(program, nets, data)
            value.backward()
            losses += [value, *(p.grad for p in nets.parameters())]
            optimizers[name].step()
    return [t for t in losses if t is not None], [t is None for t in losses]


@pytest.mark.parametrize("way", WAYS)
def test_adversaries(way):
    """WGAN-GP, both networks trained; who gets no gradient is the same too."""
    expected, missing = train_adversaries(eager)
    found, lacking = train_adversaries(WAYS[way]())

    assert missing == lacking
    assert_values(expected, found)


# --- with transforms in place of autograd.grad ----------------------------------------------------------------------


def heat_by_transforms(model, data):
    def u(x):
        return model(x).sum()

    g = tapeless.grad(u)(data["x"])
    second = tapeless.grad(lambda x: tapeless.grad(u)(x)[:, 0].sum())(data["x"])
    return (g[:, 1:] - second[:, :1]).square().mean() + model(data["x"]).square().mean()


@pytest.mark.parametrize("compile", (lambda f: f, tapeless.compile), ids=("eager", "compiled"))
def test_heat_by_transforms(compile):
    expected = train(heat, points, eager)
    loss = compile(heat_by_transforms)

    assert_values(expected, train(heat, points, lambda _, model, data: loss(model, data)))


def newton_step(hessian_vector, gradient, x, iterations=5):
    """x − H⁻¹g by conjugate gradients."""
    step, residual = torch.zeros_like(x), -gradient
    direction = residual
    for _ in range(iterations):
        image = hessian_vector(direction)
        length = residual.dot(residual) / direction.dot(image)
        step, new = step + length * direction, residual - length * image
        direction = new + new.dot(new) / residual.dot(residual) * direction
        residual = new
    return x + step


def bowl(x):
    return (x.square() * torch.arange(1, 6, dtype=torch.float64)).sum() + (x.sum() ** 4) / 4


def by_autograd(f, x):
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    return newton_step(lambda v: torch.autograd.grad(g, x, v, retain_graph=True)[0], g.detach(), x.detach())


def by_hvp(x):
    return newton_step(lambda v: tapeless.hvp(bowl, (x,), (v,))[1][0], tapeless.grad(bowl)(x), x)


def by_linearize(x):
    g, push = tapeless.linearize(tapeless.grad(bowl), x)
    return newton_step(push, g, x)


NEWTON = {
    "outside": lambda: functools.partial(by_autograd, tapeless.compile(bowl)),
    "hvp": lambda: by_hvp,
    "inside": lambda: tapeless.compile(by_hvp, fullgraph=True),
    "linearize": lambda: by_linearize,
}


@pytest.mark.parametrize("name", NEWTON)
def test_newton_step(name):
    step = NEWTON[name]()
    expected = actual = seeded(0, lambda: normal(5))
    for _ in range(STEPS):
        expected, actual = by_autograd(bowl, expected), step(actual)

        assert_values([expected], [actual])


# --- what is captured -------------------------------------------------------------------------------------------------


def test_autograd_grad_is_part_of_the_graph():
    """With `fullgraph=True`, which forbids graph breaks; and the setting that allows it is put back."""

    def f(x, w):
        return gradient((x @ w).tanh().exp(), x).square().sum()

    x, w = normal(4, 3).requires_grad_(), normal(3, 2).requires_grad_()
    expected = torch.autograd.grad(f(x, w), (x, w))
    actual = torch.autograd.grad(tapeless.compile(f, fullgraph=True)(x, w), (x, w))

    assert_values(list(expected), list(actual))
    assert not torch._dynamo.config.trace_autograd_ops


def test_ahead_of_time_as_well():
    """`differentiate`, `explain` and the transforms trace a gradient in the program like `compile` does."""

    def f(x, w):
        return gradient((x @ w).tanh().exp(), x).square().sum()

    x, w = normal(4, 3).requires_grad_(), normal(3, 2).requires_grad_()
    expected = list(torch.autograd.grad(f(x, w), (x, w)))

    assert 2 == len(tapeless.differentiate(f, x, w).gradient_inputs)
    assert_values(expected, list(tapeless.grad(f, argnums=(0, 1))(x, w)))
    assert "autograd.grad" in str(tapeless.explain(f, x, w))
    assert not torch._dynamo.config.trace_autograd_ops


def test_backward_inside_the_compiled_function():
    def step(model, x):
        model(x).square().mean().backward()
        return [p.grad for p in model.parameters()]

    models, x = [seeded(0, mlp, 2) for _ in range(2)], normal(3, 2)

    assert_values(step(models[0], x), tapeless.compile(step)(models[1], x))


def leaf_inside(model, x):
    x = x.detach().requires_grad_()
    return gradient(model(x), x).square().mean()


def leaf_returned(model, x):
    x = x.detach().requires_grad_()
    return model(x).sum(), x


def leaf_alone(model, x):
    return x.detach().requires_grad_().sin()


def test_leaf_made_inside():
    """It is part of the graph where nobody outside can ask for its gradient."""

    def observe(loss):
        model, x = seeded(0, lambda: (mlp(2), normal(3, 2)))
        loss(model, x).backward()
        return [p.grad for p in model.parameters()]

    assert_values(observe(leaf_inside), observe(tapeless.compile(leaf_inside, fullgraph=True)))


@pytest.mark.parametrize("program", [leaf_returned, leaf_alone])
def test_leaf_that_shows(program):
    """It breaks the graph, as Dynamo has it, and has its gradient."""
    model, x = seeded(0, lambda: (mlp(2), normal(3, 2)))
    with pytest.raises(Exception, match="requires_grad_"):
        tapeless.compile(program, fullgraph=True)(model, x)

    found = []
    for function in (program, tapeless.compile(program)):
        results = function(model, x)
        value = results[0] if isinstance(results, tuple) else results
        found.append([value, *torch.autograd.grad(value.sum(), results[1:] if isinstance(results, tuple) else value)])

    assert_values(*found)


def test_a_compiled_module_stays_a_module():
    model = tapeless.compile(mlp(2))

    assert isinstance(model, nn.Module)
    assert 4 == len(list(model.parameters()))


def test_a_program_with_gradients_inside_is_freed():
    torch._dynamo.reset()
    gc.collect()
    before = set(map(id, LIVE))

    def used():
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

        def penalty(x):
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            return slope.square().sum()

        call = tapeless.compile(penalty)
        call(torch.randn(2, 3, requires_grad=True)).backward()
        own = [program for program in LIVE if id(program) not in before]
        assert own
        return [weakref.ref(each) for each in (model, penalty, call, *own)]

    references = used()
    torch._dynamo.reset()
    gc.collect()

    assert [None] * len(references) == [reference() for reference in references]
