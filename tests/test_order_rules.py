"""Every family of rules through the compiled function: to second order, and in forward mode."""

import inspect

import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from comparing import (
    assert_values,
    case,
    compiled,
    complexes,
    constant,
    leaf,
    made,
    module,
    positive,
    seeded,
    table,
    tensors,
)
from tapeless import pipeline, rules
from tapeless.rules.registry import rule_of

A, B, V, N = (2, 3), (3, 2), (3,), (2, 2, 3)
IMAGE = (1, 2, 4, 4)
CLASSES = lambda: torch.tensor([2, 0])  # noqa: E731
sdpa = F.scaled_dot_product_attention


def written_out(q, k, v):
    return (q @ k.mT / 2).softmax(-1) @ v


FAMILIES = (
    case("arithmetic", lambda x, y: x * y / (y.square() + 1) - x**3, A, V),
    case("exponentials", lambda x: x.exp() + (x.square() + 1).log() + x.sigmoid() + x.tanh(), A),
    case("trigonometry", lambda x: x.sin() * x.cos() + x.atan(), A),
    case("powers", lambda x, y: x**y + x.sqrt() + x.rsqrt() + x.reciprocal(), positive(3), V),
    case("activations", lambda x: (F.gelu(x), F.silu(x), F.softplus(x), F.mish(x), F.elu(x)), A),
    case("piecewise", lambda x: x.relu() * x + F.leaky_relu(x) * x.abs() + x.clamp(-1, 1), A),
    case("special", lambda x: torch.erf(x) + torch.lgamma(x), positive(3)),
    case("sums", lambda x: (x.sum(0) ** 2, x.mean() * x.sum(1)), A),
    case("variance", lambda x: (x.var(1), x.std(), *torch.var_mean(x, 0)), A),
    case("products", lambda x: (x.prod(), x.prod(1), x.cumprod(1)), A),
    case("extremes", lambda x: (x.amax(1) ** 2, x.max(0)[0] * x.min(), x.sort(1)[0] ** 2, x.topk(2)[0].exp()), A),
    case("norms", lambda x: (x.norm(), x.norm(3, 1), F.normalize(x)), A),
    case("softmax", lambda x: (x.softmax(1), x.log_softmax(0), x.logsumexp(1)), A),
    case("cumulative", lambda x: x.cumsum(0) * x.logcumsumexp(1), A),
    case("cumulative of a number, no slope", lambda x: (x.sum().logcumsumexp(0) - 2).square() * 0, A),
    case("views", lambda x: (x.t() * x.reshape(3, 2)).flatten().unsqueeze(0).expand(2, 6).exp(), A),
    case("pieces", lambda x: (lambda a, b: torch.cat([a * b, b.sin()], 1))(*x.split([1, 1], 1)), B),
    case("unbind and stack", lambda x: torch.stack([p * q for p, q in zip(x.unbind(0), x.flip(0).unbind(0))]), A),
    case("padding", lambda x: F.pad(x, (1, 1)).square() * F.pad(x, (1, 1), mode="replicate"), A),
    case("indexing", lambda x: x[[1, 0, 1]].sin() * x[:, :2].sum() + x[0, 1] ** 3, A),
    case("gather and scatter", lambda x: x.gather(1, INDEX).exp() + x.scatter_add(1, INDEX, x[:, 1:] ** 2)[:, :2], A),
    case("index_put", lambda x, v: x.index_put((torch.tensor([1]),), v.sin()).square(), A, V),
    case("embedding", lambda w: F.embedding(torch.tensor([1, 1, 0]), w).sin(), A),
    case("matmul", lambda x, y, v: (x @ y, (x @ y @ x).sin(), x @ v, v @ v * v), A, B, V),
    case("batched matmul", lambda x, y: torch.bmm(x, y.transpose(1, 2)) @ y.sin(), N, N),
    case("linear", lambda x, w, b: F.linear(x, w, b).tanh(), A, (2, 3), (2,)),
    case("einsum", lambda x, y: torch.einsum("bij,bkj->bik", x, y).exp(), N, N),
    case("linalg", lambda x: (torch.linalg.inv(x), x.det(), torch.linalg.solve(x, x.t())), lambda: spd(2)),
    case("cholesky", lambda x: torch.linalg.cholesky(x @ x.t()), lambda: spd(2)),
    case("factors", lambda x: (torch.linalg.lu(x)[2], torch.linalg.lu(x)[1], torch.linalg.qr(x)[1]), lambda: spd(3)),
    case("spectra", lambda x: (torch.linalg.eigvalsh(x @ x.t()), torch.linalg.svdvals(x)), lambda: spd(3)),
    case("one of two statistics", lambda x: (torch.var_mean(x, 1)[1] ** 3, torch.var_mean(x, 0)[0] ** 2), A),
    case("convolution", lambda x, w, b: F.conv2d(x, w, b, padding=1).tanh(), IMAGE, (2, 2, 2, 2), (2,)),
    case("transposed convolution", lambda x, w: F.conv_transpose1d(x, w, stride=2).sin(), (1, 2, 3), (2, 1, 2)),
    case("grouped convolution", lambda x, w: F.conv1d(x, w, groups=2).square(), (1, 2, 4), (4, 1, 2)),
    case("pooling", lambda x: (F.avg_pool2d(x, 2).exp(), F.max_pool2d(x, 2).exp()), IMAGE),
    case("interpolation", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear").square(), IMAGE),
    case("layer norm", lambda x, w, b: F.layer_norm(x, (3,), w, b) ** 2, A, V, V),
    case("batch norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True) ** 2, (4, 2), (2,), (2,)),
    case("group norm", lambda x, w, b: F.group_norm(x, 1, w, b).sin(), IMAGE, (2,), (2,)),
    case("cross entropy", lambda x: F.cross_entropy(x, CLASSES(), label_smoothing=0.1) ** 2, A),
    case("regression losses", lambda x, y: F.mse_loss(x, y) * F.huber_loss(x, y) + F.smooth_l1_loss(x, y) ** 2, A, A),
    case("binary losses", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()) ** 2, A, constant(2, 3)),
    case("margin losses", lambda x: F.multilabel_margin_loss(x.exp(), LABELS) * F.multi_margin_loss(x, CLASSES()), A),
    case("kl divergence", lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="sum"), A, A),
    case("attention", written_out, N, N, N),
    case("fused attention", lambda q, k, v: sdpa(q, k, v), (1, *N), (1, *N), (1, *N)),
    case("distances", lambda x, y: (torch.cdist(x, y).sin(), F.pdist(x).exp()), (4, 3), A),
    case("dropout of nothing", lambda x: torch.native_dropout(x.sin(), 0.0, True)[0], A),
    module("rnn cell", lambda: nn.GRUCell(3, 2).double(), A, (2, 2)),
    case("where", lambda x, y: torch.where(x > 0, x * y, y.exp()), A, A),
    case("complex", lambda z, x: ((z * x).exp() * z.conj()).real, complexes(3, dtype=torch.complex128), V),
    case("fourier", lambda x: torch.fft.rfft(x).abs(), (4,)),
)  # fmt: skip
INDEX = torch.tensor([[0, 2], [1, 1]])
LABELS = torch.tensor([[1, 0, -1], [2, -1, -1]])


