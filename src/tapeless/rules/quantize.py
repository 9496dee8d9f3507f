"""Fake quantization: rounding whose derivative is that of the identity, between the smallest and the largest level."""

from __future__ import annotations

import torch
from torch import where

from tapeless.rules.registry import jvp, nondifferentiable, vjp

aten = torch.ops.aten

tensor = aten.fake_quantize_per_tensor_affine_cachemask.default
tensor_given = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default
channels = aten.fake_quantize_per_channel_affine_cachemask.default


@vjp(tensor, tensor_given, channels, wrt="self")
def straight_through(g, out):
    """x̄ = ȳ where x is between the levels, which is the second result."""
    return g[0] * out[1]


@jvp(tensor, tensor_given, channels)
def straight_through_jvp(self_t, out):
    return self_t * out[1], None


nondifferentiable(tensor_given, channels, arguments=("scale", "zero_point"))
nondifferentiable(tensor_given, arguments="fake_quant_enabled")


@jvp(aten._fake_quantize_learnable_per_tensor_affine.default)
def learnable_jvp(self, scale, zero_point, self_t, scale_t, zero_point_t, quant_min, quant_max, grad_factor):
    """ẏ = ẋ between the levels; of the scale s and the zero point z, f times what steps of learned size have (Esser
    et al., 2020): round(x/s) − x/s and 0 between the levels, the level − z and −s beyond them."""
    zero = zero_point.round().clamp(quant_min, quant_max)
    level = (self / scale + zero).round()
    inside = (level >= quant_min) & (level <= quant_max)
    by_scale = where(inside, level - zero - self / scale, level.clamp(quant_min, quant_max) - zero)
    by_zero = where(inside, 0, -scale)
    return where(inside, self_t, 0) + grad_factor * (by_scale * scale_t + by_zero * zero_point_t)


@jvp(aten._fake_quantize_learnable_per_channel_affine.default)
def learnable_channels_jvp(
    self, scale, zero_point, self_t, scale_t, zero_point_t, axis, quant_min, quant_max, grad_factor
):
    """The same with a scale and a zero point for each place along `axis`."""
    shape = [-1 if dim == axis % self.dim() else 1 for dim in range(self.dim())]
    scale, zero_point, scale_t, zero_point_t = (t.view(shape) for t in (scale, zero_point, scale_t, zero_point_t))
    return learnable_jvp(self, scale, zero_point, self_t, scale_t, zero_point_t, quant_min, quant_max, grad_factor)
