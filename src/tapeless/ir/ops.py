"""Operators of gradient graphs that ATen does not have."""

from __future__ import annotations

import torch


def accumulate(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    """a + b, where an operand may be undefined: then the other, as it is. Becomes `aten.add` once both are known."""
    if a is None:
        return b
    return a if b is None else a + b


def any_defined(*cotangents: torch.Tensor | None) -> bool:
    """Has at least one cotangent arrived? The condition of a lowered region."""
    return any(g is not None for g in cotangents)


def zeros_if_undefined(
    g: torch.Tensor | None, size: list[int], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A cotangent that is missing beside one that arrived."""
    return torch.zeros(size, dtype=dtype, device=device) if g is None else g
