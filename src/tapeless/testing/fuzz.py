"""The fuzzer: random programs, differentiated here and in eager.

    python -m tapeless.testing.fuzz --minutes 5 --seed 0

Outputs, gradients of first and second order, tangents and every None must be eager's. A program that differs is made
smaller by Hypothesis and printed as a file that can be run.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import torch
from hypothesis import strategies as st

from tapeless.testing import derivatives
from tapeless.testing.derivatives import Call, Mask
from tapeless.testing.direct import Direct
from tapeless.testing.operations import OPERATIONS
from tapeless.testing.programs import Builder, Input, Program

SHAPES = ((3, 4), (3, 4), (4, 3), (3, 3), (4,), (3,), (2, 3, 4), (3, 1), (1, 4), (), (1,), (0, 4))
BATCH = 50  # programs per Hypothesis run
LINES = 10  # of a program, at most
TOLERANCE = {torch.float32: 2e-3, torch.complex64: 2e-3}
EVERY = 10  # of so many programs one goes through `torch.compile`


# -- comparing -------------------------------------------------------------------------------------------------------


class Difference(AssertionError):
    """A program whose derivatives are not eager's; `kind` says which."""

    def __init__(self, kind: str, mask: Mask, problem: Exception) -> None:
        of = f" of outputs {mask}" if mask else ""
        super().__init__(f"{kind}{of}: {type(problem).__name__}: {problem}")
        self.kind = kind


KINDS = ("gradients", "second gradients", "tangents")


def compare(
    program: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    masks: Sequence[Mask] = ((),),
    kinds: Sequence[str] = KINDS,
    compiled: Callable[..., Any] | None = None,
) -> list[str]:
    """Raise a `Difference` where `program` and eager differ; else the kinds of derivatives that eager has of it.

    `compiled` is the program as we run it (default: captured without Dynamo, where that can be).
    """
    call = Call(program, tuple(inputs), {})
    if _attempt(derivatives.first, call) is None:
        return []
    mine = call.by(compiled or _captured(call))
    met = []
    for mask in masks if "gradients" in kinds else ():
        _same("gradients", lambda c, mask=mask: derivatives.first(c, mask), call, mine, mask)
    for name, kind in (("second gradients", derivatives.second), ("tangents", derivatives.forward)):
        if name in kinds and _attempt(kind, call) is not None:
            _same(name, kind, call, mine)
            met.append(name)
    return ["gradients", *met]


def _captured(call: Call) -> Callable[..., Any]:
    """Without Dynamo; a program that asks for values of tensors needs it, for its graph is broken there."""
    try:
        return Direct(call.function, *call.fresh())
    except Exception:  # one of ours comes again
        return torch.compile(call.function, backend="tapeless")


def _same(name: str, kind: Any, eager: Call, mine: Call, mask: Mask = ()) -> None:
    expected = kind(eager)
    try:
        derivatives.same(expected, kind(mine), name != "gradients", _tolerance(expected))
    except Exception as problem:
        excused = _is_shaky(kind, eager, expected) or (kind is derivatives.forward and _eager_is_wrong(eager, mine))
        if not isinstance(problem, AssertionError) or not excused:
            raise Difference(name, mask, problem) from problem


def _eager_is_wrong(eager: Call, mine: Call) -> bool:
    """Are eager's tangents not the transpose of its own gradients, and ours are?"""
    return not _transposes(eager, eager) and _transposes(mine, eager)


def _transposes(tangents_of: Call, eager: Call) -> bool:
    tangents, values = derivatives.forward(tangents_of), derivatives.first(eager)
    try:
        derivatives.close(*derivatives.pairing(eager, tangents, values[len(tangents) :]))
    except AssertionError:
        return False
    return True


def _tolerance(values: derivatives.Values) -> float:
    return max((TOLERANCE.get(t.dtype, 1e-7) for t in values if t is not None), default=1e-7)


def _is_shaky(kind: Any, eager: Call, expected: derivatives.Values) -> bool:
    """Does eager itself give something else if its inputs change in the last digits?"""
    moved = Call(eager.function, tuple(_nudged(t) for t in eager.args), eager.kwargs)
    try:
        derivatives.same(expected, kind(moved), tolerance=_tolerance(expected) / 10)
    except AssertionError:
        return True
    return False


def _nudged(t: torch.Tensor) -> torch.Tensor:
    if not t.is_floating_point() and not t.is_complex():
        return t
    scale = 1 + 16 * torch.finfo(t.dtype).eps  # the same for all entries: ties stay ties
    return (t.detach() * scale).requires_grad_(t.requires_grad)


def _attempt(kind: Any, call: Call) -> derivatives.Values | None:
    try:
        return kind(call)
    except (RuntimeError, NotImplementedError):
        return None


# -- drawing -----------------------------------------------------------------------------------------------------------


