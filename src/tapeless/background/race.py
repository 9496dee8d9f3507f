"""Generated Python against what was compiled in the background: both are timed on real calls, the faster one stays."""

from __future__ import annotations

import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tapeless.background.order import Failure

Boxed = Callable[[list[Any]], list[Any]]

WARM_UP = 2  # calls that do not count: pages and caches are cold
ROUNDS = 5  # calls of each that do, at least
SECONDS = 0.01  # that these take together, at least: what is over in microseconds is timed often
CLEAR = 3  # calls of each that are enough if all of one are faster than all of the other
TRIED = 2  # calls of what was compiled that are enough if it is faster, by far, than the other one was before
BY_FAR = 0.9  # of its time
REMEMBERED = 4096  # calls: at a few microseconds each these take longer than SECONDS, so that every race ends

_WARNED: set[str] = set()


def warn_once(failure: Failure) -> None:
    """A program that cannot be compiled goes on as it is; the user hears of each reason once."""
    if not failure.is_expected and failure.reason not in _WARNED:
        _WARNED.add(failure.reason)
        warnings.warn(f"Inductor failed, programs go on as generated Python: {failure.reason}", stacklevel=2)


class Stopwatch:
    """A function that is timed at each call; of many calls the last are remembered."""

    def __init__(self, function: Boxed) -> None:
        self.function = function
        self.times: deque[float] = deque(maxlen=REMEMBERED)
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
        return list(self.times)[WARM_UP:]


class Race:
    """Two ways to do the same, each of one or more functions that are timed; they take turns until it is known.

    `before` timed the plain way while the other one was compiled, which slowed it down. If one of them is faster by
    far, that is enough to know.
    """

    def __init__(self, plain: list[Stopwatch], compiled: list[Stopwatch], before: Sequence[Stopwatch] = ()) -> None:
        self.plain, self.compiled = plain, compiled
        self._before = before if all(len(watch.counted) >= CLEAR for watch in before) else ()
        self._calls = 0

    @property
    def is_over(self) -> bool:
        if self._is_obvious:
            return True
        rounds = min(len(watch.counted) for watch in (*self.plain, *self.compiled))
        seconds = min(_total(watches, sum) for watches in (self.plain, self.compiled))
        return (rounds >= ROUNDS and seconds >= SECONDS) or (rounds >= CLEAR and self._is_clear)

    @property
    def _is_obvious(self) -> bool:
        """Is it known from how fast the plain way was before?"""
        return bool(self._before) and self._tried and (self._wins_by_far or self._loses_by_far)

    @property
    def _tried(self) -> bool:
        return all(len(watch.counted) >= TRIED for watch in self.compiled)

    @property
    def _wins_by_far(self) -> bool:
        return _total(self.compiled, max) < BY_FAR * _total(self._before, min)

    @property
    def _loses_by_far(self) -> bool:
        return _total(self.compiled, min) > _total(self._before, max)

    @property
    def _is_clear(self) -> bool:
        """Is one faster than the other whichever of its calls are compared?"""
        slowest, fastest = ([_total(w, chosen) for w in (self.plain, self.compiled)] for chosen in (max, min))
        return slowest[0] < fastest[1] or slowest[1] < fastest[0]

    @property
    def compiled_wins(self) -> bool:
        if self._is_obvious:
            return self._wins_by_far
        return _total(self.compiled, statistics.median) < _total(self.plain, statistics.median)

    def is_turn_of_compiled(self) -> bool:
        if self._before and not self._tried:
            return True
        self._calls += 1
        return self._calls % 2 == 1


def _total(watches: Sequence[Stopwatch], of: Callable[[list[float]], float]) -> float:
    return sum(of(watch.counted) for watch in watches)
