"""Convolution: bilinear in input and weight, linear in bias; its backward kernel is differentiated by convolutions again."""

from __future__ import annotations

import torch

from tapeless.rules.registry import jvp, vjp

aten = torch.ops.aten


@vjp(aten.convolution.default, linear_in=(("input", "bias"), ("weight", "bias")))
def convolution(g, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """x̄ = convᵀ(ȳ, w), w̄ = correlation of ȳ with x, b̄ = Σ ȳ: one fused kernel, of which unused results are masked."""
    has_bias = bias is not None
    return aten.convolution_backward(
        g, input, weight, bias.shape if has_bias else None,
        stride, padding, dilation, transposed, output_padding, groups, [True, True, has_bias],
    )  # fmt: skip


@jvp(aten.convolution.default)
def convolution_jvp(
    input, weight, input_t, weight_t, bias_t, stride, padding, dilation, transposed, output_padding, groups
):
    """ẏ = conv(ẋ, w) + conv(x, ẇ) + ḃ."""
    how = (stride, padding, dilation, transposed, output_padding, groups)
    return aten.convolution(input_t, weight, None, *how) + aten.convolution(input, weight_t, bias_t, *how)


@vjp(aten.convolution_backward.default, wrt=("grad_output", "input", "weight"), linear_in="grad_output")
def convolution_backward(
    g, grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask
):
    """With cotangents u, v, c of x̄, w̄, b̄, everything follows from ⟨u, x̄⟩ = ⟨ȳ, conv(u, w)⟩, ⟨v, w̄⟩ = ⟨ȳ, conv(x, v)⟩:

    by ȳ: conv(u, w) + conv(x, v) + c;  by x: convᵀ(ȳ, v);  by w: correlation of ȳ with u.
    """
    how = (stride, padding, dilation, transposed, output_padding, groups)
    (by_input, by_weight, by_bias), wanted = g, output_mask
    terms = [
        aten.convolution(by_input, weight, None, *how) if wanted[0] else None,
        aten.convolution(input, by_weight, None, *how) if wanted[1] else None,
        by_bias.view(-1, *[1] * (input.dim() - 2)).expand_as(grad_output) if wanted[2] else None,
    ]
    return (
        _total(terms),
        aten.convolution_backward(grad_output, input, by_weight, None, *how, [True, False, False])[0] if wanted[1] else None,
        aten.convolution_backward(grad_output, by_input, weight, None, *how, [False, True, False])[1] if wanted[0] else None,
    )


@jvp(aten.convolution_backward.default)
def convolution_backward_jvp(
    grad_output, input, weight, grad_output_t, input_t, weight_t, bias_sizes,
    stride, padding, dilation, transposed, output_padding, groups, output_mask,
):  # fmt: skip
    """Each result is bilinear: the product rule on x̄(ȳ, w) and w̄(ȳ, x)."""
    how = (bias_sizes, stride, padding, dilation, transposed, output_padding, groups)
    by_grad_output = aten.convolution_backward(grad_output_t, input, weight, *how, output_mask)
    others = aten.convolution_backward(grad_output, input_t, weight_t, *how, [output_mask[0], output_mask[1], False])
    return tuple(_total([a, b]) for a, b in zip(by_grad_output, others, strict=True))


def _total(terms):
    """The sum of the terms that exist, None if none does."""
    first, *rest = [term for term in terms if term is not None] or [None]
    return sum(rest, first)