INPUTS = st.builds(
    Input,
    st.sampled_from(SHAPES),
    st.sampled_from((torch.float64,) * 5 + (torch.float32, torch.complex128)),
    st.sampled_from((True, True, True, False)),
    st.sampled_from((False, False, False, True)),
)
CONSTANTS = (Input((3,), torch.int64, False), Input((3, 4), torch.int64, False), Input((3, 4), torch.bool, False))
FAMILIES = sorted(OPERATIONS)


@st.composite
def programs(draw: st.DrawFn, families: Sequence[str] = FAMILIES, lines: int = LINES) -> Program:
    """Lines that run, one to four outputs, and three masks."""
    inputs = draw(st.lists(INPUTS, min_size=1, max_size=4))
    builder = Builder([*inputs, *CONSTANTS])
    choices = st.tuples(*[st.integers(0, 23)] * 6)
    for _ in range(draw(st.integers(1, lines))):
        operation = draw(st.sampled_from(families).flatmap(lambda family: st.sampled_from(OPERATIONS[family])))
        builder.add(operation, draw(choices))
    usable = builder.differentiable()
    hypothesis.assume(usable and builder.lines)
    numbers = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    outputs = tuple(dict.fromkeys(usable[-1 - n % len(usable)] for n in numbers))
    masks = draw(st.lists(st.tuples(*[st.booleans()] * len(outputs)), max_size=2))
    return Program(builder.inputs, tuple(builder.lines), outputs, ((), *(m for m in masks if any(m)), ()))


# -- running -----------------------------------------------------------------------------------------------------------


@dataclass
class Failure:
    program: Program
    difference: Exception

    def __str__(self) -> str:
        message = f"{type(self.difference).__name__}: {self.difference}"
        comment = "".join(f"# {line}\n" for line in message.splitlines()[:6])
        return comment + self.program.text()

    @property
    def kinds(self) -> Sequence[str]:
        """What is left to look at while the program is made smaller."""
        return (self.difference.kind,) if isinstance(self.difference, Difference) else KINDS


@dataclass
class Record:
    """What a run met."""

    seeds: list[int] = field(default_factory=list)
    programs: int = 0
    met: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)


def fuzz(seeds: Iterable[int], record: Record, examples: int = BATCH, **shape: Any) -> Iterator[Record]:
    """One Hypothesis run of so many `examples` per seed; the record after each. `shape`: as for `programs`."""
    for seed in seeds:
        record.seeds.append(seed)
        failure = _run(seed, examples, programs(**shape), record)
        if failure is not None:
            record.failures.append(failure)
        yield record


def _run(seed: int, examples: int, drawn: st.SearchStrategy[Program], record: Record) -> Failure | None:
    found: list[Failure] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=(hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.filter_too_much),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(drawn)
    def agree(program: Program) -> None:
        record.programs += 1
        function = program.function()
        whole = torch.compile(function, backend="tapeless") if record.programs % EVERY == 0 and not found else None
        kinds = found[-1].kinds if found else KINDS
        try:
            record.met.update(compare(function, program.make_inputs(), program.masks, kinds, whole))
        except Exception as problem:
            found.append(Failure(program, problem))
            raise

    try:
        agree()
    except Exception:
        if not found:
            raise
        return found[-1]
    return None


HEAD = """# Random programs compared with eager

Made by `make fuzz`: outputs, gradients under several masks of cotangents, second gradients and tangents.

| seeds | minutes | programs | with second gradients | with tangents | failures | torch |
|---|---|---|---|---|---|---|
"""


def note(out: Path, minutes: float, record: Record) -> None:
    """Append what a run met to the table in `out`."""
    counts = (record.programs, record.met["second gradients"], record.met["tangents"], len(record.failures))
    seeds = f"{record.seeds[0]}–{record.seeds[-1]}"
    cells = (seeds, f"{minutes:.0f}", *map(str, counts), torch.__version__)
    text = out.read_text() if out.exists() else HEAD
    out.write_text(f"{text}| {' | '.join(cells)} |\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", default=",".join(FAMILIES), help="of operations, separated by commas")
    parser.add_argument("--out", type=Path, help="append a line to this table")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    start, record, minutes, shown = time.monotonic(), Record(), 0.0, 0
    for _ in fuzz(itertools.count(given.seed), record, families=given.families.split(",")):
        minutes = (time.monotonic() - start) / 60
        for failure in record.failures[shown:]:
            print(f"\n# --- failure, seed {record.seeds[-1]} ---\n{failure}", flush=True)
        shown = len(record.failures)
        print(f"{minutes:.1f} min, {record.programs} programs, {shown} failures", file=sys.stderr, flush=True)
        if minutes >= given.minutes:
            break
    if given.out:
        note(given.out, minutes, record)
    sys.exit(bool(record.failures))


if __name__ == "__main__":
    main()
