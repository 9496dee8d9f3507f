"""Every case equals eager: outputs, gradients and their None-ness, inputs afterwards, aliasing, `requires_grad`."""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from comparing import (
    Affine,
    Case,
    Cube,
    ScaledPair,
    SortedWithOrder,
    StraightThrough,
    case,
    check,
    compiled,
    complexes,
    constant,
    integers,
    leaf,
    module,
    positive,
    scaled_sine,
    sum_and_difference,
    table,
)

double = torch.float64


# --- aliasing and mutation --------------------------------------------------------------------------------------------


def non_leaf():
    return leaf(4, 3) * 1.0


def mutate(x, w):
    x.mul_(w)
    return x.sum(0)


def mutate_view(x, w):
    x[1].mul_(w)
    return x * 2


def mutate_given_view(v, w):
    v.add_(w)
    return v.sin()


def mutate_overlapping(pair, w):
    a, b = pair
    a.mul_(w)
    return a.sum() + b.sin().sum(), b * a.mean()


def overlapping():
    x = leaf(6) * 1.0
    return x[:4], x[2:]


def mutate_buffer(buffer, x):
    buffer.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
    return (x - buffer).square()


def mutate_buffer_with_grad(buffer, x):
    buffer.add_(x)
    return buffer.exp()


def mutate_twice_used(x, w):
    y = x.exp()
    x.mul_(w)
    return y * w, x.cos()


def mutate_intermediate(x):
    y = x.clone()
    y[0] = x[1] * 2
    y[:, 1].zero_()
    y.relu_()
    return y * x


ALIASING = (
    case("view of an input", lambda x: x.view(3, 4), (4, 3)),
    case("transposed input", lambda x: x.t(), (4, 3)),
    case("slice of an input", lambda x: (x[1:3], x.sum()), (4, 3)),
    case("view of a non-leaf input", lambda x: x.t(), non_leaf),
    case("view of a constant input", lambda x, w: (x.t(), x.t() * w), constant(4, 3), (3, 4)),
    case("view and view of view", lambda x: (x[1:], x[1:].t()), (4, 3)),
    case("outputs alias each other", lambda x: (lambda y: (y, y.t(), y[0]))(x * 2), (4, 3)),
    case("two views, base not returned", lambda x: (lambda y: (y.t(), y[0]))(x * 2), (4, 3)),
    case("one output twice", lambda x: (lambda y: (y, y))(x.sin()), (3,)),
    case("split is returned", lambda x: x.split(2, 1), (3, 6)),
    case("unbind of an intermediate", lambda x: x.exp().unbind(0), (3, 2)),
    case("unmodified input", lambda x, y: (x, x * y), (3,), (3,)),
    case("unmodified non-leaf input", lambda x, y: (x, x.sum(0) * y), non_leaf, (3,)),
    case("detached view", lambda x: (x.detach(), x.exp().detach(), x * 2), (3,)),
    case("real view of complex", lambda z: torch.view_as_real(z), complexes(3)),
    case("expanded input", lambda x: x.expand(5, 3), (3,)),
)
MUTATION = (
    case("non-leaf that requires grad", mutate, non_leaf, (3,)),
    case("view of a mutated input", mutate_view, non_leaf, (3,)),
    case("given view of a non-leaf", mutate_given_view, lambda: non_leaf()[1:], (3,)),
    case("given transposed view", mutate_given_view, lambda: non_leaf().t(), (3, 4)),
    case("two overlapping views", mutate_overlapping, overlapping, (4,)),
    case("constant buffer", mutate_buffer, constant(3), (4, 3)),
    case("buffer that gets a gradient", mutate_buffer_with_grad, constant(3), (3,)),
    case("read before and after", mutate_twice_used, non_leaf, (3,)),
    case("mutated and returned", lambda x, w: x.mul_(w), non_leaf, (3,)),
    case("view of a mutated input returned", lambda x, w: x.mul_(w)[0], non_leaf, (3,)),
    case("integer counter", lambda n, x: n.add_(1) * x, integers(5, 3), (3,)),
    case("intermediate", mutate_intermediate, (3, 3)),
    case("copy_", lambda x, y: x.copy_(y.sin()) * 2, non_leaf, (4, 3)),
    case("under no_grad", lambda b, x: no_grad_update(b, x), constant(3), (3,)),
    case("setitem with mask", lambda x, y: setitem_mask(x, y), non_leaf, (1,)),
)


