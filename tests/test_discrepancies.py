"""Numbers, operator by operator: at ordinary points, and where textbook formulas and eager disagree."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from comparing import case, check, compiled, complexes, constant, integers, leaf, module, positive, table, values

inf, nan = float("inf"), float("nan")
double = torch.float64
words = str.split


# --- subgradients, ties, boundaries: eager's choice is the specification ----------------------------------------------

TIES = values(1.0, 1.0, -2.0, 0.0, 3.0, 3.0)
OTHER = values(1.0, 0.5, -2.0, 0.0, 3.0, 4.0)
ZEROS = values(0.0, 0.0, 2.0, 3.0, 0.0, -1.0)
BINARY = (torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.max, torch.min)
BOUNDARY = (
    *(case(f"{f.__name__} of two equal elements", f, TIES, OTHER) for f in BINARY),
    case("max of equal elements", lambda x: (x.max(), x.amax(), x.max(0)[0], x.topk(3)[0]), TIES),
    case("min of equal elements", lambda x: (x.min(), x.amin(), x.min(0)[0], *x.aminmax()), ZEROS),
    case("median of equal elements", lambda x: (x.median(), x.median(0)[0], x.kthvalue(2)[0], x.mode()[0]), TIES),
    case("sort of equal elements", lambda x: (x.sort(stable=True)[0], x.cummax(0)[0], x.cummin(0)[0]), TIES),
    case("max pool of equal elements", lambda x: F.max_pool1d(x[None, None], 3, 1), TIES),
    case("clamp with tensor bounds", lambda x, low, high: torch.clamp(x, low, high), TIES, OTHER, ZEROS),
    case("clamp with one tensor bound", lambda x, low: (x.clamp(min=low), x.clamp_max(low)), TIES, OTHER),
    case("clamp at the boundary", lambda x: (x.clamp(0.0, 3.0), x.clamp(min=1.0), x.clamp(max=-2.0)), TIES),
    case("clamp with low above high", lambda x: x.clamp(2.0, 1.0), TIES),
    case("pow at zero", lambda x: (x**0, x**1, x**2, x**0.5, x**1.5), values(0.0, 1.0, 2.0)),
    case("tensor pow at zero", lambda x, y: x**y, values(0.0, 0.0, 0.0, 2.0), values(0.0, 2.0, 0.5, 0.0)),
    case("zero to a tensor", lambda y: torch.pow(0.0, y), values(0.0, 1.0, 2.5)),
    case("negative base", lambda x, y: x**y, values(-2.0, -1.0), values(2.0, 3.0)),
    case("threshold at the boundary", lambda x: (F.threshold(x, 1.0, 9.0), F.threshold(x, 0.0, -1.0)), TIES),
    case("relu family at the boundary", lambda x: (x.relu(), F.relu6(x * 2), F.leaky_relu(x), F.elu(x)), TIES),
    case("hard family at the boundary", lambda x: (F.hardtanh(x), F.hardswish(x), F.hardsigmoid(x)), TIES),
    case("shrink family at the boundary", lambda x: (F.hardshrink(x, 1.0), F.softshrink(x, 1.0)), TIES),
    case("selu celu prelu at zero", lambda x: (F.selu(x), F.celu(x), F.prelu(x, x[:1].detach())), ZEROS),
    case("abs and sign at zero", lambda x: (x.abs(), x.sign() * x, x.sgn()), ZEROS),
    case("norms at zero", lambda x: (x.norm(), x.norm(1), x.norm(inf), x.norm(3)), values(0.0, 0.0)),
    case("infinity norm of equal elements", lambda x: (x.norm(inf), x.norm(-inf), x.norm(0)), TIES),
    case("normalize at zero", lambda x: (F.normalize(x, dim=0), torch.cdist(x[None], x[None])), values(0.0, 0.0)),
    case("sqrt at zero", lambda x: x.sqrt(), values(0.0, 4.0)),
    case("std of equal elements", lambda x: (x.std(), x.var()), values(2.0, 2.0)),
    case("std of one element", lambda x: x.var(1, correction=0), (3, 1)),
    case("prod with a zero", lambda x: (x[:4].prod(), x.cumprod(0)), values(2.0, 3.0, 0.0, 4.0, 5.0)),
    case("prod with two zeros", lambda x: (x.prod(), x.cumprod(0), x.view(2, 3).prod(1)), ZEROS),
    case("xlogy at zero", lambda x, y: torch.xlogy(x, y), values(0.0, 0.0, 1.0), values(0.0, 2.0, 3.0)),
    case("l1 and huber at the boundary", lambda x, y: (F.l1_loss(x, y), F.huber_loss(x, y), F.smooth_l1_loss(x, y)),
         values(1.0, 2.0, 0.0), values(1.0, 1.0, 1.0)),
    case("smooth_l1 with beta 0", lambda x, y: F.smooth_l1_loss(x, y, beta=0.0), TIES, OTHER),
    case("hinge at the boundary", lambda x: F.margin_ranking_loss(x, x * 0, x.detach() * 0 + 1, margin=1.0), TIES),
    case("rounded division", lambda x, y: x.div(2, rounding_mode="floor") * x.div(y, rounding_mode="trunc") + x,
         TIES, positive(6)),
    case("fmod at zero", lambda x, y: (x.fmod(y), x.remainder(y)), TIES, values(1.0, 0.5, 2.0, 3.0, 1.5, -3.0)),
    case("atan2 at zero", lambda x, y: torch.atan2(x, y), values(0.0, 1.0), values(1.0, 0.0)),
    case("logit bounds", lambda x: torch.logit(x, eps=0.25), values(0.25, 0.5, 0.75, 0.0)),
    case("nearest rounding", lambda x: (x.round() + x.trunc(), x.frac()), values(0.5, 1.5, -0.5)),
)  # fmt: skip


@table(*BOUNDARY)
def test_boundary(case):
    check(case)


# --- infinity times zero: a masked gradient is zero, not NaN ----------------------------------------------------------

POINTS = values(-2.0, 0.0, 0.5, 9.0)
MASKS = (
    case("relu", lambda x: x.relu(), POINTS),
    case("relu6", lambda x: F.relu6(x), POINTS),
    case("where", lambda x, y: torch.where(x > 0, x, y), POINTS, POINTS),
    case("clamp", lambda x: x.clamp(-1, 1), POINTS),
    case("tensor clamp", lambda x, low: torch.clamp(x, min=low), POINTS, POINTS),
    case("hardtanh", lambda x: F.hardtanh(x), POINTS),
    case("hardshrink", lambda x: F.hardshrink(x), POINTS),
    case("hardsigmoid", lambda x: F.hardsigmoid(x), POINTS),
    case("threshold", lambda x: F.threshold(x, 0.2, 1.0), POINTS),
    case("leaky_relu", lambda x: F.leaky_relu(x, 0.0), POINTS),
    case("elu", lambda x: F.elu(x), POINTS),
    case("maximum", lambda x: torch.maximum(x, torch.ones(4, dtype=double)), POINTS),
    case("masked_fill", lambda x: x.masked_fill(x > 0, 0.0), POINTS),
    case("tril", lambda x: x.view(2, 2).tril(), POINTS),
    case("abs", lambda x: x.abs(), POINTS),
    case("max pool", lambda x: F.max_pool1d(x[None, None], 2), POINTS),
    case("gather", lambda x: x.gather(0, torch.tensor([1, 1])), POINTS),
    case("multiplication", lambda x: x * torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=double), POINTS),
    case("softmax", lambda x: x.softmax(0), POINTS),
    case("nan_to_num", lambda x: x.nan_to_num(), values(nan, inf, 1.0)),
    case("dropout of everything", lambda x: F.dropout(x, 1.0), POINTS),
)


@pytest.mark.parametrize("cotangent", (inf, nan))
@table(*MASKS)
def test_infinite_cotangent(case, cotangent):
    check(type(case)(**{**case.__dict__, "cotangent": lambda t: torch.full_like(t, cotangent)}))


# --- complex numbers: gradients are conjugated ------------------------------------------------------------------------

Z, W = complexes(3, dtype=torch.complex128), complexes(3, dtype=torch.complex128)
COMPLEX = (
    *(
        case(name, getattr(torch, name), Z)
        for name in words("exp log sin cos tanh sqrt square reciprocal abs angle sgn real imag conj sigmoid rsqrt")
    ),
    case("products", lambda z, w: (z * w, z / w, z**2, z**w, 1j * z), Z, W),
    case("with real", lambda z, x: (z * x, x / z, torch.complex(x, x) + z), Z, (3,)),
    case("matmul", lambda z, w: (z @ w, torch.outer(z, w) @ w, torch.vdot(z, w)), Z, W),
    case("reductions", lambda z: (z.sum(), z.prod(), z.mean(), z.cumsum(0), z.cumprod(0), z.var(), z.norm()), Z),
    case("abs and sgn at zero", lambda z: (z.abs(), z.sgn()), values(0j, 1j, 1 + 0j, dtype=torch.complex128)),
    case("views", lambda z: (torch.view_as_real(z).sum(-1), z[None].mH, z.conj().imag), Z),
    case("convolution", lambda z, w: F.conv1d(z[None, None], w[None, None, :2]), Z, W),
    case("real part of a real loss", lambda z: (z * z.conj()).real.sum(), Z),
    case("addmm", lambda z: torch.addmm(z, z, z, alpha=2j, beta=1 + 1j), complexes(3, 3, dtype=torch.complex128)),
)


@table(*COMPLEX)
def test_complex(case):
    check(case)


# --- pieces without a cotangent, and where eager itself is wrong ------------------------------------------------------

PIECES = {
    "chunk": lambda x: x.chunk(2),
    "uneven chunk": lambda x: x.chunk(4),
    "split": lambda x: x.split([1, 2, 3]),
    "unbind": lambda x: x.view(3, 2).unbind(0),
    "tensor_split": lambda x: (x * 2).tensor_split(3),
}


@pytest.mark.parametrize("piece", (0, -1))
@pytest.mark.parametrize("name", PIECES)
def test_one_piece_has_a_cotangent(name, piece):
    def gradient(f):
        torch.manual_seed(0)
        x = leaf(6)
        f(x)[piece].sin().sum().backward()
        return x.grad

    expected, actual = gradient(PIECES[name]), gradient(compiled(PIECES[name]))

    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    ("size", "stride", "offset"), (((4,), (1,), 0), ((2,), (3,), 1), ((2, 2), (3, 1), 0)), ids=("head", "strided", "2d")
)
def test_as_strided_scatter_has_the_right_gradient(size, stride, offset):
    """Eager's gradient with respect to `self` is wrong in torch 2.13; the definition is a copy into a view."""

    def f(x, src):
        return torch.as_strided_scatter(x, src, size, stride, offset)

    x, src = leaf(6), leaf(*size)
    g = torch.arange(1.0, 7.0, dtype=double)
    expected = g.clone()
    expected.as_strided(size, stride, offset).zero_()

    compiled(f)(x, src).backward(g)

    assert expected.tolist() == x.grad.tolist()
    assert g.as_strided(size, stride, offset).tolist() == src.grad.tolist()


