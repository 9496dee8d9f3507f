"""Padding, resampling and rearranging of images: all linear in the image, so that each kernel has its transpose."""

from __future__ import annotations

import torch

from tapeless.rules.registry import jvp, linear, vjp, zero

aten = torch.ops.aten


# -- upsampling ----------------------------------------------------------------------------------------------------

UPSAMPLING = (
    (aten._upsample_bicubic2d_aa.default, aten._upsample_bicubic2d_aa_backward.default),
    (aten._upsample_bilinear2d_aa.default, aten._upsample_bilinear2d_aa_backward.default),
    (aten._upsample_lanczos2d_aa.default, aten._upsample_lanczos2d_aa_backward.default),
    (aten._upsample_nearest_exact1d.default, aten._upsample_nearest_exact1d_backward.default),
    (aten._upsample_nearest_exact2d.default, aten._upsample_nearest_exact2d_backward.default),
    (aten._upsample_nearest_exact3d.default, aten._upsample_nearest_exact3d_backward.default),
    (aten.upsample_bicubic2d.default, aten.upsample_bicubic2d_backward.default),
    (aten.upsample_bilinear2d.default, aten.upsample_bilinear2d_backward.default),
    (aten.upsample_linear1d.default, aten.upsample_linear1d_backward.default),
    (aten.upsample_nearest1d.default, aten.upsample_nearest1d_backward.default),
    (aten.upsample_nearest2d.default, aten.upsample_nearest2d_backward.default),
    (aten.upsample_nearest3d.default, aten.upsample_nearest3d_backward.default),
    (aten.upsample_trilinear3d.default, aten.upsample_trilinear3d_backward.default),
)


def _transposed_sampling(upsample, backward):
    @linear(upsample)
    def gradient(g, self, output_size, **how):
        return backward(g, output_size, self.shape, **how)

    @linear(backward)
    def gradient_of_gradient(g, input_size, **how):
        return upsample(g, **how)


for upsample, backward in UPSAMPLING:
    _transposed_sampling(upsample, backward)


# -- padding -------------------------------------------------------------------------------------------------------

PADDING = (
    (aten.reflection_pad1d.default, aten.reflection_pad1d_backward.default),
    (aten.reflection_pad2d.default, aten.reflection_pad2d_backward.default),
    (aten.reflection_pad3d.default, aten.reflection_pad3d_backward.default),
    (aten.replication_pad1d.default, aten.replication_pad1d_backward.default),
    (aten.replication_pad2d.default, aten.replication_pad2d_backward.default),
    (aten.replication_pad3d.default, aten.replication_pad3d_backward.default),
)


def _transposed_padding(pad, backward):
    @linear(pad)
    def gradient(g, self, padding):
        return backward(g, self, padding)

    @linear(backward, wrt="grad_output")
    def gradient_of_gradient(g, padding):
        return pad(g, padding)

    zero(backward, arguments="self")


for pad, backward in PADDING:
    _transposed_padding(pad, backward)


# -- rearranging ---------------------------------------------------------------------------------------------------


@linear(aten.im2col.default)
def im2col(g, self, **how):
    """Patches overlap where they are taken from, so they add up when put back."""
    return aten.col2im(g, self.shape[-2:], **how)


@linear(aten.col2im.default)
def col2im(g, output_size, **how):
    """The transpose of adding patches up is taking them."""
    return aten.im2col(g, **how)


@linear(aten.pixel_shuffle.default)
def pixel_shuffle(g, upscale_factor):
    return aten.pixel_unshuffle(g, upscale_factor)


@linear(aten.pixel_unshuffle.default)
def pixel_unshuffle(g, downscale_factor):
    return aten.pixel_shuffle(g, downscale_factor)


@linear(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def channel_shuffle(g, groups):
    """A transposition of [groups, channels / groups], undone by the opposite one."""
    return aten.channel_shuffle(g, g.shape[1] // groups)


# -- sampling on a grid --------------------------------------------------------------------------------------------


@linear(aten.affine_grid_generator.default)
def affine_grid(g, size, align_corners):
    """The grid is base · θᵀ: θ̄ = ḡᵀ · base, where base is the grid of the identity, and ones for the translation."""
    identity = torch.eye(g.shape[-1], g.shape[-1] + 1, dtype=g.dtype, device=g.device).expand(size[0], -1, -1)
    points = aten.affine_grid_generator(identity, size, align_corners)
    base = torch.cat([points, torch.ones_like(points[..., :1])], -1)
    return g.flatten(1, -2).mT @ base.flatten(1, -2)


@vjp(aten.grid_sampler_2d.default, linear_in="input")
def grid_sampler_2d(g, input, grid, **how):
    """By interpolation at the points of the grid; linear in the image, smooth between pixels in the grid."""
    return aten.grid_sampler_2d_backward(g, input, grid, **how, output_mask=[True, True])


@jvp(aten.grid_sampler_2d.default)
def grid_sampler_2d_jvp(input, grid, input_t, grid_t, **how):
    """ẏ = sample(ẋ) + ∂y/∂grid · grid-tangent; the slopes of one channel are its gradient by the grid for ȳ = 1."""
    slopes = _slopes(aten.grid_sampler_2d_backward, input, grid, how)
    return aten.grid_sampler_2d(input_t, grid, **how) + (slopes * grid_t.unsqueeze(1)).sum(-1)


@vjp(aten.grid_sampler_2d_backward.default, wrt="grad_output", linear_in="grad_output")
def grid_sampler_2d_backward(g, input, grid, output_mask, **how):
    """The transpose of the transpose: the tangent."""
    u, v = (_or_zero(t, like) for t, like in zip(g, (input, grid), strict=True))
    return grid_sampler_2d_jvp(input, grid, u, v, **how)


@vjp(aten.grid_sampler_3d.default, linear_in="input")
def grid_sampler_3d(g, input, grid, **how):
    """By interpolation at the points of the grid; linear in the image, smooth between pixels in the grid."""
    return aten.grid_sampler_3d_backward(g, input, grid, **how, output_mask=[True, True])


@jvp(aten.grid_sampler_3d.default)
def grid_sampler_3d_jvp(input, grid, input_t, grid_t, **how):
    """ẏ = sample(ẋ) + ∂y/∂grid · grid-tangent; the slopes of one channel are its gradient by the grid for ȳ = 1."""
    slopes = _slopes(aten.grid_sampler_3d_backward, input, grid, how)
    return aten.grid_sampler_3d(input_t, grid, **how) + (slopes * grid_t.unsqueeze(1)).sum(-1)


@vjp(aten.grid_sampler_3d_backward.default, wrt="grad_output", linear_in="grad_output")
def grid_sampler_3d_backward(g, input, grid, output_mask, **how):
    """The transpose of the transpose: the tangent."""
    u, v = (_or_zero(t, like) for t, like in zip(g, (input, grid), strict=True))
    return grid_sampler_3d_jvp(input, grid, u, v, **how)


def _slopes(backward, input, grid, how):
    """∂y/∂grid of every channel: [N, C, *points, coordinates]. Channels become images, as the kernel sums over them."""
    images, channels = input.shape[:2]
    grids = grid.unsqueeze(1).expand(-1, channels, *[-1] * (grid.dim() - 1)).flatten(0, 1)
    ones = torch.ones_like(grids[..., 0]).unsqueeze(1)
    _, slopes = backward(ones, input.flatten(0, 1).unsqueeze(1), grids, **how, output_mask=[False, True])
    return slopes.unflatten(0, (images, channels))


def _or_zero(cotangent, like):
    return torch.zeros_like(like) if cotangent is None else cotangent