def no_grad_update(b, x):
    y = b + x.sin()
    with torch.no_grad():
        b.copy_(x)
    return y + b.sum()


def setitem_mask(x, y):
    x[x > 0] = y
    return x * 3


@table(*(Case(**{**c.__dict__, "views": True}) for c in ALIASING))
def test_aliasing(case):
    check(case)


@table(*MUTATION)
def test_mutation(case):
    check(case)


def test_writing_to_a_returned_view_writes_to_the_input():
    x = torch.zeros(4, 3)
    compiled(lambda x: (x.t(), x + 1))(x)[0][0].fill_(7)

    assert [7.0] * 4 == x[:, 0].tolist()


@pytest.mark.parametrize("same", (True, False))
def test_same_tensor_passed_twice(same):
    def f(a, b):
        return a * b.sin(), b + 1

    def gradient(f):
        torch.manual_seed(0)
        a, b = leaf(3), leaf(3)
        outs = f(a, a if same else b)
        (outs[0].sum() + outs[1].prod()).backward()
        return [a.grad, None if same else b.grad]

    expected, actual = gradient(f), gradient(compiled(f))

    assert [g is None for g in expected] == [g is None for g in actual]
    torch.testing.assert_close(actual[0], expected[0])


# --- what does not carry a gradient -----------------------------------------------------------------------------------


def no_grad_region(x, w):
    with torch.no_grad():
        scale = x.abs().mean()
        half = scale / 2
    return x * w / scale, half


def grad_enabled_again(x, w):
    with torch.no_grad():
        a = x * w
        with torch.enable_grad():
            b = x.sin() * w
        c = a + b
    return a, b, c, c * x


def set_grad_enabled(x, w, on):
    with torch.set_grad_enabled(on):
        y = x * w
    return y, y + w


def partly_detached(x, w):
    y = x * w
    return y.detach() * x + w, (y - y.detach()).sum()


GRADLESS = (
    case("constant output", lambda x, y: (x * 2, y * 2), (3,), constant(3)),
    case("integer outputs", lambda x: (x.argmax(), x.sort().indices, x.sin()), (5,)),
    case("boolean output", lambda x: (x > 0, x * (x > 0)), (5,)),
    case("only gradless outputs", lambda x: (x.detach() + 1, x.argmin()), (5,)),
    case("python values among the outputs", lambda x: (x * 2, 3, "three", None, x.shape[0]), (5,)),
    case("no_grad region", no_grad_region, (3,), (3,)),
    case("enable_grad inside no_grad", grad_enabled_again, (3,), (3,)),
    case("set_grad_enabled true", set_grad_enabled, (3,), (3,), True),
    case("set_grad_enabled false", set_grad_enabled, (3,), (3,), False),
    case("partly detached", partly_detached, (3,), (3,)),
    case("parameter without grad", lambda x, w: F.linear(x, w), (2, 3), constant(4, 3)),
    case("unused input", lambda x, y: x.sin(), (3,), (3,)),
    case("input used in a dead value", lambda x, y: (y * 2, x.sin())[1], (3,), (3,)),
    case("gradient cut by floor", lambda x: x.floor() * x, (3,)),
    case("zero by a comparison", lambda x, y: (x > y).double() + y, (3,), (3,)),
    case("requires_grad of a new tensor", lambda x: (torch.ones_like(x), torch.zeros(2), x), (3,)),
)


@table(*GRADLESS)
def test_gradless(case):
    check(case)


# --- user-defined derivatives -----------------------------------------------------------------------------------------


