"""What Tapeless promises of the workloads, held against the measurements."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.tables import Table
from benchmarks.workloads import DEPTHS, SECOND_ORDER

Result = dict[str, Any]
Variants = dict[str, Result]
Quantity = Callable[[Result, Variants], float | None]
Chosen = Callable[[str], bool]

FAILED = float("inf")
PYTHON, AUTO = "tapeless:backend=python", "tapeless:backend=auto"
SMALL = "tapeless:backend=python:memory=small"
TRAIN = ("train/tapeless:backend=auto", "train/tapeless:backend=inductor", "train/tapeless:backend=python")
TRANSFORMERS = ("tfm_plain", "vit_small", "bert_small", "gpt2_small", "llama_tiny", "llama_lora")


def every(name: str) -> bool:
    """All workloads but those that only differ in depth, and the small one, which is there for whole steps."""
    return name not in DEPTHS and name != "mlp_small"


def first_order(name: str) -> bool:
    """Those whose loss contains no derivative."""
    return every(name) and name not in SECOND_ORDER


def among(*names: str) -> Chosen:
    """These workloads."""
    return lambda name: name in names


@dataclass(frozen=True)
class Promise:
    """A bound on a quantity, which may be unknown where its reference was not measured.

    It is made for the first of `labels` that was measured. The quantity of every workload is within the bound, or, of
    a `mean`, the geometric mean over workloads.
    """

    text: str
    bound: float
    labels: tuple[str, ...]
    quantity: Quantity
    on: Chosen = every
    mean: bool = False

    def row(self, workloads: dict[str, Variants]) -> list[str]:
        """The promise, what was measured, and who breaks it."""
        label = next((label for label in self.labels if _was_measured(label, workloads)), None)
        values = {} if label is None else self._values(workloads, label)
        if not values:
            return [self.text, f"{self.bound:g}", label or self.labels[0], "", "not measured", ""]
        if self.mean:
            mean = math.exp(sum(map(math.log, values.values())) / len(values))
            verdict = "none" if mean <= self.bound else "the mean"
            return [self.text, f"{self.bound:g}", str(label), f"{mean:.3g}", f"mean of {len(values)}", verdict]
        worst = max(values, key=lambda name: values[name])
        broken = [name for name, value in values.items() if not value <= self.bound]
        return [self.text, f"{self.bound:g}", str(label), f"{values[worst]:.3g}", worst, ", ".join(broken) or "none"]

    def _values(self, workloads: dict[str, Variants], label: str) -> dict[str, float]:
        measured = {name: variants for name, variants in workloads.items() if label in variants and self.on(name)}
        found = {name: self._value(variants[label], variants) for name, variants in measured.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _value(self, result: Result, variants: Variants) -> float | None:
        """The quantity for one workload; a variant that fails keeps no promise."""
        if "skipped" in result or ("error" in result and self.mean):
            return None
        return FAILED if "error" in result else self.quantity(result, variants)


def _was_measured(label: str, workloads: dict[str, Variants]) -> bool:
    return any("skipped" not in variants.get(label, {"skipped": ""}) for variants in workloads.values())


def step_ratio(*others: str) -> Quantity:
    """Processor time of a step over that of the fastest of some other variants."""

    def quantity(result: Result, _: Variants) -> float | None:
        known = result.get("ratio_to", {})
        ratios = [known[other]["cpu_s"]["median"] for other in others if other in known]
        return max(ratios, default=None)

    return quantity


def _over(value: Callable[[Result], float | None], other: str, of_other: Callable[[Result], float | None]) -> Quantity:
    """A value over another variant's."""

    def quantity(result: Result, variants: Variants) -> float | None:
        reference = variants.get(other, {"error": ""})
        if {"error", "skipped"} & reference.keys():
            return None
        own, base = value(result), of_other(reference)
        return own / base if own is not None and base else None

    return quantity


def _first_call(result: Result) -> float | None:
    return result.get("first_call_s")


def _settled(result: Result) -> float | None:
    return result.get("settled_s")


def _early(result: Result) -> float | None:
    """A step, by the wall, while something is compiled beside it."""
    return result.get("early_wall_s")


def _later(result: Result) -> float | None:
    return result.get("later_step_s")


def _stall(result: Result, _: Variants) -> float | None:
    return result.get("longest_stall_s")


def _peak(result: Result) -> float | None:
    """Of the first steps, or of the final ones, if those take more."""
    peaks = [result[key]["peak"] for key in ("memory_mb", "settled_memory_mb") if key in result]
    return max(peaks, default=None)


