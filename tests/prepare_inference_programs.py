"""Random programs for the passes of inference, and for those whose programs are not plain functions of tensors.

`INFERENCE[name](draw)` gives a function, its inputs, and how many of these, from the last, are weights.
"""

from collections.abc import Callable

import torch
import torch.ao.quantization.fx._decomposed
import torch.nn.functional as F
from hypothesis import strategies as st

from prepare_programs import Draw, number, pick, shape, tensor

INFERENCE: dict[str, Callable] = {}


def for_passes(*names: str) -> Callable:
    def enter(make: Callable) -> Callable:
        INFERENCE.update(dict.fromkeys(names, make))
        return make

    return enter


def kind(draw: Draw) -> torch.dtype:
    return pick(draw, torch.float32, torch.float32, torch.float64)


def normalized(y: torch.Tensor, scale, shift, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    """By frozen statistics, as capture writes it."""
    statistics = mean.detach(), var.detach()  # which have no derivative
    return torch.ops.aten._native_batch_norm_legit_no_training(y, scale, shift, *statistics, momentum=0.1, eps=0.1)[0]


@for_passes("pack_convolutions", "convolve_channels_last", "fold_batch_norm")
def convolutions(draw: Draw):
    dtype, groups, rank = kind(draw), number(draw, 1, 3), pick(draw, 2, 2, 2, 1, 3)
    inputs, outputs = groups * number(draw, 1, 3), groups * number(draw, 1, 5)
    size = [number(draw, 5, 9) for _ in range(rank)]
    window = [number(draw, 1, 3) for _ in range(rank)]
    settings = {
        "stride": pick(draw, 1, 2, [number(draw, 1, 2) for _ in range(rank)]),
        "padding": pick(draw, 0, 1, "same"),
        "dilation": number(draw, 1, 2),
        "groups": groups,
    }
    if settings["padding"] == "same":
        settings["stride"] = 1
    convolve = getattr(F, f"conv{rank}d")
    x = tensor(draw, number(draw, 1, 3), inputs, *size, dtype=dtype)
    weights = [
        tensor(draw, outputs, inputs // groups, *window, dtype=dtype),
        torch.randn(outputs, dtype=dtype),
        torch.rand(outputs, dtype=dtype) + 0.5,
        torch.randn(outputs, dtype=dtype),
    ]
    biased, affine, returned = (pick(draw, True, False) for _ in range(3))

    def f(x, weight, bias, var, mean):
        y = convolve(x, weight, bias if biased else None, **settings)
        z = normalized(y, var if affine else None, bias, mean, var).relu()
        other = convolve(input=x.flip(-1), weight=weight, **settings)
        pooled = (other.softmax(1) + z).flatten(2).mean(-1)
        return (pooled, y, z.transpose(1, -1)) if returned else (pooled, z.sum(1))

    return f, (x, *weights), len(weights)


@for_passes("pack_linears", "fuse_parallel_linears", "fold_batch_norm_of_linear")
def linears(draw: Draw):
    dtype = kind(draw)
    rows, k = number(draw, 1, 5), number(draw, 1, 9)
    sizes = [pick(draw, k, number(draw, 1, 9)) for _ in range(3)]
    x = tensor(draw, rows, k, dtype=dtype)
    matrices = [tensor(draw, n, k, dtype=dtype) for n in sizes]
    vectors = [torch.rand(n, dtype=dtype) + 0.5 for n in sizes]
    biased, batched = pick(draw, True, False), pick(draw, True, False)

    def f(x, *weights):
        matrices, vectors = weights[:3], weights[3:]
        y = x.unsqueeze(0) if batched else x
        a, b, c = (F.linear(y, m, v if biased else None) for m, v in zip(matrices, vectors, strict=True))
        normed = normalized(F.linear(x, matrices[0], vectors[0]), None, None, vectors[0], vectors[0])
        back = torch.addmm(x[:1], F.linear(x, matrices[2]).relu(), matrices[2], beta=2)
        return a.relu().sum(-1) * b.sin().sum(-1), c, normed.tanh(), back, x.t() @ normed

    return f, (x, *matrices, *vectors), 6


@for_passes("gumbel_max")
def choices(draw: Draw):
    x = tensor(draw, *shape(draw, 2, 2, 5))
    softmax, dim = number(draw, -2, 1), pick(draw, -1, 0, 1, None)
    rate, keep = pick(draw, 1.0, 2.0), pick(draw, True, False)

    def f(x):
        noise = torch.ops.aten.exponential(torch.empty_like(x), rate)
        return torch.argmax(x.softmax(softmax) / noise, dim, keepdim=keep), x.softmax(0).argmax(0)

    return f, (x,), 0


@for_passes("quantize_before_view")
def quantized(draw: Draw):
    x = tensor(draw, *shape(draw, 2), dtype=torch.float32)
    views = draw(
        st.lists(st.sampled_from(["view", "permute", "transpose", "unsqueeze", "sin"]), min_size=1, max_size=3)
    )
    scale, zero = pick(draw, 0.1, 0.5), number(draw, 0, 3)

    def f(x):
        y = x * 2
        for view in views:
            y = _seen(y, view)
        quantize = torch.ops.quantized_decomposed.quantize_per_tensor
        return y.sum(), quantize(y, scale, zero, 0, 255, torch.uint8)

    return f, (x,), 0


def _seen(y: torch.Tensor, view: str) -> torch.Tensor:
    if view == "view":
        return y.reshape(-1, y.shape[-1])
    if view == "permute":
        return y.permute(*reversed(range(y.dim())))
    return {"transpose": lambda: y.transpose(0, -1), "unsqueeze": lambda: y.unsqueeze(1), "sin": y.sin}[view]()