USER_DEFINED = (
    case("save_for_backward", lambda x: Cube.apply(x.sin()) * x, (3,)),
    case("non-tensor arguments", lambda x, y: ScaledPair.apply(x, y, 2.5, "name"), (3,), (3,)),
    case("needs_input_grad", lambda x, y: ScaledPair.apply(x, y, 2.5, None)[0], (3,), constant(3)),
    case("mark_non_differentiable", lambda x: SortedWithOrder.apply(x * 2), (5,)),
    case("affine backward", lambda x, y: Affine.apply(x.sin(), y), (3,), (3,)),
    case("straight-through estimator", lambda x: StraightThrough.apply(x * 3) ** 2, (3,)),
    case("applied twice", lambda x: Cube.apply(Cube.apply(x) + x), (3,)),
    case("custom op", lambda x: scaled_sine(x * 2, 1.5) + x, (3,)),
    case("custom op with two outputs", lambda x, y: sum_and_difference(x.exp(), y), (3,), (3,)),
)


@table(*USER_DEFINED)
def test_user_defined(case):
    check(case)


# --- checkpoint, autocast, random numbers, modules --------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, p=0.0, use_checkpoint=True):
        super().__init__()
        self.first, self.second, self.p = nn.Linear(4, 8), nn.Linear(8, 4), p
        self.use_checkpoint = use_checkpoint
        self.double()

    def body(self, x):
        return self.second(F.dropout(F.gelu(self.first(x)), self.p, self.training))

    def forward(self, x):
        return x + (checkpoint(self.body, x, use_reentrant=False) if self.use_checkpoint else self.body(x))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.embed.weight
        self.double()

    def forward(self, ids):
        return self.out(self.embed(ids).tanh())


