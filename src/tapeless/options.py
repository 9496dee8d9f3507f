"""Options: one frozen dataclass, one spelling in Python, `options={...}` and the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tapeless.errors import BadOption

BACKENDS = ("auto", "python", "inductor")


@dataclass(frozen=True)
class Options:
    """How a program is compiled.

    backend: what runs the programs: "python", generated source, from the first call on; "inductor", torch's code
        generator; or "auto" (default), which starts with the first, compiles with the second in the background once a
        program recurs, times both on real calls and keeps the faster. The environment variable TAPELESS_BACKEND says
        what is meant where nothing is said.
    fallback: what happens to a graph that cannot be differentiated: "raise" (default) or "eager", with one warning.
    variants: how many specialised backward programs, one per pattern of undefined cotangents, are kept per graph.
    prepare: passes before differentiation, by name and separated by commas: "name" switches one on, "-name" off,
        "name!" has it act wherever it is right, even where that does not pay; "off" leaves only those named after it.
    memory: what a step may have allocated at once beyond inputs and parameters, gradients included. "fast" (default)
        computes nothing again that costs time, "small" what it takes for the smallest peak; a number above 1 bounds the
        peak in bytes, one up to 1 as a fraction of the peak of "fast".
    check: run the program before and after each of these passes and compare outputs and gradients. True raises if they
        differ; "warn" undoes the pass, switches it off and warns.
    keep: whether what is made of a module's weights alone is kept from call to call where no derivative is asked, and
        made again when somebody has written to a weight. False makes it at every call.
    cache: where compiled programs are kept for the next process: True (default), `$TAPELESS_CACHE_DIR` or a directory
        for caches of the user's; a directory; or False, nowhere.
    """

    backend: str = field(default_factory=lambda: os.environ.get("TAPELESS_BACKEND", "auto"))
    fallback: str = "raise"
    variants: int = 8
    prepare: str = ""
    memory: str | int | float = "fast"
    check: bool | str = False
    keep: bool = True
    cache: bool | str = True

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise BadOption(f"backend must be one of {', '.join(BACKENDS)}, got {self.backend!r}")
        if self.fallback not in ("raise", "eager"):
            raise BadOption(f'fallback must be "raise" or "eager", got {self.fallback!r}')
        if not isinstance(self.variants, int) or self.variants < 1:
            raise BadOption(f"variants must be a positive integer, got {self.variants!r}")
        if not isinstance(self.prepare, str):
            raise BadOption(f"prepare must be a string of names separated by commas, got {self.prepare!r}")
        if not _is_memory(self.memory):
            raise BadOption(f'memory must be "fast", "small", a fraction up to 1 or bytes, got {self.memory!r}')
        if self.check not in (True, False, "warn"):
            raise BadOption(f'check must be True, False or "warn", got {self.check!r}')
        if not isinstance(self.keep, bool):
            raise BadOption(f"keep must be True or False, got {self.keep!r}")
        if not isinstance(self.cache, (bool, str)) or self.cache == "":
            raise BadOption(f"cache must be True, False or the name of a directory, got {self.cache!r}")

    @property
    def in_background(self) -> bool:
        """Is what recurs compiled beside the program? Not under a bound on memory: Inductor knows of none."""
        return self.backend == "auto" and self.memory == "fast"

    @property
    def first_backend(self) -> str:
        """What a program with a backward runs on before anything is compiled in the background."""
        return "python" if self.backend == "auto" else self.backend

    @property
    def passes(self) -> str:
        """The passes to run, as in `prepare`. Inductor knows nothing of packed weights."""
        return f"-pack_convolutions, -pack_linears, {self.prepare}" if self.backend == "inductor" else self.prepare

    @property
    def lone_backend(self) -> str:
        """What a graph runs on that stands alone."""
        return self.backend if self.in_background else self.first_backend

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> Options:
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(given or {}) - set(known)):
            raise BadOption(f"unknown option {', '.join(unknown)}; the options are {', '.join(known)}")
        return cls(**(given or {}))


def _is_memory(given: Any) -> bool:
    if isinstance(given, str):
        return given in ("fast", "small")
    return isinstance(given, (int, float)) and not isinstance(given, bool) and 0 < given < float("inf")
