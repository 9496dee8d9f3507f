"""Pooling. An average is linear; a maximum is too, once its indices are known."""

from __future__ import annotations

import torch

from tapeless.rules.registry import argument_names, jvp, linear, vjp, zero

aten = torch.ops.aten


# -- maxima --------------------------------------------------------------------------------------------------------

MAX_POOLING = (  # operator, backward kernel, dimensions
    (aten.adaptive_max_pool2d.default, aten.adaptive_max_pool2d_backward.default, 2),
    (aten.adaptive_max_pool3d.default, aten.adaptive_max_pool3d_backward.default, 3),
    (aten.fractional_max_pool2d.default, aten.fractional_max_pool2d_backward.default, 2),
    (aten.fractional_max_pool3d.default, aten.fractional_max_pool3d_backward.default, 3),
    (aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default, 2),
    (aten.max_pool3d_with_indices.default, aten.max_pool3d_with_indices_backward.default, 3),
)


def _max_pooling(pool, backward, dims):
    """Forward reads the winners, backward scatters to them: each is the other's transpose."""
    settings = argument_names(backward)

    @vjp(pool, wrt="self")
    def gradient(g, self, out, **how):
        kept = {name: value for name, value in how.items() if name in settings}
        return backward(g[0], self, **kept, indices=out[1])

    @jvp(pool)
    def tangent(self_t, out):
        return _read(self_t, out[1], dims), None

    @linear(backward, wrt="grad_output")
    def gradient_of_gradient(g, indices):
        return _read(g, indices, dims)

    zero(backward, arguments="self")


def _read(values, indices, dims):
    """`values` at `indices`, which count through the last `dims` dimensions."""
    return values.flatten(-dims).gather(-1, indices.flatten(-dims)).view(indices.shape)


for pool, backward, dims in MAX_POOLING:
    _max_pooling(pool, backward, dims)


@linear(aten.max_unpool2d.default, wrt="self")
def max_unpool2d(g, indices):
    """Unpooling scatters; its transpose reads."""
    return _read(g, indices, 2)


@linear(aten.max_unpool3d.default, wrt="self")
def max_unpool3d(g, indices):
    """Unpooling scatters; its transpose reads."""
    return _read(g, indices, 3)


# -- averages ------------------------------------------------------------------------------------------------------

AVERAGE_POOLING = (
    (aten.avg_pool2d.default, aten.avg_pool2d_backward.default),
    (aten.avg_pool3d.default, aten.avg_pool3d_backward.default),
)


def _average_pooling(pool, backward):
    """Backward spreads each cotangent evenly over its window: the transpose of averaging."""

    @linear(pool)
    def gradient(g, self, **how):
        return backward(g, self, **how)

    @linear(backward, wrt="grad_output")
    def gradient_of_gradient(g, **how):
        return pool(g, **how)

    zero(backward, arguments="self")


for pool, backward in AVERAGE_POOLING:
    _average_pooling(pool, backward)


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


zero(aten._adaptive_avg_pool2d_backward.default, aten._adaptive_avg_pool3d_backward.default, arguments="self")
