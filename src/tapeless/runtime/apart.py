"""Gradients that lie in memory of their own.

The engine makes the gradient that a backward returns the `grad` of a leaf as it is, if nobody else holds that tensor,
and adds the next one in place. It does not see who else holds the memory: the gradients of `x + y.view(3, 4)` are a
tensor and a view of it, and what is added to the one would be added to the other as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch


def positions_to_copy(found: Sequence[Any]) -> tuple[int, ...]:
    """Results that show memory which an earlier one shows too.

    One tensor that is returned twice counts once, for the engine sees that it is held twice. What has gaps counts as
    nothing, for it is copied into a leaf's layout.
    """
    shown: defaultdict[int, list[torch.Tensor]] = defaultdict(list)
    copied = []
    for k, gradient in enumerate(found):
        if not isinstance(gradient, torch.Tensor) or not _is_dense(gradient):
            continue
        earlier = shown[gradient.untyped_storage()._cdata]
        if any(gradient is not other and _overlap(gradient, other) for other in earlier):
            copied.append(k)
        else:
            earlier.append(gradient)
    return tuple(copied)


def _is_dense(x: torch.Tensor) -> bool:
    """Does it fill its part of the memory?"""
    return x.layout is torch.strided and 0 < x.numel() == _span(x)


def _span(x: torch.Tensor) -> int:
    """The elements from its first to its last one."""
    return 1 + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Do two dense tensors in the same memory have a part of it in common?"""
    starts, ends = zip(*((x.data_ptr(), x.data_ptr() + x.numel() * x.element_size()) for x in (a, b)), strict=True)
    return max(starts) < min(ends)
