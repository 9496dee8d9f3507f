"""Operators of gradient graphs that ATen does not have."""

from __future__ import annotations

import torch


def accumulate(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    """a + b, where an operand may be undefined: then the other, as it is. Becomes `aten.add` once both are known."""
    if a is None:
        return b
    return a if b is None else a + b
