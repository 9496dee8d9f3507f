"""How compile time grows with the depth of a model: `nn.TransformerEncoder` of 2 to 32 layers.

    python -m benchmarks.compile_time --layers 2,4,8,16,32 --backends aot_eager,tapeless

Each measurement has a process of its own. The time to compile is what the first forward and backward take longer
than later ones. Dynamo's own part, reading the Python, is the same for every backend and is told apart: what is left
runs from the captured graph to the callables, backward included, whenever the backend chooses to make it.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from rich.console import Console
from torch import nn

from benchmarks import isolate
from benchmarks.measure import Clock
from benchmarks.tables import RESULTS, Table, number, origin, write_markdown
from benchmarks.variants import Variant

Result = dict[str, Any]

WIDTH, HEADS, BATCH, LENGTH = 64, 4, 4, 16


def measure(layers: int, label: str) -> Result:
    """Seconds to compile an encoder of so many layers."""
    step = _step(layers, Variant.parse(label))
    first = _timed(step)
    later = statistics.median(_timed(step).wall for _ in range(5))
    dynamo = _spent("_compile.compile_inner") - _spent("OutputGraph.call_user_compiler")
    compiling = first.wall - later
    return {
        "first_s": first.wall,
        "first_cpu_s": first.cpu,
        "step_s": later,
        "compile_s": compiling,
        "dynamo_s": dynamo,
        "backend_s": compiling - dynamo,
    }


def _step(layers: int, variant: Variant) -> Callable[[], None]:
    """A training step of the encoder; a smaller one is compiled first, so that imports are not counted."""
    _encoder_step(1, variant)()
    torch._dynamo.reset()
    torch._dynamo.utils.compilation_time_metrics.clear()
    return _encoder_step(layers, variant)


def _encoder_step(layers: int, variant: Variant) -> Callable[[], None]:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, layers)
    network, x = variant.compile(model), torch.randn(BATCH, LENGTH, WIDTH)

    def step() -> None:
        model.zero_grad()
        network(x).square().sum().backward()

    return step


def _timed(step: Callable[[], None]) -> Clock:
    start = Clock()
    step()
    return start.elapsed()


def _spent(phase: str) -> float:
    return sum(torch._dynamo.utils.compilation_time_metrics.get(phase, []))


def growth(times: dict[int, float]) -> Result:
    """A line through time against layers, and the time that each further layer costs at both ends.

    Linear growth shows as a correlation near 1 and a marginal cost that does not rise.
    """
    layers = sorted(times)
    slope, intercept = statistics.linear_regression(layers, [times[count] for count in layers])
    steps = [(times[more] - times[fewer]) / (more - fewer) for fewer, more in zip(layers, layers[1:], strict=False)]
    correlation = statistics.correlation(layers, [times[count] for count in layers])
    return {
        "per_layer_s": slope,
        "fixed_s": intercept,
        "r_squared": correlation**2,
        "marginal_s": steps,
    }


def tables_of(results: Result) -> list[Table]:
    """The time at each depth, and how it grows."""
    variants: dict[str, dict[str, Result]] = results["variants"]
    labels = list(variants)
    depths = list(next(iter(variants.values())))
    rows = [[depth, *(_cell(variants[label][depth]) for label in labels)] for depth in depths]
    times = Table("Seconds to compile: all (Dynamo + backend)", ["layers", *labels], rows)
    return [times, _growth_table(variants), *_comparison(variants)]


def _cell(result: Result) -> str:
    if "error" in result:
        return result["error"]
    return f"{result['compile_s']:.2f} ({result['dynamo_s']:.2f} + {result['backend_s']:.2f})"


def _growth_table(variants: dict[str, dict[str, Result]]) -> Table:
    columns = ("backend", "s per layer", "fixed s", "R²", "s per further layer, from step to step")
    rows = [_growth_row(label, _backend_times(results)) for label, results in variants.items()]
    return Table("Growth of the backend's part", columns, rows)


def _backend_times(results: dict[str, Result]) -> dict[int, float]:
    return {int(depth): result["backend_s"] for depth, result in results.items() if "error" not in result}


def _growth_row(label: str, times: dict[int, float]) -> list[str]:
    if len(times) < 2:
        return [label, "", "", "", "too few measurements"]
    found = growth(times)
    marginal = ", ".join(number(value, 3) for value in found["marginal_s"])
    return [label, number(found["per_layer_s"], 3), number(found["fixed_s"]), number(found["r_squared"], 4), marginal]


def _comparison(variants: dict[str, dict[str, Result]]) -> list[Table]:
    """Each backend's first call over that of aot_eager."""
    reference = variants.get("aot_eager")
    others = [label for label in variants if label != "aot_eager"]
    if not reference or not others:
        return []
    rows = [[depth, *(_quotient(variants[label][depth], reference[depth]) for label in others)] for depth in reference]
    return [Table("First call ÷ aot_eager, processor time", ["layers", *others], rows)]


def _quotient(result: Result, reference: Result) -> str:
    if "error" in result or "error" in reference:
        return ""
    return number(result["first_cpu_s"] / reference["first_cpu_s"])


def main() -> None:
    """Measure what the command line asks for and write it down."""
    given = _arguments()
    variants = {
        label: {str(count): _repeated(count, label, given) for count in given.layers} for label in given.backends
    }
    results = {"origin": origin(), "variants": variants}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(results, indent=1) + "\n")
    write_markdown(given.out.with_suffix(".md"), "Compile time", results["origin"], tables_of(results))
    for table in tables_of(results):
        table.show()


def _repeated(layers: int, label: str, given: argparse.Namespace) -> Result:
    """The fastest of some fresh processes: what disturbs only ever adds."""
    with Console(stderr=True).status(f"{label}, {layers} layers"):
        calls = [isolate.call(measure, layers, label, limit=given.limit) for _ in range(given.repeats)]
    good = [call for call in calls if "error" not in call]
    return min(good, key=lambda call: call["compile_s"]) if good else calls[0]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=_integers, default=[2, 4, 8, 16, 32], help="depths separated by commas")
    parser.add_argument("--backends", type=_words, default=["aot_eager", "tapeless"], help="separated by commas")
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes for each measurement")
    parser.add_argument("--limit", type=float, default=600, help="seconds allowed to one process")
    parser.add_argument("--out", type=Path, default=RESULTS / "compile_time.json", help="results file")
    return parser.parse_args()


def _words(text: str) -> list[str]:
    return text.split(",")


def _integers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


if __name__ == "__main__":
    main()
