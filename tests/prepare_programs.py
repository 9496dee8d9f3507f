"""Random programs for each pass: shapes, dimensions counted from either end, dtypes, strides, both spellings of a call.

`PROGRAMS[name](draw)` gives a function and its inputs, at random such that the pass of that name often acts and often
must not. What eager computes is what the prepared graph must compute.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

Draw = Callable
PROGRAMS: dict[str, Callable] = {}


def for_passes(*names: str) -> Callable:
    def enter(make: Callable) -> Callable:
        PROGRAMS.update(dict.fromkeys(names, make))
        return make

    return enter


# -- pieces of programs ------------------------------------------------------------------------------------------------


def number(draw: Draw, low: int, high: int) -> int:
    return draw(st.integers(low, high))


def pick(draw: Draw, *choices):
    return draw(st.sampled_from(choices))


def dim_of(draw: Draw, rank: int) -> int:
    """A dimension, counted from the front or from the back."""
    return number(draw, -rank, rank - 1)


def tensor(draw: Draw, *shape: int, positive: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """Random numbers; the memory may be in another order than the dimensions."""
    dtype = dtype or pick(draw, torch.float64, torch.float32)
    order = draw(st.permutations(range(len(shape))))
    made = torch.randn([shape[d] for d in order], dtype=torch.float64)
    made = (made.abs() + 0.5 if positive else made * 3).to(dtype)
    back = [order.index(d) for d in range(len(shape))]
    return made.permute(back)


def shape(draw: Draw, rank: int, low: int = 1, high: int = 4) -> list[int]:
    return [number(draw, low, high) for _ in range(rank)]


# -- programs ----------------------------------------------------------------------------------------------------------


@for_passes("drop_factor_one", "drop_zero_term", "drop_zero_subtracted", "drop_unsigned_zero_term")
def neutral(draw: Draw):
    x = tensor(draw, *shape(draw, 2), dtype=pick(draw, torch.float32, torch.float64, torch.int64))
    value = pick(draw, 0, 1, 0.0, 1.0, -0.0, 2)
    alpha = {"alpha": pick(draw, 1, 2)} if pick(draw, True, False) else {}

    def f(x):
        y = x * 2
        steps = [torch.mul(y, value), y / torch.full((), value + 2.0), torch.pow(y, value)]
        return [
            step.sin() for step in (*steps, torch.add(y, value, **alpha), torch.sub(y, other=value, **alpha))
        ], y * 1

    return f, (x,)


@for_passes("transpose_chain")
def chains(draw: Draw):
    """Tangents pushed up through maps, something made of them carried down through the same maps, and read in part."""
    rows, sizes, dtype = (
        number(draw, 1, 4),
        shape(draw, number(draw, 2, 4), 2, 4),
        pick(draw, torch.float32, torch.float64),
    )
    weights = [tensor(draw, a, b, dtype=dtype) * 0.3 for a, b in zip(sizes, sizes[1:], strict=False)]
    slopes = [tensor(draw, rows, size, dtype=dtype) * 0.3 for size in sizes[1:]]
    column, read, other = (
        number(draw, 0, sizes[0] - 1),
        pick(draw, "select", "slice", "sum", "along"),
        number(draw, 0, 4),
    )
    turned, kept = pick(draw, True, False), number(draw, 0, 5) == 0

    def functional(d, v):
        at = sizes[0] - 1 - column if other == 0 else column  # perhaps not the direction that was pushed up
        return {
            "select": lambda: d[:, at], "slice": lambda: d[:, at : at + 1],
            "sum": lambda: d.sum(1, keepdim=turned), "along": lambda: (v * d if turned else d * v).sum(1),
        }[read]()  # fmt: skip

    def f(v, *given):
        ws, slopes = given[: len(weights)], given[len(weights) :]
        one = torch.ones_like(v[:, 0])
        direction = {
            "select": lambda: torch.ops.aten.select_backward(one, v.shape, 1, column),
            "slice": lambda: torch.ops.aten.slice_backward(one[:, None], v.shape, 1, column, column + 1, 1),
            "sum": lambda: one[:, None].expand(v.shape), "along": lambda: v,
        }[read]()  # fmt: skip
        pushed, t = [], direction
        for w, slope in zip(ws, slopes, strict=True):
            pushed.append(t := t @ w)
            t = slope * t if turned else t * slope
        d = t.sin()
        for w, slope, t in reversed([*zip(ws, slopes, pushed, strict=True)]):
            d = (
                (t.cos() + d * slope) @ w.t() - 0 * direction
                if other == 1 and w is ws[0]
                else (t.cos() + slope * d) @ w.t()
            )
        return functional(d, v).sin(), *([d.exp()] if kept else [])

    return f, (tensor(draw, rows, sizes[0], dtype=dtype) * 0.3, *weights, *slopes)


@for_passes("drop_copy", "drop_round_trip_cast", "shape_from_source")
def copies(draw: Draw):
    x = tensor(draw, *shape(draw, 3))
    kinds = [pick(draw, "clone", "contiguous", "double", "float", "bfloat16", "dropout", "like") for _ in range(4)]

    def f(x):
        y = x.sin()
        for kind in kinds:
            if kind == "dropout":
                y = F.dropout(y, 0.3, training=False)
            elif kind == "clone":
                y = y.transpose(0, 1).clone(memory_format=torch.contiguous_format)
            elif kind == "like":
                y = y + torch.zeros_like(y.cos())
            else:
                y = getattr(y, kind)()
        return y.cos(), y, y.double().to(dtype=y.dtype).sin()

    return f, (x,)


@for_passes("drop_idle_view", "merge_reshapes", "merge_permutes", "merge_expands", "merge_slices")
def views(draw: Draw):
    x = tensor(draw, *shape(draw, 3, 2))
    dim, turn = dim_of(draw, 3), draw(st.permutations(range(3)))
    kinds = [pick(draw, "reshape", "permute", "transpose", "unsqueeze", "squeeze", "expand", "slice") for _ in range(5)]
    choices = [(draw(st.integers(0, 5)), draw(st.integers(0, 5)), draw(st.permutations(range(6)))) for _ in kinds]

    def f(x):
        y = x.sin()
        for kind, (i, j, order) in zip(kinds, choices, strict=True):
            y = _viewed(y, kind, i, j, order)
        flat, wide = x.tan().reshape(-1), x.cosh().expand(2, *x.shape).expand(3, -1, *x.shape)
        part, turned = x.exp().narrow(dim, 0, 2).narrow(dim, 1, 1), x.transpose(dim, 0).permute(turn)
        return y.cos(), y.sin(), part.cos(), turned.sinh(), wide.sin(), flat.reshape(x.shape[::-1]).exp()

    return f, (x,)


def _viewed(y: Tensor, kind: str, i: int, j: int, order: list[int]) -> Tensor:
    rank = y.dim()
    if kind == "unsqueeze" and rank < 5:
        return y.unsqueeze(i % (rank + 1) - (rank + 1) * (j % 2))
    if rank == 0:
        return y
    i, j = i % rank, j % rank
    if kind == "reshape":
        return y.reshape([n for d, n in enumerate(y.shape) if d != i] + [y.shape[i]])
    if kind == "permute":
        return y.permute([d - rank if d % 2 else d for d in order if d < rank])
    if kind == "transpose":
        return y.transpose(i - rank, j)
    if kind == "squeeze":
        return y.squeeze(i)
    if kind == "expand" and rank < 5:
        return y.expand(1 + j % 2, *y.shape)
    return y.narrow(i, j % y.shape[i], y.shape[i] - j % y.shape[i]) if kind == "slice" else y


@for_passes(
    "drop_relu_of_nonnegative", "drop_repeated", "drop_inverse", "merge_clamps", "reciprocal_of_root", "log_of_softmax",
    "drop_log_of_exp",
)  # fmt: skip
def pointwise(draw: Draw):
    x = tensor(draw, *shape(draw, 2), positive=True)
    unary = ("relu", "exp", "log", "sigmoid", "abs", "neg", "sqrt", "reciprocal", "nan_to_num", "clamp", "softmax")
    kinds = [pick(draw, *unary) for _ in range(4)]
    bounds = [(pick(draw, None, -1.0, 0.0, 0.7), pick(draw, None, 0.5, 2.0)) for _ in kinds]
    axis = dim_of(draw, 2)

    def f(x):
        y = x * 1.5
        for kind, (low, high) in zip(kinds, bounds, strict=True):
            if kind == "clamp":
                low = -3.0 if low is None and high is None else low
                y = torch.clamp(y, low, high) if high is not None else torch.clamp(y, min=low)
            elif kind == "softmax":
                y = torch.softmax(y, dim=axis)
            elif kind in ("sqrt", "log"):
                y = getattr(y.abs() + 0.1, kind)()
            else:
                y = getattr(torch, kind)(y)
        low, high = bounds[0]
        both = torch.clamp(torch.clamp(x, min=0.6, max=high), -1.0 if low is None else low, 3.0)
        twice = F.relu(y.exp()).neg().neg().sin() * torch.abs(input=torch.abs(x)) * both
        return y, twice, x.exp().log().cos(), (x.sqrt().reciprocal() * x.softmax(axis).log()).exp().log()

    return f, (x,)


@for_passes("square", "cube", "power_to_root", "fill_constants", "fold_constants", "drop_nan_to_num_of_finite")
def powers(draw: Draw):
    x = tensor(draw, *shape(draw, 2), positive=True, dtype=pick(draw, torch.float64, torch.float32, torch.bfloat16))
    exponent, factor = pick(draw, 0.5, -0.5, -1, 2, 3, 1.5, 0), pick(draw, 2, 3.0, True)
    low, replaced = pick(draw, 0.0, 1.0, float("inf")), pick(draw, None, 2.0)

    def f(x):
        constant = torch.ones(x.shape, dtype=x.dtype) * factor - torch.zeros_like(x)
        constant = constant * torch.tensor(low) + torch.tensor([factor], dtype=x.dtype)
        clean = torch.nan_to_num(torch.nan_to_num(x / (x - x[:1]), low, posinf=replaced).relu(), nan=0.5)
        both = x.cos() * x.cos() * x.cos(), torch.mul(input=x, other=x), x.sin() * (x.sin() * x.sin())
        return *both, torch.pow(x, exponent) * constant, x**exponent + torch.full((), 1.0).exp(), clean.cos()

    return f, (x,)


PAPER = math.sqrt(2 / math.pi)


@for_passes("gelu_by_tanh", "gelu_by_erf", "silu")
def activations(draw: Draw):
    x = tensor(draw, *shape(draw, 2), dtype=pick(draw, torch.float64, torch.float32, torch.bfloat16))
    root, factor = pick(draw, (PAPER, 0.044715), (PAPER, 0.044715), (0.7978845608, 0.044715), (PAPER, 0.0447))
    cubed = pick(draw, lambda x: x**3, lambda x: x * x * x, lambda x: x.pow(2) * x)
    outer = pick(draw, lambda x, c: 0.5 * x * (1 + c), lambda x, c: x * (0.5 * (c + 1)), lambda x, c: x * (1 + c) / 2)
    inner = pick(draw, lambda x: root * (x + factor * cubed(x)), lambda x: x * root * (1 + factor * x * x))
    argument = pick(draw, lambda x: x / 2**0.5, lambda x: x * 0.5**0.5, lambda x: x / 1.4)
    seen = pick(draw, False, False, False, True)

    def f(x):
        curve = torch.tanh(inner(x))
        gates = outer(x, curve), outer(x, torch.erf(argument(x))), x * torch.sigmoid(x), torch.sigmoid(x.cos()) * x
        return *gates, curve * 2 if seen else x.sin()

    return f, (x,)


@for_passes("relu_behind_pooling")
def poolings(draw: Draw):
    x = tensor(draw, 2, 2, number(draw, 4, 7), number(draw, 4, 7), dtype=pick(draw, torch.float64, torch.float32))
    kernel, stride, dilation = number(draw, 1, 3), pick(draw, None, 1, 2), pick(draw, 1, 1, 2)
    padding, ceil_mode, seen = pick(draw, 0, kernel // 2), pick(draw, True, False), pick(draw, False, False, True)

    def f(x):
        positive = torch.relu(x - 0.5)
        pooled = F.max_pool2d(positive, kernel, stride, padding, 1 if kernel == 3 else dilation, ceil_mode)
        return pooled.sin(), positive.cos() if seen else x.cos()

    return f, (x,)


@for_passes("cross_entropy")
def losses(draw: Draw):
    rows, classes = shape(draw, 2)
    x, target = tensor(draw, rows, classes), torch.arange(rows) % classes
    axis, dim, flat = dim_of(draw, 2), pick(draw, 1, -1), pick(draw, "squeeze", "view", "")
    reduce, early = pick(draw, torch.mean, torch.sum), pick(draw, True, False)

    def f(x, target):
        scores = F.log_softmax(x * 2, dim=axis)
        picked = torch.gather(scores, dim, target.unsqueeze(dim))
        picked = picked.squeeze(dim) if flat == "squeeze" else picked.view(-1) if flat == "view" else picked
        loss = reduce(-picked) if early else -reduce(picked)
        return loss, scores.sin() if flat else loss * 2

    return f, (x, target)


@for_passes("drop_neutral_truth")
def truths(draw: Draw):
    x, truth = tensor(draw, *shape(draw, 2)), pick(draw, True, False)
    combine = pick(draw, torch.logical_and, torch.logical_or, torch.bitwise_and, torch.bitwise_or)

    def f(x):
        return x * combine(x > 0, torch.full((), truth)), combine(torch.full(x.shape, truth), x > 0).sum()

    return f, (x,)


@for_passes("sink_cat", "drop_single_cat", "merge_cats", "stack_to_unsqueeze")
def cats(draw: Draw):
    sizes = shape(draw, 3)
    dim = dim_of(draw, 3)
    parts = [tensor(draw, *sizes, dtype=torch.float64) for _ in range(number(draw, 1, 3))]
    if pick(draw, True, False):
        parts[0] = parts[0].float()
    inner, stacked = dim_of(draw, 3), pick(draw, True, False)

    def f(*parts):
        y = torch.stack(parts, dim=dim) if stacked else torch.cat(parts, dim)
        again = torch.cat([torch.cat([y, y], inner)], dim=0)
        both = torch.cat([torch.cat([y, y], dim=dim), y], dim)
        return again.tanh(), both.reshape(-1).relu(), torch.stack([y], -1).sin()

    return f, tuple(parts)


@for_passes("drop_single_split", "merge_splits", "split_to_unbind", "join_pieces", "join_chunks")
def pieces(draw: Draw):
    rank = number(draw, 1, 4)
    x = tensor(draw, *shape(draw, rank, 1, 6))
    apart, together, again = dim_of(draw, rank), dim_of(draw, rank), dim_of(draw, rank)
    size, kind, order = number(draw, 1, 3), pick(draw, "split", "unbind", "squeeze", "chunk"), pick(draw, 1, -1)
    missing, stacked = pick(draw, True, False), pick(draw, True, False)

    def f(x):
        y = x.sin()
        parts = {
            "split": lambda: y.split(size, dim=apart),
            "chunk": lambda: torch.chunk(y, size, apart),
            "unbind": lambda: torch.unbind(y, apart),
            "squeeze": lambda: [p.squeeze(apart) for p in y.split(1, apart)],
        }[kind]()
        parts = list(parts)[::order]
        parts = parts[1:] if missing and len(parts) > 1 else parts
        whole = _together(parts, together, stacked)
        nested = [q.cos() for p in y.split(size, again) for q in torch.split(p, [1] * p.shape[again], dim=again)]
        chunks = y.chunk(2, apart)
        alike = len({p.shape for p in chunks}) == 1
        flat = torch.stack([p.reshape(-1, 1) for p in chunks], together % 2) if alike else y
        return whole.cos(), *nested, flat.tanh(), _together([*parts, parts[0]], 0, stacked).sin()

    return f, (x,)


def _together(parts: list[Tensor], dim: int, stacked: bool) -> Tensor:
    rank = parts[0].dim()
    equal = all(p.shape == parts[0].shape for p in parts)
    if (stacked and equal) or rank == 0:
        return torch.stack(parts, dim=dim % (rank + 1))
    fits = all(p.shape[d] == parts[0].shape[d] for p in parts for d in range(rank) if d != dim % rank)
    return torch.cat(parts, dim=dim % rank) if fits else parts[0]


@for_passes("share_equal_values")
def repeated(draw: Draw):
    x = tensor(draw, *shape(draw, 2, 2, 3))
    steps = [pick(draw, "sin", "cos", "sum", "split") for _ in range(6)]

    def f(x):
        out = []
        for step in steps:
            y = x * 2
            out.append(torch.split(y, 1, 1)[0] if step == "split" else getattr(y, step)())
        return [*out, out[0] * out[-1].sum()]

    return f, (x,)


@for_passes("reassociate_left", "reassociate_right", "merge_linears", "join_split_linears")
def products(draw: Draw):
    m, k, n, p = pick(draw, (1, 30, 30, 30), (30, 1, 30, 1), (30, 30, 1, 30), (2, 3, 4, 5), (30, 2, 30, 2))
    x, y, z = (torch.randn(*s, dtype=torch.float64) for s in ((m, k), (k, n), (n, p)))
    b, c = torch.randn(n, dtype=torch.float64), torch.randn(p, dtype=torch.float64)
    cut = number(draw, 0, k)

    def f(x, y, z, b, c):
        split = x[:, :cut] @ y[:cut] + x[:, cut:] @ y[cut:]
        return (
            x @ y @ z,
            x @ (y @ z),
            torch.addmm(c, torch.addmm(b, x, y), z),
            torch.addmm(b, x[:, :cut], y[:cut]),
            split,
        )

    return f, (x, y, z, b, c)


@for_passes("transpose_of_product", "transpose_into_product", "transpose_into_linear")
def transposes(draw: Draw):
    batch, m, k, n = shape(draw, 4, pick(draw, 2, 2, 1))
    x, y = (tensor(draw, *s, dtype=torch.float64) for s in ((batch, k, m), (batch, n, k)))
    w, b = torch.randn(n, m, dtype=torch.float64), torch.randn(n, dtype=torch.float64)
    turn, biased = pick(draw, (0, 2, 1), (0, -1, 1), (1, 2, 0)), pick(draw, True, False)

    def f(x, y, w, b):
        a, c, fixed = x.sin(), y.cos(), torch.arange(n * m, dtype=x.dtype).reshape(n, m).sin()
        both = torch.bmm(a.transpose(1, 2), c.permute(0, 2, 1)).transpose(-1, 1)
        single = (a[0].t() @ c[0].t()).t().sum(0)
        copied = torch.bmm(a.mT.contiguous(), c.transpose(1, 2).contiguous()), a[0].t().contiguous() @ c[0].t()
        linear = F.linear(a.contiguous(), fixed, b if biased else None).permute(turn).contiguous()
        return both.sum((0, 1)), single, *copied, linear.sin(), torch.addmm(b, a[0], w.sin().t().contiguous())

    return f, (x, y, w, b)


@for_passes("compress_product_of_cat")
def compressed(draw: Draw):
    rank, many, few = number(draw, 1, 3), number(draw, 8, 40), number(draw, 1, 4)
    u, v, w, y = ((many, rank), (rank, many), (many, pick(draw, many, few)), (2 * many, few))
    dim, batched, swap = pick(draw, 0, 1, -1, -2), pick(draw, True, False), pick(draw, 1, -1)

    def f(u, v, w, y):
        u, v, w, y = (t.expand(2, *t.shape) for t in (u, v, w, y)) if batched else (u, v, w, y)
        rows = dim % 2 == 0 and w.shape[-1] == many
        whole = torch.cat([u @ v, w][::swap], dim=(dim if rows else 1) % 2 + batched)
        return whole @ y[..., : whole.shape[-1], :], (u @ v).sin() if few > 3 else y.cos()

    return f, tuple(torch.randn(*size, dtype=torch.float64) for size in (u, v, w, y))


@for_passes("thin_product_to_pointwise")
def thin(draw: Draw):
    a, b, c, d = shape(draw, 4)
    dtype = pick(draw, torch.float32, torch.float64)
    x, w = tensor(draw, a, b, c, dtype=dtype), tensor(draw, a, b, c, d, dtype=dtype)

    def f(x, w):
        return torch.einsum("abc,abcd->abd", x, w), torch.einsum("abc,abcd->ad", x, w)

    return f, (x, w)


@for_passes("reduce_before_expand", "scale_after_reduction")
def reductions(draw: Draw):
    x = tensor(draw, *shape(draw, 2))
    times, keep = number(draw, 1, 50), pick(draw, True, False)
    dims = draw(st.lists(st.integers(0, 2), min_size=1, unique=True))
    dims = [d - 3 if pick(draw, True, False) else d for d in dims]
    reduce = pick(draw, torch.sum, torch.mean)

    def f(x):
        y = x.sin().expand(times, *x.shape)
        return reduce(y, dims, keepdim=keep), reduce(x.cos() * 3, dim=0, keepdim=keep), reduce(x.tan() * 2)

    return f, (x,)


@for_passes("fuse_parallel_linears", "batch_linears", "batch_layer_norms", "batch_pointwise")
def groups(draw: Draw):
    m, k = shape(draw, 2)
    dtype = pick(draw, torch.float32, torch.float64)
    x, y = tensor(draw, m, k, dtype=dtype), tensor(draw, m, k, dtype=dtype)
    sizes = [pick(draw, k, number(draw, 1, 4)) for _ in range(3)]
    weights = [tensor(draw, n, k, dtype=dtype) for n in sizes]
    biases = [torch.randn(n, dtype=dtype) for n in sizes]
    eps, biased = pick(draw, 1e-5, 1e-2), pick(draw, True, False)

    def f(x, y, *rest):
        weights, biases = rest[:3], rest[3:]
        q, k, v = (F.linear(x, w, b if biased else None) for w, b in zip(weights, biases, strict=True))
        both = F.linear(x, weights[0], biases[0]) * F.linear(y, weights[0], biases[0])
        normed = F.layer_norm(x, x.shape[1:]) * F.layer_norm(y, y.shape[1:], eps=eps)
        equal = (x.sigmoid() * y.sigmoid()).sum() + (torch.clamp(x, 0.1) * torch.clamp(y, min=0.1)).sum()
        return (
            (q.sum(1) * k.sum(1) * v.sum(1)).sum() + both.sum() + equal,
            normed.tanh() + y.tanh().double(),
            k.clamp(0.1),
        )

    return f, (x, y, *weights, *biases)
