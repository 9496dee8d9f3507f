"""Decompositions: where an operator has no rule, for the use they are registered for, and never elsewhere.

The defects that torch's own mechanism for forward mode has are tests here: a table shared between uses, a global that
nobody can take back, statistics of norms reconstructed from rounded ones, nothing without TorchScript or asserts.
"""

import os
import subprocess
import sys
import threading

import pytest
import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F
from torch import nn

from comparing import assert_values, compiled, leaf, seeded
from tapeless import rules
from tapeless.errors import BadOption, MissingRule, NoDecomposition
from tapeless.rules.decompositions import Decompositions


@torch.library.custom_op("tapeless_test::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


@cube.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("tapeless_test::polar", mutates_args=())
def polar(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> list[torch.Tensor]:
    return [scale * torch.hypot(x, y), torch.atan2(y, x), (x > y).long()]


@polar.register_fake
def _(x, y, scale=1.0):
    return [torch.empty_like(x), torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)]


@torch.library.custom_op("tapeless_test::sine_backward", mutates_args=())
def sine_backward(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return g * x.cos()


@sine_backward.register_fake
def _(g, x):
    return torch.empty_like(x)


CUBE, POLAR = torch.ops.tapeless_test.cube.default, torch.ops.tapeless_test.polar.default
SINE_BACKWARD = torch.ops.tapeless_test.sine_backward.default


@pytest.fixture(autouse=True)
def table():
    """A table of its own for each test."""
    torch._dynamo.reset()
    previous = rules.set_provider(Decompositions())
    yield rules.get_provider()
    rules.set_provider(previous)


def through_cube(x):
    return cube(x.sin()) * x


def through_polar(x, y):
    radius, angle, larger = polar(x * y, y, 2.0)
    return radius * angle + larger


def written_out(x, y):
    return 2.0 * torch.hypot(x * y, y) * torch.atan2(y, x * y) + (x * y > y).long()


def derivatives(call, *inputs):
    """Value, gradient, gradient of the gradient, tangent."""
    value = call(*inputs)
    first = torch.autograd.grad(value.square().sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum(g.sin().sum() for g in first), inputs)
    return [value, *first, *second, tangent(call, *inputs)]


def tangent(call, *inputs):
    with forward.dual_level():
        return forward.unpack_dual(call(*(forward.make_dual(x, torch.ones_like(x)) for x in inputs))).tangent


def test_in_one_line():
    rules.decomposition(CUBE)(lambda x: x * x * x)
    x = seeded(0, leaf, 3)

    assert_values(derivatives(lambda x: x.sin() ** 3 * x, x), derivatives(compiled(through_cube), x))


def test_several_results_and_arguments():
    @rules.decomposition(POLAR)
    def _(x, y, scale):
        return scale * torch.hypot(x, y), torch.atan2(y, x), (x > y).long()

    inputs = seeded(0, lambda: (leaf(3), leaf(3)))

    assert_values(derivatives(written_out, *inputs), derivatives(compiled(through_polar), *inputs))


def test_the_operator_computes_the_value():
    """What is differentiated is the decomposition; the number is the operator's own, to the last bit."""
    rules.decomposition(CUBE)(lambda x: (3 * x.log()).exp())
    x = torch.rand(100, dtype=torch.float64).add(0.5).requires_grad_()

    assert torch.equal(x**3, compiled(lambda x: cube(x))(x))
    assert torch.equal(x**3, forward_value(compiled(lambda x: cube(x)), x))


def forward_value(call, x):
    with forward.dual_level():
        return forward.unpack_dual(call(forward.make_dual(x, torch.ones_like(x)))).primal


# --- one use does not change another ----------------------------------------------------------------------------------


def test_for_forward_mode_alone():
    rules.decomposition(CUBE, use="forward")(lambda x: x * x * x)
    x = seeded(0, leaf, 3)

    assert_values([tangent(lambda x: x.sin() ** 3 * x, x)], [tangent(compiled(through_cube), x.detach())])
    with pytest.raises(Exception, match=r"no derivative rule for `tapeless_test\.cube"):
        compiled(through_cube)(x)


def through_sine_backward(x):
    return torch.ops.tapeless_test.sine_backward(x, x)


def test_for_second_order_alone():
    """An operator of a backward, differentiated again; where it stands in a program it is one as well."""
    rules.decomposition(SINE_BACKWARD, use="second order")(lambda g_, x: g_ * x.cos())
    x = seeded(0, leaf, 3)
    expected, actual = (
        torch.autograd.grad(f(x).sum(), x) for f in (lambda x: x * x.cos(), compiled(through_sine_backward))
    )

    assert_values(expected, actual)
    with pytest.raises(MissingRule, match="sine_backward"):
        tangent(compiled(through_sine_backward), x)


def test_second_order_is_not_first_order():
    rules.decomposition(CUBE, use="second order")(lambda x: x * x * x)

    with pytest.raises(Exception, match=r"no derivative rule for `tapeless_test\.cube"):
        compiled(through_cube)(leaf(3))


def test_a_rule_comes_first():
    """A decomposition is for what has no rule; one that is wrong changes nothing where a rule exists."""
    rules.decomposition(torch.ops.aten.sin.default)(lambda self: self * 0)
    x = seeded(0, leaf, 3)

    assert_values(derivatives(torch.sin, x), derivatives(compiled(torch.sin), x))


# --- the interface ----------------------------------------------------------------------------------------------------


def test_none_installed():
    rules.set_provider(None)

    assert not rules.has_decomposition(CUBE)
    with pytest.raises(NoDecomposition, match=r"tapeless_test\.cube\.default.*no provider"):
        rules.run_decomposition(CUBE, (torch.ones(2),))
    with pytest.raises(Exception, match=r"no derivative rule for `tapeless_test\.cube"):
        compiled(through_cube)(leaf(3))
    with pytest.raises(BadOption, match="not a table"):
        rules.decomposition(CUBE)(lambda x: x)


def test_none_registered(table):
    with pytest.raises(NoDecomposition, match=r"tapeless_test\.cube\.default.*forward"):
        rules.run_decomposition(CUBE, (torch.ones(2),), use="forward")
    with pytest.raises(NoDecomposition, match="none is registered"):
        table.run_decomposition(CUBE, (torch.ones(2),), {}, "forward")


def test_a_provider_of_one_s_own():
    class Cubes:
        asked = []

        def has_decomposition(self, op, use):
            self.asked.append((op, use))
            return op is CUBE

        def run_decomposition(self, op, args, kwargs, use):
            return args[0] * args[0] * args[0]

    previous = rules.set_provider(Cubes())
    x = seeded(0, leaf, 3)

    assert isinstance(previous, Decompositions)
    assert_values(derivatives(lambda x: x.sin() ** 3 * x, x), derivatives(compiled(through_cube), x))
    assert {"first order", "forward"} <= {use for op, use in Cubes.asked if op is CUBE}


def test_running_one():
    rules.decomposition(POLAR, use="forward")(lambda x, scale: scale * x)

    assert not rules.has_decomposition(POLAR)
    assert rules.has_decomposition(POLAR, "forward")
    assert [2, 2] == rules.run_decomposition(POLAR, (torch.ones(2), None, 2.0), use="forward").tolist()


def test_registering_twice(table):
    rules.decomposition(CUBE)(lambda x: x * x * x)
    with pytest.raises(BadOption, match="already"):
        rules.decomposition(CUBE)(lambda x: x)
    table.forget(CUBE)
    rules.decomposition(CUBE)(lambda x: x)

    assert rules.has_decomposition(CUBE)


WRONG = {
    "a packet": (BadOption, "overload", lambda: rules.decomposition(torch.ops.tapeless_test.cube)(lambda x: x)),
    "an unknown use": (BadOption, "one of forward", lambda: rules.decomposition(CUBE, use="backward")(lambda x: x)),
    "an unknown argument": (TypeError, "names", lambda: rules.decomposition(CUBE)(lambda z: z)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_registration(name):
    error, message, register = WRONG[name]
    with pytest.raises(error, match=message):
        register()


@pytest.mark.parametrize("function", (lambda x: x.sum(), lambda x: x.float(), lambda x: None, lambda x: x @ x))
def test_wrong_result(function):
    rules.decomposition(CUBE)(function)
    with pytest.raises(Exception, match=r"in its decomposition|its decomposition gives"):
        compiled(through_cube)(leaf(3, 2))


def test_wrong_number_of_results():
    rules.decomposition(POLAR)(lambda x, y: (torch.hypot(x, y), torch.atan2(y, x)))
    with pytest.raises(Exception, match="2 results for 3"):
        compiled(through_polar)(leaf(3), leaf(3))


def test_threads(table):
    """Many register, ask and run at once; each finds its own, and nobody's is lost."""
    ops = [getattr(torch.ops.aten, name).default for name in ("sin", "cos", "tan", "exp")]
    problems = []

    def work(op):
        for _ in range(50):
            try:
                table.register(op, lambda self: op(self), "forward")
                assert table.has_decomposition(op, "forward")
                assert torch.equal(op(torch.ones(2)), table.run_decomposition(op, (torch.ones(2),), {}, "forward"))
                table.forget(op, "forward")
            except Exception as problem:
                problems.append(problem)

    threads = [threading.Thread(target=work, args=(op,)) for op in ops]
    [t.start() for t in threads]
    [t.join() for t in threads]

    assert [] == problems


# --- what torch's own mechanism gets wrong ----------------------------------------------------------------------------


def hessian_times(call, x, v):
    with forward.dual_level():
        dual = forward.make_dual(x, v)
        (g,) = torch.autograd.grad(call(dual).sin().sum(), dual)
        return forward.unpack_dual(g).tangent


def reference(program, x, v):
    (g,) = torch.autograd.grad(program(x).sin().sum(), x, create_graph=True)
    return torch.autograd.grad(g, x, v)[0]


NORMS = {
    "layer norm": lambda x: F.layer_norm(x, (4,), eps=1e-12),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True, eps=1e-12),
    "group norm": lambda x: F.group_norm(x, 1, eps=1e-12),
}


@pytest.mark.parametrize("name", NORMS)
def test_statistics_are_not_reconstructed(name):
    """Torch recovers ε as 1/rstd² − var and with it the variance: in single precision, of what cancels."""
    program = NORMS[name]
    x = seeded(0, lambda: 1e-3 * torch.randn(4, 4) + 1)
    v = torch.randn(4, 4)
    exact = reference(program, x.double().requires_grad_(), v.double())
    ours = hessian_times(compiled(program), x.clone().requires_grad_(), v)
    error = (ours.double() - exact).abs().max() / exact.abs().max()

    assert error < 2e-2, error


def test_absent_weights_stay_absent():
    """Torch's decompositions give zeros for masked gradients and for weights that are not there."""
    norm = nn.LayerNorm(3, elementwise_affine=False).double()
    x = seeded(0, leaf, 2, 3)
    eager, ours = (hessian_times(f, x, torch.ones_like(x) * x) for f in (norm, compiled(norm)))

    assert_values([eager], [ours])


# What has a reverse formula and no forward one in torch: forward mode and forward over reverse, by finite differences.
MISSING_IN_TORCH = {
    "grid_sample": (lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), (1, 2, 4, 4), (1, 3, 3, 2)),
    "cdist": (torch.cdist, (3, 2), (4, 2)),
    "pdist": (F.pdist, (4, 3)),
    "embedding_bag": (lambda w: F.embedding_bag(torch.tensor([[0, 1], [1, 2]]), w), (4, 3)),
    "weight_norm": (lambda v, g: torch._weight_norm(v, g.exp(), 0), (3, 2), (3, 1)),
    "huber_loss": (F.huber_loss, (3,), (3,)),
    "soft_margin_loss": (lambda x: F.soft_margin_loss(x, x.detach().sign()), (3,)),
    "multi_margin_loss": (lambda x: F.multi_margin_loss(x, torch.tensor([1, 0])), (2, 3)),
    "index_reduce": (lambda x, s: x.index_reduce(0, torch.tensor([0, 1, 0]), s, "prod"), (3, 2), (3, 2)),
    "fused attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *[(1, 2, 3, 4)] * 3),
    "zeta": (lambda x: torch.special.zeta(2.5, x.exp() + 1), (3,)),
    "layer norm": (lambda x, w: F.layer_norm(x, (3,), w), (2, 3), (3,)),
    "log_softmax": (lambda x: x.log_softmax(1), (2, 3)),
    "nll_loss": (lambda x: F.cross_entropy(x, torch.tensor([1, 0])), (2, 3)),
}


def pushed(call, inputs, directions):
    """The directional derivative of the program and of its gradient."""
    with forward.dual_level():
        duals = [forward.make_dual(x, v) for x, v in zip(inputs, directions, strict=True)]
        out = call(*duals)
        gradients = torch.autograd.grad(out.sin().sum(), duals)
        return [forward.unpack_dual(value).tangent for value in (out, *gradients)]


def differences(program, inputs, directions, step=1e-5):
    def values(sign):
        moved = [(x + sign * step * v).detach().requires_grad_() for x, v in zip(inputs, directions, strict=True)]
        out = program(*moved)
        return [out, *torch.autograd.grad(out.sin().sum(), moved)]

    return [(a - b) / (2 * step) for a, b in zip(values(1), values(-1), strict=True)]


@pytest.mark.parametrize("name", MISSING_IN_TORCH)
def test_forward_mode_that_torch_lacks(name, table):
    rules.set_provider(BUILT_IN)
    program, *shapes = MISSING_IN_TORCH[name]
    inputs = seeded(0, lambda: [leaf(*shape) for shape in shapes])
    directions = [torch.randn_like(x) for x in inputs]
    expected = differences(program, inputs, directions)
    actual = pushed(compiled(program), inputs, directions)

    for a, b in zip(expected, actual, strict=True):
        torch.testing.assert_close(b, a, atol=1e-6, rtol=1e-5)


BUILT_IN = rules.get_provider()


WITHOUT = {
    "asserts": (["-O"], {}),
    "TorchScript": ([], {"PYTORCH_JIT": "0"}),
}

SCRIPT = """
import torch, torch.nn.functional as F
import torch.autograd.forward_ad as forward
import tapeless
from tapeless import rules

def program(x, w):
    return F.cross_entropy(F.batch_norm(F.layer_norm(x, (3,), w), None, None, training=True), torch.tensor([1, 0, 2]))

def pushed(call):
    torch.manual_seed(0)
    x, w, v = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((3, 3), (3,), (3, 3)))
    with forward.dual_level():
        dual = forward.make_dual(x, v.detach())
        (g,) = torch.autograd.grad(call(dual, w), dual)
        return forward.unpack_dual(g).tangent

def reference():
    torch.manual_seed(0)
    x, w, v = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((3, 3), (3,), (3, 3)))
    (g,) = torch.autograd.grad(program(x, w), x, create_graph=True)
    return torch.autograd.grad(g, x, v.detach())[0]

torch.testing.assert_close(pushed(tapeless.compile(program, fullgraph=True)), reference())
hessian = tapeless.hessian(lambda x: program(x, torch.ones(3, dtype=torch.float64)))
x = torch.eye(3, dtype=torch.float64)
torch.testing.assert_close(hessian(x), hessian(x).permute(2, 3, 0, 1))
print("same")
"""


@pytest.mark.parametrize("name", WITHOUT)
def test_forward_over_reverse_without(name):
    """Torch loads its decompositions only with asserts and TorchScript enabled, and refuses otherwise."""
    flags, environment = WITHOUT[name]
    done = subprocess.run(
        [sys.executable, *flags, "-c", SCRIPT], capture_output=True, text=True, env={**os.environ, **environment}
    )

    assert "same" == done.stdout.strip(), done.stderr
