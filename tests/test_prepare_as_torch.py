"""Programs like those that PyTorch tests its own passes with: equal results, and our pass acts where theirs does.

After test_split_cat_fx_passes, test_group_batch_fusion and test_fx_fusion; convolutions with batch norm are in
test_prepare_convolutions.py.
"""

import pytest
import torch
import torch.nn.functional as F

from preparing import assert_as_eager, aten_graph, prepared


def cat(parts, dim=1):
    return torch.cat(list(parts), dim)


def split_again(x, first, index, second, dim=1):
    parts = list(x.sin().split(first, 1))
    parts[index : index + 1 or None] = parts[index].split(second, dim)
    return [part.cos() for part in parts]


def pieces_twice(x):
    parts = x.sin().split([2, 4, 6], 1)
    return [part.cos() for part in (*parts[1].split(2, 1), *parts[1].split([1, 3], 1), parts[0])]


SPLITS = {
    # how a call is spelled
    "split, size": ("join_pieces", lambda x: cat(torch.split(x.sin(), 4, dim=1)).cos(), True),
    "split, method": ("join_pieces", lambda x: cat(x.sin().split(4, 1)).cos(), True),
    "split, sections": ("join_pieces", lambda x: cat(torch.split(x.sin(), [2, 4, 6], dim=-2), -2).cos(), True),
    "split, keywords": ("join_pieces", lambda x: cat(x.sin().split(split_size=4, dim=1)).cos(), True),
    "split, all keywords": (
        "join_pieces",
        lambda x: cat(torch.split(tensor=x.sin(), split_size_or_sections=4, dim=1)).cos(),
        True,
    ),
    "sizes and dims that are computed": (  # pytorch#124629
        "join_pieces",
        lambda x: cat(torch.split(x.sin(), x.shape[1] // 3, dim=x.dim() - 2), x.ndim - 2).cos(),
        True,
    ),
    "chunk": ("join_pieces", lambda x: cat(x.sin().chunk(3, 1)).cos(), True),
    "concat": ("join_pieces", lambda x: torch.concat(x.sin().split(4, 1), axis=1).cos(), True),
    # splits of splits
    "split twice": ("merge_splits", lambda x: split_again(x, 4, 0, 2), True),
    "split twice, the last": ("merge_splits", lambda x: split_again(x, [2, 4, 6], -1, [1, 5]), True),
    "split twice, another dim": ("merge_splits", lambda x: split_again(x, 4, 0, 1, dim=2), False),
    "split twice, one piece of two splits": ("merge_splits", pieces_twice, False),
    "single split": ("drop_single_split", lambda x: x.sin().split(12, 1)[0].cos(), True),
    # splits and cats
    "some pieces": ("join_pieces", lambda x: cat(x.sin().split(2, 1)[1:4]).cos(), True),
    "pieces out of order": ("join_pieces", lambda x: cat(x.sin().split(4, 1)[::-1]).cos(), False),
    "a piece twice": ("join_pieces", lambda x: cat((p := x.sin().split(4, 1))[:1] * 2 + p[1:]).cos(), True),
    "a piece read elsewhere": ("join_pieces", lambda x: [cat(p := x.sin().split(4, 1)).cos(), p[1].tan()], True),
    "other operands": ("join_pieces", lambda x: cat([x.cos(), *x.sin().split(4, 1), x.tan()]).cos(), True),
    "another dim": ("join_chunks", lambda x: cat(x.sin().split(4, 1), 2).cos(), True),
    "stack": ("join_chunks", lambda x: torch.stack(x.sin().split(4, 1), 1).cos(), True),
    "stack, another dim": ("join_chunks", lambda x: torch.stack(x.sin().split(4, 1), 3).cos(), True),
    "some pieces, another dim": ("join_chunks", lambda x: cat(x.sin().split(2, 1)[1:4], 2).cos(), True),
    # unbind
    "squeezed pieces": ("split_to_unbind", lambda x: [p.squeeze(1).cos() for p in x.sin().split(1, 1)], True),
    "squeezed along another dim": (
        "split_to_unbind",
        lambda x: [p.squeeze(0).cos() for p in x[:1].sin().split(1, 1)],
        False,
    ),
    "unbind, stack": ("join_pieces", lambda x: torch.stack(x.sin().unbind(1), 1).cos(), True),
    "unbind, stack, another dim": ("join_pieces", lambda x: torch.stack(x.sin().unbind(1), 2).cos(), True),
    "unbind, cat": ("join_pieces", lambda x: torch.cat(x.sin().unbind(1), 1).cos(), True),
    "unbind, some": ("join_pieces", lambda x: torch.stack(x.sin().unbind(1)[2:5], 1).cos(), True),
    "unbind, other operands": ("join_pieces", lambda x: torch.stack([x[:, 0], *x.sin().unbind(1)], 1).cos(), True),
    "stack of one": ("stack_to_unsqueeze", lambda x: torch.stack([x.sin()], 1).cos(), True),
    "cats of cats": ("merge_cats", lambda x: cat([cat([x.sin(), x.cos()]), x.tan()]).cos(), True),
    "cats of cats, another dim": ("merge_cats", lambda x: cat([cat([x.sin(), x.cos()]), cat([x, x])], 2).cos(), False),
    # elementwise calls of a cat
    "relu of a cat": ("sink_cat", lambda x: torch.cat([x.sin(), x.cos()], 1).relu(), True),
    "tanh of a cat, keywords": ("sink_cat", lambda x: torch.cat(tensors=[x.sin(), x.cos()], dim=1).tanh(), True),
    "tanh of a viewed cat": ("sink_cat", lambda x: torch.tanh(torch.cat((x, x.cos()), dim=-1).view(2, -1)), True),
    "relu of a cat that is returned": ("sink_cat", lambda x: [y := torch.cat([x.sin(), x]), F.relu(y)], True),
}


@pytest.mark.parametrize("name", SPLITS)
def test_pieces(name):
    """The last entry says whether our pass acts: not where as much would be copied as before, which theirs may do."""
    rule, function, acts = SPLITS[name]
    inputs = (torch.randn(2, 12, 3, dtype=torch.float64),)
    graph, report = prepared(aten_graph(function, inputs), inputs, f"{rule}!")

    assert_as_eager(function, inputs, graph)
    assert acts == bool(report.applied[rule])


def linears(x, *weights):
    return sum(F.linear(x, w, w[:, 0]).tanh().sum(1) for w in weights)


def separate_linears(x, *weights):
    return sum(F.linear(x[i : i + 4], w, w[:, 0]).tanh() for i, w in enumerate(weights))


def norms(x, *weights):
    return sum(F.layer_norm(w, w.shape[1:], w[0], w[1], eps=1e-3) for w in weights)


GROUPS = {
    "linear maps of one input": ("fuse_parallel_linears", linears, True),
    "linear maps": ("batch_linears", separate_linears, True),
    "layer norms": ("batch_layer_norms", norms, True),
    "tanh": ("batch_pointwise", lambda x, *w: torch.stack([v.tanh() for v in w]).sum(0), True),
    "relu": ("batch_pointwise", lambda x, *w: sum(F.relu(v) for v in w), True),
    "nan_to_num": ("batch_pointwise", lambda x, *w: sum(torch.nan_to_num(v, 1.0) for v in w), True),
    "clamp": ("batch_pointwise", lambda x, *w: sum(torch.clamp(v, -0.1, 0.1) for v in w), True),
    "relu of other types": ("batch_pointwise", lambda x, a, b, *w: a.relu() + b.float().relu(), False),
    "one after another": ("batch_linears", lambda x, a, b, *w: F.linear(F.linear(a, b), a), False),
    "dropout in evaluation": ("drop_copy", lambda x, *w: sum(F.dropout(v, 0.1, False) * v for v in w), False),
    "permute of a linear map": (
        "transpose_of_product",
        lambda x, a, *w: (x[:4].sin().t() @ a.cos().t()).t().sum(0),
        True,
    ),
    "linear map of a permute": (
        "transpose_into_linear",
        lambda x, a, b, *w: F.linear(torch.stack([a, b]).sin().permute(0, 2, 1), a),
        False,  # ATen itself multiplies the members as they lie
    ),
    "linear map, then permute and copy": (
        "transpose_into_linear",
        lambda x, a, b, *w: F.linear(torch.stack([a, b]).sin(), a, a[0]).permute(0, 2, 1).contiguous().cos(),
        True,
    ),
    "product of a permute": (
        "transpose_into_product",
        lambda x, a, b, *w: torch.matmul(torch.stack([a, b]).permute(0, 2, 1).contiguous(), torch.stack([b, a])),
        True,
    ),
    "einsum": (
        "thin_product_to_pointwise",
        lambda x, a, *w: torch.einsum("ab,abc->ac", a, torch.stack([a] * 4, 1)),
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_groups(name):
    rule, function, acts = GROUPS[name]
    inputs = tuple(torch.randn(size, 4, dtype=torch.float64) for size in (9, 4, 4, 4, 4, 4))
    graph, report = prepared(aten_graph(function, inputs), inputs, f"{rule}!")

    assert_as_eager(function, inputs, graph)
    assert acts == bool(report.applied[rule])
