"""What a call costs beside its kernels: one operator of 1, 10, 100 and 1000 parameters, forward and backward.

    python -m benchmarks.overhead --rounds 40

The program joins its parameters. A variant's overhead is the time of its call less that of the same call with
`backend="eager"` outside grad mode: Dynamo's guards and the kernel, and nothing of autograd. The result of a call is
kept until the next one, as a training loop keeps its loss. A backward is timed whole, the engine's work for each
parameter included; what it costs beside eager's is the last column.
"""

import argparse
import gc
import statistics
from collections.abc import Callable
from pathlib import Path
from time import process_time_ns
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from benchmarks.measure import rotated
from benchmarks.tables import RESULTS, Table, number, origin, write_markdown

COUNTS = (1, 10, 100, 1000)
BACKENDS = ("aot_eager", "tapeless")
CALLS = 2000  # of one parameter, in a round
ALLOWED_US, ALLOWED_EACH_US = 15, 0.1

Call = Callable[[], Tensor]


def main() -> None:
    """Measure all counts of parameters and write them down."""
    given = _arguments()
    torch.set_num_threads(1)
    measured = {count: measure(count, given.rounds) for count in COUNTS}
    tables = [_forward_table(measured), _backward_table(measured)]
    for table in tables:
        table.show()
    write_markdown(given.out, "Overhead of a call", origin(), tables)


def measure(count: int, rounds: int) -> dict[str, float]:
    """Microseconds of each kind of call, medians over rounds in which all kinds take turns."""
    parameters = [Parameter(torch.randn(1)) for _ in range(count)]
    calls = _calls(parameters)
    samplers = {
        **{f"forward {name}": _forward(call, count) for name, call in calls.items()},
        "forward kernel": _without_gradients(_forward(calls["eager"], count)),
        "forward dynamo": _without_gradients(_forward(_joined(parameters, "eager"), count)),
        "forward empty function": _forward(lambda: Empty.apply(*parameters), count),
        **{f"backward {name}": _backward(call, parameters) for name, call in calls.items()},
    }
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    for sampler in samplers.values():
        sampler()
    gc.collect()
    for turn in range(rounds):
        for name in rotated(list(samplers), turn):
            samples[name].append(samplers[name]())
    return {name: statistics.median(found) for name, found in samples.items()}


class Empty(torch.autograd.Function):
    """What autograd itself asks for: a function that does nothing."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> None:
        raise NotImplementedError("only its forward is timed")


def _calls(parameters: list[Parameter]) -> dict[str, Call]:
    return {"eager": lambda: torch.cat(parameters)} | {name: _joined(parameters, name) for name in BACKENDS}


def _joined(parameters: list[Parameter], backend: str) -> Call:
    """The program as a backend runs it, in a function of its own: Dynamo keeps one cache per code object."""
    namespace: dict[str, Any] = {"torch": torch}
    exec("def joined(parameters):\n    return torch.cat(parameters)\n", namespace)
    compiled = torch.compile(namespace["joined"], backend=backend)
    return lambda: compiled(parameters)


def _forward(call: Call, count: int) -> Callable[[], float]:
    times = max(3, CALLS // (count + 10))

    def sample() -> float:
        kept = call()
        start = process_time_ns()
        for _ in range(times):
            kept = call()
        spent = (process_time_ns() - start) / times / 1e3
        del kept
        return spent

    return sample


def _without_gradients(sample: Callable[[], float]) -> Callable[[], float]:
    return torch.no_grad()(sample)


def _backward(call: Call, parameters: list[Parameter]) -> Callable[[], float]:
    cotangent = torch.randn(len(parameters))

    def once() -> float:
        out = call()
        for parameter in parameters:
            parameter.grad = None
        start = process_time_ns()
        out.backward(cotangent)
        return (process_time_ns() - start) / 1e3

    return lambda: statistics.median(once() for _ in range(max(3, 200 // len(parameters))))


def _forward_table(measured: dict[int, dict[str, float]]) -> Table:
    rows = []
    for count, found in measured.items():
        below = found["forward dynamo"]
        overheads = [found[f"forward {name}"] - below for name in BACKENDS]
        autograd = [found["forward eager"] - found["forward kernel"], found["forward empty function"]]
        dynamo = below - found["forward kernel"]
        allowed = ALLOWED_US + ALLOWED_EACH_US * count
        values = (found["forward kernel"], dynamo, *autograd, *overheads, allowed)
        rows.append([str(count), *(number(value, 1) for value in values)])
    columns = ("parameters", "kernel", "Dynamo", "eager's autograd", "empty function", *BACKENDS, "allowed")
    return Table("Forward, µs beside the kernel and Dynamo", columns, rows)


def _backward_table(measured: dict[int, dict[str, float]]) -> Table:
    rows = []
    for count, found in measured.items():
        values = [found[f"backward {name}"] for name in ("eager", *BACKENDS)]
        rows.append([str(count), *(number(value, 1) for value in (*values, values[-1] - values[0]))])
    return Table(
        "Backward, µs with the engine's work", ("parameters", "eager", *BACKENDS, "tapeless beside eager"), rows
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="rounds of each count of parameters")
    parser.add_argument("--out", type=Path, default=RESULTS / "overhead.md", help="results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
