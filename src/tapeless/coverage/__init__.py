"""`tapeless coverage`: which ATen operators have a written rule, a traced one or none, and, over PyTorch's OpInfo
samples, whether derivatives equal eager's."""

from __future__ import annotations

from pathlib import Path

from tapeless.coverage.operators import differentiable_operators
from tapeless.coverage.sweep import PLAN, Results, jobs, run_jobs
from tapeless.coverage.table import markdown, summary


def run(
    opinfo: bool, most: int | None, only: list[str], dtypes: list[str], again: bool, processes: int, out: Path | None
) -> None:
    """Print the counts; write the table to `out`; with `opinfo`, check the samples first."""
    operators = differentiable_operators()
    results = Results.load(out.with_suffix(".json") if out else None)
    if opinfo:
        todo = jobs(only, dtypes or PLAN, most)
        if again:
            asked = {(job.name, job.dtype) for job in todo}
            results.forget(asked & {(row.name, row.dtype) for row in results.differing()})
        run_jobs(todo, processes, results)
    rows = results.ordered()
    for line in summary(operators, rows):
        print(line)
    if out is not None:
        out.write_text(markdown(operators, rows), encoding="utf-8")
        print(f"written to {out}")
