"""The OpInfo sweep: jobs in worker processes, rows in a file.

The sweep is long, so it can be stopped: rows in the file are not made again. A job that crashes or hangs its worker
becomes a row like any other, and the next job gets a new worker.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from tapeless.testing.opinfo import Job, Row, entry_names

SECONDS = 900.0  # for one job; more counts as hanging
FEW = 2  # samples per entry in the dtypes that are only looked at
LOOK: dict[str, Any] = {"first": FEW, "further": 0, "dynamo": 0}
PLAN: dict[str, dict[str, Any]] = {
    "float64": {},
    "complex128": {"further": 2, "dynamo": 1},
    "float32": LOOK,
    "bfloat16": LOOK,
    "float16": LOOK,
    "complex64": LOOK,
}

Key = tuple[str, str]


def jobs(names: Iterable[str] = (), dtypes: Iterable[str] = tuple(PLAN), most: int | None = None) -> list[Job]:
    """Every entry (or those in `names`) in every dtype with a backward in eager; at most `most` samples each."""
    by_dtype = {dtype: entry_names(getattr(torch, dtype)) for dtype in dtypes}
    chosen = list(names) or [name for known in by_dtype.values() for name in known]
    if unknown := sorted(set(chosen) - {name for known in by_dtype.values() for name in known}):
        raise SystemExit(f"no OpInfo entry with a gradient in {', '.join(dtypes)}: {', '.join(unknown)}")
    wanted = set(chosen)
    return [_job(name, dtype, most) for dtype, known in by_dtype.items() for name in known if name in wanted]


def further(dtype: str) -> bool:
    """Are all samples of this dtype checked, and some to second order and in forward mode?"""
    return PLAN[dtype] is not LOOK


def _job(name: str, dtype: str, most: int | None) -> Job:
    settings: dict[str, Any] = {"first": most, **PLAN[dtype]}
    return Job(name, dtype, **settings)


def run_jobs(todo: list[Job], processes: int, results: Results) -> None:
    """Do all jobs, except those of which `results` has a row already."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in todo:
        if (job.name, job.dtype) not in results.rows:
            waiting.put(job)
    results.expected = waiting.qsize()
    threads = [threading.Thread(target=_work, args=(waiting, results)) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass
class Results:
    """Rows by entry and dtype, kept in a file after each one. Rows of another torch are not reused."""

    store: Path | None = None
    rows: dict[Key, Row] = field(default_factory=dict)
    expected: int = 0
    done: int = 0
    start: float = field(default_factory=time.monotonic)
    lock: Any = field(default_factory=threading.Lock)

    @classmethod
    def load(cls, store: Path | None) -> Results:
        earlier = json.loads(store.read_text()) if store and store.exists() else {}
        found = map(Row.parse, earlier["rows"]) if earlier.get("torch") == torch.__version__ else ()
        return cls(store, {(row.name, row.dtype): row for row in found})

    def ordered(self) -> list[Row]:
        order = {dtype: i for i, dtype in enumerate(PLAN)}
        return sorted(self.rows.values(), key=lambda row: (order[row.dtype], row.name))

    def differing(self) -> list[Row]:
        return [row for row in self.rows.values() if row.problems]

    def forget(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self.rows.pop(key, None)

    def add(self, row: Row) -> None:
        with self.lock:
            self.rows[row.name, row.dtype] = row
            self.done += 1
            minutes = (time.monotonic() - self.start) / 60
            progress = f"[{self.done}/{self.expected}, {minutes:.1f} min]"
            found = f"{row.dtype} {row.name}: {row.first.ok}/{row.first.of}"
            print(progress, found, *row.problems[:2], file=sys.stderr, flush=True)
            if self.store:
                self.store.write_text(self.text())

    def text(self) -> str:
        """JSON with one row per line, so that a change is a change of few lines."""
        rows = ",\n".join(json.dumps(asdict(self.rows[key])) for key in sorted(self.rows))
        return f'{{"torch": "{torch.__version__}", "rows": [\n{rows}\n]}}\n'


def _work(waiting: queue.SimpleQueue[Job], results: Results) -> None:
    """Feed one worker process after another until nothing is left."""
    worker = None
    while True:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            break
        worker = worker or Worker()
        row = worker.check(job)
        results.add(row or Row(job.name, job.dtype, problems=[f"first: {worker.stop()}"]))
        worker = worker if row else None
    if worker:
        worker.stop()


class Worker:
    """A process that does jobs: one per line in, a row per line out."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tapeless.testing.opinfo"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self.hung = False

    def check(self, job: Job) -> Row | None:
        """The row of one job; None if the process died or had to be stopped."""
        assert self.process.stdin and self.process.stdout
        timer = threading.Timer(SECONDS, self._give_up)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(asdict(job)) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            return None
        finally:
            timer.cancel()
        return Row.parse(json.loads(line)) if line else None

    def _give_up(self) -> None:
        self.hung = True
        self.process.kill()

    def stop(self) -> str:
        """End the process; how it ended."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        code = self.process.wait()
        return f"no result after {SECONDS:.0f} s" if self.hung else f"the process ended with code {code}"
