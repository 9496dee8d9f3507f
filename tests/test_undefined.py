"""Undefined cotangents stay undefined: whatever outputs enter the loss, gradients and Nones are eager's."""

import random
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from comparing import (
    Affine,
    Backend,
    ScaledPair,
    assert_values,
    backward,
    case,
    compiled,
    constant,
    leaf,
    leaves,
    made,
    module,
    positive,
    scaled_sine,
    seeded,
    sum_and_difference,
    table,
    take_gradients,
    tensors,
)

A, V = (3, 4), (4,)


class Heads(nn.Module):
    """A trunk with `n` heads, the last of which reads the first one's output."""

    def __init__(self, n=4, width=4):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        self.heads = nn.ModuleList(nn.Linear(width, 2) for _ in range(n))
        self.double()

    def forward(self, x):
        h = self.trunk(x)
        outs = [head(h) for head in self.heads]
        return [*outs[:-1], outs[-1] * outs[0].sigmoid()]


class Pooled(nn.Module):
    """Hidden states and a pooled output, most of which a typical loss never reads."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(9, 4), nn.LayerNorm(4)
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.pool = nn.Linear(4, 4)
        self.double()

    def forward(self, ids):
        first = self.embed(ids)
        mixed, weights = self.attend(first, first, first)
        last = self.norm(first + mixed)
        return {"last": last, "pooled": self.pool(last[:, 0]).tanh(), "hidden": (first, mixed), "weights": weights}


class Quiet(torch.autograd.Function):
    """Asks for `None` instead of zeros."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * y, y * 3

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        gx = None if g is None else g * y
        gy = None if g is None else g * x
        if h is not None:
            gy = 3 * h if gy is None else gy + 3 * h
        return gx, gy


def cells(x, w, u):
    """Three steps of an LSTM-like cell; every hidden and the last cell state are returned."""
    h, c, hidden = x[0, :, :2], x[1, :, :2], []
    for t in range(3):
        i, f, o, g = (x[t] @ w + h @ u).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        hidden.append(h)
    return *hidden, c


def through_everything(x, w, y):
    """Zeros pass neg, view, sum, mm, mul and expand outside of any one operator's backward."""
    a = (-x).view(4, 3).t() @ w
    return (a * a.sum()).expand(2, 3, 4).neg(), (y @ w).sum(0), a.mean()


def shared_norm(x, w, b, y):
    n = F.layer_norm(x, (4,), w, b)
    return n * y, n.sum(), (y * 2).relu()


def buffered(x, y):
    x = x * 1
    x[0] = y
    return x.sin(), y * 3, x[1]


def broken(x, y, z):
    return x.detach() * y, (x * z).detach() + x, z * 0


def cond(x, y):
    return torch.cond(x.sum() > 0, lambda x, y: (x * y, y.sin()), lambda x, y: (x + y, y.cos()), (x, y))


def recomputed(x, w):
    h = checkpoint(lambda x, w: (x @ w).tanh(), x, w, use_reentrant=False)
    return h.sum(), checkpoint(torch.sin, h, use_reentrant=False), x * 2, w.exp()


def spd():
    x = torch.randn(3, 3, dtype=torch.float64)
    return (x @ x.T + 3 * torch.eye(3, dtype=torch.float64)).requires_grad_()


