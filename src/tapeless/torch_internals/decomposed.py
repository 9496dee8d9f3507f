"""Operators that tracing would write out, and that are traced as they are: written out they are wrong, or slow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch._decomp.decompositions import upsample_compute_output_size

aten = torch.ops.aten

# Torch's decomposition of the first takes the padding of `target` for a label: another loss than eager's. That of the
# second has another gradient where a margin is just kept.
WRONGLY_DECOMPOSED = (aten.multilabel_margin_loss_forward.default, aten.multi_margin_loss.default)

_KEYS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)


@contextlib.contextmanager
def as_kernels(*ops: Any, instead: Mapping[Any, Callable[..., Any]] = MappingProxyType({})) -> Iterator[None]:
    """While it lasts, tracing meets these operators themselves, not what torch decomposes them into; for those in
    `instead` it meets the functions there.

    Relies on `py_kernels`, where torch registers such a decomposition.
    """
    found = {op: {key: op.py_kernels.pop(key) for key in _KEYS if key in op.py_kernels} for op in (*ops, *instead)}
    for op, function in instead.items():
        op.py_kernels.update(dict.fromkeys(found[op], function))
    for op in found:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in found.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


def _by_kernel(op: Any) -> Callable[..., Any]:
    """Upsampling to a size or by factors as a call of the kernel, which takes both: lookups of neighbours, one by one,
    take three times as long. Where sizes vary it stays with these, for kernels of its backward take numbers alone.

    Relies on how torch's decompositions compute the size.
    """
    kernel, decomposed = op.default, op.vec.py_kernels[_KEYS[0]]

    def upsample(x: torch.Tensor, size: Any, *rest: Any) -> torch.Tensor:
        *corners, factors = rest
        sizes: Any = upsample_compute_output_size(x.size(), size, factors)
        if any(isinstance(n, torch.SymInt) for n in (*x.shape, *sizes)):
            return decomposed(x, size, *rest)
        with as_kernels(kernel):
            return kernel(x, sizes, *corners, *(factors or [None] * len(sizes)))

    return upsample


_KINDS: tuple[Any, ...] = (
    aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d,
    aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d,
    aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d, aten.upsample_bicubic2d,
)  # fmt: skip
BY_KERNEL: Mapping[Any, Callable[..., Any]] = {kind.vec: _by_kernel(kind) for kind in _KINDS}
