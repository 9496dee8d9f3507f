"""The first step of a second process: what the cache on disk saves.

    python -m benchmarks.warm_start --workloads mlp_deep,bert_small --rounds 3

Each round takes an empty cache and starts two fresh processes, one after the other. The first step runs from the call
of the compiled function to its gradients; imports are measured apart, and so is the time inside Tapeless. What remains,
less a later step, is Dynamo's: it traces the Python of the program, or compares it with what was traced.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import isolate
from benchmarks.tables import RESULTS, Table, number, origin, write_markdown

Result = dict[str, Any]

WORKLOADS = "mlp_deep,resnet18,bert_small,gpt2_small,llama_tiny,gru_cell_loop"
PARTS = ("imports", "first", "tapeless", "later")


def first_step(name: str, directory: str) -> Result:
    """Seconds of processor and of wall time of one process: imports, first step, Tapeless' part of it, a later step."""
    os.environ["TAPELESS_CACHE_DIR"] = directory
    from benchmarks.measure import Clock
    from benchmarks.variants import Training, Variant
    from benchmarks.workloads import build

    workload, start = build(name), Clock()
    from tapeless import pipeline

    imports, spent = start.elapsed(), Clock(0, 0)

    def timed(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = Clock()
            try:
                return original(*arguments)
            finally:
                took = began.elapsed()
                spent.wall, spent.cpu = spent.wall + took.wall, spent.cpu + took.cpu

        return call

    pipeline.build, pipeline.rebuilt = timed(pipeline.build), timed(pipeline.rebuilt)
    training, start = Training(workload, Variant.parse("tapeless")), Clock()
    training.step()
    first, start = start.elapsed(), Clock()
    training.step()
    return {part: vars(clock) for part, clock in zip(PARTS, (imports, first, spent, start.elapsed()), strict=True)}


def measure(name: str, rounds: int) -> Result:
    """Medians over rounds of a cold and a warm process each, and the median of their ratios."""
    pairs = [_pair(name) for _ in range(rounds)]
    if problem := next((r["error"] for pair in pairs for r in pair if "error" in r), None):
        return {"error": problem}
    return {
        "cold": {part: _medians([cold[part] for cold, _ in pairs]) for part in PARTS},
        "warm": {part: _medians([warm[part] for _, warm in pairs]) for part in PARTS},
        "ratio": statistics.median(warm["first"]["cpu"] / cold["first"]["cpu"] for cold, warm in pairs),
        "wall_ratio": statistics.median(warm["first"]["wall"] / cold["first"]["wall"] for cold, warm in pairs),
        "tapeless_ratio": statistics.median(warm["tapeless"]["cpu"] / cold["tapeless"]["cpu"] for cold, warm in pairs),
    }


def _pair(name: str) -> tuple[Result, Result]:
    with tempfile.TemporaryDirectory(prefix="tapeless-warm-start-") as directory:
        return tuple(isolate.call(first_step, name, directory, limit=300) for _ in range(2))  # type: ignore[return-value]


def _medians(clocks: Sequence[dict[str, float]]) -> dict[str, float]:
    return {kind: statistics.median(clock[kind] for clock in clocks) for kind in ("wall", "cpu")}


def tables_of(results: dict[str, Result]) -> list[Table]:
    """The first step as a whole, and where its time goes."""
    good = {name: result for name, result in results.items() if "error" not in result}
    whole = [
        [name, *(number(r[when]["first"][kind]) for kind in ("cpu", "wall") for when in ("cold", "warm")),
         number(r["ratio"]), number(r["wall_ratio"])]
        for name, r in good.items()
    ]  # fmt: skip
    parts = [
        [name, *(number(value) for when in ("cold", "warm") for value in _shares(r[when])), number(r["tapeless_ratio"])]
        for name, r in good.items()
    ]
    columns = ("workload", "cold", "warm", "cold, wall", "warm, wall", "warm / cold", "warm / cold, wall")
    shares = [f"{part}, {when}" for when in ("cold", "warm") for part in ("Dynamo", "Tapeless", "step itself")]
    failed = [[name, result["error"]] for name, result in results.items() if "error" in result]
    return [
        Table("Seconds of the first step", columns, whole),
        Table("Its parts, processor time", ("workload", *shares, "Tapeless, warm / cold"), parts),
        *([Table("Failed", ("workload", "why"), failed)] if failed else []),
    ]


def _shares(parts: dict[str, dict[str, float]]) -> tuple[float, float, float]:
    first, ours, later = (parts[part]["cpu"] for part in ("first", "tapeless", "later"))
    return first - ours - later, ours, later


def main() -> None:
    """Measure, show and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS / "warm_start.md")
    options = parser.parse_args()
    results = {}
    for name in options.workloads.split(","):
        with Console().status(f"{name}: {options.rounds} rounds of two processes"):
            results[name] = measure(name, options.rounds)
    tables = tables_of(results)
    for table in tables:
        table.show()
    write_markdown(options.output, "Warm start", origin(), tables)


if __name__ == "__main__":
    main()
