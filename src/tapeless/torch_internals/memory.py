"""Large buffers of Inductor's code, in large pages. See docs/decisions/0025-large-pages.md."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

LARGE = 32 * 2**20  # bytes: the C library asks the system for so many each time, and gives them back at once

_ALLOCATOR = "empty_strided_cpu"
_ALLOCATION = re.compile(_ALLOCATOR + r"\(\(([\d, ]+)\), \([\d, ]+\), torch\.(\w+)\)")
_MADV_HUGEPAGE = 14  # of Linux


def with_large_pages(call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """The function of generated code, with its large buffers in large pages.

    Relies on the name of the function by which Inductor's code allocates. That is replaced for this program alone:
    others may have been given the same code.
    """
    function = getattr(call, "__func__", call)
    plain = getattr(function, "__globals__", {}).get(_ALLOCATOR)
    if plain is None or sys.platform != "linux":
        return call
    own = types.FunctionType(function.__code__, {**function.__globals__, _ALLOCATOR: _advising(plain)})
    return types.MethodType(own, call.__self__) if isinstance(call, types.MethodType) else own


def allocates_much(source: str) -> bool:
    """Does generated code allocate a large buffer?"""
    found = (
        (tuple(map(int, filter(str.strip, size.split(",")))), dtype) for size, dtype in _ALLOCATION.findall(source)
    )
    return any(math.prod(size) * getattr(torch, dtype).itemsize >= LARGE for size, dtype in found)


def _advising(plain: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    advise = _advice()

    def allocate(size: Any, stride: Any, dtype: Any) -> torch.Tensor:
        found = plain(size, stride, dtype)
        if found.nbytes >= LARGE:
            start = -(-found.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
            advise(start, found.data_ptr() + found.nbytes - start, _MADV_HUGEPAGE)
        return found

    return allocate


@functools.cache
def _advice() -> Any:
    """`madvise` of the C library. Advice that the system cannot follow is lost."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return advise
