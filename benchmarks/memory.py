"""Memory of a training step on the CPU, seen by torch's allocator and by the operating system."""

import ctypes
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.variants import Training

MEGABYTE = 2**20
FORWARD_DONE = "benchmark: forward done"


def step_memory(training: Training, steps: int = 5) -> dict[str, float]:
    """Megabytes that a step needs beyond parameters and inputs.

    `peak`: the most that torch's allocator had given out at once; exact and the same on every run.
    `saved`: what is alive between forward and backward.
    `resident`: the growth of the process over some steps; it includes what libraries allocate by themselves.
    """
    return {**_allocated(training), "resident": _resident(training, steps)}


def peak_memory(step: Callable[[], Any]) -> float:
    """Megabytes that torch's allocator had given out at once, at the most, while `step` ran."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    return max((amount for _, amount in _alive(events)), default=0) / MEGABYTE


def process_peak() -> float:
    """The most resident memory that this process had so far, compilation included, in megabytes."""
    return _status("VmHWM")


def _allocated(training: Training) -> dict[str, float]:
    training.clear()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss = training.forward(*training.inputs)
        with record_function(FORWARD_DONE):
            pass
        loss.backward()
    return _summary(profiler.profiler.kineto_results.events())  # type: ignore[union-attr]


def _summary(events: list[Any]) -> dict[str, float]:
    forward_done = next(event.start_ns() for event in events if event.name() == FORWARD_DONE)
    alive = list(_alive(events))
    peak = max(amount for _, amount in alive)
    saved = [amount for moment, amount in alive if moment < forward_done][-1]
    return {"peak": peak / MEGABYTE, "saved": saved / MEGABYTE}


def _alive(events: list[Any]) -> Iterator[tuple[int, int]]:
    """When something was allocated or freed, and the bytes alive from then on."""
    alive = 0
    for event in sorted((event for event in events if event.name() == "[memory]"), key=lambda event: event.start_ns()):
        alive += event.nbytes()
        yield event.start_ns(), alive


def _resident(training: Training, steps: int) -> float:
    training.clear()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    before = _status("VmRSS")
    for _ in range(steps):
        training.step()
    return _status("VmHWM") - before


def _status(key: str) -> float:
    """A line of the process status, kilobytes made megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024
