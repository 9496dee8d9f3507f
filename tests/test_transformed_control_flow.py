"""Control flow under transforms of `torch.func` around compiled functions: our graphs answer, or an error says why not.

The references are Python loops and `torch.where`, in eager.
"""

import itertools

import pytest
import torch
from torch import func
from torch._higher_order_ops import scan, while_loop
from torch.autograd import forward_ad

import tapeless
from comparing import assert_values
from tapeless.errors import Unsupported

D = torch.float64
ROWS = torch.linspace(-1, 1, 6, dtype=D).reshape(3, 2)


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() * x, (x,))


def both_sides(x):
    return torch.where(x.sum() > 0, x.sin() * 2, x.cos() * x)


def step(carry, row):
    carry = (carry * row).tanh() + carry
    return carry, carry * row


def scanned(x):
    last, stacked = scan(step, x, ROWS)
    return last + stacked.sin().sum(0)


def looped(x):
    stacked = []
    for row in ROWS:
        x, y = step(x, row)
        stacked.append(y)
    return x + torch.stack(stacked).sin().sum(0)


def repeated(x):
    return while_loop(lambda x: x.sum() < 5, lambda x: (x * x + 1,), (x,))[0]


def repeated_in_python(x):
    while x.sum() < 5:
        x = x * x + 1
    return x


TRANSFORMS = {
    "grad": lambda f: func.grad(lambda x: f(x).sum()),
    "jvp": lambda f: lambda x: func.jvp(f, (x,), (x.cos(),))[1],
    "vmap": lambda f: lambda x: func.vmap(f)(torch.stack([x, x + 0.1])),
    "jacrev": func.jacrev,
}
PAIRS = {"torch.cond": (chosen, both_sides), "scan": (scanned, looped), "while_loop": (repeated, repeated_in_python)}


def point():
    return torch.tensor([0.3, 0.7], dtype=D)


@pytest.mark.parametrize("names", list(itertools.product(("grad", "jvp"), repeat=2)), ids="-".join)
@pytest.mark.parametrize("control", ("torch.cond", "scan"))
def test_derivatives_of_a_compiled_function(control, names):
    ours, reference = PAIRS[control]
    ours = tapeless.compile(ours)
    for name in names:
        ours, reference = TRANSFORMS[name](ours), TRANSFORMS[name](reference)

    assert_values([reference(point())], [ours(point())])


@pytest.mark.parametrize(
    "names", [("grad", "vmap"), ("vmap", "grad"), ("jvp", "jacrev"), ("jacrev", "vmap")], ids="-".join
)
def test_batches_of_a_compiled_scan(names):
    ours, reference = tapeless.compile(scanned), looped
    for name in names:
        ours, reference = TRANSFORMS[name](ours), TRANSFORMS[name](reference)

    assert_values([reference(point())], [ours(point())])


@pytest.mark.parametrize("control", ("torch.cond", "scan"))
def test_a_batch_inside_a_compiled_function(control):
    def observe(f):
        x = point().requires_grad_()
        out = f(x)
        (gradient,) = torch.autograd.grad(out.sin().sum(), x)
        with forward_ad.dual_level():
            pushed = forward_ad.unpack_dual(f(forward_ad.make_dual(point(), point().cos()))).tangent
        return [out, gradient, pushed]

    ours, reference = map(TRANSFORMS["vmap"], PAIRS[control])
    assert_values(observe(reference), observe(tapeless.compile(ours)))


def says(control, function):
    """The error names the operator and its line."""
    line = function.__code__.co_firstlineno + 1
    return rf"(?s)`?{control}`?.* at {__file__}:{line} in "


INSIDE = {
    "compiled": lambda f: tapeless.compile(TRANSFORMS["grad"](f)),
    "ours, compiled": lambda f: tapeless.compile(tapeless.grad(lambda x: f(x).sum())),
    "traced": lambda f: tapeless.grad(lambda x: TRANSFORMS["jvp"](f)(x).sum()),
}


@pytest.mark.parametrize("how", INSIDE)
@pytest.mark.parametrize("control", PAIRS)
def test_a_transform_inside_what_is_traced_is_refused(control, how):
    function, _ = PAIRS[control]

    with pytest.raises(Unsupported, match=says(control, function)):
        INSIDE[how](function)(point())


@pytest.mark.parametrize("names", [("grad", "vmap"), ("jacrev",), ("vmap", "grad")], ids="-".join)
def test_a_batch_of_what_is_decided_while_it_runs_is_refused(names):
    function = tapeless.compile(chosen)
    for name in names:
        function = TRANSFORMS[name](function)

    with pytest.raises(Unsupported, match=says("torch.cond", chosen)):
        function(point())


def test_rounds_that_are_counted_are_refused():
    """Torch's layers pass on tensors, and the derivative of a `while_loop` needs the number of its rounds."""
    with pytest.raises(Unsupported, match=says("while_loop", repeated)):
        TRANSFORMS["grad"](tapeless.compile(repeated))(point())

    total = tapeless.grad(lambda x: repeated(x).sum())
    assert_values([func.grad(lambda x: repeated_in_python(x).sum())(point())], [total(point())])


def test_our_transforms_under_a_batch_are_refused():
    derivative = tapeless.grad(lambda x: chosen(x).sum())

    with pytest.raises(Unsupported, match=says("torch.cond", chosen)):
        func.vmap(derivative)(torch.stack([point(), point()]))


def test_other_errors_of_a_compiled_function_are_its_own():
    def fails(x):
        return func.grad(lambda x: (x @ torch.ones(5, dtype=D)).sum())(x)

    with pytest.raises(Exception, match=r"(?i)size|shape|mat") as found:
        tapeless.compile(fails)(point())
    assert not isinstance(found.value, Unsupported)
