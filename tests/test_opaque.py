"""Operators from outside whose registered backward reads numbers out of tensors: it runs as it stands, as in eager."""

from itertools import product

import pytest
import torch
from torch import Tensor

import tapeless

D = torch.float64


def operator(name, function, fake, backward, setup_context):
    op = torch.library.custom_op(f"test_opaque::{name}", function, mutates_args=())
    op.register_fake(fake)
    op.register_autograd(backward, setup_context=setup_context)
    return op


def ranges(ends):
    ends = ends.tolist()
    return zip([0, *ends], ends, strict=False)


# One product per group of rows


def grouped_forward(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    return torch.cat([x[a:b] @ m for (a, b), m in zip(ranges(ends), w, strict=True)])


def grouped_backward(ctx, g):
    x, w, ends = ctx.saved_tensors
    parts = list(ranges(ends))
    NEEDED.append(ctx.needs_input_grad)
    of_x = torch.cat([g[a:b] @ m.T for (a, b), m in zip(parts, w, strict=True)]) if ctx.needs_input_grad[0] else None
    of_w = torch.stack([x[a:b].T @ g[a:b] for a, b in parts]) if ctx.needs_input_grad[1] else None
    return of_x, of_w, None


NEEDED = []
grouped = operator(
    "grouped", grouped_forward, lambda x, w, ends: x.new_empty(x.shape[0], w.shape[2]), grouped_backward,
    lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)  # fmt: skip


# Two results, of which the backward wants to know whether they got a cotangent; reads a result of its own


def pair_forward(x: Tensor, y: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp() * count, (x * y).sin()


def pair_context(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(inputs[0], inputs[1], output[0])
    ctx.count = inputs[2]


def pair_backward(ctx, g, h):
    x, y, scaled = ctx.saved_tensors
    assert ctx.count.item() > 0
    of_x = [
        t for t in (None if g is None else g * scaled, None if h is None else h * (x * y).cos() * y) if t is not None
    ]
    return sum(of_x), None if h is None else h * (x * y).cos() * x, None


pair = operator(
    "pair", pair_forward, lambda x, y, count: (torch.empty_like(x), torch.empty_like(x)), pair_backward, pair_context
)


# A list of tensors, a keyword-only number, an argument that has a type with a gradient but never gets one


def joined_forward(parts: list[Tensor], scale: Tensor, *, times: float) -> Tensor:
    return torch.cat([p.flatten() for p in parts]) * times


def joined_context(ctx, inputs, keyword_only_inputs, output):
    ctx.shapes, ctx.times, ctx.sizes = [p.shape for p in inputs[0]], keyword_only_inputs["times"], inputs[1]


def joined_backward(ctx, g):
    assert ctx.sizes.sum().item() != 0
    sizes = [s.numel() for s in ctx.shapes]
    return [p.view(s) * ctx.times for p, s in zip(g.split(sizes), ctx.shapes, strict=True)], None


joined = operator(
    "joined", joined_forward, lambda parts, scale, times: parts[0].new_empty(sum(p.numel() for p in parts)),
    joined_backward, joined_context,
)  # fmt: skip


# Registered with `torch.library` alone, without `custom_op`

torch.library.define("test_opaque::halved", "(Tensor x, Tensor n) -> Tensor")
torch.library.impl("test_opaque::halved", "CPU", lambda x, n: x / 2)
torch.library.register_fake("test_opaque::halved", lambda x, n: torch.empty_like(x))
torch.library.register_autograd(
    "test_opaque::halved", lambda ctx, g: (g / ctx.n.tolist()[0], None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "n", inputs[1]),
)  # fmt: skip


PROGRAMS = {
    "grouped": lambda x, w, y, ends, two: (grouped(x.sin(), w, ends).cos(), y * 2),
    "grouped twice": lambda x, w, y, ends, two: grouped(grouped(x, w, ends), w.mT.contiguous(), ends) * w.sum(),
    "pair": lambda x, w, y, ends, two: pair(x * y, y, two),
    "pair of leaves": lambda x, w, y, ends, two: (*pair(x, y, two), w.exp()),
    "joined": lambda x, w, y, ends, two: (joined([x, w.sin()], y, times=3.0), x.exp()),
    "library": lambda x, w, y, ends, two: torch.ops.test_opaque.halved(x * y, two).exp(),
}
by_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())


LEAVES = 3


def arguments():
    torch.manual_seed(0)
    leaves = [torch.randn(s, dtype=D, requires_grad=True) for s in [(4, 3), (2, 3, 3), (4, 3)]]
    return [*leaves, torch.tensor([1, 4]), torch.tensor([2])]


def outputs(program, args):
    out = program(*args)
    return list(out) if isinstance(out, tuple) else [out]


def gradients(program, args, mask, **options):
    chosen = [o for o, m in zip(outputs(program, args), mask, strict=True) if m]
    return torch.autograd.grad([o.sin().sum() for o in chosen], args[:LEAVES], allow_unused=True, **options)


def same(expected, actual):
    assert [e is None for e in expected] == [a is None for a in actual]
    torch.testing.assert_close([e for e in expected if e is not None], [a for a in actual if a is not None])


@by_program
def test_gradients_and_second_derivatives(program):
    args, function = arguments(), torch.compile(program, backend="tapeless", fullgraph=True)
    count = len(outputs(program, args))
    for mask in [m for m in product([True, False], repeat=count) if any(m)]:
        same(gradients(program, args, mask), gradients(function, args, mask))

    def twice(f):
        first = gradients(f, args, [True] * count, create_graph=True)
        total = sum(g.sin().sum() for g in first if g is not None)
        return torch.autograd.grad(total, args[:LEAVES], allow_unused=True, materialize_grads=True)

    same(twice(program), twice(function))


@by_program
def test_lowered_backward(program):
    """The backward that serves every pattern hands undefined cotangents over as they are."""
    from tapeless.backends.python import compile_graph
    from tapeless.specialize.lower import lower_grad_of

    args = arguments()
    gradient = tapeless.differentiate(program, *args)
    run = compile_graph(lower_grad_of(gradient.split.backward, len(gradient.cotangent_outputs)), "backward")
    outs = gradient.forward(*args)
    captures = [*(args[i] for i in gradient.captured_inputs), *(outs[i] for i in gradient.captured_outputs)]
    for mask in product([True, False], repeat=gradient.real_outputs):
        given = [outs[i].cos() if mask[i] else None for i in gradient.cotangent_outputs]
        found = dict(zip(gradient.gradient_inputs, run([*given, *captures]), strict=True))
        expected = gradients(program, args, mask) if any(mask) else [None] * LEAVES

        same(expected, [found.get(i) for i in range(LEAVES)])


def test_forward_mode():
    x, w, y, *counts = (a.detach() for a in arguments())
    expected = torch.autograd.functional.jvp(lambda x: PROGRAMS["grouped"](x, w, y, *counts)[0], x, y)

    same(expected, tapeless.jvp(lambda x: PROGRAMS["grouped"](x, w, y, *counts)[0], (x,), (y,)))


def test_only_the_gradients_that_are_asked_for_are_computed():
    args = arguments()
    out = torch.compile(PROGRAMS["grouped"], backend="tapeless", fullgraph=True)(*args)[0]
    NEEDED.clear()
    torch.autograd.grad(out.sum(), args[1])

    assert [(False, True, False)] == NEEDED


def test_the_printed_backward_runs_where_it_is_pasted():
    args = arguments()
    gradient = tapeless.differentiate(PROGRAMS["pair"], *args)
    namespace = {}
    exec(str(gradient), namespace)
    outs = namespace["forward"](list(args))
    captures = [*(args[i] for i in gradient.captured_inputs), *(outs[i] for i in gradient.captured_outputs)]
    found = namespace["backward"]([*(o.cos() for o in outs[:2]), *captures])

    same([g for g in gradients(PROGRAMS["pair"], args, [True, True]) if g is not None], found)


class Piecewise(torch.autograd.Function):
    """A function of the user's own whose backward branches on data: Dynamo leaves it to eager."""

    @staticmethod
    def forward(ctx, x, count):
        ctx.save_for_backward(x, count)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        x, count = ctx.saved_tensors
        return (g * x.cos() if count.sum() > 3 else g * 0), None


def test_custom_function_whose_backward_branches_on_data():
    x, *_, count = arguments()
    for number in (count, count + 2):
        expected = torch.autograd.grad(Piecewise.apply(x * 2, number).exp().sum(), x)
        function = torch.compile(lambda x, n: Piecewise.apply(x * 2, n).exp(), backend="tapeless")

        same(expected, torch.autograd.grad(function(x, number).sum(), x))
