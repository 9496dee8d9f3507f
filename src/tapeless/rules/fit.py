"""Fitting a gradient to the value it belongs to, so that no rule has to know of broadcasting or dtype promotion."""

from __future__ import annotations

from typing import Any

import torch


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


def sum_to(gradient: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """The transpose of broadcasting to `gradient`'s shape; a gradient that lost its partner is expanded instead."""
    if gradient.shape == shape:
        return gradient
    extra = gradient.dim() - len(shape)
    if extra > 0:
        gradient = gradient.sum(list(range(extra)))
    dims = [i for i, n in enumerate(shape) if n == 1 and gradient.shape[i] != 1] if extra >= 0 else []
    if dims:
        gradient = gradient.sum(dims, keepdim=True)
    return gradient if gradient.shape == shape else gradient.expand(shape)
