"""What is measured of a workload. Each function runs in a fresh process and returns plain data."""

import gc
import itertools
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo

import tapeless
from benchmarks.floor import Floor, WholeFloor
from benchmarks.gradients import Gradients, compare
from benchmarks.isolate import describe
from benchmarks.memory import peak_memory, process_peak, step_memory
from benchmarks.peer import Peer
from benchmarks.variants import EAGER, FLOOR, JAX, WHOLE, Runner, Training, Variant, WholeTraining
from benchmarks.workloads import Workload, build

WARM_UP = 5
LAST = 2 * WARM_UP  # steps of a loop that runs at its final speed
SAMPLE_SECONDS = 0.04
ORDER_SECONDS = 2.0  # after which what recurs is being compiled
SETTLE_SECONDS = 240.0  # at most
NEAR_FINAL = 1.15  # a loop runs at its final speed when its steps take no longer than this multiple of the last ones


def runner(workload: Workload, variant: Variant) -> Runner:
    """A workload as a variant runs it."""
    if variant.backend == JAX:
        return Peer(workload)
    if variant.backend == FLOOR:
        return WholeFloor(workload) if variant.whole else Floor(workload)
    return WholeTraining(workload, variant) if variant.whole else Training(workload, variant)


def first_call(name: str, label: str) -> dict[str, Any]:
    """One variant from nothing: seconds from `torch.compile` to its first gradients, graphs, memory of later steps.

    What a backend imports counts, wherever it does so.
    """
    workload, start = build(name), Clock()
    training = runner(workload, Variant.parse(label))
    if isinstance(training, Peer):
        return _closing(training, dict(training.first))
    prepared = start.elapsed()
    training.step()
    first = start.elapsed()
    peak = process_peak()
    later = statistics.median(_timed(training).wall for _ in range(WARM_UP))
    return {
        "torch_compile_s": prepared.wall,
        "first_call_s": first.wall,
        "first_call_cpu_s": first.cpu,
        "later_step_s": later,
        "process_peak_mb": peak,
        "memory_mb": _memory(training),
        **captured(),
    }


def _memory(training: Runner) -> dict[str, float]:
    return step_memory(training) if isinstance(training, Training) else {"peak": peak_memory(training.step)}


def _closing(peer: Peer, found: dict[str, Any]) -> dict[str, Any]:
    peer.close()
    return found


def settling(name: str, label: str, seconds: float) -> dict[str, Any]:
    """One variant that goes on compiling while it trains: when its loop runs at its final speed, and how it stalls.

    The loop runs for so many seconds; its final speed is that of its last steps, its memory that of one more.
    """
    workload, start = build(name), Clock()
    training = runner(workload, Variant.parse(label))
    ends, work = [0.0], []
    while ends[-1] < seconds or len(ends) < 4 * WARM_UP:
        before = time.thread_time()
        training.step()
        work.append(time.thread_time() - before)
        ends.append(start.elapsed().wall)
    found = settled([after - before for before, after in itertools.pairwise(ends)], work)
    return {**found, "settled_memory_mb": _memory(training)}


