"""Settings of a part of torch as text that is the same in every process that has the same."""

from __future__ import annotations

import functools
import hashlib
from typing import Any


def settings_of(config: Any) -> str:
    """In short. Relies on `get_hash` and on what that looks at.

    `get_hash` itself writes a set in the order of this process, which Python draws at its start.
    """
    return _settings(config, config.get_hash())


@functools.lru_cache(64)
def _settings(config: Any, known: bytes) -> str:
    found = config._get_dict(ignored_keys=list(config._compile_ignored_keys))
    described = sorted(f"{name}={_in_order(value)!r}" for name, value in found.items())
    return hashlib.sha256("\n".join(described).encode()).hexdigest()


def _in_order(value: Any) -> Any:
    """The value with lists in place of the sets in it."""
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, *sorted(repr(_in_order(item)) for item in value)]
    if isinstance(value, dict):
        return {name: _in_order(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_in_order, value))
    return value
