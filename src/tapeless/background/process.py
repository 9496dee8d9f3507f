"""The process that compiles, seen from the program that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tapeless.background.order import Answer, Failure, Order
from tapeless.background.worker import receive, send


class Process:
    """Takes orders, gives answers, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # -P: the current folder holds no modules
            [sys.executable, "-P", "-m", "tapeless.background.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_folders())},
            process_group=0,  # in a session of its own its `nice` would not count: Linux shares time by sessions first
        )
        self.pid = self._process.pid

    def ask(self, order: Order | None) -> Answer | Failure:
        """What it answers, which may be long after; to no order, what came of a rehearsal. OSError if it has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            send(self._process.stdin, order)
            return receive(self._process.stdout)
        except (EOFError, BrokenPipeError):
            raise OSError(f"with code {self._process.wait()}") from None

    def end(self) -> None:
        """End it and the compilers it has started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            self._process.kill()
        self._process.wait()


def _folders() -> list[str]:
    """Where modules are looked for. Python itself passes over what is no string there."""
    return [folder for folder in sys.path if folder and isinstance(folder, str)]
