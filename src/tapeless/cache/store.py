"""A directory of entries, each a file named by its key. Several processes may use it at once.

An entry is written beside its place and then moved there, so nobody reads half of one. A checksum stands in front of
each: what a full disk or another program made of a file is noticed before anything in it is looked at. Where the
directory cannot be written, or grows too large, work goes on without it, or without the oldest entries.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 256 * 2**20  # bytes in a directory
MAGIC = b"tapeless cache 1\n"
SUFFIX = ".entry"

_warned: set[str] = set()
_lock = threading.Lock()


def default_directory() -> Path | None:
    """`$TAPELESS_CACHE_DIR` (none if that is empty), else `tapeless` in the user's directory for caches."""
    chosen = os.environ.get("TAPELESS_CACHE_DIR")
    if chosen is not None:
        return Path(os.path.expanduser(chosen)) if chosen else None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "tapeless") if os.path.isabs(home) else None  # a user without a home has none


@dataclass(frozen=True)
class Store:
    """The entries of one directory."""

    directory: Path
    limit: int = LIMIT

    @classmethod
    def of(cls, option: bool | str) -> Store | None:
        """The store that the option `cache` names, if it names one."""
        directory = default_directory() if option is True else Path(os.path.expanduser(option)) if option else None
        return None if directory is None else cls(directory)

    def read(self, key: str, load: Callable[[bytes], Any]) -> Any:
        """What `load` makes of the entry; None if there is none, and, with a warning, if it is damaged."""
        path = self._path(key)
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            return self._warn_of(problem)
        try:
            value = load(_checked(found))
        except Exception as problem:
            return _warn_once(
                str(path), f"ignoring a damaged entry of the cache of compiled programs, {path}: {problem}"
            )
        with contextlib.suppress(OSError):
            os.utime(path)  # the entries that are used are not the oldest
        return value

    def write(self, key: str, payload: bytes) -> None:
        """Keep an entry. If that fails, warn once and go on."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.directory, suffix=".new", delete=False) as file:
                _fill(file, self._path(key), MAGIC + hashlib.sha256(payload).digest() + payload)
            self._forget_oldest()
        except OSError as problem:
            self._warn_of(problem)

    def _warn_of(self, problem: OSError) -> None:
        """The directory cannot be used: say so once, be it found out in reading or in writing."""
        _warn_once(
            str(self.directory),
            f"compiled programs are not cached, the next process will compile again: {problem}. Choose another "
            'directory with TAPELESS_CACHE_DIR, or switch the cache off with options={"cache": False}',
        )

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{SUFFIX}"

    def _forget_oldest(self) -> None:
        """Remove the entries that were not used for longest, as far as there are too many bytes."""
        entries = sorted(_entries(self.directory), reverse=True)
        total = 0
        for _, size, path in entries:
            total += size
            if total > self.limit:
                Path(path).unlink(missing_ok=True)


def _entries(directory: Path) -> list[tuple[float, int, str]]:
    """(last use, bytes, path) of every file here, those that a process left unfinished included."""
    found = []
    for entry in os.scandir(directory):
        with contextlib.suppress(FileNotFoundError):
            if entry.name.endswith((SUFFIX, ".new")):
                found.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
    return found


def _fill(file: Any, target: Path, data: bytes) -> None:
    """Write a temporary file and move it to its place; if that fails, leave nothing behind."""
    try:
        file.write(data)
        file.close()
        os.replace(file.name, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(file.name)
        raise


def _checked(found: bytes) -> bytes:
    start = len(MAGIC)
    checksum, payload = found[start : start + 32], found[start + 32 :]
    if not found.startswith(MAGIC):
        raise ValueError("it is none of ours")
    if hashlib.sha256(payload).digest() != checksum:
        raise ValueError("its checksum is wrong")
    return payload


def _warn_once(about: str, message: str) -> None:
    with _lock:
        new = about not in _warned
        _warned.add(about)
    if new:
        warnings.warn(message, stacklevel=3)
