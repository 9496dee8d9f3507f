"""Pickles that another process can read.

A memory format tells pickle its name, `torch.contiguous_format`, and not where that stands; pickle takes the first
module in which it finds it. In a process started with `spawn` that is the program itself, which is none to its reader.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections import ChainMap
from typing import Any

import torch


def dumps(value: Any) -> bytes:
    stream = io.BytesIO()
    Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue()


def _format(name: str) -> torch.memory_format:
    return getattr(torch, name)


def _reduced(value: torch.memory_format) -> tuple[Any, ...]:
    return _format, (str(value).removeprefix("torch."),)


class Pickler(pickle.Pickler):
    """Writes memory formats by their name in torch."""

    dispatch_table: Any = ChainMap[Any, Any]({torch.memory_format: _reduced}, copyreg.dispatch_table)
