"""Forward mode through compiled functions, alone and under reverse mode: tangents and their gradients are eager's."""

import pytest
import torch
import torch.autograd.forward_ad as forward

from comparing import assert_values, case, compiled, leaf, seeded, table

V = (3,)


def observe(call, inputs, which):
    """Outputs, tangents, and the gradients of both by all inputs and all tangents of inputs."""
    tangents = [torch.randn_like(x).requires_grad_() for x in inputs]
    leaves = [leaf for leaf in (*inputs, *tangents) if leaf.requires_grad]
    found = []
    with forward.dual_level():
        duals = [forward.make_dual(x, t) if i in which else x for i, (x, t) in enumerate(zip(inputs, tangents))]
        for out in call(*duals):
            for value in forward.unpack_dual(out):
                found += [value, *gradients(value, leaves)]
    return [None if value is None or not value.any() else value for value in found]  # no tangent, or one of zeros


def gradients(value, leaves):
    if value is None or not value.requires_grad:
        return [None] * len(leaves)
    return torch.autograd.grad(value.sum(), leaves, retain_graph=True, allow_unused=True)


def agree(program, inputs, which):
    expected, actual = (seeded(1, observe, f, seeded(0, inputs), which) for f in (program, compiled(program)))

    assert_values(expected, actual)


# --- writes that reverse mode does not see ----------------------------------------------------------------------------


def written(write):
    def program(x, z):
        y = x * x.sin()
        write(y, z)
        return (y * x).exp(), y

    return program


def under_no_grad(write):
    def unseen(y, z):
        with torch.no_grad():
            write(y, z)

    return written(unseen)


def made_under_no_grad(x, z):
    with torch.no_grad():
        y = x.sin() * z
    return y * x, y


APART = (
    case("detach", written(lambda y, z: y.detach().mul_(2)), V, V),
    case("detach, with a gradient of its own", written(lambda y, z: y.detach().mul_(z)), V, V),
    case("detach, view", written(lambda y, z: y.detach()[:1].mul_(2)), V, V),
    case("detach under no_grad", under_no_grad(lambda y, z: y.detach().mul_(z)), V, V),
    case("data", written(lambda y, z: y.data.mul_(2)), V, V),
    case("data under no_grad", under_no_grad(lambda y, z: y.data.mul_(z)), V, V),
)


@pytest.mark.parametrize("which", ((0,), (0, 1)), ids=str)
@table(
    case("mul_", under_no_grad(lambda y, z: y.mul_(2)), V, V),
    case("mul_ by another", under_no_grad(lambda y, z: y.mul_(z)), V, V),
    case("zero_", under_no_grad(lambda y, z: y.zero_()), V, V),
    case("copy_", under_no_grad(lambda y, z: y.copy_(z)), V, V),
    case("copy_ of a constant", under_no_grad(lambda y, z: y.copy_(z.detach())), V, V),
    case("view", under_no_grad(lambda y, z: y[:1].mul_(3)), V, V),
    *APART,
    case("made under no_grad", made_under_no_grad, V, V),
)
def test_unseen_write(case, which):
    agree(case.program, lambda: [leaf(*shape) for shape in case.inputs], which)


@pytest.mark.parametrize("which", ((0,), (0, 1)), ids=str)
@table(*APART)
def test_unseen_write_where_nothing_requires_a_gradient(case, which):
    agree(case.program, lambda: [leaf(*shape).detach() for shape in case.inputs], which)


# --- outputs that require no gradient ---------------------------------------------------------------------------------


def some_require_none(x, w):
    y = x.sin()
    return y, w * 2, y.detach(), x[[0, 2]], w * y, x.view(-1), x


@pytest.mark.parametrize("tracked", (True, False), ids=("with a gradient beside it", "without any"))
def test_an_output_that_requires_no_gradient_keeps_its_tangent(tracked):
    def inputs():
        return [leaf(3).detach(), leaf(3).requires_grad_(tracked)]

    agree(some_require_none, inputs, (0,))


def test_version_after_a_write_through_data():
    """`.data` does not tell anybody; `.detach()` and `no_grad` do."""

    def data(w, x):
        w.data.clamp_(-0.1, 0.1)
        return w * x

    def detach(w, x):
        w.detach().clamp_(-0.1, 0.1)
        return w * x

    def versions(call):
        found = []
        for w in (leaf(3), leaf(3).detach(), leaf(3) * 2):
            before = w._version
            call(w, torch.ones(3, dtype=torch.float64))
            found.append(w._version - before)
        return found

    for program in (data, detach):
        assert versions(program) == versions(compiled(program))


def test_a_kernel_that_hands_back_its_argument():
    x, t = torch.randn(0, 4, dtype=torch.float64), torch.randn(0, 4, dtype=torch.float64)
    call = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.4), backend="tapeless")
    with forward.dual_level():
        out = forward.unpack_dual(call(forward.make_dual(x, t)))

    assert (0, 4) == out.primal.shape == out.tangent.shape


def test_what_depends_on_no_tangent_has_none():
    """As in eager, so that operators without forward mode can read it outside."""

    def program(x, w):
        return [x * 2, x.detach() * w, w * 3, x.detach()]

    def tangents(function):
        x, w = torch.ones(3), torch.ones(3, requires_grad=True)
        with forward.dual_level():
            results = function(forward.make_dual(x, torch.ones(3)), w)
            return [(forward.unpack_dual(t).tangent is None, t.requires_grad) for t in results]

    assert tangents(program) == tangents(torch.compile(program, backend="tapeless"))


def test_an_operator_whose_fake_kernel_prints_its_arguments():
    """As `lerp_` does, in `quantile`; torch cannot print a tensor below autograd while a dual level is open."""
    x, direction = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)

    def tangent(function):
        with forward.dual_level():
            return forward.unpack_dual(function(forward.make_dual(x, direction))).tangent

    quantile = torch.compile(lambda x: x.sin().quantile(0.4, -1), backend="tapeless")

    torch.testing.assert_close(tangent(quantile), tangent(lambda x: x.sin().quantile(0.4, -1)))
