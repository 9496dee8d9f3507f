"""The process that compiles: `python -m tapeless.background.worker <program>`. Orders come in, answers go out, in turn.

It ends when nobody can send orders any more, however the program that started it ended, and takes its compilers along.
"""

from __future__ import annotations

import functools
import os
import pickle
import queue
import signal
import sys
import threading
import time
from typing import IO, Any

from tapeless import torch_internals
from tapeless.background.order import Answer, Failure, Order
from tapeless.errors import Unsupported

SECONDS = 1.0  # between two looks at whether the program is there


def send(stream: IO[bytes], message: Any) -> None:
    data = torch_internals.dumps(message)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message; EOFError where there will be none."""
    size = stream.read(8)
    if len(size) < 8:
        raise EOFError
    data = stream.read(length := int.from_bytes(size, "little"))
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed must not come between answers
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, orders), daemon=True).start()
    threading.Thread(target=_watch, args=(int(sys.argv[1]),), daemon=True).start()
    os.nice(10)  # the program that runs comes first
    while True:
        send(answers, _answer(orders.get()))


@functools.cache
def _builder() -> Any:
    from tapeless.background.build import Builder

    return Builder()


def _answer(order: Order | None) -> Answer | Failure:
    """Of no order: what came of a rehearsal, in which everything is loaded that compiling takes."""
    try:
        return _builder().build(order) if order else _builder().rehearsed
    except Exception as problem:
        lines = str(problem).strip().splitlines() or [""]
        return Failure(f"{type(problem).__name__}: {lines[0]}", is_expected=isinstance(problem, Unsupported))


def _read(stream: IO[bytes], orders: queue.SimpleQueue[Any]) -> None:
    """Hand on what arrives; at the end of it, end the process and all it has started."""
    try:
        while True:
            orders.put(receive(stream))
    except BaseException:
        _end()


def _watch(program: int) -> None:
    """End likewise once the program is gone: if it has forked, others hold the end of the pipe that orders come by."""
    while os.getppid() == program:
        time.sleep(SECONDS)
    _end()


def _end() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
