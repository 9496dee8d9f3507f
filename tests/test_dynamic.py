"""One compilation serves many sizes, with eager's outputs and gradients at each of them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from comparing import Backend, assert_same, assert_values, case, compiled, integers, leaf, module, observe, seeded

BATCHES = (*range(2, 18), 5, 2)
SIZES = [(batch, length) for length in (3, 7) for batch in BATCHES]


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
        self.double()

    def forward(self, x):
        return F.log_softmax(self.layers(x), -1)


class Attention(nn.Module):
    def __init__(self, causal=True, width=4, heads=2):
        super().__init__()
        self.causal, self.heads = causal, heads
        self.project, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.double()

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.project(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        if self.causal:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
            y = scores.softmax(-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.out = nn.Conv2d(4, 5, 3, stride=2), nn.Linear(5, 4)
        self.double()

    def forward(self, x):
        x = F.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.out(F.adaptive_avg_pool2d(self.second(x), 1).flatten(1))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place, self.out = nn.Embedding(9, 4), nn.Embedding(16, 4), nn.Linear(4, 9)
        self.block = Attention()
        self.double()

    def forward(self, ids):
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        logits = self.out(self.block(x))
        return logits, F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.double()

    def forward(self, x):
        h = torch.zeros(x.shape[0], 4, dtype=x.dtype)
        for t in range(3):
            h = self.cell(x[:, t], h)
        return h


def shapes(x, w):
    """Reshape, flatten, expand, cat, split, mean and pad, with sizes that depend on the input's."""
    n, t, d = x.shape
    a, b = x.flatten(0, 1).split([1, n * t - 1])
    c = torch.cat([b, a * 2]).reshape(n, t, d).mean(1, keepdim=True).expand(n, t, d)
    p = F.pad(x * w, (0, 0, 1, 2))[:, 1:-2]
    return (c + p).sum(-1), x.mean(0) / n, torch.stack([x, c], 1).view(n, -1).sum(1), x.unbind(2)[0]


def reductions(x, w):
    centred = x - x.mean((0, 1))
    return centred.square().sum() / (x.shape[0] - 1), x.var(0), x.logsumexp(1) @ w, x.amax((0, 1)), x.norm()


def indexing(x, w):
    n, t = x.shape[:2]
    rows = torch.arange(n)
    last = x[rows, rows % t]
    picked = x.gather(1, (rows % t).view(-1, 1, 1).expand(n, 1, 4))
    return last * w, x[:, -1], x[:, ::2].sum(), x.roll(1, 1).cumsum(1), picked


def outer(x, w):
    """Matrices whose sizes all come from the input."""
    gram = x.flatten(1) @ x.flatten(1).t()
    scores = torch.einsum("ntd,nsd->nts", x, x * w)
    return gram.softmax(-1), scores.tril().sum(), torch.bmm(scores, x), x.new_ones(x.shape[0]) @ x.sum(1)


def broadcasts(x, w):
    y = x[:, :1] * w + x[:1]
    return y.repeat(1, 2, 1), torch.where(x > 0, x, w), x.unsqueeze(1) - x.unsqueeze(2), w.expand_as(x) * 2


def losses(x, w):
    target = torch.zeros(x.shape[0], x.shape[1], dtype=torch.long)
    near = F.smooth_l1_loss(x, w.expand_as(x))
    return F.cross_entropy((x * w).transpose(1, 2), target), F.mse_loss(x, x.detach() * 2), near


def two_heads(x, w):
    return (x @ w).relu().mean((0, 1)), (x * 2).detach(), x.shape[0], x.shape[1] * 2


def image(n, t):
    return (lambda: leaf(n, 3, 8, 8),)


def text(n, t):
    return (integers(9, n, t),)


def with_input(*rest):
    """Inputs of batch size n and sequence length t, then `rest`."""
    return lambda n, t: (lambda: leaf(n, t, 4), *rest)


