"""The compiler in the background, as the program sees it: hand over an order, be called with what became of it.

One process serves all programs. It is started with the first order, and ends with this process at the latest. Should
it end before, the orders that wait for it fail, and nothing more is ordered: the programs run on as generated Python.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

from tapeless.background.order import Answer, Failure, Order
from tapeless.background.worker import receive, send

ENDED = "the compiler in the background ended"

Ready = Callable[[Answer | Failure], None]


class Compiler:
    """A process that compiles, and those who wait for it."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """As it begins: here, and in a process that was forked, which has no part in its parent's compiler."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: queue.SimpleQueue[tuple[int, Order]] = queue.SimpleQueue()
        self._waiting: dict[int, Ready] = {}
        self._numbers = itertools.count()
        self._serving = self._gone = False

    def submit(self, order: Order, ready: Ready) -> None:
        """Have `order` compiled; `ready` is called with the answer, in another thread. Takes no time."""
        with self._lock:
            gone, number = self._gone, next(self._numbers)
            if not gone:
                self._waiting[number] = ready
                self._orders.put((number, order))
            if not gone and not self._serving:
                self._serving = True
                threading.Thread(target=self._serve, daemon=True).start()
        if gone:
            ready(Failure(ENDED))

    def stop(self) -> None:
        """End the process and the compilers it has started."""
        with self._lock:
            self._gone, process, self._process = True, self._process, None
        if process is not None:
            _end_group(process)

    def _serve(self) -> None:
        """Start the process and hand it orders; it may be long before it reads them."""
        try:
            process = self._start()
            assert process.stdin is not None
            while True:
                send(process.stdin, self._orders.get())
        except OSError as problem:
            self._end(f"{ENDED}: {problem}")

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tapeless.background.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        with self._lock:
            self._process, stopped = process, self._gone
        atexit.register(self.stop)
        if stopped:
            self.stop()
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Hand on answers as they come."""
        assert process.stdout is not None
        try:
            while True:
                number, answer = receive(process.stdout)
                with _giving_way():
                    self._waiting.pop(number)(answer)
        except (EOFError, OSError):
            self._end(f"{ENDED} with code {process.wait()}")

    def _end(self, reason: str) -> None:
        """Nothing can be compiled any more."""
        with self._lock:
            self._gone = True
            waiting, self._waiting = self._waiting, {}
        for ready in waiting.values():
            ready(Failure(reason))


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
