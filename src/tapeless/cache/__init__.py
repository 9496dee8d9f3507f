"""What was compiled once is found again by the next process: captured graphs and their derivatives, on disk.

An entry is found by its content alone: by all that decides what it says. So there is nothing to invalidate, and what
cannot be described (`ir.content.Indescribable`) is not kept.
"""

from __future__ import annotations

import hashlib
import pickle
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tapeless.cache import pickled
from tapeless.cache.store import Store
from tapeless.ir.content import Indescribable


@dataclass(frozen=True)
class Place:
    """Where one thing is kept, or would be."""

    store: Store
    key: str

    def read(self, fake_mode: Any) -> Any:
        return self.store.read(self.key, lambda data: pickled.loads(data, fake_mode))

    def write(self, value: Any) -> None:
        """Keep `value`, if it is plain data."""
        try:
            payload = pickled.dumps(value)
        except (Indescribable, pickle.PicklingError, TypeError, AttributeError):
            return
        self.store.write(self.key, payload)


def place(option: bool | str, describe: Callable[[], str | None]) -> Place | None:
    """The place of what `describe` describes; None if there is no cache or no description."""
    store = Store.of(option)
    if store is None:
        return None
    try:
        described = describe()
    except Indescribable:
        return None
    return (
        None if described is None else Place(store, hashlib.sha256(f"{versions()}\n{described}".encode()).hexdigest())
    )


@cache
def versions() -> str:
    """Of Python, of torch, and of Tapeless by its source: another one of any of them is another compiler."""
    root = Path(__file__).parent.parent
    source, files = hashlib.sha256(), sorted(root.rglob("*.py"))
    if not files:
        raise Indescribable("installed without its source")
    for path in files:
        source.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    parts = (platform.python_version(), torch.__version__, torch.version.git_version, platform.machine())
    return " ".join((*map(str, parts), source.hexdigest()))