class Frozen(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        self[0].weight.requires_grad_(False)
        self[2].bias.requires_grad_(False)
        self.double()


class Twice(nn.Module):
    """A layer that reads two inputs one after the other, as those of twins do."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer.double()

    def forward(self, x):
        return self.layer(x).square() + self.layer(x.sin())


def autocast(program):
    def call(*args):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return program(*args)

    return call


def single(*shape):
    return lambda: leaf(*shape, dtype=torch.float32)


MODULES = (
    module("checkpoint", Block, (2, 4)),
    module("checkpoint with dropout", lambda: Block(0.5), (2, 4)),
    module("dropout", lambda: Block(0.5, use_checkpoint=False), (2, 4)),
    case("numbers that nobody reads", lambda x: [F.dropout(x, 0.3), F.dropout(x, 0.3) * x][1], (50,)),
    case("dropout on an input", lambda x: F.dropout(x, 0.3) * x, (50,)),
    case("random noise", lambda x: x * torch.randn_like(x) + torch.rand(3, dtype=double), (3,)),
    case("bernoulli", lambda x: torch.bernoulli(torch.full_like(x, 0.5)) * x, (20,)),
    case("autocast mm", autocast(lambda x, w: (x @ w).float().softmax(-1)), single(3, 4), single(4, 5)),
    module("autocast module", lambda: autocast(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))), single(2, 4)),
    module("tied weights", Tied, integers(7, 5)),
    module("frozen parameters", Frozen, (3, 4)),
    module("batch norm statistics", lambda: nn.BatchNorm2d(3).double(), (4, 3, 2, 2)),
    module("batch norm eval", lambda: nn.BatchNorm1d(3).double().eval(), (4, 3)),
    module("batch norm without affine", lambda: nn.BatchNorm1d(3, affine=False).double(), (4, 3)),
    module("instance norm statistics", lambda: nn.InstanceNorm1d(3, track_running_stats=True).double(), (2, 3, 5)),
    module("batch norm twice", lambda: Twice(nn.BatchNorm2d(3)), (4, 3, 2, 2)),
    module("instance norm twice", lambda: Twice(nn.InstanceNorm1d(3, track_running_stats=True)), (2, 3, 5)),
    module("spectral norm twice", lambda: Twice(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))), (4, 3)),
    module("parametrised weight", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2).double()), (4, 3)),
    module("transformer layer", lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.1, batch_first=True).double(), (2, 3, 4)),
)


@table(*MODULES)
def test_modules(case):
    check(case)


# --- structures, dtypes, shapes, cotangents ---------------------------------------------------------------------------


@dataclass
class Pair:
    left: Tensor
    right: Tensor


def keywords(x, *, scale, bias=None):
    return {"out": x * scale, "bias": bias}


def nested(batch):
    x, (y, extra) = batch["x"], batch["rest"]
    return {"a": [x * y, (extra, x.sum())], "b": x}


def noncontiguous(t):
    return torch.randn(*t.shape[:-2], t.shape[-1], t.shape[-2], dtype=t.dtype).transpose(-1, -2)


def expanded(t):
    return torch.ones((), dtype=t.dtype).expand(t.shape)


def linear_block(x, w, b):
    return (F.linear(x, w, b).relu() * x.sum()).reshape(-1, 2) @ w[:2, :2]


STRUCTURES = (
    case("keyword inputs", keywords, (3,), kwargs={"scale": 2.0}),
    case("nested", nested, lambda: {"x": leaf(3), "rest": (leaf(3), 4)}),
    case("dataclass", lambda p: Pair(p.left * p.right, p.right.sum()), lambda: Pair(leaf(3), leaf(3))),
    case("0-d", lambda x, y: (x * y, x.exp(), x.unsqueeze(0).expand(3)), (), ()),
    case("0-d with a vector", lambda x, y: x * y + x, (), (3,)),
    case("empty", lambda x, w: (x @ w, x.sum(), x.relu(), torch.cat([x, x])), (0, 3), (3, 2)),
    case("zero-size inner dimension", lambda x, w: x @ w + 1, (2, 0), (0, 3)),
    case("promotion", lambda x, y: x * y + 1, lambda: leaf(3, dtype=torch.float32), (3,)),
    case("casts", lambda x: (x.float() * 2).double() + x.to(torch.float16).sum().double(), (3,)),
    case("bfloat16", lambda x: x.softmax(-1) * x, lambda: leaf(2, 8, dtype=torch.bfloat16)),
    case("integer times float", lambda n, x: n * x / 3, integers(9, 3), (3,)),
    case("non-contiguous inputs", linear_block, lambda: leaf(2, 4).t(), (4, 2), (4,)),
    case("channels last", lambda x, w: F.conv2d(x, w).relu(), lambda: channels_last(2, 3, 4, 4), (2, 3, 3, 3)),
    case("expanded input tensor", lambda x, w: (x * w).sum(0), lambda: leaf(3).expand(4, 3), (4, 3)),
    case("expanded cotangent", linear_block, (4, 2), (4, 2), (4,), cotangent=expanded),
    case("non-contiguous cotangent", linear_block, (4, 2), (4, 2), (4,), cotangent=noncontiguous),
    case("expanded cotangent, conv", lambda x, w: F.conv2d(x, w), (2, 3, 4, 4), (2, 3, 3, 3), cotangent=expanded),
    case("expanded cotangent, norm", lambda x: F.layer_norm(x, (4,)), (3, 4), cotangent=expanded),
    case("non-contiguous cotangent, norm", lambda x: F.layer_norm(x, (4,)), (3, 4), cotangent=noncontiguous),
    case("cotangents of views", lambda x: (lambda y: (y.t(), y.view(-1)[2:]))(x.sin()), (3, 4), cotangent=expanded),
    case("complex64", lambda z, w: ((z * w).abs() + z.real * w.imag, z.conj() @ w), complexes(3), complexes(3)),
    case("complex and real", lambda z, x: (z * x).sin() / (z.exp() + 2), complexes(3, dtype=torch.complex128), (3,)),
    case("polar", lambda r, a: torch.polar(r, a) * torch.complex(a, r), positive(3), (3,)),
    case("complex matmul", lambda z, w: (z @ w.mH).angle(), complexes(2, 3), complexes(2, 3)),
    case("fft", lambda x: torch.fft.fft(x), complexes(8)),
    case("rfft and back", lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2j, n=8), (2, 8)),
    case("fft2", lambda x: torch.fft.fftshift(torch.fft.fft2(x)).abs(), (4, 4)),
)


def channels_last(*shape):
    return leaf(*shape).detach().to(memory_format=torch.channels_last).requires_grad_()


@table(*STRUCTURES)
def test_structures(case):
    check(case)
