"""The function transforms against `torch.func`, in float64."""

import doctest
import functools
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import func, nn
from torch.utils._pytree import tree_leaves, tree_structure

import tapeless
from comparing import Cube, assert_values, case, seeded, table
from tapeless.errors import BadOption, NotATensor, ProgramFailed, TapelessError, Unsupported


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64)


def inputs_of(case):
    return seeded(0, lambda: tuple(normal(*shape) for shape in case.inputs))


def assert_same(expected, actual):
    assert tree_structure(expected) == tree_structure(actual)
    assert_values(tree_leaves(expected), tree_leaves(actual))


def random_like(tree):
    return torch.utils._pytree.tree_map(torch.randn_like, tree)


SCALARS = (
    case("products", lambda x, y: (x.sin() * y).sum() * x.exp().mean(), (2, 3), (3,)),
    case("matrices", lambda x, y: (x @ y).tanh().square().sum(), (2, 3), (3, 2)),
    case("softmax", lambda x, y: F.cross_entropy(x @ y, torch.tensor([1, 0])), (2, 3), (3, 2)),
    case("one unused", lambda x, y: (x**3).sum(), (3,), (2,)),
    case("linear", lambda x, y: x.sum() + 2 * y.mean(), (3,), (2,)),
    case("branches", lambda x, y: torch.where(x > 0, x * y, y.exp()).sum(), (3,), (3,)),
    case("convolution", lambda x, y: F.conv2d(x, y).relu().pow(2).mean(), (1, 2, 4, 4), (2, 2, 3, 3)),
)

TREES = (
    case("one", lambda x, y: x.sin() * y, (3,), (3,)),
    case("tuple", lambda x, y: (x @ y, y.sum()), (2, 3), (3, 2)),
    case("dictionary", lambda x, y: {"a": x.exp(), "b": [y.prod(), (x * y).sum()]}, (2,), (2,)),
    case("argument itself", lambda x, y: (x, x * y, y.view(-1)), (2, 2), (2, 2)),
    case("constant part", lambda x, y: (x * 2, y.detach() * 3), (2,), (2,)),
)


# --- one transform ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argnums", (0, (0, -1)), ids=str)
@table(*SCALARS)
def test_grad(case, argnums):
    inputs = inputs_of(case)

    assert_same(func.grad(case.program, argnums)(*inputs), tapeless.grad(case.program, argnums)(*inputs))


@table(*SCALARS)
def test_value_and_grad(case):
    inputs = inputs_of(case)
    gradients, value = func.grad_and_value(case.program, (0, 1))(*inputs)

    assert_same((value, gradients), tapeless.value_and_grad(case.program, (0, 1))(*inputs))


@table(*TREES)
def test_vjp(case):
    inputs = inputs_of(case)
    (expected, pull), (actual, pullback) = (m.vjp(case.program, *inputs) for m in (func, tapeless))
    assert_same(expected, actual)
    for _ in range(2):
        cotangents = random_like(expected)

        assert_same(pull(cotangents), pullback(cotangents))


@table(*TREES)
def test_jvp_and_linearize(case):
    inputs = inputs_of(case)
    value, pushforward = tapeless.linearize(case.program, *inputs)
    for _ in range(2):
        tangents = random_like(inputs)
        expected = func.jvp(case.program, inputs, tangents)

        assert_same(expected, tapeless.jvp(case.program, inputs, tangents))
        assert_same(expected, (value, pushforward(*tangents)))


@pytest.mark.parametrize("mode", ("auto", "forward", "reverse"))
@table(*TREES)
def test_jacobian(case, mode):
    inputs = inputs_of(case)

    assert_same(func.jacrev(case.program, (0, 1))(*inputs), tapeless.jacobian(case.program, (0, 1), mode=mode)(*inputs))


@table(*SCALARS)
def test_hessian(case):
    inputs = inputs_of(case)

    assert_same(func.hessian(case.program, (0, 1))(*inputs), tapeless.hessian(case.program, (0, 1))(*inputs))


