"""Calls of layers' and losses' kernels that no OpInfo sample makes."""

import torch
from torch import nn
from torch._ops import OpOverload

from tapeless.testing.samples import Call, _Recorder

aten = torch.ops.aten


def x(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def call(op: OpOverload, *args, **kwargs) -> Call:
    return Call(op, args, kwargs, "the table of fused operators")


def recorded(op: OpOverload, function, *args) -> list[Call]:
    """The calls of `op` that a function makes, with its backward."""
    recorder = _Recorder(str(op))
    with recorder:
        function(*args).sum().backward()
    return [c for c in recorder.calls if c.op is op]


def lstm(**how) -> list[Call]:
    layer = nn.LSTM(4, 3, **how)
    return recorded(aten.mkldnn_rnn_layer.default, lambda t: layer(t)[0], torch.randn(2, 5, 4, requires_grad=True))


def attention_backward() -> list[Call]:
    op = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return recorded(op, nn.functional.scaled_dot_product_attention, QUERY.detach().requires_grad_(), KEY, VALUE)


def weight_norm_backward() -> list[Call]:
    op = aten._weight_norm_interface_backward.default
    return recorded(op, torch._weight_norm, x(3, 4).requires_grad_(), x(3, 1, seed=1))


QUERY, KEY, VALUE = x(2, 4, 3, 8), x(2, 4, 5, 8, seed=1), x(2, 4, 5, 8, seed=2)
MASK = torch.tensor([0.0, 0.0, -torch.inf, 0.5, 0.0], dtype=torch.float64).expand(3, 5)
GROUPS = torch.tensor([4, 8], dtype=torch.int32)
MEAN, VARIANCE = x(3, seed=3), x(3, seed=4).abs() + 0.5
IMAGES, VOLUMES = x(2, 3, 4, 5), x(2, 3, 4, 5, 3)

attention = aten._scaled_dot_product_flash_attention_for_cpu.default

FUSED = [
    # attention
    call(attention, QUERY, KEY, VALUE),
    call(attention, QUERY, KEY, VALUE, attn_mask=MASK, scale=0.7),
    call(attention, QUERY, KEY[:, :2], VALUE[:, :2]),
    call(attention, QUERY, KEY[:, :, :3], VALUE[:, :, :3], 0.0, True),
    call(aten._grouped_mm.default, x(8, 8).float(), x(2, 8, 8, seed=1).float(), GROUPS),
    call(aten._grouped_mm.default, x(2, 8, 8).float(), x(2, 8, 8, seed=1).float()),
    call(aten._masked_softmax.default, x(2, 2, 3, 3), torch.eye(3, dtype=torch.bool).expand(2, 2, 3, 3)),
    # norms
    call(aten._native_batch_norm_legit_functional.default, IMAGES, MEAN, VARIANCE, MEAN, VARIANCE, True, 0.1, 1e-3),
    call(aten._native_batch_norm_legit_functional.default, IMAGES, None, None, MEAN, VARIANCE, False, 0.1, 1e-3),
    call(aten._native_batch_norm_legit_no_training.default, IMAGES, MEAN, VARIANCE, MEAN, VARIANCE, 0.1, 1e-3),
    call(aten._native_batch_norm_legit.no_stats, IMAGES, MEAN, None, True, 0.1, 1e-3),
    call(aten._batch_norm_no_update.default, IMAGES, MEAN, VARIANCE, MEAN, VARIANCE, 0.1, 1e-3),
    call(aten._batch_norm_with_update_functional.default, IMAGES, MEAN, VARIANCE, MEAN, VARIANCE, 0.1, 1e-3),
    call(aten._fused_rms_norm.default, x(3, 4), [4], x(4, seed=1), 1e-5),
    call(aten._fused_rms_norm.default, x(3, 2, 4), [2, 4], None, None),
    call(aten._weight_norm_interface.default, x(3, 4), x(3, 1, seed=1), 0),
    call(aten._weight_norm_interface.default, x(3, 4), x(1, 4, seed=1), 1),
    # images
    call(aten._upsample_bicubic2d_aa.default, IMAGES, [3, 7], False),
    call(aten._upsample_bicubic2d_aa_backward.default, x(2, 3, 3, 7), [3, 7], [2, 3, 4, 5], False),
    call(aten._upsample_lanczos2d_aa.default, IMAGES, [3, 7], False),
    call(aten._upsample_lanczos2d_aa_backward.default, x(2, 3, 3, 7), [3, 7], [2, 3, 4, 5], False),
    call(aten._upsample_nearest_exact2d.default, IMAGES, [3, 7]),
    call(aten._upsample_nearest_exact2d_backward.default, x(2, 3, 3, 7), [3, 7], [2, 3, 4, 5]),
    call(aten._upsample_nearest_exact3d.default, VOLUMES, [3, 7, 4]),
    call(aten._upsample_nearest_exact3d_backward.default, x(2, 3, 3, 7, 4), [3, 7, 4], [2, 3, 4, 5, 3]),
    call(aten.upsample_nearest2d.default, IMAGES, [3, 7]),
    call(aten.upsample_nearest2d_backward.default, x(2, 3, 3, 7), [3, 7], [2, 3, 4, 5]),
    call(aten.upsample_nearest3d.default, VOLUMES, [3, 7, 4]),
    call(aten.upsample_nearest3d_backward.default, x(2, 3, 3, 7, 4), [3, 7, 4], [2, 3, 4, 5, 3]),
    call(aten.reflection_pad2d.default, IMAGES, [1, 2, 2, 1]),
    call(aten.reflection_pad2d_backward.default, x(2, 3, 7, 8), IMAGES, [1, 2, 2, 1]),
    call(aten.reflection_pad3d.default, VOLUMES, [1, 2, 2, 1, 0, 1]),
    call(aten.reflection_pad3d_backward.default, x(2, 3, 5, 8, 6), VOLUMES, [1, 2, 2, 1, 0, 1]),
    call(aten.replication_pad3d.default, VOLUMES, [1, 2, 2, 1, 0, 1]),
    call(aten.replication_pad3d_backward.default, x(2, 3, 5, 8, 6), VOLUMES, [1, 2, 2, 1, 0, 1]),
    call(aten.affine_grid_generator.default, x(2, 2, 3), [2, 3, 4, 5], False),
    call(aten.affine_grid_generator.default, x(2, 3, 4), [2, 3, 4, 5, 3], True),
    call(aten.native_channel_shuffle.default, x(2, 6, 3, 3), 2),
    # random numbers
    call(aten._standard_gamma.default, x(3, 4).abs() + 0.5),
    call(aten.bernoulli.Tensor, x(3, 4), x(3, 4, seed=1).sigmoid()),
    call(aten.bernoulli.p, x(3, 4), 0.5),
    call(aten.cauchy.default, x(3, 4)),
    call(aten.exponential.default, x(3, 4)),
    call(aten.geometric.default, x(3, 4), 0.5),
    call(aten.log_normal.default, x(3, 4)),
    call(aten.native_dropout.default, x(3, 4), 0.5, True),
    call(aten.native_dropout.default, x(3, 4), 0.5, False),
    call(aten.native_dropout.default, x(3, 4), 1.0, True),
    call(aten.normal.float_Tensor, 0.0, x(3, 4).abs()),
    call(aten.normal_functional.default, x(3, 4)),
    call(aten.poisson.default, x(3, 4).abs()),
    call(aten.random.default, x(3, 4)),
    call(getattr(aten.random, "from"), x(3, 4), 0, 9),
    call(aten.random.to, x(3, 4), 9),
    call(aten.uniform.default, x(3, 4)),
    # distances, recurrence, and what only a backward calls
    call(aten._euclidean_dist.default, x(3, 4), x(5, 4, seed=1)),
    *attention_backward(),
    *weight_norm_backward(),
    *lstm(),
    *lstm(bidirectional=True, batch_first=True),
]
