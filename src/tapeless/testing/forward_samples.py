"""Calls of operators for which eager has no forward mode. Tensors that require a gradient are those that move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from tapeless.testing.derivatives import Call

aten = torch.ops.aten


@dataclass(frozen=True)
class Sample:
    """A call of `op`, or of a function that calls it with what else it is to be given."""

    op: OpOverload
    call: Call
    reference: Callable[..., Any] | None = None  # the same function in double precision, if `op` has none
    is_slope: bool = True  # of the function; a straight-through estimator is not, nor that of random numbers


def x(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """A tensor that moves."""
    return fixed(*shape, seed=seed).to(dtype).requires_grad_()


def fixed(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def positive(*shape: int, seed: int = 0) -> torch.Tensor:
    return (fixed(*shape, seed=seed).abs() + 0.5).requires_grad_()


def plain(op: OpOverload, *args: Any, **kwargs: Any) -> Sample:
    return Sample(op, Call(op, args, kwargs))


def of(op: OpOverload, function: Callable[..., Any], *args: Any, **how: Any) -> Sample:
    """`function` gives `op` what follows from the arguments: statistics, results of a forward."""
    return Sample(op, Call(function, args, {}), **how)


def samples() -> list[Sample]:
    """All of them, family by family."""
    families = (_attention, _distances, _pictures, _losses, _sequences, _embeddings, _norms, _pointwise, _matrices)
    return [sample for family in (*families, _convolutions, _quantized, _special) for sample in family()]


# -- layers --------------------------------------------------------------------------------------------------------


def _attention() -> list[Sample]:
    flash = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    query, key, value = x(2, 4, 3, 8), x(2, 2, 5, 8, seed=1), x(2, 2, 5, 8, seed=2)
    mask = torch.eye(3, dtype=torch.bool)

    def pull_back(g: Any, query: Any, key: Any, value: Any) -> Any:
        return backward(g, query, key, value, *flash(query, key, value, 0.0, True), 0.0, True)

    def grouped(a: Any, b: Any, ends: Any) -> Any:
        return torch.cat([a[:4] @ b[0], a[4:] @ b[1]])

    half, ends = torch.bfloat16, torch.tensor([4, 8], dtype=torch.int32)
    products = aten._grouped_mm.default
    return [
        plain(flash, query, key, value, scale=0.7),
        plain(flash, query, key, value, 0.0, True),
        of(backward, pull_back, x(2, 4, 3, 8, seed=3), query, key, value),
        plain(aten._masked_softmax.default, x(2, 2, 3, 3), mask.expand(2, 2, 3, 3)),
        plain(aten._masked_softmax.default, x(3, 3), mask, 1),
        of(products, products, x(8, 8, dtype=half), x(2, 8, 8, seed=1, dtype=half), ends, reference=grouped),
    ]


def _distances() -> list[Sample]:
    def between(g: Any, a: Any, b: Any) -> Any:
        return aten._cdist_backward(g, a, b, 3.0, aten._cdist_forward(a, b, 3.0, None))

    def within(g: Any, a: Any) -> Any:
        return aten._pdist_backward(g, a, 3.0, aten._pdist_forward(a, 3.0))

    points, others = x(3, 4), x(5, 4, seed=1)
    return [
        *(plain(aten._cdist_forward.default, points, others, p, None) for p in (1.0, 2.0, 3.0)),
        *(plain(aten._pdist_forward.default, points, p) for p in (1.0, 2.0, 3.0)),
        of(aten._cdist_backward.default, between, x(3, 5, seed=2), points, others),
        of(aten._pdist_backward.default, within, x(3, seed=2), points),
        plain(aten._euclidean_dist.default, points, others),
    ]


def _pictures() -> list[Sample]:
    picture, grid = x(2, 3, 4, 5), (fixed(2, 3, 2, 2) * 0.4).requires_grad_()
    volume, places = x(1, 2, 3, 4, 3), (fixed(1, 2, 2, 2, 3) * 0.4).requires_grad_()
    flat, solid = aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default
    return [
        *(plain(aten.grid_sampler_2d.default, picture, grid, mode, 0, False) for mode in (0, 1, 2)),
        *(plain(aten.grid_sampler_3d.default, volume, places, mode, 1, True) for mode in (0, 1)),
        *(plain(flat, x(2, 3, 3, 2), picture, grid, mode, 0, False, [True, True]) for mode in (0, 2)),
        plain(solid, x(1, 2, 2, 2, 2), volume, places, 0, 0, False, [True, True]),
        plain(aten.native_channel_shuffle.default, x(2, 6, 3, 3), 2),
    ]


def _embeddings() -> list[Sample]:
    indices, offsets, count = torch.tensor([1, 0, 2, 2, 3]), torch.tensor([0, 2, 4]), 4
    sums = aten._embedding_bag(fixed(4, 3), indices, offsets, mode=0)
    return [
        plain(aten._embedding_bag.default, x(4, 3), indices, offsets, mode=1),
        plain(aten._embedding_bag.default, x(4, 3), indices, offsets, mode=2),
        plain(aten._embedding_bag.default, x(4, 3), indices, offsets, mode=0, per_sample_weights=x(5, seed=1)),
        plain(
            aten._embedding_bag_backward.default, x(3, 3), indices, offsets, *sums[1:], count, False, 0, False, x(5)
        ),
        plain(
            aten._embedding_bag_per_sample_weights_backward.default, x(3, 3), x(4, 3), indices, offsets, sums[1], 0
        ),
    ]  # fmt: skip


def _norms() -> list[Sample]:
    def group_norm(g: Any, a: Any, weight: Any) -> Any:
        statistics = aten.native_group_norm(a, weight, None, 2, 6, 5, 3, 1e-5)[1:]
        return aten.native_group_norm_backward(g, a, *statistics, weight, 2, 6, 5, 3, [True] * 3)

    def weight_norm(g: Any, v: Any, gain: Any) -> Any:
        return aten._weight_norm_interface_backward(g, v, gain, aten._weight_norm_interface(v, gain)[1], 0)

    return [
        of(aten.native_group_norm_backward.default, group_norm, x(2, 6, 5), x(2, 6, 5, seed=1), x(6, seed=2)),
        plain(aten._weight_norm_interface.default, x(3, 4), x(3, 1, seed=1)),
        of(aten._weight_norm_interface_backward.default, weight_norm, x(3, 4), x(3, 4, seed=1), x(3, 1, seed=2)),
        plain(aten.native_dropout_backward.default, x(3, 4), torch.eye(3, 4, dtype=torch.bool), 2.0),
    ]


def _convolutions() -> list[Sample]:
    picture, kernel, bias = x(2, 3, 6, 5), x(4, 3, 3, 3, seed=1), x(4, seed=2)
    volume, cube = x(1, 2, 4, 4, 4), x(3, 2, 2, 2, 2, seed=1)
    rest = [2, 2], [1, 1]
    return [
        plain(aten.conv_tbc.default, x(5, 2, 3), x(3, 3, 4, seed=1), x(4, seed=2), 1),
        plain(aten._slow_conv2d_forward.default, picture, kernel, [3, 3], bias, *rest),
        plain(aten._slow_conv2d_backward.output_mask, x(2, 4, 3, 3), picture, kernel, [3, 3], *rest, [True] * 3),
        plain(aten.slow_conv3d_forward.default, volume, cube, [2] * 3, x(3, seed=2), [1] * 3, [1] * 3),
        plain(aten.slow_conv_dilated2d.default, picture, kernel, [3, 3], bias, *rest, [2, 1]),
        plain(aten.slow_conv_dilated3d.default, volume, cube, [2] * 3, x(3, seed=2), [1] * 3, [1] * 3, [2, 1, 1]),
        plain(aten.slow_conv_transpose2d.default, picture, x(3, 4, 3, 3, seed=1), [3, 3], bias, *rest),
        plain(aten.slow_conv_transpose3d.default, volume, x(2, 3, 2, 2, 2), [2] * 3, x(3, seed=2), [2] * 3),
    ]


# -- losses --------------------------------------------------------------------------------------------------------


def _losses() -> list[Sample]:
    classes, labels = torch.tensor([1, 0, 3]), torch.tensor([[1, 3, -1, 0], [0, -1, 2, 1], [2, 1, 0, -1]])
    signs = fixed(3, 4, seed=5).sign()
    is_target = aten.multilabel_margin_loss_forward(fixed(3, 4), labels, 1)[1]
    return [
        plain(aten.huber_loss_backward.default, x(), x(3, 4), x(3, 4, seed=1), 1, 0.7),
        plain(aten.soft_margin_loss_backward.default, x(), x(3, 4), signs, 1),
        plain(aten.multi_margin_loss.default, x(3, 4), classes, 2, 1.0, None, 0),
        plain(aten.multi_margin_loss_backward.default, x(3), fixed(3, 4), classes, 2, 1.0, None, 0),
        plain(aten.multilabel_margin_loss_forward.default, x(3, 4), labels, 1),
        plain(aten.multilabel_margin_loss_backward.default, x(), x(3, 4), labels, 1, is_target),
    ]


def _sequences() -> list[Sample]:
    targets, lengths = torch.tensor([[1, 2, 2], [3, 1, 0]]), ([5, 4], [3, 2])
    given = tuple(map(torch.tensor, lengths))
    data, segments = x(6, 2), torch.tensor([2, 3, 1])

    probabilities = fixed(5, 2, 4).log_softmax(-1)
    loss_backward = aten._ctc_loss_backward.default
    found = aten._ctc_loss(probabilities, targets, *lengths)
    return [
        plain(loss_backward, x(2), probabilities, targets, *lengths, *found, 0),
        plain(aten._ctc_loss_backward.Tensor, x(2), probabilities, targets, *given, *found, 0),
        *(plain(aten.segment_reduce.default, data, how, lengths=segments) for how in ("sum", "mean", "max", "prod")),
        *_recurrent(),
    ]


def _recurrent() -> list[Sample]:
    weights = [x(12, 4, seed=1), x(12, 3, seed=2), x(12, seed=3), x(12, seed=4)]
    state, cell = x(1, 2, 3, seed=5), x(1, 2, 3, seed=6)

    def layer(a: Any, *rest: Any) -> Any:
        *weights, state, cell = rest
        return aten.mkldnn_rnn_layer(a, *weights, state, cell, False, [], 2, 3, 1, True, False, False, True)[:3]

    def reference(a: Any, *rest: Any) -> Any:
        *weights, state, cell = rest
        return torch.lstm(a, [state, cell], weights, True, 1, 0.0, True, False, False)

    inputs = [t.detach().float().requires_grad_() for t in (x(5, 2, 4), *weights, state, cell)]
    return [of(aten.mkldnn_rnn_layer.default, layer, *inputs, reference=reference)]


# -- functions of numbers and matrices -----------------------------------------------------------------------------


def _pointwise() -> list[Sample]:
    noise = torch.full((3, 4), 0.2, dtype=torch.float64)
    index = torch.tensor([0, 2, 0])
    return [
        plain(aten.copy.default, x(3, 4), x(4, seed=1)),
        plain(aten.hardsigmoid_backward.default, x(3, 4), x(3, 4, seed=1)),
        plain(aten.heaviside.default, torch.eye(3, dtype=torch.float64), x(3, 3)),
        plain(aten.logit_backward.default, x(3, 4), fixed(3, 4).sigmoid().requires_grad_()),
        plain(aten.mish_backward.default, x(3, 4), x(3, 4, seed=1)),
        plain(aten.silu_backward.default, x(3, 4), x(3, 4, seed=1)),
        plain(aten.rrelu_with_noise_functional.default, x(3, 4), noise, 0.1, 0.3, False),
        *(plain(aten.index_reduce.default, x(3, 4), 0, index, x(3, 4, seed=1), how) for how in _REDUCTIONS),
        plain(aten._foreach_pow.ScalarAndTensor, 2.5, [x(3), x(2, 2)]),
    ]


_REDUCTIONS = ("mean", "prod", "amax", "amin")


def _matrices() -> list[Sample]:
    def root(a: Any) -> Any:
        return aten.cholesky(a @ a.mT + torch.eye(3, dtype=a.dtype))

    return [
        of(aten.cholesky.default, root, x(3, 3)),
        plain(aten.ormqr.default, x(4, 3), x(3, seed=1), x(4, 2, seed=2)),
        plain(aten._foreach_mm.default, [x(3, 4), x(2, 2)], [x(4, 2, seed=1), x(2, 5, seed=1)]),
    ]


def _quantized() -> list[Sample]:
    tensor, channels = aten.fake_quantize_per_tensor_affine_cachemask, aten.fake_quantize_per_channel_affine_cachemask
    given = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default
    learnable = aten._fake_quantize_learnable_per_tensor_affine.default
    learnable_channels = aten._fake_quantize_learnable_per_channel_affine.default
    scale, zero = torch.tensor([0.1]), torch.tensor([3])
    scales, zeros = torch.tensor([0.1, 0.2, 0.05]), torch.tensor([0, 1, -1])

    def through(op: OpOverload, *args: Any) -> Sample:
        return Sample(op, Call(op, args, {}), is_slope=False)

    def single(*values: float) -> torch.Tensor:
        return torch.tensor(values).requires_grad_()

    data = x(3, 4, dtype=torch.float32)
    return [
        through(tensor.default, data, 0.1, 3, -8, 7),
        through(given, data, scale, zero.int(), torch.ones(1, dtype=torch.int64), -8, 7),
        through(channels.default, data, scales, zeros.int(), 0, -8, 7),
        through(learnable, data, single(0.1), single(3.0), -8, 7),
        through(learnable_channels, data, single(0.1, 0.2, 0.05), single(0.0, 1.0, -1.0), 0, -8, 7),
    ]


def _special() -> list[Sample]:
    return [
        plain(aten.igamma.default, positive(3).detach(), positive(3, seed=1)),
        plain(aten.igammac.default, positive(3).detach(), positive(3, seed=1)),
        plain(aten.special_zeta.default, positive(3).detach() + 1, positive(3, seed=1)),
        plain(aten.special_zeta.self_scalar, 2.5, positive(3)),
        of(aten._standard_gamma.default, aten._standard_gamma.default, positive(3, 4), is_slope=False),
    ]
