"""What a call costs beside its kernels: one operator of 1, 10, 100 and 1000 parameters, forward and backward.

    python -m benchmarks.overhead --rounds 40

The program joins its parameters. A variant's overhead is the time of its call less that of the same call with
`backend="eager"` outside grad mode: Dynamo's guards and the kernel, and nothing of autograd. It is taken twice: up to
the first kernel, for which a kernel that looks at the clock takes the place of torch's, and over the whole call. The
result of a call is kept until the next one, as a training loop keeps its loss. A backward is timed whole, the engine's
work for each parameter included; what it costs beside eager's is the last column.
"""

import argparse
import gc
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time_ns
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import Parameter

from benchmarks.measure import rotated
from benchmarks.tables import RESULTS, Table, number, origin, write_markdown

COUNTS = (1, 10, 100, 1000)
BACKENDS = ("aot_eager", "tapeless")
OPTIONS: dict[str, dict[str, Any]] = {"tapeless": {"options": {"backend": "python"}}}
CALLS = 2000  # of one parameter, in a round
ALLOWED_US, ALLOWED_EACH_US = 15, 0.1

Call = Callable[[], Tensor]
Samples = dict[str, list[float]]  # by name, one for each round


def main() -> None:
    """Measure all counts of parameters and write them down."""
    given = _arguments()
    torch.set_num_threads(1)
    measured = {count: measure(count, given.rounds) for count in COUNTS}
    tables = [
        _forward_table("Forward, µs up to the first kernel, beside dispatch and Dynamo", "start", measured),
        _forward_table("Forward, µs of the whole call, beside the kernel and Dynamo", "forward", measured),
        _backward_table(measured),
    ]
    for table in tables:
        table.show()
    write_markdown(given.out, "Overhead of a call", origin(), tables)


def measure(count: int, rounds: int) -> Samples:
    """Microseconds of each kind of call, in rounds in which all kinds take turns."""
    parameters = [Parameter(torch.randn(1)) for _ in range(count)]
    calls = {"eager": lambda: torch.cat(parameters)} | {name: _joined(parameters, name) for name in BACKENDS}
    plain = {"kernel": calls["eager"], "dynamo": _joined(parameters, "eager")}
    empty = {"empty function": lambda: Empty.apply(*parameters)}
    times = max(3, CALLS // (count + 10))
    forward = {
        **{f"forward {name}": _forward(call, times) for name, call in (calls | empty).items()},
        **{f"forward {name}": torch.no_grad()(_forward(call, times)) for name, call in plain.items()},
        **{f"backward {name}": _backward(call, parameters) for name, call in calls.items()},
    }
    found = _sampled(forward, rounds)
    with Stamps(count) as stamps:
        start = {
            **{f"start {name}": _start(call, stamps, times) for name, call in calls.items()},
            **{f"start {name}": torch.no_grad()(_start(call, stamps, times)) for name, call in plain.items()},
        }
        return found | _sampled(start, rounds)


def _sampled(samplers: dict[str, Callable[[], float]], rounds: int) -> Samples:
    samples: Samples = {name: [] for name in samplers}
    for sampler in samplers.values():
        sampler()
    gc.collect()
    for turn in range(rounds):
        for name in rotated(list(samplers), turn):
            samples[name].append(samplers[name]())
    return samples


class Stamps:
    """While it lasts, the kernel that joins tensors only notes the time."""

    def __init__(self, size: int) -> None:
        self.size, self.latest = size, 0

    def __enter__(self) -> Self:
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings(action="ignore"):  # that a kernel is replaced
            self._library.impl("cat", self._kernel, "CPU")
        return self

    def __exit__(self, *_: Any) -> None:
        self._library._destroy()

    def _kernel(self, tensors: list[Tensor], dim: int = 0) -> Tensor:
        self.latest = process_time_ns()
        return torch.empty(self.size)


class Empty(torch.autograd.Function):
    """What autograd itself asks for: a function that does nothing."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> None:
        raise NotImplementedError("only its forward is timed")


def _joined(parameters: list[Parameter], backend: str) -> Call:
    """The program as a backend runs it, in a function of its own: Dynamo keeps one cache per code object."""
    namespace: dict[str, Any] = {"torch": torch}
    exec("def joined(parameters):\n    return torch.cat(parameters)\n", namespace)
    compiled = torch.compile(namespace["joined"], backend=backend, **OPTIONS.get(backend, {}))
    return lambda: compiled(parameters)


def _forward(call: Call, times: int) -> Callable[[], float]:
    def sample() -> float:
        kept = call()
        start = process_time_ns()
        for _ in range(times):
            kept = call()
        spent = (process_time_ns() - start) / times / 1e3
        del kept
        return spent

    return sample


def _start(call: Call, stamps: Stamps, times: int) -> Callable[[], float]:
    def sample() -> float:
        kept, spent = call(), []
        for _ in range(times):
            start = process_time_ns()
            kept = call()
            spent.append((stamps.latest - start) / 1e3)
        del kept
        return statistics.median(spent)

    return sample


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


def _forward_table(title: str, kind: str, measured: dict[int, Samples]) -> Table:
    rows = []
    for count, found in measured.items():
        kernel, dynamo, eager = (found[f"{kind} {name}"] for name in ("kernel", "dynamo", "eager"))
        overheads = [_between(found[f"{kind} {name}"], dynamo) for name in BACKENDS]
        beside = [_between(dynamo, kernel), _between(eager, kernel), statistics.median(found["forward empty function"])]
        values = (statistics.median(kernel), *beside, *overheads, ALLOWED_US + ALLOWED_EACH_US * count)
        rows.append([str(count), *(number(value, 1) for value in values)])
    columns = ("parameters", "kernel", "Dynamo", "eager's autograd", "empty autograd.Function", *BACKENDS, "allowed")
    return Table(title, columns, rows)


def _between(above: list[float], below: list[float]) -> float:
    """The difference within a round: its median over rounds."""
    return statistics.median(a - b for a, b in zip(above, below, strict=True))


def _backward_table(measured: dict[int, Samples]) -> Table:
    rows = []
    for count, found in measured.items():
        kinds = [found[f"backward {name}"] for name in ("eager", *BACKENDS)]
        values = [*map(statistics.median, kinds), _between(kinds[-1], kinds[0])]
        rows.append([str(count), *(number(value, 1) for value in values)])
    columns = ("parameters", "eager", *BACKENDS, "tapeless beside eager")
    return Table("Backward, µs with the engine's work", columns, rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="rounds of each count of parameters")
    parser.add_argument("--out", type=Path, default=RESULTS / "overhead.md", help="results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
