"""PyTorch's OpInfo samples, differentiated here and in eager.

`python -m tapeless.testing.opinfo` reads jobs, one of JSON per line, and answers each with a row of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from types import FunctionType
from typing import Any

import torch

from tapeless.capture.dynamo import backend
from tapeless.testing import derivatives
from tapeless.testing.derivatives import Call
from tapeless.testing.direct import Direct
from tapeless.testing.samples import opinfo_entries

NO_DERIVATIVE = (RuntimeError, NotImplementedError, ValueError, TypeError)  # what eager raises where it has none


@dataclass(frozen=True)
class Job:
    """One OpInfo entry in one dtype, and how many of its samples are checked for what (None: all)."""

    name: str
    dtype: str
    first: int | None = None
    further: int = 4  # second order and forward mode
    dynamo: int = 2  # through `torch.compile`; the others are captured directly


@dataclass
class Count:
    """How many samples agree with eager, of how many."""

    ok: int = 0
    of: int = 0

    def add(self, ok: bool) -> None:
        self.ok, self.of = self.ok + ok, self.of + 1


@dataclass
class Row:
    """What became of one job."""

    name: str
    dtype: str
    first: Count = field(default_factory=Count)
    second: Count = field(default_factory=Count)
    forward: Count = field(default_factory=Count)
    beyond: Count = field(default_factory=Count)  # forward mode where eager has none, against eager's gradients
    dynamo: Count = field(default_factory=Count)
    left_to_eager: int = 0  # samples of which Dynamo captures nothing
    operators: dict[str, str] = field(default_factory=dict)  # on the way of a derivative, and how it is differentiated
    problems: list[str] = field(default_factory=list)  # "first[3]: what differs", at most MOST_PROBLEMS
    seconds: float = 0.0

    @classmethod
    def parse(cls, data: dict[str, Any]) -> Row:
        row = cls(**data)
        for name in ("first", "second", "forward", "beyond", "dynamo"):
            setattr(row, name, Count(**data[name]))
        return row


MOST_PROBLEMS = 6
EAGER_IS_WRONG = "eager's tangent is not the transpose of its own gradient; this one is"


def entry_name(entry: Any) -> str:
    return f"{entry.name}.{entry.variant_test_name}".rstrip(".")


def entry_names(dtype: torch.dtype = torch.float64) -> list[str]:
    return list(dict.fromkeys(map(entry_name, opinfo_entries(dtype))))


def check(entry: Any, job: Job) -> Row:
    """All that the job asks for."""
    row, start = Row(job.name, job.dtype), time.perf_counter()
    for index, call in enumerate(calls(entry, getattr(torch, job.dtype))):
        if job.first is not None and index >= job.first:
            break
        sample = Sample(row, index, call)
        if sample.check(index < job.dynamo) and index < job.further:
            Sample(row, index, on_its_domain(entry, call)).check_further()
    row.seconds = round(time.perf_counter() - start, 2)
    return row


def calls(entry: Any, dtype: torch.dtype) -> Iterator[Call]:
    function = _visible(entry.op)
    for sample in entry.sample_inputs("cpu", dtype, requires_grad=True):
        yield Call(function, (sample.input, *sample.args), sample.kwargs)


def on_its_domain(entry: Any, call: Call) -> Call:
    """The call as OpInfo itself has it for derivatives: of a symmetric or triangular matrix, where it must be one."""
    wrapper = entry.gradcheck_wrapper
    if wrapper is type(entry).__dataclass_fields__["gradcheck_wrapper"].default:
        return call
    return call.by(lambda *args, **kwargs: wrapper(call.function, *args, **kwargs))


@dataclass(frozen=True)
class Sample:
    """One call, whose results are entered into a row."""

    row: Row
    index: int
    call: Call

    def check(self, dynamo: bool) -> bool:
        """Outputs and gradients. False if eager has none, or others."""
        expected = attempt(derivatives.first, self.call)
        if expected is None or not any(t is not None and t.requires_grad for t in expected):
            return False
        try:
            program = Direct(self.call.function, *self.call.fresh())
        except Exception as problem:
            self._count("first", self._through_dynamo(expected) and brief(problem))
            return False
        self.row.operators |= program.operators()
        differs = self._difference(derivatives.first, program, expected)
        if dynamo or differs:
            differs = self._through_dynamo(expected)
        self._count("first", differs)
        return not differs

    def check_further(self) -> None:
        """Second order and forward mode."""
        first, program = derivatives.first(self.call), Direct(self.call.function, *self.call.fresh())
        expected = attempt(derivatives.second, self.call)
        if expected is not None:
            self._count("second", self._difference(derivatives.second, program, expected))
        expected = attempt(derivatives.forward, self.call)
        if expected is None:
            self._count("beyond", self._not_transposed(program, first))
            return
        differs = self._difference(derivatives.forward, program, expected)
        if differs and self._not_transposed(self.call.function, first) and not self._not_transposed(program, first):
            differs = EAGER_IS_WRONG
        self._count("forward", differs)

    def _not_transposed(self, function: Callable[..., Any], first: derivatives.Values) -> str:
        """What is wrong with the tangents of `function`, if they are not the transpose of eager's gradients."""
        try:
            tangents = derivatives.forward(self.call.by(function))
            derivatives.close(*derivatives.pairing(self.call, tangents, first[len(tangents) :]))
        except Exception as problem:
            return brief(problem)
        return ""

    def _through_dynamo(self, expected: derivatives.Values) -> str:
        """What differs where a user would see it."""
        graphs = []

        def counting(module: Any, inputs: Any) -> Any:
            graphs.append(module)
            return backend(module, inputs)

        torch.compiler.reset()
        function = self.call.function
        compiled = torch.compile(lambda *args, **kwargs: function(*args, **kwargs), backend=counting)
        differs = self._difference(derivatives.first, compiled, expected)
        self.row.dynamo.add(not differs)
        self.row.left_to_eager += not graphs
        return differs

    def _difference(self, kind: Any, function: Callable[..., Any], expected: derivatives.Values) -> str:
        """The first thing that differs from eager, or an empty string."""
        try:
            derivatives.same(expected, kind(self.call.by(function)), none_is_zero=kind is not derivatives.first)
        except Exception as problem:
            return brief(problem)
        return ""

    def _count(self, what: str, problem: str) -> None:
        getattr(self.row, what).add(not problem)
        if problem and len(self.row.problems) < MOST_PROBLEMS:
            self.row.problems.append(f"{what}[{self.index}]: {problem}")


