"""The compiler in the background, as the program sees it: hand over an order, be told what became of it.

One process serves all programs, one order after the other; what was ordered for a program that is gone by then is not
compiled, and what another process has compiled before is found on disk. The process is started when the first program
is captured, so that it has loaded what it needs when the first order comes, and ends with this process at the latest.
Should it end before, the orders that wait for it fail, and nothing more is compiled: programs run on as generated
Python.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from tapeless import cache, torch_internals
from tapeless.background.order import Answer, Failure, Order
from tapeless.background.process import Process
from tapeless.ir.content import Indescribable


class Customer(Protocol):
    """Who orders something. Nobody keeps it alive for that."""

    def ready(self, answer: Answer | Failure) -> None:
        """Called in another thread."""


@dataclass(frozen=True)
class Request:
    """What is ordered, for whom, and where answers are kept (see `Options.cache`).

    An order is written when its turn comes, by the thread that hands it over: the text of a long program takes a while.
    """

    write: Callable[[], Order]
    customer: weakref.ref[Customer]
    cache: bool | str

    @cached_property
    def order(self) -> Order:
        with _giving_way():
            return self.write()

    def place(self) -> cache.Place | None:
        """Where the answer to the order is kept: by all that decides it. Its kernels are where Inductor keeps them."""
        return cache.place(self.cache, self._described)

    def _described(self) -> str:
        try:
            return f"{self.order!r} {torch_internals.circumstances_of_inductor()}"
        except OSError as problem:  # there is nowhere to keep kernels
            raise Indescribable(str(problem)) from problem

    def hand_over(self, answer: Answer | Failure) -> None:
        customer = self.customer()
        if customer is not None:
            with _giving_way():
                customer.ready(answer)


class Compiler:
    """A process that compiles, and those who wait for it."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """As it begins: here, and in a process that was forked, which has no part in its parent's compiler."""
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._failed: str | None = None
        self._serving = self._stopped = False

    def submit(self, write: Callable[[], Order], customer: Customer, cache: bool | str = False) -> None:
        """Have the order that `write` writes, in another thread, compiled for `customer`. Takes no time."""
        self._put(Request(write, weakref.ref(customer), cache))

    def expect(self) -> None:
        """Orders may come: the process is started, if it has a processor to itself, and loads what it will need."""
        if not self._serving and (os.cpu_count() or 1) > 1:
            self._put(None)

    def stop(self) -> None:
        """End the process and the compilers it has started."""
        with self._lock:
            self._stopped, process, self._process = True, self._process, None
        if process is not None:
            process.end()

    def _put(self, request: Request | None) -> None:
        self._requests.put(request)
        with self._lock:
            if not self._serving:
                self._serving = True
                threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        """Go from request to request."""
        while True:
            self._serve_one(self._requests.get())

    def _serve_one(self, request: Request | None) -> None:
        if request is None:
            with contextlib.suppress(Exception):  # the first order will find out, too, and somebody is told
                self._ask(None)
        elif request.customer() is not None:
            try:
                answer = self._answer(request)
            except Exception as problem:  # the order could not be written
                answer = Failure(f"{type(problem).__name__}: {problem}")
            request.hand_over(answer)

    def _answer(self, request: Request) -> Answer | Failure:
        """What was compiled: before, or now, which may take long."""
        place = request.place()
        found = place.read(None) if place else None
        if found is not None:
            return found
        answer = self._ask(request.order)
        if place and isinstance(answer, Answer):
            place.write(answer)
        return answer

    def _ask(self, order: Order | None) -> Answer | Failure:
        """What the process answers, started if need be; once it has ended, there are only failures."""
        if self._failed is None:
            try:
                return (self._process or self._started()).ask(order)
            except OSError as problem:
                self._failed = f"the compiler in the background ended: {problem}"
        return Failure(self._failed)

    def _started(self) -> Process:
        process = Process()
        with self._lock:
            self._process, stopped = process, self._stopped
        atexit.register(self.stop)
        if stopped:
            self.stop()
        return process


@contextlib.contextmanager
def _giving_way() -> Iterator[None]:
    """Let go of the interpreter often: whoever launches kernels meanwhile waits for it at every launch."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


COMPILER = Compiler()
