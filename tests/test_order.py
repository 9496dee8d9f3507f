"""Derivatives of any order, in both modes, through the compiled function."""

import inspect

import pytest
import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from comparing import (
    Cube,
    assert_values,
    case,
    compiled,
    complexes,
    constant,
    leaf,
    made,
    module,
    positive,
    scaled_sine,
    seeded,
    table,
    take_gradients,
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


# --- reverse over reverse ---------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)
        self.double()

    def forward(self, x):
        return self.second(F.softplus(self.norm(self.first(x)).sin()))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.out = nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Linear(3, 2)
        self.double()

    def forward(self, x):
        return self.out(F.silu(self.norm(self.first(x))).mean((2, 3)))


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(3, 9), nn.Linear(3, 2)
        self.double()

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, -1)
        return self.out(written_out(q, k, v))


MODELS = {"mlp": (Mlp, A), "convolutions": (Convolutions, (2, 2, 4, 4)), "attention": (Attend, N)}


def both(name):
    """The model in eager and an equal one with its compiled call, as (parameters, call, input)."""
    build, shape = MODELS[name]
    for compile in (lambda m: m, compiled):
        model = seeded(0, build)
        yield list(model.parameters()), compile(model), seeded(1, lambda: leaf(*shape))


def agree(name, observation):
    assert_values(*(list(observation(*each)) for each in both(name)))


def written_out_norm(x, dims, shape, weight, bias, eps):
    centered = x - x.mean(dims, keepdim=True)
    hat = centered / (centered.square().mean(dims, keepdim=True) + eps).sqrt()
    return hat * weight.view(shape) + bias.view(shape)


def layer_norm(x, shape, weight, bias, eps):
    return written_out_norm(x, [-1], shape, weight, bias, eps)


def batch_norm(x, mean, var, weight, bias, training, momentum, eps):
    return written_out_norm(x, [0, 2, 3], (1, -1, 1, 1), weight, bias, eps)


@pytest.fixture
def written_out_norms(monkeypatch):
    """Eager's third derivatives through its fused norms are wrong: the reference is the norm written out."""

    def written_out(model):
        def call(x):
            with monkeypatch.context() as patch:
                patch.setattr(F, "layer_norm", layer_norm)
                patch.setattr(F, "batch_norm", batch_norm)
                return model(x)

        return call

    return written_out


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("order", (2, 3, 4))
def test_order(name, order, written_out_norms):
    def observation(parameters, call, x):
        value = call(x).square().sum()
        for _ in range(order - 1):
            (g,) = torch.autograd.grad(value, x, create_graph=True)
            value = g.square().sum() + g.sum()
        return torch.autograd.grad(value, [x, *parameters], allow_unused=True)

    (parameters, model, x), ours = both(name)
    assert_values(list(observation(parameters, written_out_norms(model), x)), list(observation(*ours)))


