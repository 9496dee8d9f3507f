"""Sums of products: what is gathered, what is left alone, and that nothing but rounding changes."""

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import tapeless
from comparing import assert_values
from tapeless.ir import graph as ir
from tapeless.ir.sums import gather_sums

aten = torch.ops.aten


def traced(function, *inputs):
    """The function as a graph with a list of results, and its values as fakes."""
    with FakeTensorMode() as mode:
        graph = make_fx(function, tracing_mode="real")(*(mode.from_tensor(x) for x in inputs)).graph
    (result,) = graph.output_node().args
    graph.output_node().args = ([result] if isinstance(result, fx.Node) else list(result),)
    return graph


def operators(graph):
    return [node.target._overloadpacket.__name__ for node in ir.calls(graph)]


def matrices(*shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


GATHERED = {
    "a product is added to what was there": (lambda a, b, c: c + a @ b, ["addmm"]),
    "or the other way round": (lambda a, b, c: a @ b + c, ["addmm"]),
    "many products": (lambda a, b, c: a @ b + a.sin() @ b + a.cos() @ b, ["mm", "sin", "addmm", "cos", "addmm"]),
    "a sum of transposes": (lambda a, b, c: (a @ b).t() + c.sin().t(), ["mm", "sin", "add", "t"]),
    "many transposed products": (
        lambda a, b, c: (a @ b).t() + (a.sin() @ b).t() + (a.cos() @ b).t(),
        ["mm", "sin", "addmm", "cos", "addmm", "t"],
    ),
}


@pytest.mark.parametrize(("function", "expected"), GATHERED.values(), ids=GATHERED)
def test_gathered(function, expected):
    inputs = matrices((6, 3), (3, 5), (6, 5))
    graph = gather_sums(traced(function, *inputs))
    graph.lint()

    assert expected == operators(graph)
    assert_values([function(*inputs)], list(fx.GraphModule({}, graph)(*inputs)))


LEFT_ALONE = {
    "a product that is used twice": (lambda a, b, c: [c + (product := a @ b), product], torch.float64),
    "what is broadcast": (lambda a, b, c: a @ b + c[0], torch.float64),
    "a scaled sum": (lambda a, b, c: torch.add(c, a @ b, alpha=2), torch.float64),
    "few digits": (lambda a, b, c: c + a @ b, torch.bfloat16),
    "transposes that somebody else reads": (lambda a, b, c: [(x := c.sin().t()) + c.cos().t(), x], torch.float64),
    "one transpose": (lambda a, b, c: c.sin().t() + c.reshape(5, 6), torch.float64),
    "a product of large factors that are gone by then": (
        lambda a, b, c: a.sin() @ b.sin() + c.sin() * c.cos(),
        torch.float64,
    ),
}


@pytest.mark.parametrize(("function", "dtype"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(function, dtype):
    inputs = matrices((6, 30), (30, 5), (6, 5), dtype=dtype)
    graph = traced(function, *inputs)
    before = operators(graph)

    assert before == operators(gather_sums(graph))


def test_gradients_of_a_weight_that_is_used_at_every_step():
    def run(w, x):
        for _ in range(4):
            x = torch.tanh(x @ w.t())
        return x.square().sum()

    w, x = (m.requires_grad_() for m in matrices((5, 5), (3, 5)))
    program = tapeless.differentiate(run, w, x)

    assert 3 == str(program.backward).count(".addmm_(")
    assert_values(
        list(torch.autograd.grad(run(w, x), (w, x))), list(torch.autograd.grad(tapeless.compile(run)(w, x), (w, x)))
    )


@pytest.mark.parametrize("order", [2, 3])
def test_of_higher_order(order):
    def run(w, x):
        for _ in range(3):
            x = torch.tanh(x @ w.t())
        return x.square().sum()

    def derivative(function):
        w, x = (m.requires_grad_() for m in matrices((4, 4), (2, 4)))
        value = function(w, x)
        for _ in range(order):
            value = sum(g.sin().sum() for g in torch.autograd.grad(value, (w, x), create_graph=True))
        return torch.autograd.grad(value, (w, x))

    assert_values(list(derivative(run)), list(derivative(tapeless.compile(run))))
