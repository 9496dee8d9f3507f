"""The fuzzer finds what is wrong, and what it found stays right."""

import itertools
import random

import pytest
import torch
import torch.nn.functional as F

from tapeless import rules
from tapeless.rules.registry import RULES, vjp
from tapeless.testing.comparing import KINDS, Difference, compare
from tapeless.testing.fuzz import Record, fuzz
from tapeless.testing.operations import OPERATIONS
from tapeless.testing.programs import Builder, Input, Program

aten = torch.ops.aten

pytestmark = pytest.mark.filterwarnings("ignore")


def leaf(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


FOUND = {
    "random numbers in forward mode": (lambda x: x * torch.rand_like(x), leaf(3)),
    "an unused result that the rule reads": (lambda x: torch.linalg.qr(x)[1], leaf(3, 4)),
    "only the eigenvectors' squares": (lambda x: torch.linalg.eigh(x @ x.mT)[1].square(), leaf(3, 3)),
    "a result that is read only at second order": (torch.linalg.svdvals, leaf(3, 4)),
    "singular values and more": (lambda x: (lambda u, s, v: [s.sum(), u @ v, x])(*torch.linalg.svd(x)), leaf(3, 3)),
    "overwritten whole": (lambda x, y: (x * 1).copy_(y), leaf(3), leaf(3)),
    "overwritten in part": (lambda x, y: (x * 1).index_put_((torch.tensor(0),), y.sum()), leaf(3), leaf(3)),
    "the zeroth power": (lambda x: torch.linalg.matrix_power(x, 0), leaf(3, 3)),
    "a norm that counts": (lambda x: [torch.linalg.vector_norm(x, 0), x.norm(0)], leaf(3)),
    "a tangent laid out as its output": (lambda x: torch.linalg.svd(x, full_matrices=False)[2].mT, leaf(3, 4)),
    "a norm of zero": (lambda x: torch.linalg.vector_norm(x - x, 3), leaf(3)),
    "a distance of zero": (lambda x: torch.dist(x, x, 3), leaf(3)),
    "a result that is a view of an input": (lambda x: x.chunk(2), leaf(3, 4)),
    "a view of one column": (lambda x: x.chunk(2, 0), torch.randn(1, 3).mT.requires_grad_()),
    "a view without elements": (lambda x: x.chunk(2, 1), torch.randn(4, 0).mT.requires_grad_()),
    "a detached value that is saved": (lambda x, y: x.tanh() * y.abs().detach(), leaf(3), leaf(3)),
    "a graph without inputs": (lambda x: x.repeat_interleave(torch.tensor([0, 1, 2]), 0), leaf(3, 4)),
    "no elements": (lambda x: F.adaptive_avg_pool1d(F.gelu(x), 2), leaf(0, 4)),
    "a test of values before a loss": (lambda x: F.gaussian_nll_loss(x, x * x, x.square() + 1), leaf(3)),
    "a group norm without channels": (lambda x: F.group_norm(x[None], 1, x.reshape(-1)[:0]), leaf(0, 4)),
    "complex results that are one": (lambda x: (lambda y: [y.sigmoid_(), y])(x * x), leaf(3, dtype=torch.complex128)),
    "a conjugate tangent, in parts": (lambda x: x.sigmoid().conj().imag, leaf(3, dtype=torch.complex128)),
    "a result that is an argument": (lambda x, y: [F.dropout(x), x, y][1:], leaf(0, 4), leaf(3)),
    "a slope of second order at its kink": (lambda x: F.selu(x - x.detach()), leaf(9)),
    "products of zeros": (lambda x: (x * torch.tensor([1, 0, 1, 0, 1])).cumprod(0), leaf(5)),
    "a zero in a product": (lambda x: (x * torch.tensor([[1], [0], [1], [1]])).cumprod(0), leaf(4, 2)),
    "a complex number, a complex exponent": (lambda z: 2j**z, leaf(3, dtype=torch.complex128)),
    "a number below zero, a complex exponent": (lambda z: (-2) ** z, leaf(3, dtype=torch.complex128)),
    "complex exponentials of nothing": (lambda x: x.logcumsumexp(0), leaf(0, 4, dtype=torch.complex128)),
    "a view of what is saved": (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3))[0], leaf(3, 4)),
    "numbers that nobody reads": (lambda x: [F.dropout(x), F.dropout(x)][1], leaf(9)),
    "singular values of zero": (lambda x: torch.linalg.matrix_norm(x * torch.eye(3)[:2].sum(0), "nuc"), leaf(3, 3)),
    "a row of a matrix with columns side by side": (
        lambda x: torch.linalg.cholesky(x @ x.mT + 2 * torch.eye(3))[0],
        leaf(3, 4),
    ),
    "the permutation of a factorization": (lambda x: torch.linalg.lu_factor(x)[0], leaf(3, 3)),
}