# --- operator families ------------------------------------------------------------------------------------------------

A, B, V, N = (3, 4), (4, 5), (4,), (2, 3, 4)
IMAGE = (2, 4, 6, 6)


def times(f):
    """`f(x) * x`: the derivative of `f` then meets a cotangent of its own at second order too."""
    return lambda x, *rest: f(x, *rest) * x


POSITIVE = words("log log2 log10 log1p sqrt lgamma digamma rsqrt")
UNARY = words("""
    abs neg exp expm1 exp2 sin cos tan sinh cosh tanh asinh atan sigmoid erf erfc reciprocal square sign floor ceil
    round trunc frac relu sinc deg2rad
""")
ACTIVATIONS = words("""
    relu6 elu selu celu gelu silu mish leaky_relu softplus softsign tanhshrink hardtanh hardswish hardsigmoid
    hardshrink softshrink logsigmoid
""")
POINTWISE = (
    *(case(name, times(getattr(torch, name)), positive(5)) for name in POSITIVE),
    *(case(name, times(getattr(torch, name)), (5,)) for name in UNARY),
    *(case(name, times(getattr(F, name)), (9,)) for name in ACTIVATIONS),
    case("arithmetic", lambda x, y, z: (x + y * z - 2 * x / (z.abs() + 1)) ** 2, A, V, A),
    case("pow", lambda x, y: (x**y, x**3, 2**y, x**0.5), positive(4), V),
    case("atan2 and hypot", lambda x, y: torch.atan2(x, y) + torch.hypot(x, y), V, V),
    case("addcmul addcdiv", lambda x, y, z: torch.addcmul(x, y, z, value=3) + torch.addcdiv(x, y, z.exp()), A, V, A),
    case("lerp", lambda x, y, w: torch.lerp(x, y, w) + torch.lerp(x, y, 0.3), A, A, V),
    case("fmod and remainder", lambda x, y: x.fmod(y) + x.remainder(y) + x % 0.7, V, positive(4)),
    case("clamp", lambda x, low: x.clamp(-0.5, 0.5) + x.clamp(min=low), A, V),
    case("maximum minimum", lambda x, y: torch.maximum(x, y) * torch.fmin(x, y), A, V),
    case("where", lambda x, y: torch.where(x > y, x.sin(), y), A, V),
    case("where with nan", lambda x: torch.where(x > 0, x.log(), torch.zeros_like(x)), values(1.0, 0.5)),
    case("nan_to_num", lambda x: (x / x.abs()).nan_to_num(2.0), values(1.0, 0.0, -1.0)),
    case("masked_fill", lambda x, v: x.masked_fill(x > 0, -1).exp() + x.masked_fill(x < 0, v), A, ()),
    case("prelu glu", lambda x, w: (F.prelu(x, w), F.glu(x), F.glu(x, 0)), (4, 4), V),
    case("logaddexp xlogy", lambda x, y: torch.logaddexp(x, y) + torch.xlogy(x, y.exp()), A, V),
)
REDUCTIONS = (
    case("sum", lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True)), N),
    case("mean var std", lambda x: (x.mean(0), x.var(1), x.std((0, 1), correction=0), *torch.var_mean(x)), N),
    case("prod", lambda x: (x.prod(), x.prod(1)), A),
    case("amax amin aminmax", lambda x: (x.amax(1), x.amin((0, 2)), *x.aminmax(dim=0)), N),
    case("max min", lambda x: (x.max(), x.min(), *x.max(1), *x.min(0, keepdim=True)), A),
    case("sort topk", lambda x: (*x.sort(0, descending=True), *x.topk(2), x.argsort()), A),
    case("median mode kthvalue", lambda x: (x.median(), *x.median(1), *x.kthvalue(2), *x.mode()), A),
    case("norms", lambda x: (x.norm(), x.norm(1, 1), x.norm(p=inf), torch.linalg.vector_norm(x, 3, dim=0)), A),
    case("logsumexp", lambda x: (x.logsumexp(1), x.softmax(0), x.log_softmax(-1), F.softmin(x, 0)), A),
    case("cumulative", lambda x: (x.cumsum(1), x.cumprod(0), x.logcumsumexp(1), x.cummax(0)[0]), A),
    case("all any count", lambda x: ((x > 0).any(), (x > 9).all(1), x.count_nonzero(), x.sum()), A),
    case("diff and trapezoid", lambda x: (x.diff(), torch.trapezoid(x), x.trace()), A),
)
SHAPES = (
    case("cat stack", lambda x, y: (torch.cat([x, y, x], 1), torch.stack([x, y], 1), torch.hstack([x, y])), A, A),
    case("split chunk unbind", lambda x: (*x.split([1, 3], 1), *x.chunk(3, 1), *x.unbind(1), *x.tensor_split(2)), A),
    case("permute", lambda x: (x.permute(2, 0, 1) * 2, x.movedim(0, 2).exp(), x.mT @ x, x.swapaxes(0, 1) + 1), N),
    case("squeeze unsqueeze", lambda x: (x[:, None].squeeze(1) * 2, x.unsqueeze(-1).sin().squeeze()), A),
    case("reshape flatten", lambda x: (x.reshape(4, -1) * 2, x.flatten(1).sin(), x.unflatten(2, (2, 2)).exp()), N),
    case("expand repeat tile", lambda x: (x.expand(2, 3, 4) * 2, x.repeat(2, 2), x.tile(2), x.repeat_interleave(2)), A),
    case("flip roll", lambda x: (x.flip(0, 1), x.roll(1, 1), x.rot90(), x.fliplr()), A),
    case("tril diag", lambda x: (x.tril(), x.triu(1), x.diagonal() * 2, x.diag_embed(), torch.diag(x[0])), A),
    case("pad", lambda x: (F.pad(x, (1, 2)), F.pad(x, (-1, 1, 2, 0), value=3.0)), A),
    case("pad modes", lambda x: [F.pad(x, (1, 2), mode=m) for m in ("reflect", "replicate", "circular")], N),
    case("unfold", lambda x: (x.unfold(1, 2, 1) * 2, F.unfold(x[:, None, :, None].expand(3, 1, 4, 4), 2)), A),
    case("meshgrid", lambda x, y: [a * b for a, b in pairwise(torch.meshgrid(x, y, indexing="ij"))], (3,), V),
)
ROWS = values(2, 0, 2, dtype=torch.long, grad=False)
INDEXING = (
    case("basic", lambda x: (x[0] * 2, x[:, 1::2].sin(), x[..., None, -1] * 3, x[1:, ::3] + 1), A),
    case("advanced", lambda x, i: (x[i], x[:, i], x[i, i], x[None, i].sum()), (4, 4), ROWS),
    case("mask", lambda x: (x * (x > 0))[:2], A),
    case("gather", lambda x, i: x.gather(1, i), A, integers(4, 3, 6)),
    case("scatter", lambda x, i, s: (x.scatter(1, i, s), x.scatter_add(1, i, s)), A, integers(4, 3, 1), (3, 1)),
    case("scatter_reduce", lambda x, i, s: x.scatter_reduce(0, i, s, "mean"), V, integers(4, 6), (6,)),
    case("index_put", lambda x, i, s: x.index_put((i,), s, accumulate=True), A, ROWS, A),
    case("index_put without accumulate", lambda x, s: x.index_put((torch.tensor([2, 0]),), s), A, V),
    case("index_select add copy", lambda x, i: x.index_select(0, i).index_add(0, i, x), A, ROWS),
    case("take_along_dim", lambda x: x.take_along_dim(x.argsort(1), 1) + x.take(torch.tensor([0, 5, 5]))[:1], A),
    case("embedding", lambda w, i: F.embedding(i, w, padding_idx=1), A, integers(3, 2, 5)),
    case("embedding_bag", lambda w, i: F.embedding_bag(i, w, mode="mean"), A, integers(3, 2, 5)),
    case("one_hot", lambda w, i: F.one_hot(i, 3).double() @ w, A, integers(3, 5)),
    case("slice and select scatter", lambda x, y: (x.slice_scatter(y, 0, 1), x.select_scatter(y[0], 0, 2)), A, (2, 4)),
    case("masked_scatter", lambda x, y: x.masked_scatter(torch.tensor([True, False, True, False]), y), V, (2,)),
)
MATMUL = (
    case("mm mv dot", lambda x, y, v: (x @ y, x @ v, v @ v, v.outer(x[:, 0])), A, B, V),
    case("bmm", lambda x, y: (torch.bmm(x, y), x @ y[0], x[0] @ y), N, (2, 4, 3)),
    case("addmm baddbmm", lambda b, x, y: torch.addmm(b, x, y, beta=2, alpha=0.5) * b, (5,), A, B),
    case("linear bilinear", lambda x, w, b, k: (F.linear(x, w, b), F.bilinear(x, x, k)), N, (5, 4), (5,), (2, 4, 4)),
    case("einsum", lambda x, y: (torch.einsum("bij,jk->bik", x, y), torch.einsum("bij,bij->b", x, x)), N, B),
    case("einsum with diagonal", lambda x: (torch.einsum("ii->i", x), torch.einsum("ij->", x)), (4, 4)),
    case("kron tensordot", lambda x, y: (torch.kron(x, x[:2]), torch.tensordot(x, y, 1)), A, B),
    case("linalg", lambda x: (x.det(), torch.linalg.inv(x), torch.linalg.solve(x, x[0])), lambda: spd(4)),
    case("cholesky", lambda x: (torch.linalg.cholesky(x), x.logdet()), lambda: spd(4)),
    case("eigh", lambda x: torch.linalg.eigh(x + x.mT)[0], lambda: spd(4)),
    case("qr svd", lambda x: (torch.linalg.qr(x)[1].abs(), torch.linalg.svdvals(x)), (4, 3)),
    case("cdist", lambda x, y: (torch.cdist(x, y), F.cosine_similarity(x, y[:3])), A, (5, 4)),
)


