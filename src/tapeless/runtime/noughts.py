"""Gradients that are known to be zero, on their way from one program to another.

The second derivative of a ReLU is zero, and there. In eager its zeros are a tensor like any other, and pulled back
through the whole network below. Here a program that knows such a gradient of another program's temporary sends a view
of one constant instead of a tensor; the program that receives it recognises the constant and pulls nothing back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.emit import is_full_of_zeros
from tapeless.runtime.signature import ZERO, Mask


@cache
def _constant(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    with torch.inference_mode(False):
        return torch.zeros((), dtype=dtype, device=device)


def nought(like: torch.Tensor) -> torch.Tensor:
    """Zeros of the type of `like`, without memory of their own; only ever handed from program to program."""
    return _constant(like.dtype, like.device).expand(like.shape)


def is_nought(g: Any) -> bool:
    return g is not None and g._base is not None and g._base is _constant(g.dtype, g.device)


def arrived(cotangents: Sequence[Any], real: int) -> Mask:
    """The mask of these cotangents; only those of temporaries, behind the `real` outputs, can be noughts."""
    mask = tuple([g is not None for g in cotangents])
    if not any(mask[real:]):
        return mask
    return (*mask[:real], *(ZERO if is_nought(g) else g is not None for g in cotangents[real:]))


def is_filled_zero(result: Any) -> bool:
    """Is this result of a backward a tensor of zeros, of a size known beforehand?"""
    if not isinstance(result, fx.Node) or not is_full_of_zeros(result):
        return False
    return all(isinstance(n, int) for n in ir.value(result).shape)
