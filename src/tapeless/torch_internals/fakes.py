"""Fake tensors: values without memory, with symbolic sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

without_modes = _disable_current_modes


def fake_mode_of(values: Sequence[Any]) -> FakeTensorMode:
    """The fake mode of the first fake tensor among `values` (a new one if there is none)."""
    return next((v.fake_mode for v in values if isinstance(v, FakeTensor)), None) or FakeTensorMode()


def tracing_fake_mode(values: Sequence[Any]) -> FakeTensorMode:
    """The fake mode in which a program with these inputs is being traced. Relies on `detect_fake_mode`."""
    return detect_fake_mode(values) or FakeTensorMode()


def fresh(like: torch.Tensor) -> torch.Tensor:
    """Another fake tensor of the same type, made behind every mode's back."""
    with without_modes():
        return like.detach()


def stacked_type(like: torch.Tensor, length: int | torch.SymInt) -> torch.Tensor:
    """A fake tensor of `length` such tensors, stacked; made behind every mode's back."""
    with without_modes():
        return like.new_empty((length, *like.shape))


def unknown_size(fake_mode: FakeTensorMode) -> torch.SymInt:
    """A symbol for a size that only the run will know. Relies on unbacked symbols of the mode's shape environment."""
    environment = fake_mode.shape_env
    assert environment is not None, "a fake mode without symbols"
    with environment.ignore_fresh_unbacked_symbols():
        return environment.create_unbacked_symint()


def new_fake(
    fake_mode: FakeTensorMode, shape: Sequence[int], stride: Sequence[int], offset: int, dtype: torch.dtype, device: Any
) -> FakeTensor:
    """A fake tensor of this type; call it without modes. Relies on `FakeTensor` being made from a meta tensor.

    Six times faster than a factory function under the mode, which looks up what it may remember.
    """
    if offset:
        reach = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
        base = torch.empty(offset + max(reach, 0), dtype=dtype, device="meta")
        return FakeTensor(fake_mode, base.as_strided(shape, stride, offset), device)
    return FakeTensor(fake_mode, torch.empty_strided(shape, stride, dtype=dtype, device="meta"), device)


def is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)


@contextlib.contextmanager
def _data_dependent_sizes(fake_mode: FakeTensorMode) -> Iterator[None]:
    """`g[mask]` has a size that only the run knows: let it be a symbol."""
    environment = fake_mode.shape_env
    if environment is None:
        yield
        return
    settings = environment.settings
    environment.settings = replace(settings, allow_dynamic_output_shape_ops=True)
    try:
        yield
    finally:
        environment.settings = settings


@contextlib.contextmanager
def emission(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Where rules run: on fake tensors, symbolic and data-dependent sizes allowed, without autograd or autocast."""
    with (
        _data_dependent_sizes(fake_mode),
        fake_mode,
        enable_python_dispatcher(),
        torch.no_grad(),
        torch._C._DisableAutocast(),
    ):
        yield


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Where a graph is run on real tensors in the middle of a compilation, under eager's autograd.

    Relies on `_disable_current_modes`, and leaves the random numbers of the program as they were.
    """
    with without_modes(), torch.random.fork_rng(devices=[]), torch.enable_grad(), torch._C._DisableAutocast():
        yield
