"""Tables made of step results: a row per workload, a column per variant; then means and promises."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.promises import promises
from benchmarks.tables import Table, number, tiny
from benchmarks.variants import EAGER, FLOOR, JAX, WHOLE

Result = dict[str, Any]
Variants = dict[str, Result]
Workloads = dict[str, Variants]
Cell = Callable[[Result], str]


def tables_of(results: Result) -> list[Table]:
    """All tables of a results file."""
    workloads: Workloads = results["workloads"]
    labels = list(dict.fromkeys(label for variants in workloads.values() for label in variants))
    steps = [label for label in labels if not label.startswith(WHOLE)]
    whole = [label for label in labels if label.startswith(WHOLE)]
    torches = [label for label in labels if label.removeprefix(WHOLE) not in (FLOOR, JAX)]
    compiled = [label for label in torches if label.removeprefix(WHOLE) != EAGER]
    return [
        promises(workloads),
        means(workloads),
        _grid("Step time, ms (median, wall)", workloads, labels, _milliseconds),
        *_ratios("Step time", workloads, steps),
        *_ratios("Whole step with AdamW", workloads, whole),
        _grid("First step, s wall: cold (with warm caches)", workloads, [*compiled, JAX], _first_call),
        _grid("Seconds until the loop runs at its final speed", workloads, compiled, _settled),
        _grid("Memory of a step, MB: peak (alive between forward and backward)", workloads, torches, _memory),
        _grid("The same of final steps, of what goes on compiling", workloads, compiled, _settled_memory),
        _grid("Resident memory of a step, MB", workloads, torches, _resident),
        _grid(
            "Gradients against eager: error in float32, in float64; Nones that differ", workloads,
            [*compiled, JAX], _gradients,
        ),
        _grid("Graphs captured by Dynamo", workloads, compiled, lambda result: str(result.get("graphs", ""))),
        _origins(results["measured"]),
        _failures(workloads),
    ]  # fmt: skip


def _ratios(what: str, workloads: Workloads, labels: list[str]) -> Iterable[Table]:
    """A table for each reference that was measured."""
    for other in (EAGER, "inductor", FLOOR):
        others = [label for label in labels if label.removeprefix(WHOLE) != other]
        note = "the fraction of processor time, round by round: median, quartiles" if other == EAGER else "the same"
        if len(others) < len(labels):
            yield _grid(f"{what} ÷ {other} ({note})", workloads, others, _to(other))


def means(workloads: Workloads) -> Table:
    """Geometric means over the workloads that both variants run."""
    labels = list(dict.fromkeys(label for variants in workloads.values() for label in variants))
    columns = (EAGER, "aot_eager", "inductor", FLOOR)
    rows = [[label, *(_mean(workloads, label, other) for other in columns)] for label in labels]
    heads = [f"÷ {other}" for other in columns]
    return Table("Step time, geometric means (number of workloads)", ["variant", *heads], rows)


def _mean(workloads: Workloads, label: str, other: str) -> str:
    found = [r for variants in workloads.values() if (r := ratio(variants.get(label, {}), other)) is not None]
    if not found or label.removeprefix(WHOLE) == other:
        return ""
    return f"{math.exp(sum(map(math.log, found)) / len(found)):.3f} ({len(found)})"


def ratio(result: Result, other: str) -> float | None:
    """Processor time of a step over another variant's, where both were measured."""
    return result.get("ratio_to", {}).get(other, {}).get("cpu_s", {}).get("median")


def _grid(title: str, workloads: Workloads, labels: list[str], cell: Cell) -> Table:
    rows = [[name, *(_safe(cell, variants.get(label)) for label in labels)] for name, variants in workloads.items()]
    return Table(title, ["workload", *labels], rows)


def _safe(cell: Cell, result: Result | None) -> str:
    if result is None or "skipped" in result:
        return ""
    return "fails" if "error" in result else cell(result)


def _if_measured(key: str) -> Callable[[Cell], Cell]:
    """Nothing where that was not looked at."""
    return lambda cell: lambda result: cell(result) if key in result else ""


@_if_measured("step_wall_s")
def _milliseconds(result: Result) -> str:
    return number(result["step_wall_s"] * 1e3)


def _to(other: str) -> Cell:
    def cell(result: Result) -> str:
        spread = result.get("ratio_to", {}).get(other, {}).get("cpu_s")
        return f"{spread['median']:.3f} ({spread['low']:.2f}–{spread['high']:.2f})" if spread else ""

    return cell


@_if_measured("first_call_s")
def _first_call(result: Result) -> str:
    warm = result.get("warm_first_call_s")
    return f"{result['first_call_s']:.2f}" + (f" ({warm:.2f})" if warm else "")


@_if_measured("first_call_s")
def _settled(result: Result) -> str:
    return number(result.get("settled_s", result["first_call_s"]))


@_if_measured("memory_mb")
def _memory(result: Result) -> str:
    return _megabytes(result["memory_mb"])


@_if_measured("settled_memory_mb")
def _settled_memory(result: Result) -> str:
    return _megabytes(result["settled_memory_mb"])


def _megabytes(found: dict[str, float]) -> str:
    return f"{found['peak']:.1f}" + (f" ({found['saved']:.1f})" if "saved" in found else "")


@_if_measured("memory_mb")
def _resident(result: Result) -> str:
    return number(result["memory_mb"].get("resident"), 1)


@_if_measured("gradients")
def _gradients(result: Result) -> str:
    found = result["gradients"]
    if "error" in found:
        return "fails"
    errors = ", ".join(_error(difference) for difference in found.values())
    return f"{errors}; {_nones(found['float32'])}"


def _error(difference: Result) -> str:
    return "fails" if "failed" in difference else tiny(difference["error"])


def _nones(difference: Result) -> str:
    """How many parameters get zeros where eager has None, and None where eager has a gradient."""
    parts = [(difference.get("zero_for_none"), "zeros for None"), (difference.get("none_for_tensor"), "lost")]
    return ", ".join(f"{count} {word}" for count, word in parts if count) or "same Nones"


def _origins(measured: dict[str, dict[str, Result]]) -> Table:
    """Parts of a results file may be measured at different times."""
    parts = list(dict.fromkeys(part for parts in measured.values() for part in parts))
    rows = [[name, *(done.get(part, {}).get("commit", "") for part in parts)] for name, done in measured.items()]
    return Table("Measured from commit", ["workload", *parts], rows)


def _failures(workloads: Workloads) -> Table:
    rows = [
        [name, label, reason]
        for name, variants in workloads.items()
        for label, result in variants.items()
        for reason in _reasons(result)
    ]
    return Table("What fails or was skipped, and why", ["workload", "variant", "reason"], rows)


def _reasons(result: Result) -> list[str]:
    if "skipped" in result:
        return [f"skipped: {result['skipped']}"]
    if "error" in result:
        return [result["error"]]
    gradients = result.get("gradients", {})
    if "error" in gradients:
        return [f"gradients: {gradients['error']}"]
    return [f"{dtype}: {found['failed']}" for dtype, found in gradients.items() if "failed" in found]
