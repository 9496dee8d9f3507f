"""Convolution: bilinear in input and weight, linear in bias; its backward is differentiated by convolutions again.

`how` is stride, padding, dilation, transposed, output_padding, groups.
"""

from __future__ import annotations

import torch

from tapeless.rules.registry import jvp, vjp

aten = torch.ops.aten


@vjp(aten.convolution.default, linear_in=(("input", "bias"), ("weight", "bias")))
def convolution(g, input, weight, bias, **how):
    """x̄ = convᵀ(ȳ, w), w̄ = correlation of ȳ with x, b̄ = Σ ȳ: one kernel, of which unused results are masked."""
    sizes = None if bias is None else bias.shape
    return aten.convolution_backward(g, input, weight, sizes, **how, output_mask=[True, True, bias is not None])


@jvp(aten.convolution.default)
def convolution_jvp(input, weight, input_t, weight_t, bias_t, **how):
    """ẏ = conv(ẋ, w) + conv(x, ẇ) + ḃ."""
    return aten.convolution(input_t, weight, None, **how) + aten.convolution(input, weight_t, bias_t, **how)


@vjp(aten.convolution_backward.default, linear_in="grad_output")
def convolution_backward(g, grad_output, input, weight, bias_sizes, output_mask, **how):
    """With cotangents u, v, c of x̄, w̄, b̄, everything follows from ⟨u, x̄⟩ = ⟨ȳ, conv(u, w)⟩, ⟨v, w̄⟩ = ⟨ȳ, conv(x, v)⟩:

    by ȳ: conv(u, w) + conv(x, v) + c;  by x: convᵀ(ȳ, v);  by w: correlation of ȳ with u.
    """
    (u, v, c), (has_u, has_v, has_c) = g, output_mask
    by_output = [
        aten.convolution(u, weight, None, **how) if has_u else None,
        aten.convolution(input, v, None, **how) if has_v else None,
        c.view(-1, *[1] * (input.dim() - 2)).expand_as(grad_output) if has_c else None,
    ]

    def backward(input, weight, mask):
        return aten.convolution_backward(grad_output, input, weight, None, **how, output_mask=mask)

    by_input = backward(input, v, [True, False, False])[0] if has_v else None
    by_weight = backward(u, weight, [False, True, False])[1] if has_u else None
    return _total(by_output), by_input, by_weight


@jvp(aten.convolution_backward.default)
def convolution_backward_jvp(grad_output, input, weight, grad_output_t, input_t, weight_t, output_mask, **how):
    """Each result is bilinear: the product rule on x̄(ȳ, w) and w̄(ȳ, x)."""
    rest = [output_mask[0], output_mask[1], False]
    by_output = aten.convolution_backward(grad_output_t, input, weight, **how, output_mask=output_mask)
    by_others = aten.convolution_backward(grad_output, input_t, weight_t, **how, output_mask=rest)
    return tuple(_total(pair) for pair in zip(by_output, by_others, strict=True))


def _total(terms):
    """The sum of the terms that exist, None if none does."""
    present = [term for term in terms if term is not None]
    return sum(present[1:], present[0]) if present else None
