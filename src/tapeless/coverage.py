"""`tapeless coverage`: which ATen operators have a written rule, a traced one or none, and, over PyTorch's OpInfo
samples, whether gradients through `torch.compile(backend="tapeless")` equal eager's.

The sweep is long, so it can be stopped: entries found in the JSON file beside the table are not run again. Entries run
in worker processes; one that crashes or hangs becomes a row of the table.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload

from tapeless.rules.registry import RULES
from tapeless.rules.support import WRITTEN, support
from tapeless.testing.opinfo import NOT_CAPTURED, Row, entry_names

SECONDS = 600.0  # for one OpInfo entry; more counts as hanging


def run(opinfo: bool, most: int, only: list[str], processes: int, out: Path | None) -> None:
    """Print the counts; write the table to `out`; with `opinfo`, check the samples first."""
    operators = differentiable_operators()
    rows = sweep(most, only, processes, out.with_suffix(".json") if out else None) if opinfo else []
    for line in summary(operators, rows):
        print(line)
    if out is not None:
        out.write_text(markdown(operators, rows), encoding="utf-8")
        print(f"written to {out}")


# -- operators -----------------------------------------------------------------------------------------------------


def differentiable_operators() -> dict[str, str]:
    """Every operator for which torch has a derivative formula, and how it is differentiated here."""
    found = {str(op): support(op) for op in map(_overload, _formulas()) if op is not None}
    return dict(sorted(found.items()))


def _formulas() -> list[str]:
    """Names with a formula in torchgen's `derivatives.yaml`: `add.Tensor`. Mutating ones are never captured."""
    import torchgen.packaged.autograd as autograd

    table = (Path(autograd.__path__[0]) / "derivatives.yaml").read_text(encoding="utf-8")
    names = []
    for entry in table.split("\n- name: ")[1:]:
        name = entry.partition("(")[0]
        formulas = re.findall(
            r"^ +\b(?!output_differentiability|result|dispatch)[\w, ]+: *(\S.*)$", entry, re.MULTILINE
        )
        if not name.partition(".")[0].endswith("_") and any(not _is_refusal(formula) for formula in formulas):
            names.append(name)
    return names


def _is_refusal(formula: str) -> bool:
    return formula.startswith(("not_implemented", "non_differentiable", "not_differentiable"))


def _overload(name: str) -> OpOverload | None:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


# -- samples -------------------------------------------------------------------------------------------------------


def sweep(most: int, only: list[str], processes: int, store: Path | None) -> list[Row]:
    """Check every OpInfo entry (or those in `only`), at most `most` samples each; earlier results are kept."""
    names = entry_names()
    if unknown := sorted(set(only) - set(names)):
        raise SystemExit(f"no OpInfo entry with a gradient in float64: {', '.join(unknown)}")
    names = only or names
    results = Results(store, most)
    todo: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        if name not in results.rows:
            todo.put(name)
    threads = [threading.Thread(target=_work, args=(todo, most, results)) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results.rows[name] for name in names if name in results.rows]


@dataclass
class Results:
    """Rows by entry, kept in a file after each one. Rows of another torch, or of fewer samples, are not reused."""

    store: Path | None
    most: int
    rows: dict[str, Row] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        earlier = json.loads(self.store.read_text()) if self.store and self.store.exists() else {}
        if earlier.get("torch") == torch.__version__ and earlier.get("most") == self.most:
            self.rows = {row["name"]: Row(**row) for row in earlier["rows"]}

    def add(self, row: Row) -> None:
        with self.lock:
            self.rows[row.name] = row
            print(f"{row.name}: {row.ok}/{row.samples} {row.problem}".rstrip(), file=sys.stderr, flush=True)
            if self.store:
                rows = [asdict(self.rows[name]) for name in sorted(self.rows)]
                content = {"torch": torch.__version__, "most": self.most, "rows": rows}
                self.store.write_text(json.dumps(content, indent=1) + "\n")


def _work(todo: queue.SimpleQueue[str], most: int, results: Results) -> None:
    """Feed one worker process after another until nothing is left."""
    worker = None
    while not todo.empty():
        try:
            name = todo.get_nowait()
        except queue.Empty:
            break
        worker = worker or Worker(most)
        row = worker.check(name)
        results.add(row or Row(name, problem=worker.stop()))
        worker = worker if row else None
    if worker:
        worker.stop()


