"""Measure training workloads: step time, first step cold and warm, memory and gradients of each variant.

    python -m benchmarks.run                                     # some workloads, all variants: 20 to 30 minutes
    python -m benchmarks.run --full                              # everything: hours; stopped, it goes on where it was
    python -m benchmarks.run --workloads gpt2_small --variants eager,inductor,tapeless:backend=python --rounds 30
    python -m benchmarks.run --full --parts steps                # step times alone: two minutes for a workload

`benchmarks/variants.py` says what a variant is. Results go to a JSON file, which is brought up to date workload by
workload, to a Markdown page beside it, and to plots and a summary in the documentation.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import isolate, measure, peer
from benchmarks.page import write_page
from benchmarks.summary import tables_of
from benchmarks.tables import RESULTS, origin, write_markdown
from benchmarks.variants import FLOOR, JAX, WHOLE, Variant
from benchmarks.workloads import NAMES

Result = dict[str, Any]

QUICK = ("mlp_small", "tfm_plain", "resnet18", "eight_heads_one_used")
LABELS = (
    "eager", "aot_eager", "inductor",
    "tapeless:backend=python", "tapeless:backend=inductor", "tapeless:backend=auto",
    "jax", "floor",
    "train/eager", "train/inductor",
    "train/tapeless:backend=python", "train/tapeless:backend=inductor", "train/tapeless:backend=auto",
    "train/floor",
)  # fmt: skip
SMALL_MEMORY = "tapeless:backend=python:memory=small"
PARTS = ("first", "gradients", "steps")  # first steps, final speed and memory; gradients against eager; step times
REFERENCES = ("eager", "aot_eager", "inductor", "floor")


@dataclass(frozen=True)
class Settings:
    """What to measure and how often."""

    workloads: list[str]
    labels: list[str]
    rounds: int
    first_calls: int
    dtypes: list[str]
    limit: float
    out: Path
    parts: tuple[str, ...] = PARTS
    again: bool = False


def main() -> None:
    """Measure what the command line asks for and write it down."""
    settings = _settings()
    results = _earlier(settings.out)
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        whole = progress.add_task("workloads", total=len(settings.workloads))
        for name in settings.workloads:
            if settings.again or not _is_done(results, name, settings):
                earlier = results["workloads"].get(name, {})
                results["workloads"][name] = measure_workload(name, settings, progress, earlier)
                results["measured"].setdefault(name, {}).update(_record(results, settings))
                _save(results, settings.out)
            progress.advance(whole)
    tables = tables_of(results)
    for table in (*tables[:2], tables[-1]):  # promises, means, failures; all are in the file
        table.show()


def measure_workload(name: str, settings: Settings, progress: Progress, earlier: Result) -> Result:
    """What is asked about one workload: a result per variant, added to what earlier runs found out about the rest."""
    task = progress.add_task(name, total=len(settings.labels) + 1)
    results: Result = {label: found for label, found in earlier.items() if not {"error", "skipped"} & found.keys()}
    with tempfile.TemporaryDirectory(prefix="tapeless-benchmark-") as cache:
        for label in settings.labels:
            progress.update(task, description=f"{name}: first steps of {label}")
            results[label] = results.get(label, {}) | _alone(name, label, settings, Path(cache), results)
            progress.advance(task)
        if "steps" in settings.parts:
            progress.update(task, description=f"{name}: steps side by side")
            working = [label for label in settings.labels if not {"error", "skipped"} & results[label].keys()]
            steady = isolate.call(
                measure.steps, name, working, settings.rounds, limit=settings.limit, cache=Path(cache)
            )
            for label, timing in _timings(steady, working):
                results[label] |= timing
    progress.remove_task(task)
    progress.console.print(f"{name}: " + ", ".join(f"{label} {_brief(result)}" for label, result in results.items()))
    return results


def _alone(name: str, label: str, settings: Settings, shared: Path, earlier: Result) -> Result:
    """One variant in processes of its own. What it leaves in its cache is added to the one that is shared."""
    variant = Variant.parse(label)
    reason = variant.missing() or (peer.missing(name) if variant.backend == JAX else None)
    if reason:
        return {"skipped": reason}
    if variant.backend == FLOOR:
        return {}
    result: Result = {}
    with tempfile.TemporaryDirectory(prefix="tapeless-benchmark-") as folder:
        cache = Path(folder, "cache")
        if "first" in settings.parts:
            result = _first_calls(name, variant, settings, cache)
            if "error" in result:
                return result
            if variant.settles_later:
                seconds = 1.5 * earlier.get("inductor", {}).get("first_call_s", 40)
                result |= isolate.call(measure.settling, name, label, seconds, limit=settings.limit)
        if "gradients" in settings.parts:
            result["gradients"] = isolate.call(
                measure.gradient_errors, name, label, _dtypes(variant, settings), limit=settings.limit, cache=cache
            )
        if cache.exists():
            shutil.copytree(cache, shared, dirs_exist_ok=True)
    return result


def _first_calls(name: str, variant: Variant, settings: Settings, cache: Path) -> Result:
    """The first call with empty caches, several times where it is short, and with what the last one left in them."""
    calls = []
    for _ in range(1 if variant.compiles_slowly else settings.first_calls):
        shutil.rmtree(cache, ignore_errors=True)
        calls.append(isolate.call(measure.first_call, name, variant.label, limit=settings.limit, cache=cache))
        if "error" in calls[-1]:
            return calls[-1]
    warm = isolate.call(measure.first_call, name, variant.label, limit=settings.limit, cache=cache)
    return {**calls[0], **_medians(calls), "warm_first_call_s": warm.get("first_call_s")}


def _dtypes(variant: Variant, settings: Settings) -> list[str]:
    return settings.dtypes[:1] if variant.backend == JAX else settings.dtypes


def _medians(calls: list[Result]) -> Result:
    keys = [key for key in calls[0] if key.endswith("_s")]
    return {key: statistics.median(call[key] for call in calls) for key in keys}


def _timings(steady: Result, labels: list[str]) -> Iterator[tuple[str, Result]]:
    """The step times of each variant, or why there are none."""
    for label in labels:
        if "error" in steady:
            yield label, {"error": steady["error"]}
        elif label in steady["errors"]:
            yield label, {"error": steady["errors"][label]}
        else:
            yield label, {"samples": steady["samples"][label], **_step_times(steady["samples"], label)}


def _step_times(samples: dict[str, dict[str, list[float]]], label: str) -> Result:
    own, kind = samples[label], WHOLE if label.startswith(WHOLE) else ""
    ratios = {other: _ratios(own, samples[kind + other]) for other in REFERENCES if kind + other in samples}
    return {
        "step_wall_s": statistics.median(own["wall_s"]),
        "step_cpu_s": statistics.median(own["cpu_s"]),
        "ratio_to": ratios,
    }


def _ratios(own: dict[str, list[float]], other: dict[str, list[float]]) -> Result:
    """Ratios taken round by round: their median and quartiles."""
    return {clock: _spread([a / b for a, b in zip(own[clock], other[clock], strict=True)]) for clock in own}


def _spread(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"low": low, "median": middle, "high": high}


def _brief(result: Result) -> str:
    if "skipped" in result:
        return "skipped"
    if "step_wall_s" not in result:
        return "fails" if "error" in result else "done"
    return f"{result['step_wall_s'] * 1e3:.1f} ms"


def _earlier(path: Path) -> Result:
    earlier = json.loads(path.read_text()) if path.exists() else {}
    return {
        "origin": origin(),
        "measured": earlier.get("measured", {}),
        "workloads": earlier.get("workloads", {}),
    }


def _is_done(results: Result, name: str, settings: Settings) -> bool:
    """Was the workload measured from this very commit, in this way?"""
    done = results["measured"].get(name, {})
    asked = _record(results, settings)
    return asked == {part: done.get(part) for part in asked} and not results["origin"]["commit"].endswith("-dirty")


def _record(results: Result, settings: Settings) -> Result:
    """From which commit, and how, each part is measured."""
    how = {"labels": settings.labels, "rounds": settings.rounds, "dtypes": settings.dtypes}
    return {part: {"commit": results["origin"]["commit"], **how} for part in settings.parts}


def _save(results: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    write_markdown(path.with_suffix(".md"), "Training steps", results["origin"], tables_of(results))
    if path.parent == RESULTS:
        write_page(results)


def _settings() -> Settings:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all workloads, more rounds, gradients in float64 too")
    parser.add_argument("--workloads", default="", help=f"`all`, or names separated by commas, of {', '.join(NAMES)}")
    parser.add_argument("--variants", default="", help=f"labels separated by commas; usually {', '.join(LABELS)}")
    parser.add_argument("--rounds", type=int, default=0, help="samples of each variant's step")
    parser.add_argument("--first-calls", type=int, default=1, help="fresh processes for each variant without Inductor")
    parser.add_argument("--limit", type=float, default=1200, help="seconds allowed to one process")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure; what is left out stays as it was")
    parser.add_argument("--again", action="store_true", help="measure what was measured from this commit already")
    parser.add_argument("--out", type=Path, default=RESULTS / "suite.json", help="results file")
    given = parser.parse_args()
    every = given.full or given.workloads == "all"
    names = given.workloads.split(",") if given.workloads not in ("", "all") else list(NAMES if every else QUICK)
    _check(parser, "workload", names, NAMES)
    _check(parser, "part", given.parts.split(","), PARTS)
    labels = [*LABELS, SMALL_MEMORY] if given.full else list(LABELS)
    return Settings(
        workloads=names,
        labels=given.variants.split(",") if given.variants else labels,
        rounds=given.rounds or (25 if given.full else 12),
        first_calls=given.first_calls,
        dtypes=["float32", "float64"] if given.full else ["float32"],
        limit=given.limit,
        out=given.out,
        parts=tuple(given.parts.split(",")),
        again=given.again,
    )


def _check(parser: argparse.ArgumentParser, what: str, names: list[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"no {what} named {', '.join(unknown)}; there are {', '.join(known)}")


if __name__ == "__main__":
    main()