@pytest.mark.parametrize("name", MODELS)
def test_gradient_penalty_in_training(name):
    """Both losses in one backward, then a step that uses the gradients."""

    def observation(parameters, call, x):
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        for _ in range(4):
            out = call(x)
            (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            (out.square().mean() + (g.flatten(1).norm(dim=1) - 1).square().mean()).backward()
            x.grad = None
            optimizer.step()
            optimizer.zero_grad()
        return parameters

    agree(name, observation)


@pytest.mark.parametrize("name", MODELS)
def test_hessian_vector_product(name):
    def observation(parameters, call, x):
        gs = torch.autograd.grad(call(x).square().sum(), parameters, create_graph=True)
        vs = seeded(2, lambda: [torch.randn_like(p) for p in parameters])
        dot = sum((g * v).sum() for g, v in zip(gs, vs, strict=True))
        return torch.autograd.grad(dot, parameters, retain_graph=True), torch.autograd.grad(dot, parameters)

    agree(name, lambda *each: [g for gs in observation(*each) for g in gs])


def test_energy_and_forces():
    """The loss reads energies and their negative gradient, as a force field's does."""

    def observation(parameters, call, x):
        energy = call(x).sum()
        force = -torch.autograd.grad(energy, x, create_graph=True)[0]
        (energy.square() + (force - 1).square().sum()).backward()
        return [energy, force, *take_gradients([x, *parameters])]

    agree("mlp", observation)


def test_inner_gradient_step():
    """Parameters after one differentiable step, through `torch.func.functional_call` and a compiled function."""

    def observation(call):
        x, w, v = seeded(0, lambda: (leaf(*A), leaf(3, 4), leaf(4, 1)))
        gs = torch.autograd.grad(call(x, w, v).square().sum(), [w, v], create_graph=True)
        adapted = [p - 0.1 * g for p, g in zip((w, v), gs, strict=True)]
        return torch.autograd.grad(call(x, *adapted).sum(), [x, w, v])

    def f(x, w, v):
        return (x @ w).tanh() @ v

    assert_values(list(observation(f)), list(observation(compiled(f))))


def test_create_graph_then_first_order_again():
    def observation(parameters, call, x):
        found = []
        for second in (False, True, False, True):
            g = torch.autograd.grad(call(x).square().sum(), [x, *parameters], create_graph=second)
            found += g if not second else torch.autograd.grad(g[0].sum(), [x, *parameters], allow_unused=True)
        return found

    agree("mlp", observation)


def shared_and_heads(x, w, a, b):
    shared = (x @ w).tanh()
    return shared, shared @ a, (shared * b).sum()


def test_several_losses_on_a_shared_input():
    """Multi-task weighting: one gradient of the shared value per loss, through two compiled functions."""

    def trunk(x, w):
        return (x @ w).tanh()

    def heads(shared, a, b):
        return shared @ a, (shared * b).sum()

    def observation(trunk, heads):
        x, w, a, b = seeded(0, lambda: (leaf(*A), leaf(3, 4), leaf(4, 1), leaf(4)))
        shared = trunk(x, w)
        first, second = heads(shared, a, b)
        norms = [
            torch.autograd.grad(loss.sum(), shared, retain_graph=True, create_graph=True)[0].norm()
            for loss in (first, second)
        ]
        (first.sum() / norms[0] + second / norms[1]).backward()
        return take_gradients([x, w, a, b])

    assert_values(observation(trunk, heads), observation(compiled(trunk), compiled(heads)))


def test_gradient_with_respect_to_a_returned_value():
    """The shared value and the heads come out of one compiled function."""

    def observation(call):
        shared, first, second = call(*seeded(0, lambda: (leaf(*A), leaf(3, 4), leaf(4, 1), leaf(4))))
        return [
            torch.autograd.grad(loss.sum(), shared, retain_graph=True, allow_unused=True)[0] for loss in (first, second)
        ]

    assert_values(observation(shared_and_heads), observation(compiled(shared_and_heads)))


def test_undefined_cotangents_at_second_order():
    def observation(call, i, j):
        inputs = seeded(0, lambda: (leaf(*A), leaf(3, 4), leaf(4, 1), leaf(4)))
        outs = call(*inputs)
        gs = torch.autograd.grad(outs[i].square().sum(), inputs, create_graph=True, allow_unused=True)
        loss = sum(g.square().sum() for g in gs if g is not None) + outs[j].sum()
        return [*gs, *torch.autograd.grad(loss, inputs, allow_unused=True)]

    fast = compiled(shared_and_heads)
    for i in range(3):
        for j in range(3):
            assert_values(
                observation(shared_and_heads, i, j), observation(fast, i, j), f"outputs {i} and {j}: gradient"
            )


@pytest.mark.parametrize(
    "program", (lambda x: Cube.apply(x * 2), lambda x: scaled_sine(x * 2, 1.5)), ids=("function", "op")
)
def test_second_order_of_user_defined_derivatives(program):
    def observation(call):
        x = seeded(0, lambda: leaf(3))
        (g,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
        return [g, *torch.autograd.grad(g.sin().sum(), x)]

    assert_values(observation(program), observation(compiled(program)))


def test_second_order_of_fused_attention():
    """Eager has no second derivative of the fused kernel; the written-out formula has."""

    def observation(call):
        q, k, v = seeded(0, lambda: (leaf(1, 2, 3, 4), leaf(1, 2, 3, 4), leaf(1, 2, 3, 4)))
        gs = torch.autograd.grad(call(q, k, v).square().sum(), [q, k, v], create_graph=True)
        return torch.autograd.grad(sum(g.sin().sum() for g in gs), [q, k, v])

    assert_values(list(observation(written_out)), list(observation(compiled(lambda q, k, v: sdpa(q, k, v)))))


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


def test_forward_over_reverse():
    def observation(parameters, call, x):
        with forward.dual_level():
            dual = forward.make_dual(x, torch.ones_like(x))
            (g,) = torch.autograd.grad(call(dual).square().sum(), dual, create_graph=True)
            return list(forward.unpack_dual(g))

    agree("mlp", observation)


def rows_of(out):
    return torch.eye(out.numel(), dtype=out.dtype).reshape(-1, *out.shape)


@pytest.mark.parametrize("name", MODELS)
def test_batched_cotangents(name):
    """All rows of a Jacobian at once, which is how `torch.autograd.functional.jacobian(vectorize=True)` asks."""

    def observation(parameters, call, x):
        out = call(x)
        return torch.autograd.grad(out, [x, *parameters], rows_of(out), is_grads_batched=True)

    agree(name, observation)


def test_batched_cotangents_at_second_order():
    def observation(parameters, call, x):
        out = call(x)
        (jacobian,) = torch.autograd.grad(out, x, rows_of(out), is_grads_batched=True, create_graph=True)
        return [jacobian, *torch.autograd.grad(jacobian.sin().sum(), [x, *parameters], allow_unused=True)]

    agree("attention", observation)
