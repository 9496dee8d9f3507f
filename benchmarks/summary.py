"""Tables made of step results: a row per workload, a column per variant; then the promises they keep or break."""

from collections.abc import Callable
from typing import Any

from benchmarks.promises import promises
from benchmarks.tables import Table, number, tiny
from benchmarks.variants import EAGER

Result = dict[str, Any]
Variants = dict[str, Result]
Cell = Callable[[Result], str]

REFERENCE = "aot_eager"


def tables_of(results: Result) -> list[Table]:
    """All tables of a results file."""
    workloads: dict[str, Variants] = results["workloads"]
    labels = list(dict.fromkeys(label for variants in workloads.values() for label in variants))
    compiled = [label for label in labels if label != EAGER]
    others = [label for label in compiled if label != REFERENCE]
    return [
        _grid("Step time, ms (median, wall)", workloads, labels, _milliseconds),
        _grid("Step time ÷ eager (processor time, round by round: median, quartiles)", workloads, compiled, _to(EAGER)),
        _grid(f"Step time ÷ {REFERENCE} (the same)", workloads, others, _to(REFERENCE)),
        _grid("First call, s wall (s processor)", workloads, compiled, _first_call),
        _grid("Memory of a step, MB: peak (alive between forward and backward)", workloads, labels, _memory),
        _grid(
            "Resident memory of a step, MB",
            workloads,
            labels,
            lambda result: number(result["memory_mb"]["resident"], 1),
        ),
        _grid(
            "Gradients against eager: error in float32, in float64; Nones that differ", workloads, compiled, _gradients
        ),
        _grid("Graphs captured by Dynamo", workloads, compiled, lambda result: str(result["graphs"])),
        _failures(workloads),
        *(promises(workloads, label) for label in labels if label.startswith("tapeless")),
    ]


def _grid(title: str, workloads: dict[str, Variants], labels: list[str], cell: Cell) -> Table:
    rows = [[name, *(_safe(cell, variants.get(label)) for label in labels)] for name, variants in workloads.items()]
    return Table(title, ["workload", *labels], rows)


def _safe(cell: Cell, result: Result | None) -> str:
    if result is None:
        return ""
    return "fails" if "error" in result else cell(result)


def _milliseconds(result: Result) -> str:
    return number(result["step_wall_s"] * 1e3)


def _to(other: str) -> Cell:
    def cell(result: Result) -> str:
        spread = result["ratio_to"].get(other, {}).get("cpu_s")
        return f"{spread['median']:.3f} ({spread['low']:.2f}–{spread['high']:.2f})" if spread else ""

    return cell


def _first_call(result: Result) -> str:
    return f"{result['first_call_s']:.2f} ({result['first_call_cpu_s']:.2f})"


def _memory(result: Result) -> str:
    return f"{result['memory_mb']['peak']:.1f} ({result['memory_mb']['saved']:.1f})"


def _gradients(result: Result) -> str:
    found = result["gradients"]
    if "error" in found:
        return "fails"
    errors = ", ".join(_error(found[dtype]) for dtype in ("float32", "float64"))
    return f"{errors}; {_nones(found['float32'])}"


def _error(difference: Result) -> str:
    return "fails" if "failed" in difference else tiny(difference["error"])


def _nones(difference: Result) -> str:
    """How many parameters get zeros where eager has None, and None where eager has a gradient."""
    parts = [(difference.get("zero_for_none"), "zeros for None"), (difference.get("none_for_tensor"), "lost")]
    return ", ".join(f"{count} {word}" for count, word in parts if count) or "same Nones"


def _failures(workloads: dict[str, Variants]) -> Table:
    rows = [
        [name, label, reason]
        for name, variants in workloads.items()
        for label, result in variants.items()
        for reason in _reasons(result)
    ]
    return Table("What fails, and why", ["workload", "variant", "reason"], rows)


def _reasons(result: Result) -> list[str]:
    if "error" in result:
        return [result["error"]]
    gradients = result["gradients"]
    if "error" in gradients:
        return [f"gradients: {gradients['error']}"]
    return [f"{dtype}: {found['failed']}" for dtype, found in gradients.items() if "failed" in found]
