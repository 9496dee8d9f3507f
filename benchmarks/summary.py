"""Tables made of step results: every variant of every workload, and the promises they keep or break."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.tables import Table, number, tiny
from benchmarks.workloads import SECOND_ORDER

Result = dict[str, Any]
Variants = dict[str, Result]

COLUMNS = (
    "workload",
    "variant",
    "step ms",
    "÷ eager, cpu",
    "÷ eager, wall",
    "÷ aot_eager, cpu",
    "first call s",
    "first ÷ aot_eager",
    "peak MB",
    "saved MB",
    "resident MB",
    "error f32",
    "error f64",
    "None differs",
    "graphs",
    "remark",
)


def tables_of(results: Result) -> list[Table]:
    """All tables of a results file."""
    workloads = results["workloads"]
    rows = [row for name, variants in workloads.items() for row in _rows(name, variants)]
    return [Table("Every workload and variant", COLUMNS, rows), promises(workloads)]


def _rows(name: str, variants: Variants) -> Iterator[list[str]]:
    for label, result in variants.items():
        yield [name, label, *_cells(result, variants.get("aot_eager", {}))]


def _cells(result: Result, reference: Result) -> list[str]:
    if "error" in result:
        return [""] * (len(COLUMNS) - 3) + [result["error"]]
    memory, gradients = result["memory_mb"], result["gradients"]
    return [
        number(result["step_wall_s"] * 1e3),
        _ratio(result, "eager", "cpu_s"),
        _ratio(result, "eager", "wall_s"),
        _ratio(result, "aot_eager", "cpu_s"),
        number(result["first_call_s"]),
        number(_quotient(result, reference, "first_call_s")),
        number(memory["peak"], 1),
        number(memory["saved"], 1),
        number(memory["resident"], 1),
        _error(gradients, "float32"),
        _error(gradients, "float64"),
        _nones(gradients),
        _graphs(result),
        _remark(gradients),
    ]


def _ratio(result: Result, other: str, clock: str) -> str:
    """Median and quartiles of the ratios within rounds."""
    spread = result["ratio_to"].get(other, {}).get(clock)
    return f"{spread['median']:.3f} ({spread['low']:.2f}–{spread['high']:.2f})" if spread else ""


def _quotient(result: Result, reference: Result, key: str) -> float | None:
    return result[key] / reference[key] if key in reference else None


def _error(gradients: Result, dtype: str) -> str:
    return tiny(gradients.get(dtype, {}).get("error"))


def _nones(gradients: Result) -> str:
    """How many parameters get zeros where eager has None, and None where eager has a gradient."""
    found = gradients.get("float32", {})
    if "zero_for_none" not in found:
        return ""
    parts = [(found["zero_for_none"], "zeros"), (found["none_for_tensor"], "missing")]
    return ", ".join(f"{count} {word}" for count, word in parts if count) or "0"


def _graphs(result: Result) -> str:
    return f"{result['graphs']}" if result["graphs"] else ""


def _remark(gradients: Result) -> str:
    """Why gradients could not be compared."""
    if "error" in gradients:
        return gradients["error"]
    return "; ".join(f"{dtype}: {found['failed']}" for dtype, found in gradients.items() if "failed" in found)


@dataclass(frozen=True)
class Promise:
    """A bound on a quantity that every first-order workload keeps."""

    text: str
    bound: float
    quantity: Callable[[Result, Variants], float | None]


def _step_ratio(other: str) -> Callable[[Result, Variants], float | None]:
    def quantity(result: Result, _: Variants) -> float | None:
        return result["ratio_to"].get(other, {}).get("cpu_s", {}).get("median")

    return quantity


def _first_call(result: Result, variants: Variants) -> float | None:
    return _quotient(result, variants.get("aot_eager", {}), "first_call_s")


def _peak(result: Result, variants: Variants) -> float | None:
    eager = variants.get("eager", {}).get("memory_mb")
    return result["memory_mb"]["peak"] / eager["peak"] if eager else None


def _gradient_error(dtype: str) -> Callable[[Result, Variants], float | None]:
    return lambda result, _: result["gradients"].get(dtype, {}).get("error", float("inf"))


def _nones_differ(result: Result, _: Variants) -> float | None:
    found = result["gradients"].get("float32", {})
    return found.get("zero_for_none", float("inf")) + found.get("none_for_tensor", 0)


PROMISES = (
    Promise("step time ÷ eager", 1.05, _step_ratio("eager")),
    Promise("step time ÷ aot_eager", 1.03, _step_ratio("aot_eager")),
    Promise("first call ÷ aot_eager", 1.2, _first_call),
    Promise("peak memory ÷ eager", 1.0, _peak),
    Promise("gradient error, float32", 1e-4, _gradient_error("float32")),
    Promise("gradient error, float64", 1e-9, _gradient_error("float64")),
    Promise("gradients None on one side only", 0, _nones_differ),
)


def promises(workloads: dict[str, Variants], label: str = "tapeless") -> Table:
    """For each promise the workload that comes nearest to breaking it, and all that break it."""
    columns = ("first-order workloads", "at most", "worst", "where", "broken by")
    measured = {name: variants for name, variants in workloads.items() if label in variants and _first_order(name)}
    rows = [_promise_row(promise, measured, label) for promise in PROMISES] if measured else []
    return Table(f"What {label} promises", columns, rows)


def _first_order(name: str) -> bool:
    return name not in SECOND_ORDER


def _promise_row(promise: Promise, workloads: dict[str, Variants], label: str) -> list[str]:
    values = {name: _value(promise, variants, label) for name, variants in workloads.items()}
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return [promise.text, f"{promise.bound:g}", "", "not measured", ""]
    worst = max(known, key=lambda name: known[name])
    broken = [name for name, value in known.items() if not value <= promise.bound]
    return [promise.text, f"{promise.bound:g}", f"{known[worst]:.3g}", worst, ", ".join(broken) or "none"]


def _value(promise: Promise, variants: Variants, label: str) -> float | None:
    result = variants[label]
    return float("inf") if "error" in result else promise.quantity(result, variants)
