"""Plots of step results, as PNG files for the documentation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.variants import WHOLE
from benchmarks.workloads import DEPTHS

Result = dict[str, Any]
Variants = dict[str, Result]
Value = Callable[[Result, Variants], float | None]


def draw(workloads: dict[str, Variants], folder: Path) -> list[Path]:
    """All plots for which something was measured; none without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    plain = {name: variants for name, variants in workloads.items() if name not in DEPTHS}
    made = [
        _bars(plain, folder / "steps.png", "step time ÷ eager", _step("eager"), _is_step),
        _bars(plain, folder / "whole.png", "step with AdamW ÷ eager", _step("eager"), _is_whole),
        _bars(plain, folder / "first.png", "first step, cold, seconds", _first, _is_step, log=True),
        _bars(plain, folder / "memory.png", "peak memory ÷ eager", _peak, _is_step),
        _lines(workloads, folder / "depth.png"),
    ]
    return [path for path in made if path is not None]


def _is_step(label: str) -> bool:
    return not label.startswith(WHOLE)


def _is_whole(label: str) -> bool:
    return label.startswith(WHOLE)


def _step(other: str) -> Value:
    return lambda result, _: result.get("ratio_to", {}).get(other, {}).get("cpu_s", {}).get("median")


def _first(result: Result, _: Variants) -> float | None:
    return result.get("first_call_s")


def _peak(result: Result, variants: Variants) -> float | None:
    eager = variants.get("eager", {}).get("memory_mb", {}).get("peak")
    own = result.get("memory_mb", {}).get("peak")
    return own / eager if own is not None and eager else None


def _bars(
    workloads: dict[str, Variants],
    path: Path,
    title: str,
    value: Value,
    chosen: Callable[[str], bool],
    log: bool = False,
) -> Path | None:
    """A group of bars for each workload, a bar for each variant."""
    from matplotlib import pyplot

    values = _values(workloads, value, chosen)
    if not values:
        return None
    names = list(workloads)
    figure, axes = pyplot.subplots(figsize=(5 + 0.12 * len(names) * len(values), 4))
    width = 0.85 / len(values)
    for k, (label, found) in enumerate(values.items()):
        places = [names.index(name) + (k - (len(values) - 1) / 2) * width for name in found]
        axes.bar(places, list(found.values()), width, label=label)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_ylabel(title)
    if log:
        axes.set_yscale("log")
    else:
        axes.axhline(1, color="black", linewidth=0.8)
    return _saved(figure, axes, path)


def _values(workloads: dict[str, Variants], value: Value, chosen: Callable[[str], bool]) -> dict[str, dict[str, float]]:
    """By variant, by workload; variants without any value left out."""
    labels = dict.fromkeys(label for variants in workloads.values() for label in variants if chosen(label))
    found = {
        label: {
            name: number
            for name, variants in workloads.items()
            if label in variants and (number := value(variants[label], variants)) is not None
        }
        for label in labels
    }
    return {label: numbers for label, numbers in found.items() if numbers}


def _lines(workloads: dict[str, Variants], path: Path) -> Path | None:
    """First step over depth, a line for each variant."""
    from matplotlib import pyplot

    values = _values({name: workloads[name] for name in DEPTHS if name in workloads}, _first, _is_step)
    if not values:
        return None
    figure, axes = pyplot.subplots(figsize=(8, 4))
    for label, found in values.items():
        axes.plot([DEPTHS[name] for name in found], list(found.values()), marker="o", label=label)
    axes.set_xlabel("layers")
    axes.set_ylabel("first step, cold, seconds")
    axes.set_yscale("log")
    return _saved(figure, axes, path)


def _saved(figure: Any, axes: Any, path: Path) -> Path:
    from matplotlib import pyplot

    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1))
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path
