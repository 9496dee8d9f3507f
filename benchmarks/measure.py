"""What is measured of a workload. Each function runs in a fresh process and returns plain data."""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo

from benchmarks.gradients import Gradients, compare
from benchmarks.isolate import describe
from benchmarks.memory import process_peak, step_memory
from benchmarks.variants import EAGER, Training, Variant
from benchmarks.workloads import build

WARM_UP = 5
SAMPLE_SECONDS = 0.04


def first_call(name: str, label: str) -> dict[str, Any]:
    """One variant from nothing: seconds from `torch.compile` to its first gradients, graphs, memory of later steps.

    What a backend imports counts, wherever it does so.
    """
    workload, start = build(name), Clock()
    training = Training(workload, Variant.parse(label))
    prepared = start.elapsed()
    training.step()
    first = start.elapsed()
    peak = process_peak()
    later = statistics.median(_timed(training.step).wall for _ in range(WARM_UP))
    return {
        "torch_compile_s": prepared.wall,
        "first_call_s": first.wall,
        "first_call_cpu_s": first.cpu,
        "later_step_s": later,
        "process_peak_mb": peak,
        "memory_mb": step_memory(training),
        **captured(),
    }


def captured() -> dict[str, Any]:
    """How many graphs Dynamo has captured in this process, and why it broke them."""
    breaks = torch._dynamo.utils.counters["graph_break"]
    return {
        "graphs": torch._dynamo.utils.counters["stats"]["unique_graphs"],
        "graph_breaks": sum(breaks.values()),
        "break_reasons": sorted({reason.splitlines()[0] for reason in breaks}),
    }


def gradient_errors(name: str, label: str) -> dict[str, Any]:
    """One variant's gradients against eager's in single and double precision; what fails says why."""
    return {str(dtype).removeprefix("torch."): _errors(name, label, dtype) for dtype in (torch.float32, torch.float64)}


def _errors(name: str, label: str, dtype: torch.dtype) -> dict[str, Any]:
    try:
        return compare(_gradients(name, EAGER, dtype), _gradients(name, label, dtype)).as_dict()
    except Exception as error:
        return {"failed": describe(error)}


def _gradients(name: str, label: str, dtype: torch.dtype, steps: int = 3) -> Gradients:
    """Gradients after some steps: what a compiler specializes after its first backward counts too."""
    torch._dynamo.reset()
    training = Training(build(name, dtype), Variant.parse(label))
    for _ in range(steps):
        training.step()
    return training.gradients()


@dataclass
class Clock:
    """A moment, or the time between two, by the wall and by this process's processor time."""

    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)

    def elapsed(self) -> "Clock":
        """The time since this moment."""
        now = Clock()
        return Clock(now.wall - self.wall, now.cpu - self.cpu)


def _timed(step: Callable[[], Any], times: int = 1) -> Clock:
    start = Clock()
    for _ in range(times):
        step()
    spent = start.elapsed()
    return Clock(spent.wall / times, spent.cpu / times)


def steps(name: str, labels: list[str], rounds: int) -> dict[str, Any]:
    """Variants side by side in one process: their times of each round, and why a variant is missing.

    Each round samples every variant, and each round starts with another one: what disturbs the machine for a while
    disturbs all alike, and a ratio taken within a round is steady where the times are not.
    """
    trainings, errors = _warmed_up(name, labels)
    times = {label: _sample_size(training) for label, training in trainings.items()}
    samples: dict[str, list[Clock]] = {label: [] for label in trainings}
    gc.collect()
    for index in range(rounds):
        for label in rotated(list(trainings), index):
            samples[label].append(_timed(trainings[label].step, times[label]))
    return {"errors": errors, "samples": {label: _columns(clocks) for label, clocks in samples.items()}}


def _warmed_up(name: str, labels: list[str]) -> tuple[dict[str, Training], dict[str, str]]:
    trainings, errors = {}, {}
    for label in labels:
        try:
            training = Training(build(name), Variant.parse(label))
            _timed(training.step, WARM_UP)
            trainings[label] = training
        except Exception as error:
            errors[label] = describe(error)
    return trainings, errors


def _sample_size(training: Training) -> int:
    """Steps enough to be timed well."""
    return max(1, round(SAMPLE_SECONDS / _timed(training.step).wall))


def rotated(labels: list[str], by: int) -> list[str]:
    start = by % len(labels)
    return labels[start:] + labels[:start]


def _columns(clocks: list[Clock]) -> dict[str, list[float]]:
    return {"wall_s": [clock.wall for clock in clocks], "cpu_s": [clock.cpu for clock in clocks]}
