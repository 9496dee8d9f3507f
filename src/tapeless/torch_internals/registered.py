"""Derivatives that torch itself or somebody else registered with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._library.autograd import make_autograd_impl
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from tapeless.torch_internals.fakes import without_modes


@contextlib.contextmanager
def tracing_on_fakes() -> Iterator[None]:
    """Where a derivative of torch's own is traced: outside every active mode, in grad mode."""
    with without_modes(), enable_python_dispatcher(), torch.enable_grad():
        yield


@contextlib.contextmanager
def ignoring_fresh_symbols(fake_mode: FakeTensorMode) -> Iterator[None]:
    """A run on fake tensors whose results are thrown away, data-dependent sizes with them."""
    environment = fake_mode.shape_env
    with environment.ignore_fresh_unbacked_symbols() if environment is not None else contextlib.nullcontext():
        yield


def custom_op_without_derivative(op: Any) -> bool:
    """Is `op` a `torch.library.custom_op` for which nobody called `register_autograd`?"""
    definition = OPDEFS.get(op.name().split(".")[0])
    return definition is not None and definition._backward_fn is None


def has_kernel(op: Any, key: str) -> bool:
    """Is a kernel of `op` registered for this dispatch key itself?"""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)


def has_registered_derivative(op: Any) -> bool:
    """Is `op` an operator from outside torch for which somebody registered a derivative, in Python or in C++?"""
    if op.namespace in ("aten", "prims") or custom_op_without_derivative(op):
        return False
    return any(op.has_kernel_for_dispatch_key(key) for key in _AUTOGRAD_KEYS)


_AUTOGRAD_KEYS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.AutogradCPU, torch._C.DispatchKey.AutogradCUDA)


class _Known:
    """An operator whose results are known: running its kernel returns them."""

    def __init__(self, op: Any, results: Any) -> None:
        self.op, self.results = op, results

    def __getattr__(self, name: str) -> Any:
        return getattr(self.op, name)

    def redispatch(self, *_: Any, **__: Any) -> Any:
        return self.results


def registered_call(op: Any, args: Sequence[Any], kwargs: dict[str, Any], results: Any) -> Any:
    """`results`, which `op(*args, **kwargs)` returned, as autograd would have recorded them.

    Relies on `make_autograd_impl`, which builds the autograd kernel of a custom operator around the operator. One whose
    kernel came another way is run again.
    """
    definition = OPDEFS.get(op.name().split(".")[0])
    if definition is None:
        return op(*args, **kwargs)
    known = tree_map_only(torch.Tensor, torch.Tensor.detach, results)
    known = tuple(known) if len(op._schema.returns) > 1 else known
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)  # handed on to the kernel alone, which does not run
    return make_autograd_impl(cast(Any, _Known(op, known)), definition)(below, *args, **kwargs)
