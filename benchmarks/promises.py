"""What Tapeless promises of every first-order workload, held against the measurements."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.tables import Table
from benchmarks.workloads import SECOND_ORDER

Result = dict[str, Any]
Variants = dict[str, Result]
Quantity = Callable[[Result, Variants], float | None]

FAILED = float("inf")


@dataclass(frozen=True)
class Promise:
    """A bound on a quantity, which may be unknown where its reference was not measured."""

    text: str
    bound: float
    quantity: Quantity

    def value(self, variants: Variants, label: str) -> float | None:
        """The quantity for one workload; a variant that fails keeps no promise."""
        result = variants[label]
        return FAILED if "error" in result else self.quantity(result, variants)


def _step_ratio(other: str) -> Quantity:
    return lambda result, _: result["ratio_to"].get(other, {}).get("cpu_s", {}).get("median")


def _first_call(clock: str) -> Quantity:
    def quantity(result: Result, variants: Variants) -> float | None:
        reference = variants.get("aot_eager", {}).get(clock)
        return result[clock] / reference if reference else None

    return quantity


def _peak(result: Result, variants: Variants) -> float | None:
    eager = variants.get("eager", {}).get("memory_mb")
    return result["memory_mb"]["peak"] / eager["peak"] if eager else None


def _gradient_error(dtype: str) -> Quantity:
    return lambda result, _: result["gradients"].get(dtype, {}).get("error", FAILED)


def _nones_differ(result: Result, _: Variants) -> float | None:
    found = result["gradients"].get("float32", {})
    return found.get("zero_for_none", FAILED) + found.get("none_for_tensor", FAILED)


PROMISES = (
    Promise("step time ÷ eager", 1.05, _step_ratio("eager")),
    Promise("step time ÷ aot_eager", 1.03, _step_ratio("aot_eager")),
    Promise("first call ÷ aot_eager, wall", 1.2, _first_call("first_call_s")),
    Promise("first call ÷ aot_eager, processor", 1.2, _first_call("first_call_cpu_s")),
    Promise("peak memory ÷ eager", 1.0, _peak),
    Promise("gradient error, float32", 1e-4, _gradient_error("float32")),
    Promise("gradient error, float64", 1e-9, _gradient_error("float64")),
    Promise("gradients that are None on one side only", 0, _nones_differ),
)


def promises(workloads: dict[str, Variants], label: str) -> Table:
    """For each promise the workload that comes nearest to breaking it, and all that break it."""
    first_order = {name: variants for name, variants in workloads.items() if name not in SECOND_ORDER}
    measured = {name: variants for name, variants in first_order.items() if label in variants}
    columns = ("first-order workloads", "at most", "worst", "where", "broken by")
    return Table(f"What {label} promises", columns, [_row(promise, measured, label) for promise in PROMISES])


def _row(promise: Promise, workloads: dict[str, Variants], label: str) -> list[str]:
    values = {name: promise.value(variants, label) for name, variants in workloads.items()}
    known = {name: value for name, value in values.items() if value is not None}
    worst = max(known, key=lambda name: known[name], default=None)
    if worst is None:
        return [promise.text, f"{promise.bound:g}", "", "not measured", ""]
    broken = [name for name, value in known.items() if not value <= promise.bound]
    return [promise.text, f"{promise.bound:g}", f"{known[worst]:.3g}", worst, ", ".join(broken) or "none"]
