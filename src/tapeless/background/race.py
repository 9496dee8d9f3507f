"""Generated Python against what was compiled in the background: both are timed on real calls, the faster one stays."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from tapeless.background.order import Failure

Boxed = Callable[[list[Any]], list[Any]]

WARM_UP = 2  # calls that do not count: pages and caches are cold
ROUNDS = 5  # calls of each that do, at least
SECONDS = 0.01  # that these take together, at least: what is over in microseconds is timed often
CLEAR = 3  # calls of each that are enough if all of one are faster than all of the other

_WARNED: set[str] = set()


def warn_once(failure: Failure) -> None:
    """A program that cannot be compiled goes on as it is; the user hears of each reason once."""
    if not failure.is_expected and failure.reason not in _WARNED:
        _WARNED.add(failure.reason)
        warnings.warn(f"Inductor failed, programs go on as generated Python: {failure.reason}", stacklevel=2)


class Stopwatch:
    """A function that is timed at each call."""

    def __init__(self, function: Boxed) -> None:
        self.function = function
        self.times: list[float] = []
        # Of one thread, the time it worked: whatever else the machine does stays out of it.
        self._now = time.perf_counter if torch.get_num_threads() > 1 else time.thread_time

    def __call__(self, args: list[Any]) -> list[Any]:
        start = self._now()
        found = self.function(args)
        self.times.append(self._now() - start)
        return found

    @property
    def counted(self) -> list[float]:
        """The times that count."""
        return self.times[WARM_UP:]


class Race:
    """Two ways to do the same, each of one or more functions that are timed; they take turns until it is known."""

    def __init__(self, plain: list[Stopwatch], compiled: list[Stopwatch]) -> None:
        self.plain, self.compiled = plain, compiled
        self._calls = 0

    @property
    def is_over(self) -> bool:
        rounds = min(len(watch.counted) for watch in (*self.plain, *self.compiled))
        seconds = min(_total(watches, sum) for watches in (self.plain, self.compiled))
        return (rounds >= ROUNDS and seconds >= SECONDS) or (rounds >= CLEAR and self._is_clear)

    @property
    def _is_clear(self) -> bool:
        """Is one faster than the other whichever of its calls are compared?"""
        slowest, fastest = ([_total(w, chosen) for w in (self.plain, self.compiled)] for chosen in (max, min))
        return slowest[0] < fastest[1] or slowest[1] < fastest[0]

    @property
    def compiled_wins(self) -> bool:
        return _total(self.compiled, statistics.median) < _total(self.plain, statistics.median)

    def is_turn_of_compiled(self) -> bool:
        self._calls += 1
        return self._calls % 2 == 1


def _total(watches: list[Stopwatch], of: Callable[[list[float]], float]) -> float:
    return sum(of(watch.counted) for watch in watches)
