"""Sample calls of ATen operators, recorded while PyTorch's OpInfo database runs its own samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


@dataclass(frozen=True)
class Call:
    """One call of an ATen operator on real tensors."""

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    origin: str

    def __str__(self) -> str:
        return f"{self.op} in {self.origin}"


class _Recorder(TorchDispatchMode):
    def __init__(self, origin: str) -> None:
        super().__init__()
        self.origin = origin
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        copy, named = tree_map_only(torch.Tensor, lambda t: t.detach().clone(), (args, kwargs or {}))
        self.calls.append(Call(func, copy, named, self.origin))
        return func(*args, **(kwargs or {}))


def opinfo_entries(dtype: torch.dtype = torch.float64) -> list[Any]:
    """OpInfo entries with a CPU backward in `dtype`."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")]


def aten_calls(entry: Any, dtype: torch.dtype = torch.float64, most: int | None = None) -> Iterator[Call]:
    """Every ATen call made, above the kernels and below autograd, by the samples of one OpInfo entry.

    The backward of each sample runs too, so that the operators of backward formulas are met with arguments that occur.
    """
    name = f"{entry.name}.{entry.variant_test_name}".rstrip(".")
    for index, sample in enumerate(entry.sample_inputs("cpu", dtype, requires_grad=True)):
        if most is not None and index >= most:
            return
        recorder = _Recorder(f"{name}[{index}]")
        with recorder:
            _run_with_backward(entry, sample)
        yield from recorder.calls


def _run_with_backward(entry: Any, sample: Any) -> None:
    try:
        out = entry.op(sample.input, *sample.args, **sample.kwargs)
        leaves = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
        if leaves:
            torch.autograd.backward(leaves, [torch.ones_like(t) for t in leaves])
    except (RuntimeError, NotImplementedError):
        return  # some samples have no backward in eager: their forward calls were recorded
