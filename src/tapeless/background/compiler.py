"""The compiler in the background, as the program sees it: hand over an order, be called with what became of it.

One process serves all programs. It is started with the first order, and ends with this process at the latest. Should
it end before, the orders that wait for it fail, and nothing more is ordered: the programs run on as generated Python.
"""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from tapeless.background.order import Answer, Failure, Order
from tapeless.background.worker import receive, send

ENDED = "the compiler in the background ended"

Ready = Callable[[Answer | Failure], None]


class Compiler:
    """A process that compiles, and those who wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: dict[int, Ready] = {}
        self._numbers = itertools.count()
        self._gone = False
        os.register_at_fork(after_in_child=self._forget)

    def submit(self, order: Order, ready: Ready) -> None:
        """Have `order` compiled; `ready` is called with the answer, in another thread."""
        with self._lock:
            number = next(self._numbers)
            if not self._gone:
                self._waiting[number] = ready
        if self._gone:
            ready(Failure(ENDED))
            return
        try:
            send(self._started().stdin, (number, order))  # type: ignore[arg-type]
        except OSError as problem:
            self._end(f"{ENDED}: {problem}")

    def stop(self) -> None:
        """End the process and the compilers it has started."""
        with self._lock:
            self._gone, process, self._process = True, self._process, None
        if process is not None:
            _end_group(process)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tapeless.background.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    start_new_session=True,
                )
                atexit.register(self.stop)
                threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
            return self._process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Hand on answers as they come."""
        assert process.stdout is not None
        try:
            while True:
                number, answer = receive(process.stdout)
                self._waiting.pop(number)(answer)
        except (EOFError, OSError):
            self._end(f"{ENDED} with code {process.wait()}")

    def _forget(self) -> None:
        """In a process that was forked: it has no part in its parent's compiler."""
        self._lock, self._process, self._waiting = threading.Lock(), None, {}

    def _end(self, reason: str) -> None:
        """Nothing can be compiled any more."""
        with self._lock:
            self._gone = True
            waiting, self._waiting = self._waiting, {}
        for ready in waiting.values():
            ready(Failure(reason))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        process.kill()
    process.wait()


COMPILER = Compiler()
