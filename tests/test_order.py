"""Derivatives of any order, in both modes, of models and programs through the compiled function."""

import pytest
import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F
from torch import nn

from comparing import (
    Cube,
    Exponential,
    Outer,
    Weighted,
    assert_values,
    compiled,
    leaf,
    scaled_sine,
    seeded,
    take_gradients,
)

A, N = (2, 3), (2, 2, 3)
sdpa = F.scaled_dot_product_attention


def written_out(q, k, v):
    return (q @ k.mT / 2).softmax(-1) @ v


# --- reverse over reverse ---------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)
        self.double()

    def forward(self, x):
        return self.second(F.softplus(self.norm(self.first(x)).sin()))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.out = nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Linear(3, 2)
        self.double()

    def forward(self, x):
        return self.out(F.silu(self.norm(self.first(x))).mean((2, 3)))


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(3, 9), nn.Linear(3, 2)
        self.double()

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, -1)
        return self.out(written_out(q, k, v))


MODELS = {"mlp": (Mlp, A), "convolutions": (Convolutions, (2, 2, 4, 4)), "attention": (Attend, N)}


def both(name):
    """The model in eager and an equal one with its compiled call, as (parameters, call, input)."""
    build, shape = MODELS[name]
    for compile in (lambda m: m, compiled):
        model = seeded(0, build)
        yield list(model.parameters()), compile(model), seeded(1, lambda: leaf(*shape))


def agree(name, observation):
    assert_values(*(list(observation(*each)) for each in both(name)))


def written_out_norm(x, dims, shape, weight, bias, eps):
    centered = x - x.mean(dims, keepdim=True)
    hat = centered / (centered.square().mean(dims, keepdim=True) + eps).sqrt()
    return hat * weight.view(shape) + bias.view(shape)


def layer_norm(x, shape, weight, bias, eps):
    return written_out_norm(x, [-1], shape, weight, bias, eps)


def batch_norm(x, mean, var, weight, bias, training, momentum, eps):
    return written_out_norm(x, [0, 2, 3], (1, -1, 1, 1), weight, bias, eps)


@pytest.fixture
def written_out_norms(monkeypatch):
    """Eager's third derivatives through its fused norms are wrong: the reference is the norm written out."""

    def written_out(model):
        def call(x):
            with monkeypatch.context() as patch:
                patch.setattr(F, "layer_norm", layer_norm)
                patch.setattr(F, "batch_norm", batch_norm)
                return model(x)

        return call

    return written_out


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("order", (2, 3, 4))
def test_order(name, order, written_out_norms):
    def observation(parameters, call, x):
        value = call(x).square().sum()
        for _ in range(order - 1):
            (g,) = torch.autograd.grad(value, x, create_graph=True)
            value = g.square().sum() + g.sum()
        return torch.autograd.grad(value, [x, *parameters], allow_unused=True)

    (parameters, model, x), ours = both(name)
    assert_values(list(observation(parameters, written_out_norms(model), x)), list(observation(*ours)))


