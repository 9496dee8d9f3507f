"""Hooks that a compiled program hangs on values of its own: they change gradients, and nothing else."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import tapeless
from comparing import assert_values, case, check, constant, table
from tapeless.errors import Unsupported

W, X = (3, 3), (4, 3)
double = torch.float64


def hooked(*hooks, before=lambda z: 0, after=lambda z: z):
    """A program with `hooks` on one value, which is used before they are there, and after."""

    def program(w, x):
        z = torch.sin(x @ w)
        early = before(z)
        for hook in hooks:
            z.register_hook(hook)
        return (after(z).square() + early).sum()

    return program


def bound(g):
    return g.clamp(-0.1, 0.1)


def triple(g):
    return 3 * g


def reading(w, x):
    z = torch.sin(x @ w)
    large, scale, size = z > 0.1, z.detach().abs() * w.sum(), x.shape[0]
    z.register_hook(lambda g: torch.where(large, g * scale, x) * size)
    return z.square().sum(), z


def reading_itself(w, x):
    z = torch.sin(x @ w)
    z.register_hook(lambda g: g * z)
    return z.square().sum()


def written_before(w, x):
    z = torch.sin(x @ w)
    y = z * 2
    z.mul_(3)
    z.register_hook(bound)
    return (y + z.square()).sum()


def in_a_loop(w, x):
    for i in range(3):
        x = torch.sin(x @ w)
        x.register_hook(lambda g, i=i: g / (g.norm() + i))
    return x.square().sum()


def under_checkpoint(w, x):
    return checkpoint(hooked(triple), w, x, use_reentrant=False)


def inner_gradient(w, x):
    energy = hooked(bound, before=torch.cos)(w, x)
    (force,) = torch.autograd.grad(energy, x, create_graph=True)
    return energy + force.square().sum()


PROGRAMS = {
    "one": hooked(bound),
    "returns nothing": hooked(lambda g: None),
    "sees uses before it": hooked(bound, before=torch.cos),
    "the first comes first": hooked(bound, triple, before=torch.cos),
    "on what is written to then": hooked(bound, after=lambda z: z.mul_(3)),
    "on what was written to": written_before,
    "with views": hooked(bound, before=lambda z: z.view(-1).view(4, 3).exp(), after=lambda z: z[:1]),
    "reads other values": reading,
    "reads its own tensor": reading_itself,
    "in a loop": in_a_loop,
    "under checkpoint": under_checkpoint,
}


@table(*(case(name, program, W, X) for name, program in PROGRAMS.items()))
def test_hook(case):
    check(case)


def pair():
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=double, requires_grad=True) for shape in (W, X)]


def penalized(program):
    values = pair()
    loss = program(*values)
    loss = loss if isinstance(loss, torch.Tensor) else loss[0]
    slopes = torch.autograd.grad(loss, values, create_graph=True)
    return torch.autograd.grad(loss + sum(s.square().sum() for s in slopes), values)


@pytest.mark.parametrize("name", PROGRAMS)
def test_of_second_order(name):
    assert_values(penalized(PROGRAMS[name]), penalized(tapeless.compile(PROGRAMS[name], fullgraph=True)))


def test_gradient_inside():
    assert_values(penalized(inner_gradient), penalized(tapeless.compile(inner_gradient, fullgraph=True)))


def test_tangents_pass_by():
    program = hooked(triple)
    (w, x), tangents = pair(), (torch.ones(W, dtype=double), torch.ones(X, dtype=double))
    _, expected = torch.func.jvp(hooked(), (w, x), tangents)
    with torch.autograd.forward_ad.dual_level():
        duals = map(torch.autograd.forward_ad.make_dual, (w, x), tangents)
        found = torch.autograd.forward_ad.unpack_dual(tapeless.compile(program)(*duals)).tangent

    torch.testing.assert_close(expected, found)


def test_in_a_training_step():
    linear = torch.nn.Linear(3, 3, dtype=double)
    x, before = torch.randn(X, dtype=double), linear.weight.detach().clone()
    (slope,) = torch.autograd.grad(hooked(bound)(linear.weight, x), linear.weight)
    optimizer = torch.optim.SGD(linear.parameters(), 0.1)
    tapeless.train_step(linear, lambda m, x: hooked(bound)(m.weight, x), optimizer)(x)

    torch.testing.assert_close(before - 0.1 * slope, linear.weight.detach())


def test_a_hook_that_reads_what_comes_later_is_refused():
    def program(w, x):
        z = torch.sin(x @ w)
        k = z.exp()
        z.register_hook(lambda g: g * k)
        return z.sum()

    with pytest.raises(Unsupported, match="make it of a detached copy"):
        tapeless.differentiate(program, *pair())


def test_constant_inputs():
    check(case("one of them needs a gradient", hooked(bound), W, constant(*X)))
