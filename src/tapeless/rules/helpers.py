"""What several families of rules need: conjugates, numbers that stand for tensors, dims, reductions undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true


def conj(x: Any) -> Any:
    """The conjugate of a tensor or of a number that stands for one."""
    if isinstance(x, Tensor):
        return x.conj()
    return x.conjugate() if isinstance(x, complex) else x


def scaled(x: Tensor, factor: Any) -> Tensor:
    """factor · x for a number `factor`; x itself for 1."""
    return x if isinstance(factor, (int, float, complex)) and factor == 1 else x * factor


def canonical_dims(dim: int | Sequence[int] | None, rank: int) -> list[int]:
    """`dim` as sorted non-negative dims of a tensor of `rank` dims; None and [] mean all of them."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return list(range(rank))
    dims = [dim] if isinstance(dim, int) else dim
    return sorted({d % rank for d in dims}) if rank else []


def unreduce(reduced: Tensor, self: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """The result of reducing `self` over `dim`, with size-1 dims where it was reduced: it broadcasts against `self`."""
    if keepdim:
        return reduced
    dims = canonical_dims(dim, self.dim())
    if len(dims) == self.dim():
        return reduced
    for d in dims:
        reduced = reduced.unsqueeze(d)
    return reduced


def count(self: Tensor, dim: int | Sequence[int] | None = None) -> Any:
    """How many elements of `self` one element of a reduction over `dim` is made of."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return self.numel()
    total = 1
    for d in canonical_dims(dim, self.dim()):
        total = total * self.shape[d]
    return total


def is_empty(x: Tensor) -> bool:
    """Has it no entries? Where a size is symbolic, only if that is known already: no guard is added to find out."""
    return statically_known_true(x.numel() == 0)


def backwards(x: Tensor, dim: int) -> Tensor:
    """`x` reversed along `dim`."""
    return x.flip(dim) if x.dim() else x