class Worker:
    """A process that checks entries: a name per line in, a row of JSON per line out."""

    def __init__(self, most: int) -> None:
        command = [sys.executable, "-m", "tapeless.testing.opinfo", str(most)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self.hung = False

    def check(self, name: str) -> Row | None:
        """The row of one entry; None if the process died or had to be stopped."""
        assert self.process.stdin and self.process.stdout
        timer = threading.Timer(SECONDS, self._give_up)
        timer.start()
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            return None
        finally:
            timer.cancel()
        return Row(**json.loads(line)) if line else None

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


# -- the table -----------------------------------------------------------------------------------------------------


def summary(operators: dict[str, str], rows: list[Row]) -> list[str]:
    """A few lines of counts."""
    counts = Counter("written" if how in WRITTEN else how for how in operators.values())
    forms = Counter(how for how in operators.values() if how in WRITTEN)
    beyond = sum(str(op) not in operators for op in RULES)
    lines = [
        f"{len(operators)} operators with a derivative in torch {torch.__version__}: "
        + ", ".join(f"{counts[kind]} {kind}" for kind in ("written", "traced", "nondifferentiable", "none")),
        "written as " + ", ".join(f"{forms[form]} {form}" for form in WRITTEN)
        + f"; {beyond} more rules for operators without a formula of their own",
    ]  # fmt: skip
    if rows:
        captured = [row for row in rows if row.problem != NOT_CAPTURED]
        complete = sum(not row.problem for row in captured)
        ok, samples = sum(row.ok for row in captured), sum(row.samples for row in captured)
        lines.append(
            f"OpInfo: {complete} of {len(captured)} entries complete, {ok} of {samples} samples equal to eager; "
            f"{len(rows) - len(captured)} entries not captured"
        )
    return lines


def markdown(operators: dict[str, str], rows: list[Row]) -> str:
    """The page docs/coverage.md."""
    parts = [
        "# Coverage",
        "Made by `tapeless coverage --opinfo --out docs/coverage.md`.",
        "\n".join(f"- {line}" for line in summary(operators, rows)),
    ]
    if rows:
        parts += ["## Samples", _SAMPLES, *_samples_tables(rows)]
    parts += ["## Operators", _OPERATORS, *_operators_lists(operators)]
    return "\n\n".join(parts) + "\n"


_SAMPLES = (
    'Gradients of each OpInfo entry through `torch.compile(backend="tapeless")`, in float64, next to eager\'s. A\n'
    "sample counts if values agree and the same gradients are `None`. Those without a gradient in eager are left out."
)
_OPERATORS = (
    "For each operator with a derivative formula in torch: a written rule, by its form; *traced*: torch's own\n"
    "derivative is traced into ATen operators; *nondifferentiable*: declared to have none; *none*: refused."
)


def _samples_tables(rows: list[Row]) -> list[str]:
    head = "| entry | equal | written | traced | problem |\n|---|---|---|---|---|\n"
    left = [row for row in rows if row.problem == NOT_CAPTURED]
    partial = [row for row in rows if row.problem and row not in left]
    rest = [row for row in rows if not row.problem]
    tables = [("### With a difference", partial), ("### Not captured", left), ("### Complete", rest)]
    return [f"{title}\n\n{head}" + "\n".join(map(_cells, group)) for title, group in tables if group]


def _cells(row: Row) -> str:
    written = " ".join(f"`{op}`" for op, how in row.operators.items() if how in WRITTEN)
    traced = " ".join(f"`{op}`" for op, how in row.operators.items() if how == "traced")
    problem = row.problem.replace("|", "\\|")
    return f"| {row.name} | {row.ok}/{row.samples} | {written} | {traced} | {problem} |"


def _operators_lists(operators: dict[str, str]) -> list[str]:
    parts = []
    for kind in (*WRITTEN, "traced", "nondifferentiable", "none"):
        names = [f"`{op.removeprefix('aten.')}`" for op, how in operators.items() if how == kind]
        if names:
            parts += [f"### {kind} ({len(names)})", " ".join(names)]
    return parts
