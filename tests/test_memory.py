"""`memory`: gradients are eager's in every mode, the bound holds, and a smaller one never needs more."""

import itertools
import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import tapeless
from tapeless import torch_internals
from tapeless.cache import pickled
from tapeless.errors import BadOption
from tapeless.ir import graph as ir
from tapeless.partition import shapes

MODES = ["fast", "small", 0.7]
ENGINE = 64  # bytes of scalars that autograd's engine itself holds


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.mix(self.first(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.out(attended), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)))), self.dropout, self.training)


class Transformer(nn.Module):
    def __init__(self, layers: int = 4, width: int = 32, dropout: float = 0.0, mark: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(64, width), nn.Linear(width, 64)
        self.blocks = nn.ModuleList(Block(width, 2, dropout) for _ in range(layers))
        self.mark = mark

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.mark else block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


def perceptron() -> nn.Module:
    layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.3)) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(16, 3))


def convolutional() -> nn.Module:
    layers = [nn.Sequential(nn.Conv2d(c, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for c in (3, 8, 8)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 64, 3))


def tokens() -> Tensor:
    return torch.arange(4 * 24).reshape(4, 24) * 7 % 64


CASES = {
    "perceptron": (perceptron, lambda: torch.linspace(-1, 1, 80).reshape(5, 16)),
    "transformer": (Transformer, tokens),
    "dropout": (lambda: Transformer(dropout=0.2), tokens),
    "checkpointed": (lambda: Transformer(mark=True), tokens),
    "convolutional": (convolutional, lambda: torch.linspace(-1, 1, 2 * 3 * 64).sin().reshape(2, 3, 8, 8)),
}


def trained(name, memory, **settings):
    """Losses, gradients and buffers of two steps; eager if `memory` is None."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    build, make_input = CASES[name]
    model, x = build().double(), make_input()
    x = x.double() if x.is_floating_point() else x
    run = model if memory is None else torch.compile(model, backend="tapeless", options={"memory": memory}, **settings)
    torch.manual_seed(1)
    found = []
    for _ in range(2):
        model.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        found.append(
            [loss.detach(), *(p.grad.clone() for p in model.parameters()), *(b.clone() for b in model.buffers())]
        )
    return found


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("name", CASES)
def test_gradients_and_buffers_equal_eagers(name, memory):
    torch.testing.assert_close(trained(name, memory), trained(name, None), rtol=1e-12, atol=1e-13)


def test_with_symbolic_sizes():
    torch.testing.assert_close(
        trained("transformer", "small", dynamic=True), trained("transformer", None), rtol=1e-12, atol=1e-13
    )


def penalized(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(4):
        x = F.layer_norm(torch.tanh(x @ w) * x.exp(), x.shape[1:])
    return x.sin().sum()


@pytest.mark.parametrize("memory", ["small", 0.6])
def test_derivatives_to_third_order(memory):
    def derivatives(f):
        torch.manual_seed(0)
        x, w = (torch.rand(6, 6, dtype=torch.float64, requires_grad=True) for _ in range(2))
        first = torch.autograd.grad(f(x, w), (x, w), create_graph=True)
        second = torch.autograd.grad(sum(g.cos().sum() for g in first), (x, w), create_graph=True)
        return first, second, torch.autograd.grad(sum(g.square().sum() for g in second), (x, w))

    compiled = torch.compile(penalized, backend="tapeless", options={"memory": memory})

    torch.testing.assert_close(derivatives(compiled), derivatives(written_out), rtol=1e-9, atol=1e-9)


def written_out(x: Tensor, w: Tensor) -> Tensor:
    """The same with the norm written out: eager's own third derivatives of norms are wrong (docs/limitations.md)."""
    for _ in range(4):
        x = torch.tanh(x @ w) * x.exp()
        centered = x - x.mean(1, keepdim=True)
        x = centered * (centered.square().mean(1, keepdim=True) + 1e-5).rsqrt()
    return x.sin().sum()


def test_what_was_decided_is_kept_on_disk():
    """Of second order the forward divides as it did at first, in another process too."""
    forward = tapeless.differentiate(Transformer(), tokens(), options={"memory": "small"}).split.forward
    mode = torch_internals.fake_mode_of([ir.value(node) for node in ir.inputs(forward)])
    decided = [ir.again(node) for node in pickled.loads(pickled.dumps(forward), mode).nodes]

    assert True in decided
    assert [ir.again(node) for node in forward.nodes] == decided


def test_outputs_without_cotangent():
    """A forward trimmed to the cotangents that arrive computes again what it needs, and no more."""

    def heads(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(3):
            x = F.gelu(x @ w)
        return x.sin().exp(), (x.cos() @ w).tanh()

    def gradients(f):
        torch.manual_seed(0)
        x, w = (torch.randn(8, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
        masks = [(True, False)] * 3 + [(True, True), (False, True)]
        return [
            torch.autograd.grad([o.sum() for o, m in zip(f(x, w), mask, strict=True) if m], (x, w)) for mask in masks
        ]

    compiled = torch.compile(heads, backend="tapeless", options={"memory": "small"})

    torch.testing.assert_close(gradients(compiled), gradients(heads), rtol=1e-12, atol=1e-13)


# -- checkpoint --------------------------------------------------------------------------------------------------------


def saved_by(model, *inputs: Tensor) -> list[tuple[str, tuple[int, ...]]]:
    parts = tapeless.differentiate(model, *(x.requires_grad_() for x in inputs)).split
    return [(str(v.dtype), tuple(v.shape)) for v in map(ir.value, parts.temporaries) if v.numel() > 64]


class Marked(nn.Module):
    """Regions next to each other, and regions inside of them, in which numbers are drawn."""

    def __init__(self, nested: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 8)) for _ in range(4)
        )
        self.nested = nested

    def two(self, i: int, x: Tensor) -> Tensor:
        x = checkpoint(self.blocks[i], x, use_reentrant=False) if self.nested else self.blocks[i](x)
        return self.blocks[i + 1](x)

    def forward(self, x: Tensor) -> Tensor:
        for i in (0, 2):
            x = checkpoint(self.two, i, x, use_reentrant=False).mT.mT
        return x.sin().sum()


@pytest.mark.parametrize("nested", [False, True])
def test_what_comes_out_of_a_checkpoint_is_saved_and_masks_nothing_else(nested):
    expected = [*[("torch.bool", (16, 32))] * 2, ("torch.float32", (16, 8)), *[("torch.bool", (16, 32))] * 2]

    assert [*expected, ("torch.float32", (16, 8))] == saved_by(Marked(nested), torch.randn(16, 8))


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("nested", [False, True])
def test_marked_regions_draw_eagers_numbers(nested, memory):
    def gradients(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        torch._dynamo.reset()
        model, x = Marked(nested).double(), torch.randn(16, 8, dtype=torch.float64, requires_grad=True)
        run = torch.compile(model, backend="tapeless", options={"memory": memory}) if compiled else model
        found = [torch.autograd.grad(run(x), (x, *model.parameters())) for _ in range(3)]
        return [g for step in found for g in step] + [torch.rand(3)]

    torch.testing.assert_close(gradients(True), gradients(False), rtol=1e-12, atol=1e-13)


def test_dropout_as_two_products_draws_and_rounds_as_the_kernel():
    """What `partition.dropout` relies on."""
    for dtype, p in itertools.product((torch.float64, torch.float32), (0.0, 0.1, 0.5, 0.77)):
        x = torch.randn(40, 33, dtype=dtype)
        torch.manual_seed(1)
        expected = torch.native_dropout(x, p, True)
        torch.manual_seed(1)
        mask = torch.bernoulli(torch.empty(x.shape, dtype=torch.bool), 1 - p)

        assert torch.equal(expected[1], mask)
        assert torch.equal(expected[0], x * mask * (1 / (1 - p)))


# -- pooling -----------------------------------------------------------------------------------------------------------


def pooled(x: Tensor, w: Tensor) -> Tensor:
    """What is not positive loses everywhere, ties go to the first, and some windows reach over the edge."""
    x = F.max_pool2d(F.relu(F.conv2d(x, w, padding=1).round()), 3, 2, 1)
    return F.avg_pool2d(F.max_pool2d(F.conv2d(x, w, padding=1).cos(), 2), 2).square()


def test_of_a_pooling_the_shape_and_short_indices_are_read():
    x, w = torch.randn(8, 4, 96, 96), torch.randn(4, 4, 3, 3)
    saved = saved_by(pooled, x, w)

    assert ("torch.int16", (8, 4, 48, 48)) in saved
    assert ("torch.int64", (8, 4, 48, 48)) not in saved
    assert (8, 4, 96, 96) not in [shape for _, shape in saved]


def test_poolings_of_large_images_have_eagers_derivatives():
    def orders(run):
        torch.manual_seed(0)
        torch._dynamo.reset()
        x = torch.randn(4, 4, 96, 96, dtype=torch.float64, requires_grad=True)
        w = torch.randn(4, 4, 3, 3, dtype=torch.float64, requires_grad=True)
        first = torch.autograd.grad(run(x, w).sum(), (x, w), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (x, w))
        return *first, *second, *torch.autograd.grad(run(x, w).sum(), (x, w))

    torch.testing.assert_close(orders(torch.compile(pooled, backend="tapeless")), orders(pooled), rtol=1e-10, atol=1e-9)


def rectified(x: Tensor, w: Tensor) -> Tensor:
    """Of second order, cotangents arrive at what was saved."""
    return F.max_pool2d(F.relu(F.batch_norm(F.conv2d(x, w, padding=1), None, None, training=True)), 2).relu()


@pytest.mark.parametrize("memory", ["fast", "small"])
def test_second_derivatives_read_the_short_indices_that_were_saved(memory, monkeypatch):
    monkeypatch.setattr(shapes, "LARGE", 0)

    def orders(run):
        torch.manual_seed(0)
        torch._dynamo.reset()
        x = torch.randn(2, 3, 8, 8, dtype=torch.float64, requires_grad=True)
        w = torch.randn(4, 3, 3, 3, dtype=torch.float64, requires_grad=True)
        first = torch.autograd.grad(run(x, w).square().sum(), (x, w), create_graph=True)
        return *first, *torch.autograd.grad(sum(g.square().sum() for g in first), (x, w))

    options = {"memory": memory, "backend": "python", "cache": False}
    compiled = torch.compile(rectified, backend="tapeless", options=options)

    torch.testing.assert_close(orders(compiled), orders(rectified), rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("op", shapes.SHAPE_ONLY)
def test_backwards_of_poolings_read_a_shape(op):
    """What `partition.shapes` relies on: their argument may be one element, repeated."""
    x = torch.randn(2, 3, 8, 8)
    given = {
        "max_pool2d_with_indices_backward": lambda g, x: ([2, 2], [2, 2], [1, 1], [1, 1], False, indices),
        "avg_pool2d_backward": lambda g, x: ([2, 2], [2, 2], [1, 1], False, True, None),
        "_adaptive_avg_pool2d_backward": lambda g, x: (),
    }[op.overloadpacket.__name__]
    g, indices = F.max_pool2d(torch.randn(2, 3, 8, 8), 2, padding=1, return_indices=True)
    like = torch.ones(()).expand(x.shape)

    assert torch.equal(op(g, x, *given(g, x)), op(g, like, *given(g, like)))


# -- the bound ---------------------------------------------------------------------------------------------------------


def measured(step):
    """The most bytes that torch's allocator had given out at once during `step`, beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(itertools.accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())))


def peak_of(model: nn.Module, x: Tensor, memory) -> int:
    torch._dynamo.reset()
    run = torch.compile(model, backend="tapeless", options={"memory": memory, "backend": "python"})

    def step():
        model.zero_grad()
        run(x).backward()

    step()
    model.zero_grad()
    return measured(step)


def large() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Transformer(layers=6, width=32), torch.randint(0, 64, (8, 64))


def test_smaller_bounds_have_smaller_peaks():
    model, x = large()
    fast = peak_of(model, x, "fast")
    fractions = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    peaks = [peak_of(model, x, fraction) for fraction in fractions]

    assert all(peak <= fraction * fast for peak, fraction in zip(peaks, fractions, strict=True))
    assert sorted(peaks, reverse=True) == peaks
    assert peak_of(model, x, "small") <= peaks[-1]
    assert peak_of(model, x, int(0.6 * fast)) <= 0.6 * fast


def test_fractions_are_of_what_fast_needs_once_its_backward_is_in_order():
    """It makes GELU again and puts gradients of weights off; plans do so too."""
    torch.manual_seed(0)
    parts = [[nn.LayerNorm(64), nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)] for _ in range(3)]
    layers, x = nn.Sequential(*(layer for part in parts for layer in part)), torch.randn(512, 64)
    model = Loss(layers)
    fast = peak_of(model, x, "fast")
    fractions = [1.0, 0.9, 0.8, 0.7]
    peaks = [peak_of(model, x, fraction) for fraction in fractions]

    assert all(peak <= fraction * fast + ENGINE for peak, fraction in zip(peaks, fractions, strict=True))
    assert sorted(peaks, reverse=True) == peaks


class Loss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).square().mean()


def test_simulated_peak_is_the_measured_one():
    model, x = large()
    for memory in ("fast", "small"):
        report = tapeless.explain(model, x, options={"memory": memory})

        assert abs(peak_of(model, x, memory) - report.peak) <= ENGINE
        assert f"{report.peak:,} at the peak" in str(report)


def test_a_gradient_that_arrives_goes_when_it_has_been_read():
    """That of a model's output is mostly the largest value of all; the loss is often computed outside."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(20)]
    model, x, scale = nn.Sequential(*layers, nn.Linear(256, 4096)), torch.randn(256, 256), torch.randn(256, 4096)
    run = torch.compile(model, backend="tapeless", options={"backend": "python"})
    for _ in range(2):
        model.zero_grad()
        loss = (run(x) * scale).sum()
        most = measured(loss.backward)

    gradients = sum(p.nbytes for p in model.parameters())
    assert gradients <= most < gradients + scale.nbytes


def test_simulated_peak_with_batch_norms():
    """Their backward takes its result twice."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()) for _ in range(3)]
    model, x = Loss(nn.Sequential(nn.BatchNorm1d(64), *layers)), torch.randn(2048, 64)
    statistics = 4 * 2 * 64 * 4 + 4 * 8  # counted until the end; they are written back after the forward
    fast, small = (tapeless.explain(model, x, options={"memory": memory}).peak for memory in ("fast", "small"))

    assert -ENGINE <= fast - peak_of(model, x, "fast") <= statistics
    assert peak_of(model, x, "small") <= small + ENGINE


def test_explain_lists_what_is_computed_again():
    model, x = large()
    fast, small = (tapeless.explain(model, x, options={"memory": memory}) for memory in ("fast", "small"))

    assert not fast.recomputed
    assert {"aten.gelu.default", "aten.native_layer_norm.default"} <= {r.op for r in small.recomputed}
    assert "What the backward computes again" in small.tables()
    assert small.saved_bytes < fast.saved_bytes / 4


def test_nothing_is_drawn_twice():
    text = str(tapeless.differentiate(Transformer(dropout=0.2), tokens(), options={"memory": "small"}).backward)

    assert "native_dropout_backward" in text
    assert "native_dropout(" not in text
    assert "native_dropout.default" not in text


def test_a_bound_out_of_reach_warns_once_and_takes_the_smallest():
    model, x = large()
    smallest = peak_of(model, x, "small")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        peak = peak_of(model, x, 1000)

    (message,) = [str(w.message) for w in caught if "no way is known" in str(w.message)]
    (reached,) = re.findall(r"it takes ([\d,]+)", message)
    assert peak <= smallest
    assert abs(peak - int(reached.replace(",", ""))) <= ENGINE


@pytest.mark.parametrize("given", ["tiny", 0, -1, True, None, float("inf")])
def test_a_bound_that_is_none_is_refused(given):
    with pytest.raises(BadOption, match="memory must be"):
        tapeless.compile(large, memory=given)


# -- training steps ----------------------------------------------------------------------------------------------------


def test_train_step_within_a_bound():
    def train(memory):
        torch._dynamo.reset()
        model, x = large()
        model.double()
        step = tapeless.train_step(model, None, torch.optim.AdamW(model.parameters()), memory=memory)
        losses = [step(x) for _ in range(3)]
        return losses, measured(lambda: step(x)), list(model.parameters())

    fast, small = train("fast"), train("small")

    torch.testing.assert_close((small[0], small[2]), (fast[0], fast[2]), rtol=1e-12, atol=1e-13)
    assert small[1] <= 0.5 * fast[1]


# -- cross entropy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_cross_entropy_of_many_classes(reduction, weighted, ignored):
    torch.manual_seed(0)
    target = torch.randint(0, 600, (256,))
    target[::5] = 2
    weight = torch.rand(600, dtype=torch.float64) if weighted else None

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(x * x.sin(), target, weight, reduction=reduction, ignore_index=ignored)

    def derivatives(f):
        x = torch.linspace(-3, 3, 256 * 600, dtype=torch.float64).reshape(256, 600).requires_grad_()
        (first,) = torch.autograd.grad(f(x).sin().sum(), x, create_graph=True)
        return first, *torch.autograd.grad(first.sin().sum(), x)

    text = str(tapeless.differentiate(loss, torch.randn(256, 600, dtype=torch.float64)).backward)

    assert "nll_loss_backward" not in text
    torch.testing.assert_close(
        derivatives(torch.compile(loss, backend="tapeless")), derivatives(loss), rtol=1e-12, atol=1e-12
    )
