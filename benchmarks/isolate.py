"""Run one function in a fresh Python process with a time limit; whatever happens, the answer is a dictionary.

Measurements in one process disturb each other: caches are warm, memory is fragmented, a crash takes all with it.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Result = dict[str, Any]

ROOT = Path(__file__).parent.parent


def call(function: Callable[..., Result], *arguments: Any, limit: float, cache: Path | None = None) -> Result:
    """What `function(*arguments)` returns in a fresh process, or `{"error": why not}`.

    The function is a module's own and its arguments are plain data: both travel by name. Compilers keep their files in
    the folder `cache`; without one they start from nothing.
    """
    with tempfile.TemporaryDirectory(prefix="tapeless-benchmark-") as folder:
        answer = Path(folder, "answer.json")
        command = [sys.executable, "-m", __name__, _address(function), json.dumps(arguments), str(answer)]
        trouble = _run(command, _environment(cache or Path(folder, "cache")), limit)
        if answer.exists():
            return json.loads(answer.read_text())
        return {"error": trouble}


def _address(function: Callable) -> str:
    module = function.__module__
    main = sys.modules["__main__"].__spec__
    return f"{main.name if module == '__main__' and main else module}:{function.__qualname__}"


def _environment(cache: Path) -> dict[str, str]:
    """One thread, so that other programs on the machine cost no time at barriers; where compilers keep their files.

    Nothing is compiled in the background unless a variant asks for it. Each process draws the order of its sets, as
    those of users do: what one leaves on disk is to be found by the next all the same.
    """
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TAPELESS_CACHE_DIR": str(cache / "tapeless")}
    steady = {"OMP_NUM_THREADS": "1", "TAPELESS_BACKEND": "python"}
    return steady | dict(os.environ) | caches | {"PYTHONHASHSEED": "random"}


def _run(command: list[str], environment: dict[str, str], limit: float) -> str:
    """Run the command to its end or to its time limit; what went wrong, if it left no answer."""
    with _started(command, environment) as process:
        try:
            _, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return f"no result within {limit:.0f} s"
    lines = errors.strip().splitlines() or [""]
    return f"exit code {process.returncode}: {lines[-1]}"


@contextmanager
def _started(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own, so that the compilers it starts end with it."""
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _answer(address: str, arguments: str) -> Result:
    module, _, name = address.partition(":")
    try:
        return getattr(importlib.import_module(module), name)(*json.loads(arguments))
    except Exception as error:
        return {"error": describe(error), "traceback": traceback.format_exc()}


def describe(error: BaseException) -> str:
    """An exception on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"[:300]


if __name__ == "__main__":
    address, arguments, target = sys.argv[1:]
    Path(target).write_text(json.dumps(_answer(address, arguments)))
