"""Values that are made of weights alone, kept from one call to the next for as long as nobody writes to the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from tapeless import torch_internals

Boxed = Callable[[list[Any]], list[Any]]

PATIENCE = 3  # calls in succession that each found the weights changed, after which they are watched less often
RARELY = 16


class Kept:
    """A program in two parts: one that reads weights only and runs when these have changed, and the rest.

    Weights that change at every call, or whose memory cannot be watched, are left to the program as a whole.
    """

    def __init__(self, weights: Sequence[int], make: Boxed, rest: Boxed, whole: Callable[[], Boxed]) -> None:
        self._weights = weights  # positions among the arguments
        self._make = make
        self._rest = rest
        self._whole = cache(whole)
        self._state: tuple[torch_internals.Watch, list[Any]] | None = None
        self._misses = 0

    def __call__(self, args: list[Any]) -> list[Any]:
        values = self._values([args[i] for i in self._weights])
        if values is None:
            return self._whole()(args)
        given = [*args, *values]
        args.clear()
        return self._rest(given)

    def _values(self, weights: list[Any]) -> list[Any] | None:
        """What is made of the weights; None if it is not worth being made."""
        state = self._state
        if state is not None and state[0].holds(weights):
            self._misses, self._state = 0, (state[0].renewed(), state[1])
            return state[1]
        self._misses += 1
        state = self._state = None  # what was kept is gone before it is made again
        worth = self._misses <= PATIENCE or self._misses % RARELY == 0
        watch = torch_internals.Watch.over(weights) if worth else None
        if watch is None:
            return None
        with torch.inference_mode(False), torch.no_grad():
            values = self._make(weights)
        self._state = watch, values
        return values