@table(*SCALARS)
def test_hvp(case):
    inputs = inputs_of(case)
    tangents = random_like(inputs)
    _, product = func.jvp(func.grad(case.program, (0, 1)), inputs, tangents)

    assert_same((case.program(*inputs), product), tapeless.hvp(case.program, inputs, tangents))


def test_jacobian_takes_the_cheaper_mode():
    tall, wide = tapeless.jacobian(lambda x: x.sum() * torch.arange(9.0)), tapeless.jacobian(lambda x: x.sum(0))
    forward = torch.ops.aten.eye.default

    def basis(function, x):
        traced, _ = function.trace(((x,), {}))
        return [node.args[0] for node in traced.graph.find_nodes(op="call_function", target=forward)]

    assert [3] == basis(tall, torch.randn(3))
    assert [2] == basis(wide, torch.randn(5, 2))


# --- composition ------------------------------------------------------------------------------------------------------


def summed(transform):
    """The transform as one that gives scalars, so that any may follow any."""
    return lambda m, f: lambda x: tree_sum(transform(m, f)(x))


def tree_sum(tree):
    return sum((leaf * torch.arange(1, 1 + leaf.numel()).view_as(leaf)).sum() for leaf in tree_leaves(tree))


STEPS = {
    "grad": lambda m, f: m.grad(f),
    "jvp": lambda m, f: lambda x: m.jvp(f, (x,), (x.cos(),)),
    "vjp": lambda m, f: lambda x: m.vjp(f, x)[1](torch.ones((), dtype=x.dtype)),
    "jacobian": lambda m, f: (m.jacrev if m is func else m.jacobian)(f),
}


@pytest.mark.parametrize("outer", STEPS)
@pytest.mark.parametrize("inner", STEPS)
def test_transform_inside_a_function(inner, outer):
    """The inner one is called by Python, and so traced."""

    def f(x):
        return (x.sin() * x.exp()).sum()

    x = seeded(0, lambda: normal(3))
    expected, actual = (STEPS[outer](m, summed(STEPS[inner])(m, f))(x) for m in (func, tapeless))

    assert_same(expected, actual)


def quartic(x):
    return (x**4 * torch.arange(1.0, 4, dtype=torch.float64)).sum() + x.prod().sin()


DEPTH_3 = {
    "jacobian of hessian": lambda m, jacobian: jacobian(m.hessian(quartic)),
    "jacobian³": lambda m, jacobian: jacobian(jacobian(jacobian(quartic))),
    "jacobian² of grad": lambda m, jacobian: jacobian(jacobian(m.grad(quartic))),
    "jvp of jacobian of grad": lambda m, jacobian: lambda x: m.jvp(jacobian(m.grad(quartic)), (x,), (x.cos(),)),
    "vjp of jacobian of grad": lambda m, jacobian: lambda x: m.vjp(jacobian(m.grad(quartic)), x)[1](torch.outer(x, x)),
    "hessian of grad": lambda m, jacobian: m.hessian(m.grad(quartic)),
}


@pytest.mark.parametrize("name", DEPTH_3)
def test_third_order(name):
    x = seeded(0, lambda: normal(3))
    expected = DEPTH_3[name](func, func.jacrev)(x)

    assert_same(expected, DEPTH_3[name](tapeless, tapeless.jacobian)(x))


def test_grad_of_grad_of_grad():
    def f(x):
        return x.sin() * x.exp()

    x = torch.tensor(0.7, dtype=torch.float64)
    nested = [functools.reduce(lambda g, _: m.grad(g), range(4), f)(x) for m in (func, tapeless)]

    assert_same(*nested)


def test_one_graph_per_signature():
    def f(x):
        return (x.sin() ** 2).sum()

    def graph_of(function, x):
        return function.trace(((x,), {}))[0]

    x = normal(3)

    assert graph_of(tapeless.hessian(f), x) is graph_of(tapeless.hessian(f), x + 1)
    assert graph_of(tapeless.grad(f), x) is not graph_of(tapeless.grad(f), normal(4))


