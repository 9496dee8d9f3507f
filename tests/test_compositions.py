"""Compositions of transforms, ours and torch's, that random ones found to be wrong."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import func
from torch.utils._pytree import tree_leaves

import tapeless
from comparing import assert_values, leaf, seeded


def agree(observe, ours, reference):
    assert_values(tree_leaves(observe(reference)), tree_leaves(observe(ours)))


def points(*shapes):
    return seeded(0, lambda: [leaf(*shape) for shape in shapes])


# --- transforms of torch around compiled functions --------------------------------------------------------------------


def tower(f, order):
    """A gradient of a gradient … by the second argument."""
    for _ in range(order):
        f = (lambda inner: lambda x, w: func.grad(inner, argnums=1)(x, w).sin().sum())(f)
    return f


@pytest.mark.parametrize("order", range(1, 5))
@pytest.mark.parametrize(
    "f", (lambda x, w: (x @ w).tanh().sum(), lambda x, w: (x @ w).pow(4).sum()), ids=("tanh", "power")
)
def test_autograd_by_what_the_transforms_take_for_a_constant(f, order):
    def observe(f):
        x, w = points((2, 3), (3, 2))
        value = tower(f, order)(x, w)
        return value, torch.autograd.grad(value, (x, w))

    agree(observe, tapeless.compile(f), f)


def written(x, v):
    y = x.clone()
    y[0] = v * 2
    y[:, 1] *= v[0]
    y[1:].add_(x[:-1].sin())
    return y.exp()


@pytest.mark.parametrize("in_dims", ((0, 0), (1, None)), ids=str)
def test_a_batch_of_writes(in_dims):
    """Torch's own rule for batches of `select_scatter` counts gradients several times."""

    def observe(f):
        x, v = points((3, 2), (2,))
        given = [t if d is None else torch.stack([t, t.sin()], d) for t, d in zip((x, v), in_dims, strict=True)]
        out = func.vmap(f, in_dims)(*given)
        return out, torch.autograd.grad(out.sin().sum(), (x, v))

    agree(observe, tapeless.compile(written), written)
    agree(
        observe,
        lambda x, v: tapeless.linearize(written, x, v)[1](x.cos(), v),
        lambda x, v: func.jvp(written, (x, v), (x.cos(), v))[1],
    )


def test_transforms_of_torch_around_ours():
    """Torch has neither a derivative of `aten.copy` nor a second one of fused attention."""

    def attend(x):
        q, k, v = x.unbind(0)
        return F.scaled_dot_product_attention(q, k, v).sin().sum()

    def written_out(x):
        q, k, v = x.unbind(0)
        return ((q @ k.mT / 2**0.5).softmax(-1) @ v).sin().sum()

    (x,) = (t.detach() for t in points((3, 1, 1, 2, 2)))
    agree(lambda f: func.jacrev(f)(x), tapeless.hessian(attend), func.hessian(written_out))

    (y, v) = (t.detach() for t in points((3, 2), (2,)))
    total = lambda x, v: written(x, v).sum()  # noqa: E731
    agree(lambda f: func.grad(lambda x: f(x, v).sin().sum())(y), tapeless.hessian(total), func.hessian(total))


# --- what a function returns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ("T", "mT", "H"))
def test_a_part_of_an_argument_is_a_result(part):
    """Dynamo takes it off the argument by itself, outside the graph."""

    def f(x):
        return x.sin(), getattr(x, part)

    (x,) = (t.detach() for t in points((2, 3)))
    agree(lambda f: func.vmap(f)(torch.stack([x, x + 1])), tapeless.compile(f), f)
    agree(lambda jacobian: jacobian(f)(x), tapeless.jacobian, func.jacrev)
    agree(lambda jacobian: jacobian(lambda x: getattr(x, part))(x), tapeless.jacobian, func.jacrev)