@pytest.mark.parametrize("name", FOUND)
def test_found_by_the_fuzzer(name):
    program, *inputs = FOUND[name]

    assert list(KINDS) == compare(program, inputs)


def test_tangent_of_a_singular_matrix():
    """Eager's is finite in the first row, so ours is."""
    zeros = torch.tensor([[1, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]])

    assert ["gradients", "tangents"] == compare(
        lambda x: torch.linalg.qr(x * zeros)[1], [leaf(3, 4)], kinds=["tangents"]
    )


def test_a_weight_norm_of_numbers():
    """Each is its own norm; eager's second derivatives are wrong here, and in general."""
    met = compare(lambda v, g: torch._weight_norm(v, g, 0), [leaf(3), leaf(3)])

    assert ["gradients", "second gradients (eager's defect)"] == met[:2]


def test_a_margin_just_kept():
    """Its gradient is 0 in eager, whose kernel is not what tracing decomposes it into."""
    x = torch.tensor([[0.0, -1.0, 2.0, -1.0]], requires_grad=True)

    assert "gradients" in compare(lambda x: F.multi_margin_loss(x, torch.tensor([0])), [x], kinds=["gradients"])


def test_the_sign_of_a_determinant_has_no_gradient():
    """Nor has what it was computed from, by operators that do not pass zeros on."""

    def program(x):
        return torch.linalg.slogdet(torch.linalg.cholesky(x @ x.mH + torch.eye(3)))[0]

    assert ["gradients"] == compare(program, [leaf(3, 3)], kinds=["gradients"])


def test_eagers_own_tangents_may_be_wrong():
    """Of a complex base and a real exponent they are not the transpose of its gradients."""
    z, x = leaf(3, dtype=torch.complex128), torch.rand(3, dtype=torch.float64, requires_grad=True)

    assert ["gradients", "second gradients", "tangents (eager's defect)"] == compare(torch.pow, [z, x])


def test_a_base_below_zero():
    """Its logarithm is complex, as the exponent is."""
    x, z = leaf(3), leaf(3, dtype=torch.complex128)
    met = compare(lambda x, z: (-x.square() - 1) ** z, [x, z])

    assert ["gradients", "second gradients", "tangents (eager's defect)"] == met


def test_eagers_own_gradients_may_be_wrong():
    """That of `kron` of numbers takes their values after a later write; finite differences say so."""

    def program(x):
        y = x * 2
        product = torch.kron(y, x)
        y.exp_()
        return [product, y]

    met = compare(program, [torch.tensor(0.7, dtype=torch.float64, requires_grad=True)])

    assert "gradients (eager's defect)" in met


def test_eagers_own_defects_in_single_precision():
    """Eager's second derivative of a clamped `logit` is NaN at 0; differences in double precision say so."""
    x = torch.tensor([-1.0, 0.3, 0.7, 2.0], requires_grad=True)
    met = compare(lambda x: x.relu().logit(0.1), [x])

    assert ["gradients", "second gradients (eager's defect)", "tangents"] == met


def test_a_mistake_in_single_precision_is_not_excused():
    """Though eager has a defect at the same place."""
    x = torch.tensor([-1.0, 0.3, 0.7, 2.0], requires_grad=True)

    with pytest.raises(Difference, match="second gradients"):
        compare(lambda x: x.relu().logit(0.1), [x], compiled=lambda x: x.relu().logit(0.1) + (x - x.detach()).square())