def spd(n):
    x = torch.randn(n, n, dtype=double)
    return (x @ x.T + n * torch.eye(n, dtype=double)).requires_grad_()


CONVOLUTION = (
    case("conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=1, stride=2), (2, 3, 7), (4, 3, 3), V),
    case("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=(1, 0), dilation=2), IMAGE, (3, 4, 2, 2), (3,)),
    case("conv3d", lambda x, w: F.conv3d(x, w), (1, 2, 3, 4, 4), (2, 2, 2, 2, 2)),
    case("grouped", lambda x, w: F.conv2d(x, w, groups=2, padding="same"), IMAGE, (4, 2, 3, 3)),
    case("depthwise", lambda x, w: F.conv2d(x, w, groups=4), IMAGE, (4, 1, 3, 3)),
    case("conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, stride=2, output_padding=1), N, (3, 2, 3)),
    case("conv_transpose2d", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), IMAGE, (4, 3, 2, 2), (3,)),
    case("grouped conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, groups=2), IMAGE, (4, 2, 2, 2)),
    case("constant weight", lambda x, w: F.conv2d(x, w), IMAGE, constant(3, 4, 2, 2)),
    case("max_pool", lambda x: (F.max_pool2d(x, 2), F.max_pool1d(x[:, 0], 3, 2), F.max_pool3d(x, 2)), IMAGE),
    case("avg_pool", lambda x: (F.avg_pool2d(x, 3, 2, 1), F.avg_pool1d(x[0], 2), F.lp_pool2d(x.abs(), 2, 2)), IMAGE),
    case("adaptive pool", lambda x: (F.adaptive_avg_pool2d(x, (2, 4)), F.adaptive_max_pool2d(x, 3)), IMAGE),
    case("global pool", lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), IMAGE),
    *(
        case(f"interpolate {mode}", lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m), IMAGE)
        for mode in ("nearest", "bilinear", "bicubic", "area")
    ),
    case("interpolate aligned", lambda x: F.interpolate(x, (9, 4), mode="bilinear", align_corners=True), IMAGE),
    case("pixel_shuffle", lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2)), IMAGE),
    case("grid_sample", lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), IMAGE, (2, 3, 3, 2)),
)
NORMS = (
    case("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), N, V, V),
    case("layer_norm without bias", lambda x, w: F.layer_norm(x, (3, 4), w), N, A),
    case("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), IMAGE, V, V),
    case("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), IMAGE, V, V),
    case("instance_norm", lambda x: F.instance_norm(x), IMAGE),
    case("rms_norm", lambda x, w: F.rms_norm(x, (4,), w), N, V),
    case("local_response_norm", lambda x: F.local_response_norm(x, 2), IMAGE),
    case("normalize", lambda x: (F.normalize(x), F.normalize(x, p=1, dim=1)), A),
)
CLASSES = integers(4, 3)


def reduced(loss):
    return lambda x, y: [loss(x, y, reduction=reduction) for reduction in ("mean", "sum", "none")]


bce = F.binary_cross_entropy_with_logits
LOSSES = (
    case("cross_entropy", reduced(F.cross_entropy), A, CLASSES),
    case("cross_entropy smoothed", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), A, CLASSES),
    case("cross_entropy weighted", lambda x, y, w: F.cross_entropy(x, y, w.exp()), A, CLASSES, constant(4)),
    case("cross_entropy ignore", lambda x, y: F.cross_entropy(x, y, ignore_index=1), (6, 4), integers(4, 6)),
    case("cross_entropy probabilities", lambda x, y: F.cross_entropy(x, y.softmax(1)), A, A),
    case("cross_entropy 2d", lambda x, y: F.cross_entropy(x, y), (2, 4, 3, 3), integers(4, 2, 3, 3)),
    case("nll", lambda x, y: F.nll_loss(x.log_softmax(1), y), A, CLASSES),
    *(
        case(name, reduced(getattr(F, name)), A, A)
        for name in words("mse_loss l1_loss smooth_l1_loss huber_loss poisson_nll_loss")
    ),
    case("mse_loss of a constant", lambda x, y: F.mse_loss(x, y), A, constant(3, 4)),
    case("kl_div", lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), A, A),
    case("kl_div log target", lambda x, y: F.kl_div(x, y, log_target=True, reduction="sum"), A, A),
    case("bce", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach()), A, A),
    case("bce with logits", lambda x, y, w: bce(x, y.sigmoid(), pos_weight=w), A, A, constant(4)),
    case("hinge embedding", lambda x: F.hinge_embedding_loss(x, x.detach().sign()), A),
    case("cosine embedding", lambda x, y: F.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1])), A, A),
    case("margin ranking", lambda x, y: F.margin_ranking_loss(x, y, torch.ones(4, dtype=double)), V, V),
    case("triplet margin", lambda x, y, z: F.triplet_margin_loss(x, y, z), A, A, A),
    case("soft margin", lambda x: F.soft_margin_loss(x, x.detach().sign()), A),
    case("multi margin", lambda x, y: F.multi_margin_loss(x, y), A, CLASSES),
    case("multilabel soft margin", lambda x, y: F.multilabel_soft_margin_loss(x, y.sigmoid().detach()), A, A),
)
Q, K = (2, 2, 3, 4), (2, 2, 5, 4)
sdpa = F.scaled_dot_product_attention
ATTENTION = (
    case("plain", sdpa, Q, K, K),
    case("causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), Q, Q, Q),
    case("boolean mask", lambda q, k, v, m: sdpa(q, k, v, m > 0), Q, K, K, lambda: torch.ones(3, 5).triu(-2)),
    case("float mask", lambda q, k, v, m: sdpa(q, k, v, m), Q, K, K, constant(3, 5)),
    case("mask with grad", lambda q, k, v, m: sdpa(q, k, v, m), Q, K, K, (3, 5)),
    case("scale", lambda q, k, v: sdpa(q, k, v, scale=0.3), Q, K, K),
    case("grouped queries", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), (2, 4, 3, 4), K, K),
    case("dropout", lambda q, k, v: sdpa(q, k, v, dropout_p=0.5), Q, K, K),
    case("written out", lambda q, k, v: (q @ k.mT / 2).softmax(-1) @ v, Q, K, K),
    module("rnn cell", lambda: nn.RNNCell(4, 3).double(), (2, 4), (2, 3)),
    module("gru cell", lambda: nn.GRUCell(4, 3).double(), (2, 4), (2, 3)),
    module("lstm cell", lambda: nn.LSTMCell(4, 3).double(), (2, 4), lambda: (leaf(2, 3), leaf(2, 3))),
    module("attention module", lambda: nn.MultiheadAttention(4, 2, batch_first=True).double(), N, N, N),
)


@table(*POINTWISE, *REDUCTIONS, *SHAPES, *INDEXING)
def test_elements(case):
    check(case)


@table(*MATMUL, *CONVOLUTION, *NORMS, *LOSSES, *ATTENTION)
def test_layers(case):
    check(case)
