"""Loops as operators (`scan`, `map`, `while_loop`, `associative_scan`) against the same loops in Python, in eager.

A program takes its operators from `ops`: `TORCH` when it is compiled, `PYTHON` for the reference.
"""

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import tapeless
from tapeless.errors import Unsupported

D = torch.float64


def scan_in_python(body, carry, rows, dim=0, reverse=False):
    leaves, spec = tree_flatten(rows)
    slices = [tree_unflatten(list(row), spec) for row in zip(*(x.unbind(dim) for x in leaves), strict=True)]
    found = []
    for row in reversed(slices) if reverse else slices:
        carry, y = body(carry, row)
        found.append(y)
    return carry, tree_map(lambda *pieces: torch.stack(pieces, dim), *(found[::-1] if reverse else found))


def map_in_python(body, rows):
    return tree_map(lambda *pieces: torch.stack(pieces), *map(body, rows))


def while_in_python(condition, body, carries):
    while condition(*carries):
        carries = body(*carries)
    return carries


def associative_in_python(combine, rows, dim):
    found = []
    for row in rows.unbind(dim):
        found.append(combine(found[-1], row) if found else row)
    return torch.stack(found, dim)


TORCH = SimpleNamespace(
    scan=scan, map=map_rows, while_loop=while_loop, cond=torch.cond,
    associative=lambda *args: associative_scan(*args, combine_mode="generic"),
)  # fmt: skip
PYTHON = SimpleNamespace(
    scan=scan_in_python, map=map_in_python, while_loop=while_in_python, associative=associative_in_python,
    cond=lambda test, true, false, operands: (true if test else false)(*operands),
)  # fmt: skip


def cell(ops, x, h, w):
    def body(h, row):
        h = torch.tanh(h @ w + row)
        return h, h.sin()

    return ops.scan(body, h, x)


def columns_backwards(ops, x, h, w):
    def body(h, column):
        h = torch.tanh(h * column) @ w
        return h, (h.exp(), column * 2)

    last, (a, b) = ops.scan(body, h, x, dim=1, reverse=True)
    return last, a, b


def two_carries(ops, x, h, w):
    """The second carry reaches the results only through the first, a round later; `h` is forgotten at once."""

    def body(carry, row):
        a, b = carry
        return (row * b, (b * w[0]).cos()), a * row

    (a, b), y = ops.scan(body, (h, torch.ones(3, dtype=D)), x)
    return a, b, y


def several_rows(ops, x, h, w):
    """Reads rows of two kinds, one of them integers."""

    def body(h, row):
        index, r = row
        h = (h + r * w.index_select(0, index[None])[0]).sigmoid()
        return h, h * 3

    return ops.scan(body, h, (torch.tensor([2, 0, 1, 1]), x))


def no_residuals(ops, x, h, w):
    return ops.scan(lambda carry, row: (carry * 2 + row, row + 1), h, x)


def private_operands(ops, x, h, w):
    """`w` is for one result, `h` for the other."""
    return ops.map(lambda row: ((row @ w).sin(), row * h), x)


def row_without_gradient(ops, x, h, w):
    return ops.map(lambda row: (row.detach() @ w).exp(), x)


def in_no_grad(ops, x, h, w):
    def body(carry, row):
        with torch.no_grad():
            scale = (carry * row).norm()
        return carry / scale + row @ w, carry.clone()

    return ops.scan(body, h, x)


class Sevenfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 7


def custom_function_in_scan(ops, x, h, w):
    return ops.scan(lambda h, row: (Sevenfold.apply(h * row).sin(), h @ w), h, x)


def branch_in_scan(ops, x, h, w):
    def body(h, row):
        h = ops.cond(row.sum() > 0, lambda h, r: (h @ w).sin() * r, lambda h, r: h.cos() + r, (h, row))
        return h, h * 2

    return ops.scan(body, h, x)


def scan_in_scan(ops, x, h, w):
    def body(h, row):
        last, inner = ops.scan(lambda c, r: ((c * r).sin(), c @ w), h * row, w)
        return last, inner.sum(0)

    return ops.scan(body, h, x)


def scan_in_branch(ops, x, h, w):
    def long(x, h):
        return ops.scan(lambda c, r: ((c + r).sin(), c * 2), h, x)

    return ops.cond(x.sum() > 100, lambda x, h: (h.cos(), x * 3), long, (x, h))