def _gradient_error(dtype: str) -> Quantity:
    """How far a gradient is from eager's, in multiples of what is allowed: 1e-9 in float64; in float32 1e-4, or twice
    what eager's own differs by from float64, as two that round independently may be apart."""

    def quantity(result: Result, _: Variants) -> float | None:
        found = result.get("gradients", {})
        if dtype not in found and "error" not in found:
            return None
        difference = found.get(dtype, {})
        allowed = 1e-9 if dtype == "float64" else max(1e-4, 2 * difference.get("rounding", 0))
        return difference.get("error", FAILED) / allowed

    return quantity


def _nones_differ(result: Result, _: Variants) -> float | None:
    if "gradients" not in result:
        return None
    found = result["gradients"].get("float32", {})
    return found.get("zero_for_none", FAILED) + found.get("none_for_tensor", FAILED)


PROMISES = (
    Promise("step ÷ eager", 1.05, (PYTHON,), step_ratio("eager"), first_order),
    Promise("step ÷ aot_eager", 1.03, (PYTHON,), step_ratio("aot_eager"), first_order),
    Promise("first step ÷ aot_eager's", 1.2, (PYTHON,), _over(_first_call, "aot_eager", _first_call), first_order),
    Promise("peak memory ÷ eager's", 1.0, (PYTHON,), _over(_peak, "eager", _peak), first_order),
    Promise("step ÷ the faster of eager and inductor", 1.03, (AUTO,), step_ratio("eager", "inductor")),
    Promise("step ÷ inductor", 0.92, (AUTO,), step_ratio("inductor"), mean=True),
    Promise("whole step ÷ inductor with a compiled optimizer", 0.88, TRAIN, step_ratio("inductor"), mean=True),
    Promise("whole step ÷ floor", 1.10, TRAIN, step_ratio("floor"), among("mlp_deep", *TRANSFORMERS)),
    Promise("whole step ÷ eager, small model", 0.7, TRAIN, step_ratio("eager"), among("mlp_small")),
    Promise(
        "one head of eight: step ÷ inductor", 0.5, (AUTO,), step_ratio("inductor"), among("eight_heads_short_trunk")
    ),
    Promise(
        "behind a trunk of six: step ÷ inductor", 0.7, (AUTO,), step_ratio("inductor"), among("eight_heads_one_used")
    ),
    Promise("second order: step ÷ eager", 0.6, (AUTO,), step_ratio("eager"), among("pinn", "force_field")),
    Promise("gradient penalty: step ÷ eager", 1.0, (AUTO,), step_ratio("eager"), among("wgan_gp")),
    Promise("ResNet-18: step ÷ eager", 1.0, (AUTO,), step_ratio("eager"), among("resnet18")),
    Promise("first step, cold ÷ inductor's", 0.15, (AUTO,), _over(_first_call, "inductor", _first_call)),
    Promise("until final speed ÷ inductor's first step", 1.1, (AUTO,), _over(_settled, "inductor", _first_call)),
    Promise("steps meanwhile ÷ generated Python's", 1.15, (AUTO,), _over(_early, PYTHON, _later)),
    Promise("longest stall, s", 0.1, (AUTO,), _stall),
    Promise("peak memory ÷ inductor's", 1.0, (AUTO,), _over(_peak, "inductor", _peak)),
    Promise("little memory: peak ÷ eager's", 0.6, (SMALL,), _over(_peak, "eager", _peak), among(*TRANSFORMERS)),
    Promise("little memory: step ÷ eager", 1.35, (SMALL,), step_ratio("eager"), among(*TRANSFORMERS)),
    *(
        promise
        for label in (PYTHON, "tapeless:backend=inductor", AUTO, *TRAIN)
        for promise in (
            Promise("gradient error ÷ allowed, float32", 1.0, (label,), _gradient_error("float32"), every),
            Promise("gradient error ÷ allowed, float64", 1.0, (label,), _gradient_error("float64"), every),
        )
    ),
    Promise("gradients that are None on one side only", 0, (PYTHON,), _nones_differ),
)


def promises(workloads: dict[str, Variants]) -> Table:
    """For each promise the workload that comes nearest to breaking it, and all that break it."""
    columns = ("promise", "at most", "variant", "measured", "where", "broken by")
    return Table("What is promised", columns, [promise.row(workloads) for promise in PROMISES])