def test_forward_over_reverse_over_tree():
    def f(parameters, x):
        return (x @ parameters["w"] + parameters["b"]).tanh().square().sum()

    parameters = {"w": normal(3, 2), "b": normal(2)}
    x = normal(4, 3)
    primals, tangents = (parameters, x), random_like((parameters, x))
    expected, actual = (m.jvp(m.grad(f), primals, tangents) for m in (func, tapeless))

    assert_same(expected, actual)


# --- arguments, results, state ----------------------------------------------------------------------------------------


def test_aux():
    def f(x, y):
        value = (x * y).sum()
        return value, {"twice": 2 * value, "x": x}

    x, y = normal(3), normal(3)
    gradients, (value, aux) = func.grad_and_value(f, has_aux=True)(x, y)
    out, pullback, also = tapeless.vjp(f, x, y, has_aux=True)

    assert_same((gradients, aux), tapeless.grad(f, has_aux=True)(x, y))
    assert_same(((value, aux), gradients), tapeless.value_and_grad(f, has_aux=True)(x, y))
    assert_same(func.jacrev(f, has_aux=True)(x, y), tapeless.jacobian(f, has_aux=True)(x, y))
    assert_same(func.jvp(f, (x, y), (y, x), has_aux=True)[:2], tapeless.jvp(f, (x, y), (y, x), has_aux=True)[:2])
    assert_same((value, aux, (y, x)), (out, also, pullback(torch.ones_like(out))))


def test_aux_may_be_anything():
    def f(x):
        return (x * x).sum(), ("square", 2, None)

    assert ("square", 2, None) == tapeless.grad(f, has_aux=True)(normal(3))[1]


def test_keywords_and_numbers():
    def f(x, power, *, scale=1.0, shift=None):
        return scale * (x**power).sum() + (0 if shift is None else (shift * x).sum())

    x = normal(3)
    for power, keywords in ((2, {}), (3, {"scale": 2.0}), (3, {"scale": 2.5, "shift": normal(3)}), (2, {})):
        assert_same(func.grad(f)(x, power, **keywords), tapeless.grad(f)(x, power, **keywords))


def test_signatures():
    """Shapes, dtypes, structures, strides: each is traced for itself, and none is mistaken for another."""

    def f(tree):
        return sum((leaf.sin() * leaf).sum() for leaf in tree_leaves(tree))

    trees = [normal(3), normal(2, 2), [normal(3)], [normal(3), normal(3)], {"a": normal(3)}, normal(3, 2).t()]
    for tree in (*trees, torch.randn(3), *trees):
        assert_same(func.grad(f)(tree), tapeless.grad(f)(tree))