def settled(durations: list[float], work: list[float]) -> dict[str, float]:
    """When the last step that was slower than the final ones was over, and by how much the longest behind the first was
    longer than usual, before that or afterwards, whichever is longer: generated Python may be slower for good reasons.

    Which steps are slow is judged by the work they did, processor time: a machine that does other things as well is no
    change of speed, and neither is what disturbs it for a moment.
    """
    final = statistics.median(work[-max(LAST, len(work) // 10) :])
    half = max(2, round(0.5 / final))
    smooth = [statistics.median(work[max(0, k - half) : k + half + 1]) for k in range(len(work))]
    smooth[0] = work[0]
    slow = max((k for k, duration in enumerate(smooth) if duration > NEAR_FINAL * final), default=0)
    early, late = (statistics.median(some) for some in (durations[1 : slow + 1] or durations[1:], durations[-LAST:]))
    return {
        "settled_s": sum(durations[: slow + 1]),
        "final_step_s": final,
        "early_step_s": statistics.median(work[1 : slow + 1] or work[1:]),
        "early_wall_s": early,
        "longest_stall_s": max(durations[1:]) - max(early, late),
    }


def captured() -> dict[str, Any]:
    """How many graphs Dynamo has captured in this process, and why it broke them."""
    breaks = torch._dynamo.utils.counters["graph_break"]
    return {
        "graphs": torch._dynamo.utils.counters["stats"]["unique_graphs"],
        "graph_breaks": sum(breaks.values()),
        "break_reasons": sorted({reason.splitlines()[0] for reason in breaks}),
    }


def gradient_errors(name: str, label: str, dtypes: list[str]) -> dict[str, Any]:
    """One variant's gradients against eager's, or how far whole steps moved the parameters; what fails says why.

    In float32 also how far eager is from itself in float64: nobody who rounds otherwise can be much nearer to it.
    """
    reference = WHOLE + EAGER if Variant.parse(label).whole else EAGER
    exact = _gradients(name, reference, torch.float64) if "float32" in dtypes else {}
    return {dtype: _errors(name, label, reference, getattr(torch, dtype), exact) for dtype in dtypes}


def _errors(name: str, label: str, reference: str, dtype: torch.dtype, exact: Gradients) -> dict[str, Any]:
    expected = exact if dtype is torch.float64 and exact else _gradients(name, reference, dtype)
    try:
        found = compare(expected, _gradients(name, label, dtype)).as_dict()
    except Exception as error:
        return {"failed": describe(error)}
    return found if dtype is torch.float64 else {**found, "rounding": compare(exact, expected).error}


def _gradients(name: str, label: str, dtype: torch.dtype) -> Gradients:
    """Gradients of the last of some steps: what a compiler specializes after its first backward counts too."""
    torch._dynamo.reset()
    workload, variant = build(name, dtype), Variant.parse(label)
    training = WholeTraining(workload, variant, _momentum) if variant.whole else runner(workload, variant)
    assert isinstance(training, (Training, WholeTraining, Peer))
    _warm_up(training, variant)
    if isinstance(training, WholeTraining):  # each step counts
        training.restart()
        _timed(training, WARM_UP)
    return training.gradients()


def _momentum(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    """An optimizer that moves parameters in proportion to gradients: where one is zero but for rounding, nowhere."""
    return torch.optim.SGD(parameters, 1e-2, momentum=0.9)


@dataclass
class Clock:
    """A moment, or the time between two, by the wall and by this process's processor time."""

    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)

    def elapsed(self) -> "Clock":
        """The time since this moment."""
        now = Clock()
        return Clock(now.wall - self.wall, now.cpu - self.cpu)


def _timed(training: Runner, times: int = 1) -> Clock:
    if isinstance(training, Peer):
        spent = Clock(**training.sample(times))
        return Clock(spent.wall / times, spent.cpu / times)
    start = Clock()
    for _ in range(times):
        training.step()
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
            samples[label].append(_timed(trainings[label], times[label]))
    for training in trainings.values():
        if isinstance(training, Peer):
            training.close()
    return {"errors": errors, "samples": {label: _columns(clocks) for label, clocks in samples.items()}}


def _warmed_up(name: str, labels: list[str]) -> tuple[dict[str, Runner], dict[str, str]]:
    trainings, errors = {}, {}
    for label in labels:
        variant = Variant.parse(label)
        try:
            training = runner(build(name), variant)
            _warm_up(training, variant)
            trainings[label] = training
        except Exception as error:
            errors[label] = describe(error)
    return trainings, errors


def _warm_up(training: Runner, variant: Variant) -> None:
    """Some steps; where a variant goes on compiling, as many as it takes to settle."""
    _timed(training, WARM_UP)
    start = time.perf_counter()
    while variant.settles_later and not _is_settled(time.perf_counter() - start):
        training.step()


def _is_settled(seconds: float) -> bool:
    """Has it made its choice by now? Nothing is ordered at once, and what takes too long is measured as it is."""
    return seconds > ORDER_SECONDS and (tapeless.statistics().is_settled or seconds > SETTLE_SECONDS)


def _sample_size(training: Runner) -> int:
    """Steps enough to be timed well."""
    return max(1, round(SAMPLE_SECONDS / _timed(training).wall))


def rotated(labels: list[str], by: int) -> list[str]:
    """The labels, beginning with another one each time."""
    start = by % len(labels)
    return labels[start:] + labels[:start]


def _columns(clocks: list[Clock]) -> dict[str, list[float]]:
    return {"wall_s": [clock.wall for clock in clocks], "cpu_s": [clock.cpu for clock in clocks]}
