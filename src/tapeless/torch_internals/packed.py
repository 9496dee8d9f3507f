"""Products with weights that stand in memory as the kernels of oneDNN read them.

Relies on torch's operators of the namespace `mkldnn`, which Inductor uses too. A packed weight has no strides; only
the product that it was packed for may read it. Images come out with their channels last, whatever went in.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensor = torch.Tensor

_mkldnn = torch.ops.mkldnn


def can_pack(tensor: Tensor) -> bool:
    """Are there such kernels for numbers like these?"""
    plain = tensor.dtype is torch.float32 and tensor.device.type == "cpu"
    return bool(plain and torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled)


def pack_filters(
    weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    size: Sequence[int],
) -> Tensor:  # fmt: skip
    """The weight of a convolution, as it is wanted for images of this size."""
    own = weight.clone()  # see `pack_bias`
    return _mkldnn._reorder_convolution_weight(own, padding, stride, dilation, groups, size)


def pack_bias(bias: Tensor) -> Tensor:
    """A copy for packed products, which ask for memory to write to as well: of the parameter that would be a write."""
    return bias.clone()


def convolve_packed(
    x: Tensor, packed: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    """A convolution of two dimensions."""
    return _mkldnn._convolution_pointwise(x, packed, bias, padding, stride, dilation, groups, "none", [], "")


def pack_matrix(weight: Tensor, rows: int) -> Tensor:
    """The weight of a linear map, outputs × inputs, as it is wanted for so many rows."""
    return _mkldnn._reorder_linear_weight(weight.clone(memory_format=torch.contiguous_format), rows)


def multiply_packed(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """x wᵀ + b, of matrices."""
    return _mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