def test_what_a_function_closes_over_is_read_live():
    for scale, weight in ((2.0, normal(3)), (3.0, normal(3)), (3.0, normal(3))):

        def f(x, scale=scale, weight=weight):
            return scale * (x.sin() * weight).sum()

        def g(x):
            return scale * (x.sin() * weight).sum()  # noqa: B023

        x = normal(3)
        assert_same(func.grad(f)(x), tapeless.grad(f)(x))
        assert_same(func.grad(g)(x), tapeless.grad(g)(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()

    def forward(self, x):
        return self.body(x).sum()


def test_module_parameters_are_read_live():
    net, x = seeded(0, Net), normal(2, 3)
    gradient = tapeless.grad(net)
    changes = (
        lambda: None,
        lambda: net.body[0].weight.data.mul_(2),
        lambda: setattr(net.body[0], "weight", nn.Parameter(normal(4, 3))),
        lambda: net.requires_grad_(False),
    )
    for change in changes:
        change()
        assert_same(func.grad(net)(x), gradient(x))


def test_training_mode_and_statistics():
    eager, ours = (seeded(0, lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()) for _ in range(2))
    x = normal(5, 3)
    for mode in (True, True, False):
        eager.train(mode)
        ours.train(mode)
        leaf = x.clone().requires_grad_()
        (expected,) = torch.autograd.grad(eager(leaf).square().mean(), leaf)

        assert_same(expected, tapeless.grad(lambda x: ours(x).square().mean())(x))
        assert_same(dict(eager.state_dict()), dict(ours.state_dict()))


def test_mutated_arguments():
    def f(x, counts):
        counts.add_(1)
        return (x * x * counts).sum()

    for make in (lambda: torch.zeros(3, 2, dtype=torch.int64), lambda: torch.zeros(2, 3, dtype=torch.int64).t()):
        x, ours, theirs = normal(3, 2), make(), make()

        assert_same(func.grad(f)(x, theirs), tapeless.grad(f)(x, ours))
        assert_same(theirs, ours)


def test_functional_call():
    net, x = seeded(0, Net), normal(2, 3)
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def f(parameters, x):
        return func.functional_call(net, parameters, (x,)).square()

    assert_same(func.grad(f)(parameters, x), tapeless.grad(f)(parameters, x))
    assert_same(func.hessian(f)(parameters, x), tapeless.hessian(f)(parameters, x))


def test_derivative_of_one_s_own():
    """The user's backward, at each order, is the user's."""

    def f(x):
        return (Cube.apply(x * 2) * x).sum()

    x = normal(3).requires_grad_()
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    rows = [torch.autograd.grad(e, x, retain_graph=True)[0] for e in g]

    assert_same(g.detach(), tapeless.grad(f)(x.detach()))
    assert_same(torch.stack(rows), tapeless.hessian(f)(x.detach()))


def test_random_numbers():
    def f(x):
        return (F.dropout(x, 0.5) * x).sum()

    x = normal(8)
    value, gradient = seeded(3, tapeless.value_and_grad(f), x)

    assert_same(seeded(3, f, x), value)
    assert_same(seeded(3, lambda: 2 * F.dropout(x, 0.5)), gradient)


# --- inside and around other machinery --------------------------------------------------------------------------------


def test_results_are_differentiable_by_autograd():
    def f(x, y):
        return (x.sin() * y).sum() ** 2

    def observe(m):
        x, y = seeded(0, lambda: (normal(3).requires_grad_(), normal(3).requires_grad_()))
        (first,) = torch.autograd.grad(m.grad(f)(x, y).square().sum(), x)
        out, pullback = m.vjp(lambda x: (x * y).exp(), x)
        second = torch.autograd.grad(pullback(out)[0].sum() + out.sum(), (x, y))
        moved = torch.autograd.grad(m.jvp(f, (x, y), (y, x))[1], (x, y))
        return first, second, moved

    assert_same(observe(func), observe(tapeless))


def test_parameters_learn_through_a_transform():
    def observe(m):
        net, x = seeded(0, lambda: (Net(), normal(2, 3)))
        m.grad(net)(x).square().sum().backward()
        return [p.grad for p in net.parameters()]

    assert_values(observe(func), observe(tapeless))


def test_per_sample_gradients():
    def loss(w, x, y):
        return ((x @ w).tanh() - y).square().sum()

    w, x, y = normal(3, 2), normal(5, 3), normal(5, 2)
    expected, actual = (func.vmap(m.grad(loss), in_dims=(None, 0, 0))(w, x, y) for m in (func, tapeless))

    assert_same(expected, actual)
    assert_same(expected, func.vmap(lambda x, y: tapeless.grad(lambda w: loss(w, x, y))(w))(x, y))


def test_under_transforms_of_torch():
    def f(x):
        return (x.sin() * x.exp()).sum()

    x, v = normal(3), normal(3)

    assert_same(func.jacrev(func.grad(f))(x), func.jacrev(tapeless.grad(f))(x))
    assert_same(func.jvp(func.grad(f), (x,), (v,)), func.jvp(tapeless.grad(f), (x,), (v,)))
    assert_same(func.jacfwd(func.jacrev(func.grad(f)))(x), func.jacfwd(tapeless.hessian(f))(x))


def test_dual_tensors():
    def f(x):
        return (x.sin() * x.exp()).sum()

    x, v = normal(3), normal(3)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, v)
        pair = torch.autograd.forward_ad.unpack_dual(tapeless.grad(f)(dual))

    assert_same(func.jvp(func.grad(f), (x,), (v,)), tuple(pair))


COMPILED = {
    "grad": lambda m, f: m.grad(f),
    "value": lambda m, f: lambda x: m.grad(f)(x) + tapeless.value_and_grad(f)(x)[0],
    "vjp": lambda m, f: lambda x: m.vjp(f, x)[1](torch.ones((), dtype=x.dtype)),
    "jvp": lambda m, f: lambda x: m.jvp(f, (x,), (x,)),
    "hessian": lambda m, f: m.hessian(f),
    "made outside": lambda m, f: (lambda g: lambda x: g(x) * x)(m.grad(f)),
}


@pytest.mark.parametrize("name", COMPILED)
def test_inside_a_compiled_function(name):
    def f(x):
        return (x.sin() * x.exp()).sum()

    x = normal(3)
    expected = COMPILED[name](func, f)(x)

    assert_same(expected, tapeless.compile(COMPILED[name](tapeless, f), fullgraph=True)(x))


def test_hvp_and_linearize_inside_a_compiled_function():
    def f(x):
        return (x.sin() * x.exp()).sum()

    def both(x):
        return tapeless.hvp(f, (x,), (x,)), tapeless.linearize(f, x)[1](x)

    x = normal(3)

    assert_same(both(x), tapeless.compile(both, fullgraph=True)(x))


def test_of_a_compiled_function():
    def f(x):
        return (x.sin() * x.exp()).sum()

    x = normal(3)

    assert_same(func.hessian(f)(x), tapeless.hessian(tapeless.compile(f))(x))


def test_documentation():
    """Every example of the page prints what the page says."""
    page = (Path(__file__).parent.parent / "docs" / "transforms.md").read_text()
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", page, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, "transforms.md", "transforms.md", 0)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)

    assert (0, len(test.examples)) == tuple(runner.run(test, clear_globs=False))[:2]


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS = {
    "not a scalar": (lambda x: tapeless.grad(lambda x: x * 2)(x), Unsupported, r"one real number, not f64\[3\]"),
    "not a tensor": (lambda x: tapeless.grad(lambda x: 3.0)(x), Unsupported, "returns no tensor"),
    "no such argument": (lambda x: tapeless.grad(torch.sum, 1)(x), BadOption, "called with 1 positional"),
    "number": (lambda x: tapeless.grad(lambda x, n: x.sum() * n, 1)(x, 3), NotATensor, "argument 1"),
    "integers": (lambda x: tapeless.grad(lambda x, i: x[i].sum(), 1)(x, torch.tensor([1])), NotATensor, "int64"),
    "argnums": (lambda x: tapeless.grad(torch.sum, "x"), BadOption, "argnums must be"),
    "mode": (lambda x: tapeless.jacobian(torch.sin, mode="both"), BadOption, "mode must be"),
    "no aux": (lambda x: tapeless.grad(torch.sum, has_aux=True)(x), BadOption, "pair"),
    "tangent shape": (lambda x: tapeless.jvp(torch.sin, (x,), (x[0],)), BadOption, "types of the primals"),
    "tangent structure": (lambda x: tapeless.jvp(torch.sin, (x,), ([x],)), BadOption, "structure of the primals"),
    "cotangent shape": (lambda x: tapeless.vjp(torch.sin, x)[1](x[0]), NotATensor, "a cotangent of shape"),
    "cotangent structure": (lambda x: tapeless.vjp(torch.sin, x)[1]((x,)), BadOption, "structure"),
    "overwritten argument": (lambda x: tapeless.grad(lambda x: x.mul_(2).sum())(x), ProgramFailed, "in-place"),
    "failing program": (lambda x: tapeless.grad(lambda x: (x @ x[:2]).sum())(x), ProgramFailed, "x @ x"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    program, error, message = ERRORS[name]
    assert issubclass(error, TapelessError)
    with pytest.raises(error, match=message):
        program(normal(3))