@pytest.mark.parametrize("name", MODELS)
def test_gradient_penalty_in_training(name):
    """Both losses in one backward, then a step that uses the gradients."""

    def observation(parameters, call, x):
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        for _ in range(4):
            out = call(x)
            (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            (out.square().mean() + (g.flatten(1).norm(dim=1) - 1).square().mean()).backward()
            x.grad = None
            optimizer.step()
            optimizer.zero_grad()
        return parameters

    agree(name, observation)


@pytest.mark.parametrize("name", MODELS)
def test_hessian_vector_product(name):
    def observation(parameters, call, x):
        gs = torch.autograd.grad(call(x).square().sum(), parameters, create_graph=True)
        vs = seeded(2, lambda: [torch.randn_like(p) for p in parameters])
        dot = sum((g * v).sum() for g, v in zip(gs, vs, strict=True))
        return torch.autograd.grad(dot, parameters, retain_graph=True), torch.autograd.grad(dot, parameters)

    agree(name, lambda *each: [g for gs in observation(*each) for g in gs])


def test_energy_and_forces():
    """The loss reads energies and their negative gradient, as a force field's does."""

    def observation(parameters, call, x):
        energy = call(x).sum()
        force = -torch.autograd.grad(energy, x, create_graph=True)[0]
        (energy.square() + (force - 1).square().sum()).backward()
        return [energy, force, *take_gradients([x, *parameters])]

    agree("mlp", observation)


def test_inner_gradient_step():
    """Parameters after one differentiable step, through `torch.func.functional_call` and a compiled function."""

    def observation(call):
        x, w, v = seeded(0, lambda: (leaf(*A), leaf(3, 4), leaf(4, 1)))
        gs = torch.autograd.grad(call(x, w, v).square().sum(), [w, v], create_graph=True)
        adapted = [p - 0.1 * g for p, g in zip((w, v), gs, strict=True)]
        return torch.autograd.grad(call(x, *adapted).sum(), [x, w, v])

    def f(x, w, v):
        return (x @ w).tanh() @ v

    assert_values(list(observation(f)), list(observation(compiled(f))))


def test_create_graph_then_first_order_again():
    def observation(parameters, call, x):
        found = []
        for second in (False, True, False, True):
            g = torch.autograd.grad(call(x).square().sum(), [x, *parameters], create_graph=second)
            found += g if not second else torch.autograd.grad(g[0].sum(), [x, *parameters], allow_unused=True)
        return found

    agree("mlp", observation)


def shared_and_heads(x, w, a, b):
    shared = (x @ w).tanh()
    return shared, shared @ a, (shared * b).sum()


def test_several_losses_on_a_shared_input():
    """Multi-task weighting: one gradient of the shared value per loss, through two compiled functions."""

    def trunk(x, w):
        return (x @ w).tanh()

    def heads(shared, a, b):
        return shared @ a, (shared * b).sum()

    def observation(trunk, heads):
        x, w, a, b = seeded(0, lambda: (leaf(*A), leaf(3, 4), leaf(4, 1), leaf(4)))
        shared = trunk(x, w)
        first, second = heads(shared, a, b)
        norms = [
            torch.autograd.grad(loss.sum(), shared, retain_graph=True, create_graph=True)[0].norm()
            for loss in (first, second)
        ]
        (first.sum() / norms[0] + second / norms[1]).backward()
        return take_gradients([x, w, a, b])

    assert_values(observation(trunk, heads), observation(compiled(trunk), compiled(heads)))


def test_gradient_with_respect_to_a_returned_value():
    """The shared value and the heads come out of one compiled function."""

    def observation(call):
        shared, first, second = call(*seeded(0, lambda: (leaf(*A), leaf(3, 4), leaf(4, 1), leaf(4))))
        return [
            torch.autograd.grad(loss.sum(), shared, retain_graph=True, allow_unused=True)[0] for loss in (first, second)
        ]

    assert_values(observation(shared_and_heads), observation(compiled(shared_and_heads)))


def test_undefined_cotangents_at_second_order():
    def observation(call, i, j):
        inputs = seeded(0, lambda: (leaf(*A), leaf(3, 4), leaf(4, 1), leaf(4)))
        outs = call(*inputs)
        gs = torch.autograd.grad(outs[i].square().sum(), inputs, create_graph=True, allow_unused=True)
        loss = sum(g.square().sum() for g in gs if g is not None) + outs[j].sum()
        return [*gs, *torch.autograd.grad(loss, inputs, allow_unused=True)]

    fast = compiled(shared_and_heads)
    for i in range(3):
        for j in range(3):
            assert_values(
                observation(shared_and_heads, i, j), observation(fast, i, j), f"outputs {i} and {j}: gradient"
            )


USER_DEFINED = {
    "function": lambda x: Cube.apply(x * 2),
    "op": lambda x: scaled_sine(x * 2, 1.5),
    "saved result": lambda x: Exponential.apply(x * 2),
    "attribute of a saved result": lambda x: Outer.apply(x * 2),
    "saved weight": lambda x: Weighted.apply(x.sin(), x.exp().sum() * x.cos()),
    "saved weight, with a loss of its own": lambda x: (lambda k: Weighted.apply(x.sin(), k.exp()) * k)(x.cos() * 2),
}


@pytest.mark.parametrize("name", USER_DEFINED)
def test_higher_order_of_user_defined_derivatives(name):
    def observation(call):
        x = seeded(0, lambda: leaf(3))
        (g,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sin().sum(), x, create_graph=True)
        return [g, h, *torch.autograd.grad(h.sin().sum(), x)]

    assert_values(observation(USER_DEFINED[name]), observation(compiled(USER_DEFINED[name])))


def test_second_order_of_fused_attention():
    """Eager has no second derivative of the fused kernel; the written-out formula has."""

    def observation(call):
        q, k, v = seeded(0, lambda: (leaf(1, 2, 3, 4), leaf(1, 2, 3, 4), leaf(1, 2, 3, 4)))
        gs = torch.autograd.grad(call(q, k, v).square().sum(), [q, k, v], create_graph=True)
        return torch.autograd.grad(sum(g.sin().sum() for g in gs), [q, k, v])

    assert_values(list(observation(written_out)), list(observation(compiled(lambda q, k, v: sdpa(q, k, v)))))


# --- mixed modes, batches ---------------------------------------------------------------------------------------------


def test_forward_over_reverse():
    def observation(parameters, call, x):
        with forward.dual_level():
            dual = forward.make_dual(x, torch.ones_like(x))
            (g,) = torch.autograd.grad(call(dual).square().sum(), dual, create_graph=True)
            return list(forward.unpack_dual(g))

    agree("mlp", observation)


def rows_of(out):
    return torch.eye(out.numel(), dtype=out.dtype).reshape(-1, *out.shape)


@pytest.mark.parametrize("name", MODELS)
def test_batched_cotangents(name):
    """All rows of a Jacobian at once, which is how `torch.autograd.functional.jacobian(vectorize=True)` asks."""

    def observation(parameters, call, x):
        out = call(x)
        return torch.autograd.grad(out, [x, *parameters], rows_of(out), is_grads_batched=True)

    agree(name, observation)


def test_batched_cotangents_at_second_order():
    def observation(parameters, call, x):
        out = call(x)
        (jacobian,) = torch.autograd.grad(out, x, rows_of(out), is_grads_batched=True, create_graph=True)
        return [jacobian, *torch.autograd.grad(jacobian.sin().sum(), [x, *parameters], allow_unused=True)]

    agree("attention", observation)
