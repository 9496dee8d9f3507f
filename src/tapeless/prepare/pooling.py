"""Activations behind a pooling instead of in front of it: there are fewer elements, and of these alone the slope is
saved."""

from __future__ import annotations

from typing import Any

import torch

from tapeless.prepare.editor import Site
from tapeless.prepare.passes import Pass, Phase, rewrite
from tapeless.prepare.pattern import anything, op, tensors

(x,) = tensors("x")
kernel_size, stride, padding, dilation, ceil_mode = anything("kernel_size stride padding dilation ceil_mode")

Tensor = torch.Tensor


@rewrite(
    op.getitem(op.max_pool2d_with_indices(op.relu(x), kernel_size, stride, padding, dilation, ceil_mode), 0),
    phase=Phase.ALGEBRA,
    always=True,
)
def relu_behind_pooling(
    x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, site: Site
) -> Tensor | None:
    """The largest of relu(x) is relu of the largest, and passes its gradient to the same element.

    Where none is positive another one may be the largest, but no gradient passes.
    """
    if any(user not in site.through for node in site.through if node is not site.node for user in node.users):
        return None
    pooled = torch.ops.aten.max_pool2d_with_indices(x, kernel_size, stride or [], padding, dilation, ceil_mode)
    return torch.relu(pooled[0])


POOLING: tuple[Pass, ...] = (relu_behind_pooling,)
