"""Backend `auto`: a program that keeps being used the same way is compiled in the background and raced against itself.

The program runs as generated Python from its first call. When the same gradients keep arriving, forward and backward
go to the compiler; when they come back, both ways take turns on real calls, and the faster one stays.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from tapeless.backends.auto import RECURRENCES, Age, can_be_ordered, types_of
from tapeless.background.compiler import COMPILER
from tapeless.background.order import Answer, Failure, TensorType
from tapeless.background.race import Boxed, Race, Stopwatch, warn_once
from tapeless.ir.custom import inlined
from tapeless.runtime.fused import Fused, order_of
from tapeless.runtime.signature import Mask
from tapeless.runtime.variant import Backward, Variant


class Contest:
    """One variant at one mask of cotangents, on its way to the faster of its two forms."""

    def __init__(self, plain: Variant, mask: Mask) -> None:
        self.plain, self.mask = plain, mask
        self.winner: Variant | Fused | None = None  # what runs from now on, whatever the sizes
        self._types: Sequence[TensorType | str] | None = None
        self._seen = 0
        self._ordered = False
        self._age = Age()
        self._won = False  # by what was compiled
        self._backward: Backward | None = None
        self._fused: Fused | None = None
        self._failure: Failure | None = None
        self._race: Race | None = None
        self._timed: list[Stopwatch] = []
        self._lock = threading.Lock()

    def choose(self, args: Sequence[Any]) -> Variant | Fused:
        """What to run now."""
        if self._failure is not None:
            warn_once(self._failure)
            return self._settle(self.plain)
        fused = self._fused
        if fused is None:
            if self._types is None:
                self._types = types_of(self.plain.parts.forward, args)
            return self.plain
        if not fused.takes(args):
            return self.plain
        race = None if self._won else self._race or self._start_race(fused)
        if race is None:
            return fused if self._won else self.plain
        if race.is_over:
            return self._settle(fused if race.compiled_wins else self.plain)
        return fused if race.is_turn_of_compiled() else self.plain

    @property
    def state(self) -> str:
        """How far it is: "python", "compiling", "racing", or what is left: "python stays", "inductor stays"."""
        if self.winner is not None or self._won:
            return "inductor stays" if self._won else "python stays"
        return "racing" if self._fused is not None else "compiling" if self._ordered else "python"

    def saw(self, backward: Backward) -> None:
        """The backward that answered. Once it recurs it is worth compiling."""
        if backward is not self._backward:
            self._backward, self._seen = backward, 0
        self._seen += 1
        if not self._ordered and self._seen >= RECURRENCES and self._types is not None and self._age.is_over:
            self._order(backward)

    def _settle(self, winner: Variant | Fused) -> Variant | Fused:
        """The race is over, or need not be run."""
        with self._lock:
            self._unwrap()
            self._race, self._failure = None, None
            self._won = isinstance(winner, Fused)
            if not isinstance(winner, Fused):
                self._fused = None
            if not (isinstance(winner, Fused) and winner.sizes):
                self.winner = winner
        return winner

    def _order(self, backward: Backward) -> None:
        if torch.are_deterministic_algorithms_enabled() or not self._can_be_ordered(backward):
            self._settle(self.plain)
            return
        assert self._types is not None
        self._ordered = True
        with self._lock:
            self._wrap(self.plain, backward)
        settings = torch.get_num_threads(), torch.get_float32_matmul_precision()  # of this thread
        write = partial(order_of, self.plain, backward, self.mask, self._types, *settings)
        COMPILER.submit(write, self, self.plain.cache)

    def _can_be_ordered(self, backward: Backward) -> bool:
        return all(can_be_ordered(inlined(graph)) for graph in (self.plain.parts.forward, backward.graph))

    def ready(self, answer: Answer | Failure) -> None:
        """In another thread: what was compiled is loaded."""
        assert self._backward is not None
        if isinstance(answer, Failure):
            self._failure = answer
            return
        try:
            self._fused = Fused(answer, self.plain, self._backward, self.mask)
        except Exception as problem:
            self._failure = Failure(f"{type(problem).__name__}: {problem}")

    def _start_race(self, fused: Fused) -> Race | None:
        """The race, unless another thread has settled it meanwhile."""
        with self._lock:
            if self._race is not None or self._fused is None or self._won:
                return self._race
            assert self._backward is not None
            before = self._timed
            self._unwrap()
            ours = self._wrap(self.plain, self._backward)
            theirs = self._wrap(fused, fused.backward)
            self._race = Race(ours, theirs, before)
            return self._race

    def _wrap(self, runs: Variant | Fused, backward: Backward) -> list[Stopwatch]:
        """From now on both are timed."""
        runs.forward, backward.run = watches = [Stopwatch(runs.forward), Stopwatch(backward.run)]
        self._timed += watches
        return watches

    def _unwrap(self) -> None:
        """Nothing is timed any more, by this contest."""
        for runs in filter(None, (self.plain, self._fused)):
            runs.forward = self._untimed(runs.forward)
        for backward in filter(None, (self._backward, self._fused and self._fused.backward)):
            backward.run = self._untimed(backward.run)
        self._timed = []

    def _untimed(self, function: Boxed) -> Boxed:
        if not isinstance(function, Stopwatch):
            return function
        inner = self._untimed(function.function)
        if function in self._timed:
            return inner
        function.function = inner
        return function