def spd(n):
    x = torch.randn(n, n, dtype=torch.float64)
    return (x @ x.T + n * torch.eye(n, dtype=torch.float64)).requires_grad_()


def inputs_of(case):
    return seeded(0, lambda: [made(i) for i in case.inputs])


@table(*FAMILIES)
def test_gradcheck(case):
    assert gradcheck(compiled(seeded(0, case.make)), inputs_of(case), fast_mode=True)


@table(*FAMILIES)
def test_gradgradcheck(case):
    assert gradgradcheck(compiled(seeded(0, case.make)), inputs_of(case), fast_mode=True)


NOT_CHECKED = {
    "nondifferentiable": "there is nothing to check",
    "quantize": "the gradient passes straight through, as eager decides: it is not that of the function",
    "rnn": "a kernel of float32 alone; tests/test_fused_rules.py compares it",
}


def test_every_family_of_rules_is_checked():
    """Each file of rules has an operator in one of the programs above."""
    families = {module.__name__ for module in rules.FAMILIES}
    met = {family for c in FAMILIES for node in graph_of(c).nodes for family in families_of(node.target)}

    assert set(NOT_CHECKED) == {family.rpartition(".")[2] for family in families - met}


def families_of(op):
    """The files in which the formulas of an operator are written."""
    rule = rule_of(op)
    functions = [formula.function for formula in rule.vjps.values()] if rule else []
    return {inspect.getclosurevars(f).nonlocals.get("partial", f).__module__ for f in functions}