def attempt(kind: Callable[[Call], derivatives.Values], call: Call) -> derivatives.Values | None:
    """What eager computes; None where it has no derivative of this kind."""
    try:
        return kind(call)
    except NO_DERIVATIVE:
        return None


def brief(problem: Exception) -> str:
    """The message in one line, without what Dynamo puts around it."""
    message = str(problem).partition("Set TORCHDYNAMO_VERBOSE")[0].removeprefix("backend='counting' raised:")
    lines = [line.strip() for line in message.splitlines() if line.strip() and not line.startswith("  at ")]
    return f"{type(problem).__name__}: {' '.join(lines)}"[:240]


def _visible(function: Any) -> Any:
    """An OpInfo lambda as a function that Dynamo looks into (it skips torch's own files), without a seed of its own."""
    if not isinstance(function, FunctionType) or "torch/testing" not in function.__code__.co_filename:
        return function
    names = {**function.__globals__, "wrapper_set_seed": _call_plainly}
    code = function.__code__.replace(co_filename="<OpInfo>")
    return FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)


def _call_plainly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def main() -> None:
    """Serve jobs until the input ends. What entries print themselves must not reach the answers."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    entries: dict[tuple[str, torch.dtype], Any] = {}
    for line in sys.stdin:
        job = Job(**json.loads(line))
        dtype = getattr(torch, job.dtype)
        if (job.name, dtype) not in entries:
            entries |= {(entry_name(entry), dtype): entry for entry in reversed(opinfo_entries(dtype))}
        answers.write(json.dumps(asdict(check(entries[job.name, dtype], job))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