def test_results_that_depend_on_each_other():
    def f(x, w):
        h = (x @ w).tanh()
        return h.sum(), (h, (h * h).exp())

    def observe(grad):
        x, w = points((2, 3), (3, 2))
        gradient, (h, out) = grad(f, has_aux=True)(x, w)
        return [torch.autograd.grad(t.sin().sum(), h, retain_graph=True)[0] for t in (gradient, out)]

    agree(observe, tapeless.grad, func.grad)


# --- by-products, and tangents that overflow --------------------------------------------------------------------------


def definite(x):
    return x @ x.mT + 3 * torch.eye(3, dtype=x.dtype)


FACTORED = {
    "det": lambda x: definite(x).det(),
    "logdet": lambda x: definite(x).logdet(),
    "complex slogdet": lambda x: torch.linalg.slogdet(torch.complex(definite(x), x))[0].imag,
    "solve": lambda x: torch.linalg.solve(definite(x), x).sin().sum(),
    "solve from the right": lambda x: torch.linalg.solve(definite(x), x, left=False).sin().sum(),
    "transposed": lambda x: (definite(x).mT.det() * torch.linalg.solve(definite(x).mT, x[0])).sum(),
}


@pytest.mark.parametrize("name", FACTORED)
def test_factors_that_torch_takes_for_constants(name):
    """Both derivatives inside one traced function: the inner one is torch's, which reads the factors."""
    f, (x,) = FACTORED[name], (t.detach() for t in points((3, 3)))
    expected = func.jacrev(lambda x: func.grad(f)(x).mul(x.cos()).sum())(x)  # of all but the direction
    expected = expected - func.grad(lambda y: (func.grad(f)(x) * y.cos()).sum())(x)

    def pushed(x, direction):
        return func.jvp(f, (x,), (direction,))[1]

    assert_values([expected], [tapeless.grad(pushed)(x, x.cos())])
    assert_values([expected], [tapeless.jacobian(pushed, mode="forward")(x, x.cos())])


def test_logcumsumexp_of_numbers_far_apart():
    x = torch.tensor([-1000.0, 0.0, 5.0, -2000.0], dtype=torch.float64)
    direction = torch.tensor([1.0, 0.0, -2.0, 3.0], dtype=torch.float64)
    shares = torch.eye(4, dtype=torch.float64)
    shares[2:] = 0
    shares[2:, 1:3] = x[1:3].softmax(0)

    assert_values([shares @ direction], [tapeless.jvp(lambda x: x.logcumsumexp(0), (x,), (direction,))[1]])


def test_logcumsumexp_to_third_order():
    """Against sums of exponentials: eager's third derivative is not a number."""
    (x,) = (t.detach() for t in points((3, 2)))

    def f(x):
        return x.logcumsumexp(0).sin().sum()

    def plain(x):
        return x.exp().cumsum(0).log().sin().sum()

    agree(lambda f: func.hessian(f)(x), tapeless.compile(f), plain)
    expected = func.jacrev(func.jacrev(func.grad(plain)))(x)
    for modes in (("forward", "forward"), ("reverse", "forward"), ("forward", "reverse")):
        third = tapeless.jacobian(tapeless.jacobian(tapeless.grad(f), mode=modes[0]), mode=modes[1])
        assert_values([expected], [third(x)])


# --- what torch differentiates wrongly, inside a compiled function ----------------------------------------------------


def layer_norm(x, w):
    return F.layer_norm(x, (3,), w, w.cos())


def batch_norm(x, w):
    return F.batch_norm(x, None, None, w, w.cos(), True)


def written_out_norm(dim):
    def norm(x, w):
        centred = x - x.mean(dim, keepdim=True)
        return centred / (centred.square().mean(dim, keepdim=True) + 1e-5).sqrt() * w + w.cos()

    return norm