MASKED = (
    module("heads", lambda: Heads(5), A),
    module("pooled", Pooled, lambda: torch.randint(9, (2, 3))),
    case("independent", lambda x, y, z: (x.sin(), y.exp() * 2, (z @ z.mT).sum()), A, A, A),
    case("shared and private", lambda x, y, z: (x * y, y * z, x.sum(), z @ x.mT), A, A, A),
    case("chain", lambda x, y: (x * y, (x * y).sin(), (x * y).sin().mean(), x.exp()), A, A),
    case("through everything", through_everything, A, (4, 4), A),
    case("same value several times", lambda x, y: (lambda z: (z, z, z.view(-1), y))(x * y), A, A),
    case("detached", broken, A, A, A),
    case("numerical zero is not undefined", lambda x, y: (x * 0, y * x.detach(), torch.zeros_like(y) * y), A, A),
    case("unbind", lambda x: (x * 2).unbind(0), A),
    case("unbind, each used", lambda x, w: [(p * w).sum() for p in x.unbind(1)], A, (3,)),
    case("chunk", lambda x: x.sin().chunk(4, 1), A),
    case("split", lambda x: (x * 2).split([1, 2, 1], 1), A),
    case("split of a cat", lambda x, y, z: torch.cat([x, y, z]).split(2), (1, 3), (4, 3), (2, 3)),
    case("cat of pieces", lambda x, y: [torch.cat([p, q]) * 2 for p, q in zip(x.unbind(0), y.unbind(0))], A, A),
    case("stack and select", lambda x, y: (lambda s: (s[0], s[1].sin(), s[1:], s.sum()))(torch.stack([x, y])), V, V),
    case("index_put", lambda x, v: (lambda y: (y, y[0], v * 2))(x.index_put((torch.tensor([0, 2]),), v)), A, (2, 4)),
    case("mutated intermediate", buffered, A, V),
    case("slices", lambda x: (x[1:].sin(), x[:, ::2] * 2, x[0, 0], x.diagonal() * 3), A),
    case("vector times matrix", lambda v, x, y: (v @ x.t(), y.sin()), V, A, V),
    case("broadcast", lambda x, v: ((x + v).sum(), x * v, v.expand(3, 4) * 2, x.sum(0)), A, V),
    case("var_mean", lambda x: torch.var_mean(x, 1), A),
    case("std_mean", lambda x, y: (*torch.std_mean(x * y), y.sum()), A, A),
    case("max and min", lambda x: (x.max(1).values, x.min(0).values, x.amax(), *x.aminmax(dim=1)), A),
    case("topk and sort", lambda x: (x.topk(2).values, x.sort(0).values, x.kthvalue(2).values, x.cummax(1).values), A),
    case("eigh", lambda x: torch.linalg.eigh(x @ x.mT), spd),
    case("qr", lambda x: torch.linalg.qr(x), spd),
    case("slogdet and inverse", lambda x, b: (torch.linalg.slogdet(x)[1], torch.linalg.inv(x), x @ b), spd, (3, 1)),
    case("lu", lambda x: torch.linalg.lu(x)[1:], spd),
    case("shared layer norm", shared_norm, A, V, V, A),
    case("layer norm", lambda x, w, b, y: (F.layer_norm(x, (4,), w, b), x.sum(), y * w), A, V, V, V),
    case("group norm", lambda x, w, b: (F.group_norm(x[..., None], 2, w, b), x * 2, w + b), A, V, V),
    module("batch norm", lambda: nn.BatchNorm1d(4).double(), A),
    case("two batch norms", lambda x, y, w: [F.batch_norm(t, None, None, w, training=True) for t in (x, y)], A, A, V),
    case("cells", cells, (3, 2, 4), (4, 8), (2, 8)),
    module("lstm cell", lambda: nn.LSTMCell(4, 3).double(), (2, 4), lambda: (leaf(2, 3), leaf(2, 3))),
    case("attention", lambda q, k, v, w: (F.scaled_dot_product_attention(q, k, v), k * 2, v @ w), A, A, A, (4, 1)),
    case("convolution", lambda x, w, b, v: (F.conv1d(x, w, b), x * 2, w * v, b.sum()), (2, 3, 5), (4, 3, 2), V, ()),
    case("embedding", lambda w, v: (F.embedding(torch.tensor([1, 1, 0]), w), w[2] * v, v.exp()), A, V),
    case("losses", lambda x, y: (F.mse_loss(x, y), F.cross_entropy(x, y.softmax(1)), F.l1_loss(x, y.detach())), A, A),
    case("where and clamp", lambda x, y: (x.where(x > 0, y), x.clamp(-1, 1), torch.maximum(x, y), y.relu()), A, A),
    case("cumulative", lambda x, y: (x.cumsum(0), (x * y).cumprod(1), y.logcumsumexp(0)), positive(3, 4), A),
    case("complex parts", lambda x, y: (lambda z: (z.real, z.imag * 2, z.abs(), y.sum()))(torch.complex(x, y)), A, A),
    case("casts", lambda x, y: (x.float(), (x * y).to(torch.float32).sum(), y.double() * 2), A, A),
    case("constants among the outputs", lambda x, c, y: (x * c, c * 2, y + c, c.argmax()), A, constant(3, 4), A),
    case("unmodified inputs", lambda x, y: (x, y, x * y), A, A),
    case("checkpoint", recomputed, A, (4, 4)),
    case("cond", cond, A, A),
    case("custom function", lambda x, y: (*ScaledPair.apply(x.sin(), y, 2.0, None), y * 2), A, A),
    case("custom affine backward", lambda x, y, z: (*Affine.apply(x.sin(), y), z * y), A, A, A),
    case("custom op", lambda x, y: (scaled_sine(x, 2.0), *sum_and_difference(x, y.exp()), y * 3), A, A),
    case("dropout", lambda x, y: (F.dropout(x, 0.5), F.dropout(x * y, 0.3), y * torch.rand_like(y)), A, A),
)  # fmt: skip


def gradients(f, state, case, masks):
    """The gradients of one call under each mask in turn; all but the last backward keep the graph."""
    inputs = seeded(0, lambda: [made(i) for i in case.inputs])
    wrt = leaves(tensors([state, inputs]))
    outs = [t for t in tensors(seeded(0, lambda: f(*inputs))) if t.requires_grad]
    found = []
    for i, mask in enumerate(masks, 1):
        backward([t for t, used in zip(outs, mask, strict=True) if used], retain_graph=i < len(masks))
        found.append(take_gradients(wrt))
    return found


