"""Programs that are run by one process after another, to see that the second finds what the first has kept.

    python cache_programs.py RESULTS

runs each of them in eager and compiled, and saves what a user can observe, with how much was captured and
differentiated on the way.
"""

import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad

import tapeless
from tapeless import pipeline
from tapeless.runtime.derivatives import DERIVATIVES

PROGRAMS = {}


def program(function):
    """Enter a function of a compiler that returns what there is to compare."""
    PROGRAMS[function.__name__] = function
    return function


def values(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def leaf(*shape):
    return values(*shape).requires_grad_()


def gradients(module):
    return [parameter.grad for parameter in module.parameters()]


def model(*layers):
    return nn.Sequential(*layers).double()


@program
def unused_parameters(compiling):
    """A parameter that the loss does not reach keeps no gradient at all."""
    net = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)]).double()
    call = compiling(lambda x: (net[1](net[0](x).relu()), net[2](net[0](x).relu())))
    call(values(5, 3))[0].square().mean().backward()
    return gradients(net)


@program
def masks(compiling):
    """Other outputs get a gradient at each step, and once all of them."""
    x = leaf(4, 3)
    call = compiling(lambda x: (x.sin(), x.square().sum(), (x * 3).exp()))
    found = []
    for used in ((0,), (1,), (0, 2), (0, 1, 2), (0,)):
        outs = call(x)
        found += torch.autograd.grad(sum(outs[i].sum() for i in used), x)
    return found


@program
def two_backwards(compiling):
    """`retain_graph`, and an accumulation into `.grad`."""
    x = leaf(6)
    loss = compiling(lambda x: (x.tanh() * x).sum())(x)
    loss.backward(retain_graph=True)
    loss.backward()
    return [x.grad]


@program
def second_order(compiling):
    """The derivative of a derivative, and of that again."""
    x = leaf(5)
    (first,) = torch.autograd.grad(compiling(lambda x: x.sin().exp().sum())(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
    return [first.detach(), second.detach(), *torch.autograd.grad(second.sum(), x)]


@program
def tangents(compiling):
    """Forward mode through the same program, after reverse mode."""
    x, direction = leaf(4), values(4)
    call = compiling(lambda x: (x.cos() * x).cumsum(0))
    (gradient,) = torch.autograd.grad(call(x).sum(), x)
    with forward_ad.dual_level():
        primal, tangent = forward_ad.unpack_dual(call(forward_ad.make_dual(x.detach(), direction)))
    return [gradient, primal, tangent]


@program
def mutation_and_views(compiling):
    """An argument is overwritten, and a result is a view of another one."""
    x, kept = leaf(3, 4), values(3, 4)

    def function(x, kept):
        kept.add_(x.detach())
        y = x * kept
        return y, y[0], kept.t()

    y, row, turned = compiling(function)(x, kept)
    (y.sum() + row.square().sum()).backward()
    aliases = [row.untyped_storage().data_ptr() == y.untyped_storage().data_ptr(), row._is_view(), turned._base is kept]
    return [y.detach(), row.detach(), turned, kept, x.grad, torch.tensor(aliases), torch.tensor(kept._version)]


@program
def running_statistics(compiling):
    """Buffers change while training."""
    net = model(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 2))
    call = compiling(net)
    for _ in range(3):
        call(values(4, 2, 6, 6)).square().sum().backward()
    return [*gradients(net), *net.buffers()]


@program
def cut_gradients(compiling):
    """`detach` and `no_grad` leave the same operators and another derivative."""
    x = leaf(4)

    def cut(x):
        with torch.no_grad():
            scale = x * 2
        return (x * scale).sum()

    def whole(x):
        scale = x * 2
        return (x * scale).sum()

    return [torch.autograd.grad(compiling(function)(x), x)[0] for function in (cut, whole)]


@program
def value_on_the_way(compiling):
    """A result on which another one depends: the program runs in stages."""
    x, w = leaf(3, 4), leaf(4, 4)

    def function(x):
        hidden = (x @ w).tanh()
        return hidden, (hidden @ w).sum()

    hidden, loss = compiling(function)(x)
    return [*torch.autograd.grad(loss, [hidden, x, w], retain_graph=True), *torch.autograd.grad(hidden.sum(), [x, w])]


@program
def dropout(compiling):
    """Random numbers are eager's."""
    x = leaf(8, 8)
    call = compiling(lambda x: F.dropout(x * 2, 0.5).square().sum())
    torch.manual_seed(1)
    return [*torch.autograd.grad(call(x), x), torch.rand(2)]


@program
def several_sizes(compiling):
    """Sizes become symbolic at the second call."""
    net = model(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    call = compiling(net)
    for count in (2, 5, 7):
        call(values(count, 3)).mean().backward()
    return gradients(net)


@program
def thawing(compiling):
    """A layer is frozen, then not."""
    net = model(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    net[0].requires_grad_(False)
    call = compiling(net)
    call(values(2, 3)).mean().backward()
    frozen = gradients(net)
    net[0].requires_grad_(True)
    call(values(2, 3)).mean().backward()
    return [*frozen, *gradients(net)]


@program
def no_gradient(compiling):
    """Nothing requires one."""
    net = model(nn.Linear(3, 4), nn.GELU())
    with torch.no_grad():
        return [compiling(net)(values(2, 3))]


@program
def mixed_precision(compiling):
    """Under autocast; the same program without it is another one."""
    net, x = model(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).float(), torch.randn(2, 3)
    call = compiling(net)
    with torch.autocast("cpu", torch.bfloat16):
        call(x).sum().backward()
    narrow = gradients(net)
    net.zero_grad()
    call(x).sum().backward()
    return [*narrow, *gradients(net)]


@program
def constant(compiling):
    """A tensor that is made from numbers inside the program."""
    x = leaf(3)
    return torch.autograd.grad(compiling(lambda x: (x * torch.tensor([1.0, 2.0, 3.0])).sin().sum())(x), x)


@program
def same_argument_twice(compiling):
    """What is assumed about arguments that are one tensor is checked at each call."""
    x, y = leaf(3), leaf(3)

    def function(a, b):
        return (a.clone().mul_(2) * b).sum()

    call = compiling(function)
    return [*torch.autograd.grad(call(x, x), x), *torch.autograd.grad(call(x, y), [x, y])]


@program
def overlapping_arguments(compiling):
    """One argument is written to while another looks at the same memory."""
    base = values(6)

    def function(a, b):
        a.mul_(2)
        return b + 1

    return [compiling(function)(base[:4], base[2:]), base]


@program
def gradient_inside(compiling):
    """The program itself differentiates."""
    x = leaf(4)

    def function(x):
        (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return slope.square().sum()

    compiled = tapeless.compile(function) if compiling is not eager else function
    return torch.autograd.grad(compiled(x), x)


def eager(function):
    return function


def compiled(function):
    return torch.compile(function, backend="tapeless")


def results(name, compiling):
    torch.manual_seed(0)
    torch._dynamo.reset()
    return PROGRAMS[name](compiling)


def counted(name):
    """What the compiled program gives, and how many graphs were captured and differentiated for it."""
    captures, original, before = [], pipeline.capture, DERIVATIVES.differentiated

    def capture(*args):
        captures.append(args)
        return original(*args)

    pipeline.capture = capture
    try:
        found = results(name, compiled)
    finally:
        pipeline.capture = original
    return found, len(captures), DERIVATIVES.differentiated - before


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert os.environ["TAPELESS_CACHE_DIR"]
    torch.save({name: (results(name, eager), *counted(name)) for name in PROGRAMS}, sys.argv[1])