def constants_in_bodies(ops, x, h, w):
    """Of two loops, the second one nested in itself: each constant stays with its own body."""

    def body(h, row):
        last, inner = ops.scan(lambda c, r: (c * r * torch.tensor(5.0, dtype=D), c.sin()), h, w)
        return last * torch.tensor(3.0, dtype=D) + row, inner.sum(0)

    first = ops.scan(lambda c, r: (c * torch.tensor(2.0, dtype=D) + r, c.cos()), h, x)
    return *first, *ops.scan(body, first[0] / 100, x / 100)


def map_in_scan(ops, x, h, w):
    return ops.scan(lambda c, r: (ops.map(lambda q: (q * c).sin(), w).sum(0) + r, c.exp()), h, x)


def rounds(ops, x, h, w):
    def body(i, v):
        return i + 1, (v.sin() @ w)

    return ops.while_loop(lambda i, v: i < 3, body, (torch.tensor(0), x))[1]


def rounds_that_depend_on_data(ops, x, h, w):
    return ops.while_loop(lambda v, s: v.norm() < 30, lambda v, s: (v * 2 + h, s + v.sin()), (x, torch.zeros_like(x)))


def no_rounds(ops, x, h, w):
    v = ops.while_loop(lambda i, v: i < 0, lambda i, v: (i + 1, v @ w), (torch.tensor(0), x * 2))[1]
    return v * v, w * h


def while_in_map(ops, x, h, w):
    """Some rows make no round."""

    def body(row):
        (v,) = ops.while_loop(lambda v: v.norm() < 2, lambda v: (v * 2 + h.sin() * row,), (row.cos(),))
        return v @ w

    return ops.map(body, torch.cat([x, 0 * x]))


def associative(ops, x, h, w):
    return ops.associative(lambda a, b: a * b, x * h, 0) @ w


LOOPS = (
    cell, columns_backwards, two_carries, several_rows, no_residuals, private_operands, row_without_gradient,
    in_no_grad, branch_in_scan, scan_in_scan, scan_in_branch, constants_in_bodies, map_in_scan, rounds,
    rounds_that_depend_on_data, no_rounds, while_in_map, custom_function_in_scan, associative,
)  # fmt: skip
by_loop = pytest.mark.parametrize("loop", LOOPS, ids=lambda f: f.__name__)


def arguments(loop):
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=D) if loop is columns_backwards else torch.randn(4, 3, dtype=D)
    others = [torch.randn(3, dtype=D), torch.randn(3, 3, dtype=D)]
    return [t.requires_grad_() for t in (x, *others)]


def outputs(function, args):
    return tree_leaves(function(*args))


def eager(loop):
    return lambda *args: loop(PYTHON, *args)


def compiled(loop):
    torch._dynamo.reset()
    return torch.compile(lambda *args: loop(TORCH, *args), backend="tapeless", fullgraph=True)


def same(expected, actual):
    assert [e is None for e in expected] == [a is None for a in actual]
    pairs = [(e, a) for e, a in zip(expected, actual, strict=True) if e is not None]
    torch.testing.assert_close([e for e, _ in pairs], [a for _, a in pairs], rtol=1e-9, atol=1e-11)


def cotangents(outs):
    torch.manual_seed(1)
    return [torch.randn(o.shape, dtype=D) if o.is_floating_point() else None for o in outs]


def gradients(function, args, mask, **options):
    outs = outputs(function, args)
    chosen = [(o, g) for o, g, m in zip(outs, cotangents(outs), mask, strict=True) if m and o.requires_grad]
    return torch.autograd.grad(
        [o for o, _ in chosen], args, [g for _, g in chosen], allow_unused=True, **options
    ) if chosen else [None] * len(args)  # fmt: skip


@by_loop
def test_values_gradients_for_every_pattern_of_cotangents_and_second_derivatives(loop):
    args, function = arguments(loop), compiled(loop)
    expected = outputs(eager(loop), args)

    same(expected, outputs(function, args))
    for mask in product([True, False], repeat=len(expected)):
        same(gradients(eager(loop), args, mask), gradients(function, args, mask))
    same(second_derivatives(eager(loop), args), second_derivatives(function, args))


