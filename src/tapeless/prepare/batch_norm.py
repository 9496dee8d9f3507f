"""Batch normalization with frozen statistics, folded into the linear map before it.

The weights are scaled in the program itself, at every call, from what they are then. So nothing is stale when they
change, gradients reach them, and the output of the convolution need not be saved for the backward.
"""

from __future__ import annotations

from typing import Any

import torch

from tapeless.prepare.editor import Site
from tapeless.prepare.passes import Pass, Phase, Safety, rewrite
from tapeless.prepare.pattern import anything, op, tensors

x, weight, mean, var = tensors("x weight mean var")
bias, scale, shift = anything("bias scale shift")
stride, padding, dilation, transposed, output_padding, groups, momentum, eps = anything(
    "stride padding dilation transposed output_padding groups momentum eps"
)

Tensor = torch.Tensor
CONVOLUTION = op.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _normalized(of: Any) -> Any:
    return op.getitem(op._native_batch_norm_legit_no_training(of, scale, shift, mean, var, momentum, eps), 0)


@rewrite(_normalized(CONVOLUTION), phase=Phase.ALGEBRA, safety=Safety.FROZEN)
def fold_batch_norm(
    x: Tensor, weight: Tensor, bias: Any, scale: Any, shift: Any, mean: Tensor, var: Tensor, eps: float,
    stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int, out: Tensor,
    site: Site,
) -> Any:  # fmt: skip
    """bn(conv(x, w, b)) = conv(x, s·w, s·(b − μ) + β) with s = γ/√(σ² + ε), per output channel."""
    if {t.dtype for t in (x, weight, mean, var)} != {x.dtype} or _saves_more(weight, out, site):
        return None
    if out.dim() == 3 and not out.is_contiguous():
        return None  # the kernel gives these contiguous results, whatever torch says of their strides
    factor, offset = _affine(bias, scale, shift, mean, var, eps)
    scaled = weight * _per_output_channel(factor, weight, transposed, groups)
    return torch.ops.aten.convolution(x, scaled, offset, stride, padding, dilation, transposed, output_padding, groups)


@rewrite(
    _normalized(op.addmm(bias, x, weight)), _normalized(op.mm(x, weight)), phase=Phase.ALGEBRA, safety=Safety.FROZEN
)
def fold_batch_norm_of_linear(
    x: Tensor, weight: Tensor, scale: Any, shift: Any, mean: Tensor, var: Tensor, eps: float, out: Tensor, site: Site
) -> Any:
    """bn(x w + b) = x (w·s) + s·(b − μ) + β. Only for matrices: of more dimensions the channels are another one."""
    if {t.dtype for t in (x, weight, mean, var)} != {x.dtype} or _saves_more(weight, out, site):
        return None
    product = site.through[2]
    bias = site.value(product.args[0]) if len(product.args) == 3 else None
    if bias is not None and bias.dim() != 1:
        return None
    factor, offset = _affine(bias, scale, shift, mean, var, eps)
    return torch.addmm(offset, x, weight * factor)


def _saves_more(weight: Tensor, out: Tensor, site: Site) -> bool:
    """The backward reads the scaled weight instead of what was normalized: not where that is the larger one."""
    return site.carries_derivative and weight.numel() > out.numel()


def _affine(bias: Any, scale: Any, shift: Any, mean: Tensor, var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """y ↦ factor·y + offset is the normalization of `y + bias`."""
    factor = torch.rsqrt(var + eps)
    factor = factor if scale is None else factor * scale
    offset = (-mean if bias is None else bias - mean) * factor
    return factor, offset if shift is None else offset + shift


def _per_output_channel(factor: Tensor, weight: Tensor, transposed: bool, groups: int) -> Tensor:
    """The factor shaped to multiply a weight: channels come first, in a transposed convolution second, by groups."""
    ones = [1] * (weight.dim() - 2)
    if not transposed:
        return factor.view(-1, 1, *ones)
    per_group = factor.view(groups, 1, weight.shape[1]).expand(groups, weight.shape[0] // groups, weight.shape[1])
    return per_group.reshape(weight.shape[0], weight.shape[1], *ones)


BATCH_NORM: tuple[Pass, ...] = (fold_batch_norm, fold_batch_norm_of_linear)
