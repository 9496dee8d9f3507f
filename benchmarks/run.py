"""Measure training workloads: step time, first call, memory and gradients of each variant.

    python -m benchmarks.run --workloads gpt2_small,four_heads --backends eager,aot_eager,tapeless --rounds 30

A variant is `eager` or a Dynamo backend, with options as `tapeless:option=value`. Results go to a JSON file, which is
brought up to date workload by workload, and to a Markdown page beside it.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import isolate, measure
from benchmarks.summary import tables_of
from benchmarks.tables import RESULTS, origin, write_markdown
from benchmarks.workloads import NAMES

Result = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What to measure and how often."""

    workloads: list[str]
    labels: list[str]
    rounds: int
    first_calls: int
    limit: float
    out: Path


def main() -> None:
    """Measure what the command line asks for and write it down."""
    settings = _settings()
    results = _earlier(settings.out)
    for name in settings.workloads:
        results["workloads"][name] = measure_workload(name, settings)
        _save(results, settings.out)
    for table in tables_of(results):
        table.show()


def measure_workload(name: str, settings: Settings) -> Result:
    """Everything about one workload: a result per variant."""
    console = Console(stderr=True)
    with console.status(f"{name}: first calls"):
        results = {label: _fresh(name, label, settings) for label in settings.labels}
    working = [label for label, result in results.items() if "error" not in result]
    with console.status(f"{name}: steps"):
        steady = isolate.call(measure.steps, name, working, settings.rounds, limit=settings.limit)
    for label, timing in _timings(steady, working):
        results[label] |= timing
    console.print(f"{name}: " + ", ".join(f"{label} {_brief(result)}" for label, result in results.items()))
    return results


def _fresh(name: str, label: str, settings: Settings) -> Result:
    """The first calls of one variant, each in a process of its own, and its gradients."""
    calls = []
    for _ in range(settings.first_calls):
        calls.append(isolate.call(measure.first_call, name, label, limit=settings.limit))
        if "error" in calls[-1]:
            return calls[-1]
    gradients = isolate.call(measure.gradient_errors, name, label, limit=settings.limit)
    return {**calls[0], **_medians(calls), "gradients": gradients}


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
    own = samples[label]
    ratios = {other: _ratios(own, samples[other]) for other in ("eager", "aot_eager") if other in samples}
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
    if "error" in result:
        return "fails"
    return f"{result['step_wall_s'] * 1e3:.1f} ms"


def _earlier(path: Path) -> Result:
    earlier = json.loads(path.read_text()) if path.exists() else {"workloads": {}}
    return {"origin": origin(), "workloads": earlier["workloads"]}


def _save(results: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    write_markdown(path.with_suffix(".md"), "Training steps", results["origin"], tables_of(results))


def _settings() -> Settings:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="all", help=f"names separated by commas, of {', '.join(NAMES)}")
    parser.add_argument("--backends", default="eager,aot_eager,tapeless", help="variants separated by commas")
    parser.add_argument("--rounds", type=int, default=25, help="samples of each variant's step")
    parser.add_argument("--first-calls", type=int, default=3, help="fresh processes for each variant")
    parser.add_argument("--limit", type=float, default=600, help="seconds allowed to one process")
    parser.add_argument("--out", type=Path, default=RESULTS / "steps.json", help="results file")
    given = parser.parse_args()
    names = list(NAMES) if given.workloads == "all" else given.workloads.split(",")
    _check(parser, names)
    return Settings(names, given.backends.split(","), given.rounds, given.first_calls, given.limit, given.out)


def _check(parser: argparse.ArgumentParser, names: list[str]) -> None:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        parser.error(f"no workload named {', '.join(unknown)}; there are {', '.join(NAMES)}")


if __name__ == "__main__":
    main()