def second_derivatives(function, args):
    first = gradients(function, args, [True] * len(outputs(function, args)), create_graph=True)
    total = sum(g.sin().sum() for g in first if g is not None) + sum(0 * a.sum() for a in args)
    return torch.autograd.grad(total, args, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("loop", [f for f in LOOPS if f is not custom_function_in_scan], ids=lambda f: f.__name__)
def test_forward_mode(loop):
    args = tuple(a.detach() for a in arguments(loop))
    torch.manual_seed(2)
    directions = tuple(torch.randn_like(a) for a in args)
    floating = [o.is_floating_point() for o in outputs(eager(loop), args)]
    expected = torch.func.jvp(eager(loop), args, directions)
    actual = tapeless.jvp(lambda *args: loop(TORCH, *args), args, directions)

    same(tree_leaves(expected[0]), tree_leaves(actual[0]))
    same(*([t for t, f in zip(tree_leaves(r[1]), floating, strict=True) if f] for r in (expected, actual)))


@pytest.mark.parametrize(
    "loop", [cell, columns_backwards, branch_in_scan, rounds, while_in_map], ids=lambda f: f.__name__
)
def test_printed_programs_run_where_they_are_pasted(loop):
    args = arguments(loop)
    gradient = tapeless.differentiate(lambda *args: loop(TORCH, *args), *args)
    namespace = {}
    exec(str(gradient), namespace)
    outs = namespace["forward"](list(args))
    given = cotangents([outs[i] for i in gradient.cotangent_outputs])
    captures = [*(args[i] for i in gradient.captured_inputs), *(outs[i] for i in gradient.captured_outputs)]
    found = dict(zip(gradient.gradient_inputs, namespace["backward"]([*given, *captures]), strict=True))
    expected = torch.autograd.grad(
        [o for i, o in enumerate(outputs(eager(loop), args)) if i in gradient.cotangent_outputs],
        args, given, allow_unused=True,
    )  # fmt: skip

    same(expected, [found.get(i) for i in range(len(args))])


class Recurrent(nn.Module):
    def __init__(self, ops):
        super().__init__()
        self.ops, self.cell, self.drop = ops, nn.Linear(3, 3, dtype=D), nn.Dropout(0.5)

    def forward(self, x):
        def body(h, row):
            h = self.drop(torch.tanh(self.cell(h) + row))
            return h, h.clone()

        return self.ops.scan(body, torch.zeros(3, dtype=D), x)[1]


def test_parameters_that_a_body_closes_over_and_random_numbers_it_draws():
    torch.manual_seed(0)
    x, model, reference = torch.randn(4, 3, dtype=D), Recurrent(TORCH), Recurrent(PYTHON)
    reference.load_state_dict(model.state_dict())
    for function in (reference, torch.compile(model, backend="tapeless", fullgraph=True)):
        torch.manual_seed(3)
        function(x).sum().backward()

    same([p.grad for p in reference.parameters()], [p.grad for p in model.parameters()])


def test_number_carried_where_nothing_is_differentiated():
    def function(x):
        return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (0, x))[1]

    assert [8.0] == torch.compile(function, backend="tapeless", fullgraph=True)(torch.ones(1)).tolist()


@pytest.mark.parametrize("loop", [cell, two_carries, rounds], ids=lambda f: f.__name__)
def test_one_program_for_all_lengths(loop):
    torch._dynamo.reset()
    _, h, w = arguments(loop)
    function = torch.compile(lambda *args: loop(TORCH, *args), backend="tapeless", fullgraph=True, dynamic=True)
    for length in (5, 2):
        args = [torch.randn(length, 3, dtype=D, requires_grad=True), h, w]
        first = [True] + [False] * (len(outputs(eager(loop), args)) - 1)

        same(gradients(eager(loop), args, first), gradients(function, args, first))
        same(second_derivatives(eager(loop), args), second_derivatives(function, args))


def test_what_no_cotangent_reaches_costs_nothing():
    gradient = tapeless.differentiate(lambda *args: private_operands(TORCH, *args), *arguments(cell), undefined=[0])

    assert "torch.mm(" not in str(gradient.backward)
    assert "= run_scan(" in str(gradient.backward)


def test_jacobian_of_a_scan():
    x, h, w = (a.detach() for a in arguments(cell))
    expected = torch.func.jacrev(lambda x: cell(PYTHON, x, h, w)[1])(x)

    same([expected], [tapeless.jacobian(lambda x: cell(TORCH, x, h, w)[1])(x)])


@pytest.mark.parametrize("loop", [rounds, scan_in_branch], ids=lambda f: f.__name__)
def test_jacobian_of_what_is_decided_while_it_runs_is_refused(loop):
    x, h, w = (a.detach() for a in arguments(loop))
    with pytest.raises(Unsupported, match=r"decides while it runs\n  at .*test_loops.py"):
        tapeless.jacobian(lambda x: tree_leaves(loop(TORCH, x, h, w))[0])(x)
