"""Pooling. Averages are linear; a maximum is linear once its indices are known."""

from __future__ import annotations

import torch

from tapeless.rules.registry import jvp, linear, nondifferentiable, vjp, zero

aten = torch.ops.aten


# -- maxima ------------------------------------------------------------------------------------------------------------


def _gather(dims):
    """Read the winners from the last `dims` dimensions: the transpose of scattering to them."""

    def gather(values, indices):
        return values.flatten(-dims).gather(-1, indices.flatten(-dims)).view_as(indices)

    return gather


gather2d, gather3d = _gather(2), _gather(3)


@vjp(aten.max_pool2d_with_indices.default)
def max_pool2d(g, self, out, kernel_size, stride, padding, dilation, ceil_mode):
    """x̄ = ȳ scattered to the winners."""
    return aten.max_pool2d_with_indices_backward(
        g[0], self, kernel_size, stride, padding, dilation, ceil_mode, out[1]
    )


@vjp(aten.max_pool3d_with_indices.default)
def max_pool3d(g, self, out, kernel_size, stride, padding, dilation, ceil_mode):
    """x̄ = ȳ scattered to the winners."""
    return aten.max_pool3d_with_indices_backward(
        g[0], self, kernel_size, stride, padding, dilation, ceil_mode, out[1]
    )


@vjp(aten.adaptive_max_pool2d.default)
def adaptive_max_pool2d(g, self, out):
    """x̄ = ȳ scattered to the winners."""
    return aten.adaptive_max_pool2d_backward(g[0], self, out[1])


@vjp(aten.adaptive_max_pool3d.default)
def adaptive_max_pool3d(g, self, out):
    """x̄ = ȳ scattered to the winners."""
    return aten.adaptive_max_pool3d_backward(g[0], self, out[1])


@vjp(aten.fractional_max_pool2d.default, wrt="self")
def fractional_max_pool2d(g, self, out, kernel_size, output_size):
    """x̄ = ȳ scattered to the winners."""
    return aten.fractional_max_pool2d_backward(g[0], self, kernel_size, output_size, out[1])


@vjp(aten.fractional_max_pool3d.default, wrt="self")
def fractional_max_pool3d(g, self, out, kernel_size, output_size):
    """x̄ = ȳ scattered to the winners."""
    return aten.fractional_max_pool3d_backward(g[0], self, kernel_size, output_size, out[1])


nondifferentiable(
    aten.fractional_max_pool2d.default, aten.fractional_max_pool3d.default, arguments="random_samples"
)


@jvp(aten.max_pool2d_with_indices.default, aten.adaptive_max_pool2d.default, aten.fractional_max_pool2d.default)
def max_pool2d_jvp(self_t, out):
    """ẏ = ẋ at the winners."""
    return gather2d(self_t, out[1]), None


@jvp(aten.max_pool3d_with_indices.default, aten.adaptive_max_pool3d.default, aten.fractional_max_pool3d.default)
def max_pool3d_jvp(self_t, out):
    """ẏ = ẋ at the winners."""
    return gather3d(self_t, out[1]), None


MAX_BACKWARD_2D = (
    aten.max_pool2d_with_indices_backward.default,
    aten.adaptive_max_pool2d_backward.default,
    aten.fractional_max_pool2d_backward.default,
)
MAX_BACKWARD_3D = (
    aten.max_pool3d_with_indices_backward.default,
    aten.adaptive_max_pool3d_backward.default,
    aten.fractional_max_pool3d_backward.default,
)


@linear(*MAX_BACKWARD_2D, wrt="grad_output")
def max_pool2d_backward(g, indices):
    """The transpose of scattering to the winners is reading them."""
    return gather2d(g, indices)


@linear(*MAX_BACKWARD_3D, wrt="grad_output")
def max_pool3d_backward(g, indices):
    """The transpose of scattering to the winners is reading them."""
    return gather3d(g, indices)


zero(*MAX_BACKWARD_2D, *MAX_BACKWARD_3D, arguments="self")


@linear(aten.max_unpool2d.default, wrt="self")
def max_unpool2d(g, indices):
    """Unpooling scatters; its transpose reads."""
    return gather2d(g, indices)


@linear(aten.max_unpool3d.default, wrt="self")
def max_unpool3d(g, indices):
    """Unpooling scatters; its transpose reads."""
    return gather3d(g, indices)


# -- averages ----------------------------------------------------------------------------------------------------------


@linear(aten.avg_pool2d.default)
def avg_pool2d(g, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """x̄ = each ȳ spread evenly over its window."""
    return aten.avg_pool2d_backward(
        g, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@linear(aten.avg_pool3d.default)
def avg_pool3d(g, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """x̄ = each ȳ spread evenly over its window."""
    return aten.avg_pool3d_backward(
        g, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@linear(aten.avg_pool2d_backward.default, wrt="grad_output")
def avg_pool2d_backward(g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """The transpose of spreading is averaging."""
    return aten.avg_pool2d(g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@linear(aten.avg_pool3d_backward.default, wrt="grad_output")
def avg_pool3d_backward(g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """The transpose of spreading is averaging."""
    return aten.avg_pool3d(g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@linear(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(g, self):
    """x̄ = each ȳ spread evenly over its window."""
    return aten._adaptive_avg_pool2d_backward(g, self)


@linear(aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool3d(g, self):
    """x̄ = each ȳ spread evenly over its window."""
    return aten._adaptive_avg_pool3d_backward(g, self)


@linear(aten._adaptive_avg_pool2d_backward.default, wrt="grad_output")
def adaptive_avg_pool2d_backward(g, grad_output):
    """The transpose of spreading is averaging."""
    return aten._adaptive_avg_pool2d(g, grad_output.shape[-2:])


@linear(aten._adaptive_avg_pool3d_backward.default, wrt="grad_output")
def adaptive_avg_pool3d_backward(g, grad_output):
    """The transpose of spreading is averaging."""
    return aten._adaptive_avg_pool3d(g, grad_output.shape[-3:])


zero(
    aten.avg_pool2d_backward.default,
    aten.avg_pool3d_backward.default,
    aten._adaptive_avg_pool2d_backward.default,
    aten._adaptive_avg_pool3d_backward.default,
    arguments="self",
)
