"""Fitting a gradient to the value it belongs to, so that no rule has to know of broadcasting or dtype promotion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true


def fit(gradient: Any, primal: Any) -> Any:
    """`gradient` with the shape and dtype of `primal`: summed over broadcast dims, expanded, real part taken, cast."""
    if isinstance(primal, (list, tuple)):
        if gradient is None:
            return None
        return [fit(g, p) for g, p in zip(gradient, primal, strict=True)]
    if gradient is None or not isinstance(primal, torch.Tensor):
        return None
    if not isinstance(gradient, torch.Tensor):
        return torch.full_like(primal, gradient)
    if gradient.is_complex() and not primal.is_complex():
        gradient = torch.real(gradient)
    gradient = sum_to(gradient, primal.shape)
    return gradient if gradient.dtype == primal.dtype else gradient.to(primal.dtype)


def sum_to(gradient: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """The transpose of broadcasting to `gradient`'s shape; a gradient that lost its partner is expanded instead."""
    extra = gradient.dim() - len(shape)
    if extra > 0:
        gradient = gradient.sum(list(range(extra)))
    dims = [i for i, n in enumerate(shape) if is_one(n) and not is_one(gradient.shape[i])] if extra >= 0 else []
    if dims:
        gradient = gradient.sum(dims, keepdim=True)
    return gradient if same_shape(gradient.shape, shape) else gradient.expand(shape)


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Two shapes, one broadcasts to the other: are they the same? Asks no more of symbolic sizes than that."""
    return len(a) == len(b) and all(is_one(m) == is_one(n) for m, n in zip(a, b, strict=True))


def is_one(n: int | torch.SymInt) -> bool:
    """Is this size one? A symbolic size is one only if that is known already: no guard is added to find out."""
    return statically_known_true(n == 1) if isinstance(n, torch.SymInt) else n == 1
