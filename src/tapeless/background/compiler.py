"""The compiler in the background, as the program sees it: hand over an order, be told what became of it.

One process serves all programs, one order after the other; what was ordered for a program that is gone by then is not
compiled. It is started when the first program is captured, so that it has loaded what it needs when the first order
comes, and ends with this process at the latest. Should it end before, the orders that wait for it fail, and nothing
more is ordered: the programs run on as generated Python.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import NoReturn, Protocol

from tapeless.background.order import Answer, Failure, Order
from tapeless.background.worker import receive, send

ENDED = "the compiler in the background ended"


class Customer(Protocol):
    """Who orders something. Nobody keeps it alive for that."""

    def ready(self, answer: Answer | Failure) -> None:
        """Called in another thread."""


class Compiler:
    """A process that compiles, and those who wait for it."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """As it begins: here, and in a process that was forked, which has no part in its parent's compiler."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: queue.SimpleQueue[tuple[Order, weakref.ref[Customer]]] = queue.SimpleQueue()
        self._serving = self._stopped = False

    def submit(self, order: Order, customer: Customer) -> None:
        """Have `order` compiled for `customer`. Takes no time."""
        self._orders.put((order, weakref.ref(customer)))
        self.start()

    def expect(self) -> None:
        """Orders may come: the process is started, if it has a processor to itself, and loads what it will need."""
        if not self._serving and (os.cpu_count() or 1) > 1:
            self.start()

    def start(self) -> None:
        """Start the process, if it was not started before. Takes no time."""
        with self._lock:
            if not self._serving:
                self._serving = True
                threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        """End the process and the compilers it has started."""
        with self._lock:
            self._stopped, process, self._process = True, self._process, None
        if process is not None:
            _end_group(process)

    def _serve(self) -> None:
        """Start the process, and go from order to order; once it has ended, there are only failures."""
        try:
            process = self._launched()
        except OSError as problem:
            self._refuse(f"{ENDED}: {problem}")
        customer = None
        try:
            loading = _rehearsal(process)
            while True:
                order, customer = self._orders.get()
                if customer() is None:
                    continue
                answer = _asked(process, order)
                loading.join()
                _hand_over(answer, customer)
        except (EOFError, OSError):
            self._refuse(f"{ENDED} with code {process.wait()}", customer)

    def _launched(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tapeless.background.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        with self._lock:
            self._process, stopped = process, self._stopped
        atexit.register(self.stop)
        if stopped:
            self.stop()
        return process

    def _refuse(self, reason: str, customer: weakref.ref[Customer] | None = None) -> NoReturn:
        """Nothing can be compiled any more."""
        while True:
            if customer is not None:
                _hand_over(Failure(reason), customer)
            _, customer = self._orders.get()


def _rehearsal(process: subprocess.Popen[bytes]) -> threading.Thread:
    """Wait until the process is ready, and load what it has compiled to be so: the first time takes longest."""
    assert process.stdout is not None
    answer = receive(process.stdout)

    def load() -> None:
        with contextlib.suppress(Exception), _giving_way():  # what is wrong is told with the first order
            answer.forward.load()

    loading = threading.Thread(target=load, daemon=True)
    loading.start()
    return loading


def _asked(process: subprocess.Popen[bytes], order: Order) -> Answer | Failure:
    """What the process answers; it may be long before it does."""
    assert process.stdin is not None and process.stdout is not None
    send(process.stdin, order)
    return receive(process.stdout)


def _hand_over(answer: Answer | Failure, customer: weakref.ref[Customer]) -> None:
    found = customer()
    if found is not None:
        with _giving_way():
            found.ready(answer)


@contextlib.contextmanager
def _giving_way() -> Iterator[None]:
    """Let go of the interpreter often: whoever launches kernels meanwhile waits for it at every launch."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        process.kill()
    process.wait()


COMPILER = Compiler()