V = (4,)
PROGRAMS = {
    "mlp": (module, Mlp, with_input()),
    "attention": (module, Attention, with_input()),
    "written-out attention": (module, lambda: Attention(causal=False), with_input()),
    "recurrent": (module, Recurrent, with_input()),
    "convolutions": (module, Convolutions, image),
    "language model": (module, Language, text),
    "shapes": (case, shapes, with_input(V)),
    "reductions": (case, reductions, with_input(V)),
    "indexing": (case, indexing, with_input(V)),
    "outer": (case, outer, with_input(V)),
    "broadcasts": (case, broadcasts, with_input(V)),
    "losses": (case, losses, with_input(V)),
    "two heads": (case, two_heads, with_input((4, 4))),
}


def compare_sizes(name, sizes, **options):
    """How many graphs one compiled function needed to serve `sizes`, each equal to eager."""
    kind, program, inputs = PROGRAMS[name]
    cases = [kind(f"{name} {size}", program, *inputs(*size)) for size in sizes]
    eager, copy = (seeded(0, cases[0].make) for _ in range(2))
    backend = Backend()
    fast = compiled(copy, backend, **options)
    for c in cases:
        assert_same(observe(eager, eager, c, 0), observe(fast, copy, c, 0))
    return backend.graphs


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compilation_for_all_sizes(name):
    assert compare_sizes(name, SIZES, dynamic=True) == 1


@pytest.mark.parametrize("name", ("mlp", "attention", "shapes"))
def test_second_size_makes_it_dynamic(name):
    """Dynamo's default: the first graph is static, the next one is not."""
    assert compare_sizes(name, [(n, 3) for n in (4, 6, 9, 3, 4)]) == 2


@pytest.mark.parametrize("name", ("mlp", "attention", "shapes"))
def test_static_shapes(name):
    assert compare_sizes(name, [(2, 3), (4, 3), (2, 3)], dynamic=False) == 2


def test_marked_dimension():
    backend = Backend()

    def f(x, w):
        return F.layer_norm(x @ w, (4,)).flatten().sum() / x.shape[0], x.mean(0)

    def marked(n):
        x = leaf(n, 4)
        torch._dynamo.mark_dynamic(x, 0)
        return x

    fast = compiled(f, backend)
    for n in (3, 8, 2, 11):
        c = case("marked", f, lambda n=n: marked(n), (4, 4))
        assert_same(observe(f, None, c, n), observe(fast, None, c, n))
    assert backend.graphs == 1


def test_sizes_as_outputs():
    backend = Backend()

    def f(x, k):
        return x.repeat(1, k).sum(0) * x.shape[0], x.shape[0] * k, x.numel() + 1

    fast = compiled(f, backend, dynamic=True)
    for n, k in ((3, 2), (5, 4), (7, 3)):
        c = case("sizes", f, (n, 4), k)
        assert_same(observe(f, None, c, n), observe(fast, None, c, n))
    assert backend.graphs == 1


def test_mutation_and_views_with_dynamic_sizes():
    backend = Backend()

    def f(x, buffer, w):
        buffer.mul_(0.5).add_(x.detach().mean(0))
        x[1:].mul_(w)
        return x.t(), x.view(-1)[: x.shape[0]], buffer * x

    fast = compiled(f, backend, dynamic=True)
    for n in (3, 6, 4):
        c = case("mutation", f, lambda n=n: leaf(n, 4) * 1, lambda: torch.ones(4).double(), V, views=True)
        assert_same(observe(f, None, c, n), observe(fast, None, c, n))
    assert backend.graphs == 1


@pytest.mark.parametrize("used", (0, 2))
def test_undefined_cotangents_with_dynamic_sizes(used):
    """A missing piece is padded to the size of the call, not to the size that was traced."""

    def f(x, y):
        a, b = torch.cat([x, y]).chunk(2)
        return a.sin(), y * 2, b.sum(0)

    fast = compiled(f, Backend(), dynamic=True)
    for n in (4, 6, 9, 4):
        found = []
        for g in (f, fast):
            x, y = seeded(n, lambda n=n: (leaf(n, 3), leaf(n + 2, 3)))
            g(x, y)[used].square().sum().backward()
            found.append([x.grad, y.grad])
        assert_values(*found, "gradient")