def graph_of(case):
    program = seeded(0, case.make)
    return pipeline.trace(lambda *args: program(*args), tuple(inputs_of(case)), {}).graph


# --- forward mode -----------------------------------------------------------------------------------------------------


def tangents(call, inputs, which):
    """Outputs' tangents for random tangents on the inputs `which`."""
    with forward.dual_level():
        duals = [
            forward.make_dual(x, torch.randn_like(x)) if i in which and x.is_floating_point() else x
            for i, x in enumerate(inputs)
        ]
        return [forward.unpack_dual(t).tangent for t in tensors(call(*duals))]


WITHOUT_REFERENCE = ("complex", "fourier", "extremes", "margin losses", "fused attention", "distances")  # in eager
FORWARD = tuple(c for c in FAMILIES if c.name not in WITHOUT_REFERENCE)


@table(*FORWARD)
def test_forward_mode(case):
    """Nothing requires a gradient; `test_reverse_over_forward` is the other case."""

    def observation(program):
        inputs = [x.detach() for x in tensors(inputs_of(case))]
        return seeded(3, tangents, program, inputs, range(len(inputs)))

    expected, actual = observation(seeded(0, case.make)), observation(compiled(seeded(0, case.make)))

    assert_values(expected, actual, "tangent")


@table(*FORWARD)
def test_reverse_over_forward(case):
    """The gradient of the tangent is that of ⟨ȳ, ∂y/∂x v⟩, from two reverse passes (eager's is wrong through norms)."""
    inputs = list(tensors(inputs_of(case)))
    directions = seeded(3, lambda: [torch.randn_like(x) for x in inputs])
    leaves = [x for x in inputs if x.requires_grad]
    program = seeded(0, case.make)
    total = sum(out.sin().sum() for out in tensors(program(*inputs)))
    slopes = torch.autograd.grad(total, leaves, create_graph=True)
    slope = sum((g * v).sum() for g, v in zip(slopes, [v for x, v in zip(inputs, directions) if x.requires_grad]))
    expected = torch.autograd.grad(slope, leaves, allow_unused=True)
    with forward.dual_level():
        duals = [forward.make_dual(x, v) if x.requires_grad else x for x, v in zip(inputs, directions)]
        moved = compiled(lambda *xs: sum(out.sin().sum() for out in tensors(program(*xs))))(*duals)
        tangent = forward.unpack_dual(moved).tangent
        actual = torch.autograd.grad(tangent, leaves, allow_unused=True)

    assert_values([slope], [tangent])
    assert_values(
        [zeros_for_none(g, x) for g, x in zip(expected, leaves)], [zeros_for_none(g, x) for g, x in zip(actual, leaves)]
    )


def zeros_for_none(g, x):
    return torch.zeros_like(x) if g is None else g


def test_forward_mode_with_some_tangents():
    def f(x, y, z):
        return x * y, y @ z, z.sin(), x.sum()

    inputs = [leaf(2, 2) for _ in range(3)]
    fast = compiled(f)
    for which in ((0,), (1,), (0, 2), ()):
        expected, actual = (seeded(3, tangents, g, inputs, which) for g in (f, fast))
        zeros = [
            torch.zeros_like(t) if e is None and t is not None else e for e, t in zip(expected, actual, strict=True)
        ]
        assert_values(zeros, actual, f"tangents on {which}: tangent")