def test_a_mistake_is_not_excused():
    """Finite differences side with eager here."""

    def wrong(x):
        return x.sin() + x.detach().sin() - x.detach().cos()

    with pytest.raises(Difference, match="gradients"):
        compare(lambda x: 2 * x.sin() - x.cos(), [leaf(3)], compiled=wrong)


def test_sizes_known_from_a_cotangent_alone():
    """Of second order and with symbolic sizes: nothing that the backward of `rfft` reads is as long as its input."""
    dynamic = torch.compile(lambda x: torch.fft.rfft(x), backend="tapeless", dynamic=True)

    assert list(KINDS) == compare(torch.fft.rfft, [leaf(3, 5)], compiled=dynamic)


def test_sizes_of_a_stage():
    """The second stage begins with `h`, whose sizes are not the symbols themselves."""

    def program(x):
        h = torch.nn.functional.avg_pool2d(x[None], 2, 1)
        return [h, torch.linalg.qr(h)[0]]

    dynamic = torch.compile(program, backend="tapeless", dynamic=True)

    assert ["gradients"] == compare(program, [leaf(3, 4)], kinds=["gradients"], compiled=dynamic)


def test_sizes_that_only_second_order_needs():
    """Of first order nobody asks for the width of R, so the forward did not save the number."""

    def program(x):
        h = torch.nn.functional.interpolate(x[None, None], scale_factor=2)
        return [torch.linalg.qr(h)[0], h]

    dynamic = torch.compile(program, backend="tapeless", dynamic=True)

    assert list(KINDS) == compare(program, [leaf(4, 3)], compiled=dynamic)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_programs(seed):
    (record,) = fuzz([seed], Record(), examples=30)

    assert [] == list(map(str, record.failures))
    assert record.programs >= 30


def test_a_wrong_rule_is_found(monkeypatch):
    monkeypatch.setitem(RULES, aten._softmax.default, RULES[aten._softmax.default])
    RULES.pop(aten._softmax.default)
    vjp(aten._softmax.default)(lambda g, out: out * g)
    (record,) = fuzz([0], Record(), families=["linear", "softmax"], lines=2)
    (failure,) = record.failures

    assert ["softmax"] == [line.expression.partition(".")[2].partition("(")[0] for line in failure.program.lines]
    assert "gradients" == failure.difference.kind


def test_a_failure_is_printed_as_a_program_that_runs():
    builder = Builder([Input((3, 4)), Input((3, 4), torch.complex128, transposed=True)])
    builder.add("{a} * {b}", [0, 1])
    builder.add("torch.aminmax({a}, dim={d})", [2, 0])
    program = Program(builder.inputs, tuple(builder.lines), ("x2", "x4"), ((True, False),))
    text = program.text()
    exec(text, {})

    assert "    x2 = x1 * x0\n    x3, x4 = torch.aminmax(x0, dim=-2)\n    return [x2, x4]\n" in text
    assert "    torch.randn(4, 3, dtype=torch.complex128).permute(1, 0).requires_grad_(),\n" in text


def test_every_family_of_rules_has_operations():
    families = {module.__name__.rpartition(".")[2] for module in rules.FAMILIES}

    assert families | {"in place"} == set(OPERATIONS)


def test_every_operation_fits_some_operands():
    never = [line for lines in OPERATIONS.values() for line in lines if not _fits(line)]

    assert [] == never


def _fits(operation):
    """Does it run on two tensors of some shape and dtype, in some choice of operands and dims?"""
    integers = [Input(shape, torch.int64, False) for shape in ((3,), (3, 3), (3, 4))]
    shapes = ((3, 3), (4, 4), (3, 4), (2, 3, 3), (2, 3, 4), (3,), (4,), (1, 1, 2, 2), (12, 4))
    for shape, dtype, seed in itertools.product(shapes, (torch.float64, torch.complex128), range(16)):
        builder = Builder([*[Input(shape, dtype, False)] * 2, *integers, Input(shape, torch.bool, False)])
        builder.add(operation, random.Random(seed).choices(range(24), k=8))
        if builder.lines:
            return True
    return False