NORMS = {"layer": (layer_norm, written_out_norm(1)), "batch": (batch_norm, written_out_norm(0))}
INNER = {
    "grad of jacrev": lambda f: func.grad(lambda x, w: func.jacrev(f, argnums=1)(x, w).sin().sum(), argnums=(0, 1)),
    "grad of grad": lambda f: func.grad(
        lambda x, w: func.grad(lambda x: f(x, w).sin().sum())(x).sin().sum(), argnums=(0, 1)
    ),
}


@pytest.mark.parametrize("order", INNER)
@pytest.mark.parametrize("norm", NORMS)
def test_transforms_of_norms_inside_a_compiled_function(norm, order):
    """Torch takes their statistics for constants."""
    ours, reference = NORMS[norm]

    def observe(f):
        x, w = points((4, 3), (3,))
        found = f(x, w)
        return found, torch.autograd.grad(sum(t.sin().sum() for t in found), (x, w))

    agree(observe, tapeless.compile(INNER[order](ours)), INNER[order](reference))


def test_running_statistics_inside_a_compiled_function():
    def kept(compiled):
        mean, variance = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
        x, w = (t.detach() for t in points((4, 3), (3,)))
        total = func.grad(lambda x: func.jacrev(lambda w: F.batch_norm(x, mean, variance, w, None, True))(w).sum())
        (tapeless.compile(total) if compiled else total)(x)
        assert mean.any()
        return mean, variance

    assert_values(kept(False), kept(True))


@pytest.mark.parametrize("upper", (False, True), ids=("lower", "upper"))
@pytest.mark.parametrize("method", (False, True), ids=("function", "method"))
def test_derivatives_of_cholesky_inverse(upper, method):
    """Against the inverse itself: eager's tangent is wrong, and its gradient where the other triangle is not zero."""
    half = torch.triu if upper else torch.tril
    x, direction = (t.detach() for t in points((3, 3), (3, 3)))
    x, direction = x + 4 * torch.eye(3, dtype=x.dtype), half(direction)

    def ours(x):
        return x.cholesky_inverse(upper) if method else torch.cholesky_inverse(x, upper=upper)

    def reference(x):
        return (half(x).mT @ half(x) if upper else half(x) @ half(x).mT).inverse()

    def pushed(f):
        return lambda x: func.jvp(f, (x,), (direction,))

    agree(lambda f: f(x), pushed(tapeless.compile(ours)), pushed(reference))
    agree(lambda f: f(x), tapeless.compile(pushed(ours)), pushed(reference))
    assert_values(
        [half(func.grad(lambda x: reference(x).sin().sum())(x))],
        [half(tapeless.grad(lambda x: ours(x).sin().sum())(x))],
    )
    second = func.jvp(func.grad(lambda x: reference(x).sin().sum()), (x,), (direction,))[1]
    _, (product,) = tapeless.hvp(lambda x: ours(x).sin().sum(), (x,), (direction,))
    assert_values([half(second)], [half(product)])


# --- after a failure --------------------------------------------------------------------------------------------------


def test_what_cannot_be_traced_leaves_nothing_behind():
    """Dynamo fails on tangents of group norm, and torch failed again in its message: whatever came later was wrong."""

    def norm(x, w):
        return F.group_norm(x, 1, w).sin()

    def written_out(x, w):
        centred = x - x.mean((1, 2), keepdim=True)
        return (centred / (centred.square().mean((1, 2), keepdim=True) + 1e-5).sqrt() * w[:, None]).sin()

    x, w = (t.detach() for t in points((1, 2, 3), (2,)))
    with pytest.raises(Exception, match=r"InferenceMode|FakeTensor"):
        torch.compile(func.grad(lambda x: func.jacfwd(norm)(x, w).sum()), backend="eager")(x)
    gc.collect()

    def slope(f):
        return func.grad(lambda x, w: func.jacrev(f)(x, w).sin().sum(), argnums=(0, 1))(x, w)

    agree(slope, tapeless.compile(norm), written_out)
    agree(slope, norm, written_out)
