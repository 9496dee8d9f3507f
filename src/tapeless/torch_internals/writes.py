"""Has anybody written to the memory of a tensor?

A version counter does not tell: `w.data.mul_(2)` leaves it alone. Torch's copy-on-write does. Memory that has been
cloned lazily is marked, reading it changes nothing, and whoever asks for a pointer to write to, be it a kernel, NumPy
or `data_ptr()`, unmarks it first. The clone is dropped at once, so nothing is ever copied: only the mark is used.

Relies on `torch._lazy_clone`, on `torch._C._is_cow_tensor` and `_data_address`, which look without touching, and on
`torch._C._storage_Use_Count`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

_is_marked = torch._C._is_cow_tensor  # type: ignore[attr-defined]
_address = torch._C._data_address  # type: ignore[attr-defined]


class _Marks:
    """Which memory was marked when: a mark found later may be a younger one, made after a write."""

    def __init__(self) -> None:
        self.last = 0
        self.of: dict[int, int] = {}  # where a memory begins → the number of its last mark
        self.lock = threading.Lock()

    def mark(self, tensor: torch.Tensor) -> int:
        with self.lock:
            start = _start(tensor)
            if not _is_marked(tensor) or start not in self.of:
                torch._lazy_clone(tensor)
                self.last += 1
                self.of[start] = self.last
            return self.of[start]


_MARKS = _Marks()


@dataclass(frozen=True)
class Watch:
    """Over the memory of some tensors, from now on."""

    addresses: list[int]
    marks: list[int]
    last: int  # the youngest mark of the process when these were compared

    @staticmethod
    def over(tensors: Sequence[torch.Tensor]) -> Watch | None:
        """None if writes to one of them could go unseen: others hold its memory, or torch did not allocate it."""
        try:
            if not _are_held_by_nobody_else(tensors):
                return None
            marks = [_MARKS.mark(tensor) for tensor in tensors]
        except (RuntimeError, NotImplementedError):  # memory that is mapped from a file, NumPy's, or none at all
            return None
        return Watch([*map(_address, tensors)], marks, _MARKS.last)

    def holds(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Are these the same tensors in the same memory, to which nobody has written?"""
        if not all(map(_is_marked, tensors)) or [*map(_address, tensors)] != self.addresses:
            return False
        return self.last == _MARKS.last or [_MARKS.of.get(_start(t)) for t in tensors] == self.marks

    def renewed(self) -> Watch:
        """The same watch, which has just been seen to hold: marks made up to now need not be compared again."""
        return self if self.last == _MARKS.last else replace(self, last=_MARKS.last)


def _are_held_by_nobody_else(tensors: Sequence[torch.Tensor]) -> bool:
    """Does each memory belong to these tensors alone? A NumPy array made earlier could write without a trace."""
    held: Counter[int] = Counter()
    seen: dict[int, Any] = {id(tensor): tensor.untyped_storage() for tensor in tensors}
    for storage in seen.values():
        held[storage._cdata] += 1
    return all(torch._C._storage_Use_Count(cdata) <= count + 1 for cdata, count in held.items())


def _start(tensor: torch.Tensor) -> int:
    return _address(tensor) - tensor.storage_offset() * tensor.itemsize
