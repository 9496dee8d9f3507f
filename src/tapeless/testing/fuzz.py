"""The fuzzer: random programs, differentiated here and in eager.

    python -m tapeless.testing.fuzz --minutes 5 --seed 0

Outputs, gradients of first and second order, tangents and every None must be eager's. A program that differs is made
smaller by Hypothesis and printed as a file that can be run. A program that differs by a defect of eager's (finite
differences judge) is printed too and counted apart.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import torch
from hypothesis import strategies as st

from tapeless.testing.comparing import KINDS, NOTES, Difference, compare
from tapeless.testing.operations import OPERATIONS
from tapeless.testing.programs import WAYS, Builder, Input, Program

SHAPES = (
    *[(3, 4)] * 3, *[(3, 3)] * 2, *[(2, 3, 4)] * 2, (4, 3), (4,), (3,), (3, 1), (1, 4), (4, 4), (2, 1, 4), (1, 2, 3, 3),
    (), (1,), (0, 4),
)  # fmt: skip
DTYPES = (*[torch.float64] * 10, *[torch.float32] * 2, *[torch.complex128] * 2, torch.complex64, torch.bfloat16)
BATCH = 50  # programs per Hypothesis run
LINES = 10  # of a program, at most
EVERY = 10  # of so many programs one goes through `torch.compile`, every other of those with symbolic sizes


# -- drawing -----------------------------------------------------------------------------------------------------------


INPUTS = st.builds(
    Input,
    st.sampled_from(SHAPES),
    st.sampled_from(DTYPES),
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
    way = draw(st.sampled_from(tuple(WAYS[:1]) * (2 * EVERY - 2) + WAYS[1:]))
    return Program(builder.inputs, tuple(builder.lines), outputs, ((), *(m for m in masks if any(m)), ()), way)


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
    notes: list[tuple[str, Program]] = field(default_factory=list)  # eager's defects, and what torch cannot trace

    def add(self, program: Program, met: list[str]) -> None:
        self.met.update(met)
        self.notes += [(kind, program) for kind in met if kind.endswith(NOTES)]

    def count(self, kind: str) -> int:
        return sum(n for name, n in self.met.items() if name.startswith(kind))

    def __str__(self) -> str:
        notes = {name: n for name, n in sorted(self.met.items()) if "(" in name}
        return f"{self.programs} programs, {len(self.failures)} failures, {notes}"


def fuzz(seeds: Iterable[int], record: Record, examples: int = BATCH, **shape: Any) -> Iterator[Record]:
    """One Hypothesis run of so many `examples` per seed; the record after each. `shape`: as for `programs`."""
    for seed in seeds:
        record.seeds.append(seed)
        failure = _run(seed, examples, programs(**shape), record)
        if failure is not None:
            record.failures.append(failure)
        _check_process()
        yield record


def _check_process() -> None:
    """A failure inside torch can leave it without derivatives, and everything would be excused from then on."""
    met = compare(torch.sin, [torch.ones(3, dtype=torch.float64, requires_grad=True)])
    if met != list(KINDS):
        raise RuntimeError(f"torch has lost its derivatives: of a sine there are only {met}")


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
        kinds = found[-1].kinds if found else KINDS
        try:
            met = compare(function, program.make_inputs(), program.masks, kinds, program.compiled(function))
        except Exception as problem:
            found.append(Failure(program, problem))
            raise
        if not found:
            record.add(program, met)

    try:
        agree()
    except Exception:
        if not found:
            raise
        return found[-1]
    finally:
        torch.compiler.reset()  # Dynamo keeps what it compiled
    return None


HEAD = """# Random programs compared with eager

Made by `make fuzz`: outputs, gradients under several masks of cotangents, second gradients and tangents.

| seeds | minutes | programs | second gradients | tangents | failures | eager's defects | not traced by torch | torch |
|---|---|---|---|---|---|---|---|---|
"""


def note(out: Path, minutes: float, record: Record) -> None:
    """Append what a run met to the table in `out`."""
    derived = map(record.count, KINDS[1:])
    noted = [sum(reason.endswith(end) for reason, _ in record.notes) for end in NOTES]
    counts = (record.programs, *derived, len(record.failures), *noted)
    seeds = f"{record.seeds[0]}–{record.seeds[-1]}"
    cells = (seeds, f"{minutes:.0f}", *map(str, counts), torch.__version__)
    text = out.read_text() if out.exists() else HEAD
    out.write_text(f"{text}| {' | '.join(cells)} |\n")


def show(record: Record, shown: tuple[int, int]) -> tuple[int, int]:
    """Print the failures and the notes beyond those `shown`; how many there are now."""
    for failure in record.failures[shown[0] :]:
        print(f"\n# --- failure, seed {record.seeds[-1]} ---\n{failure}", flush=True)
    for reason, program in record.notes[shown[1] :]:
        print(f"\n# --- no failure: {reason}, seed {record.seeds[-1]} ---\n{program.text()}", flush=True)
    return len(record.failures), len(record.notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", default=",".join(FAMILIES), help="of operations, separated by commas")
    parser.add_argument("--out", type=Path, help="append a line to this table")
    given = parser.parse_args()
    faulthandler.enable()  # a kernel of eager's may end the process
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    start, record, minutes = time.monotonic(), Record(), 0.0
    shown = (0, 0)
    for _ in fuzz(itertools.count(given.seed), record, families=given.families.split(",")):
        minutes = (time.monotonic() - start) / 60
        shown = show(record, shown)
        print(f"{minutes:.1f} min, seed {record.seeds[-1]}, {record}", file=sys.stderr, flush=True)
        if minutes >= given.minutes:
            break
    if given.out:
        note(given.out, minutes, record)
    sys.exit(bool(record.failures))


if __name__ == "__main__":
    main()