def every_mask(program, case):
    """All sets of differentiable outputs, the empty one included."""
    k = sum(t.requires_grad for t in tensors(program(*[made(i) for i in case.inputs])))
    assert 1 <= k <= 5
    return list(product((False, True), repeat=k))


def orders(masks):
    return masks, masks[::-1], random.Random(0).sample(masks, len(masks))


@table(*MASKED)
def test_every_mask(case):
    """One compiled function serves all masks in several orders, one call each and all on one call."""
    eager, copy = (seeded(0, case.make) for _ in range(2))
    expected = {m: gradients(eager, eager, case, [m])[0] for m in every_mask(eager, case)}
    fast = compiled(copy)
    for order in orders(list(expected)):
        for mask in order:
            assert_values(expected[mask], gradients(fast, copy, case, [mask])[0], f"with outputs {mask}: gradient")
        for mask, actual in zip(order, gradients(fast, copy, case, order), strict=True):
            assert_values(expected[mask], actual, f"on one call, with outputs {mask}: gradient")


@pytest.mark.parametrize("used", ((True, False), (False, True), (True, True)))
def test_function_that_does_not_materialize(used):
    """Dynamo traces its backward with tensors and drops the wish for None: zeros may stand where eager has None."""
    c = case("quiet", lambda x, y: Quiet.apply(x.sin(), y), A, A)
    found = [gradients(f, None, c, [used])[0] for f in (c.program, compiled(c.program))]

    assert_values(*([torch.zeros(A).double() if g is None else g for g in gs] for gs in found), "gradient")


# --- training ---------------------------------------------------------------------------------------------------------


def train(model, call, losses, steps, optimizer=torch.optim.AdamW, **settings):
    """`steps` steps; step t uses the outputs `losses(t)`. Returns all parameters after every step."""
    step = optimizer(model.parameters(), **settings)
    torch.manual_seed(3)
    history = []
    for t in range(steps):
        outs = call(torch.randn(3, 4, dtype=torch.float64))
        sum(outs[i].square().mean() for i in losses(t)).backward()
        step.step()
        step.zero_grad()
        history.append([p.detach().clone() for p in model.parameters()])
    return history


def same_training(build, losses, steps=12, **settings):
    eager, copy = (seeded(0, build) for _ in range(2))
    backend = Backend()
    expected = train(eager, eager, losses, steps, **settings)
    actual = train(copy, compiled(copy, backend), losses, steps, **settings)
    for t, (want, got) in enumerate(zip(expected, actual, strict=True)):
        assert_values(want, got, f"step {t}: parameter")
    assert backend.graphs == 1
    return copy


def test_weight_decay_leaves_unused_heads_alone():
    model = same_training(Heads, lambda t: [1], lr=0.1, weight_decay=0.1)
    start = seeded(0, Heads)

    for i, (before, after) in enumerate(zip(start.heads, model.heads, strict=True)):
        assert torch.equal(before.weight, after.weight) is (i != 1)
        assert torch.equal(before.bias, after.bias) is (i != 1)


MIXES = {
    "alternating": lambda t: [[0], [2]][t % 2],
    "random among six": lambda t: random.Random(t).choice([[0], [1], [2], [3], [0, 1], [1, 2, 3]]),
    "growing": lambda t: list(range(t % 4 + 1)),
    "one surprise": lambda t: [1, 2] if t == 7 else [0],
}


@pytest.mark.parametrize("mix", MIXES)
def test_mixed_masks_train_like_eager(mix):
    same_training(Heads, MIXES[mix], steps=20, lr=0.05, weight_decay=0.1)


class Adapted(nn.Module):
    """Frozen layers, each with a low-rank adapter."""

    def __init__(self):
        super().__init__()
        self.base = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)).requires_grad_(False)
        self.down = nn.ModuleList(nn.Linear(4, 2, bias=False) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(2, 4, bias=False) for _ in range(3))
        self.double()

    def forward(self, x):
        for base, down, up in zip(self.base, self.down, self.up, strict=True):
            x = x + (base(x) + up(down(x))).tanh()
        return (x,)


def test_frozen_base_with_adapters():
    model = same_training(Adapted, lambda t: [0], lr=0.1, weight_decay=0.1)

    for before, after in zip(seeded(0, Adapted).base, model.base, strict=True):
        assert torch.equal(before.weight, after.weight)


def test_thawing_and_freezing_between_steps():
    def history(model, call):
        torch.manual_seed(1)
        found = []
        for t in range(8):
            for i, layer in enumerate(model.base):
                layer.requires_grad_(t % 4 > i)
            call(torch.randn(2, 4, dtype=torch.float64))[0].square().sum().backward()
            found.extend(take_gradients(model.parameters()))
        return found

    eager, copy = (seeded(0, Adapted) for _ in range(2))

    assert_values(history(eager, eager), history(copy, compiled(copy)), "gradient")
