"""How long a whole Jacobian takes: `tapeless.jacobian`, which chooses the mode, beside `torch.func` in both modes.

    python -m benchmarks.jacobian --rounds 20

A network from R^n to R^m. Tall: few inputs, many outputs, where forward mode needs fewer passes; wide: the reverse.
All ways take turns, a round at a time; ratios are taken within rounds.
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, func

import tapeless
from benchmarks import networks
from benchmarks.measure import Clock
from benchmarks.tables import RESULTS, Table, number, origin, tiny, write_markdown

SHAPES = {"tall": (8, 256), "wide": (256, 8), "square": (64, 64)}
WIDTH, LAYERS, REPEAT, WARM_UP = 128, 3, 5, 3


def ways(inputs: int, outputs: int) -> tuple[dict[str, Callable[[Tensor], Tensor]], Tensor]:
    """The Jacobian of one network, three ways, and where to take it."""
    torch.manual_seed(0)
    model = networks.perceptron([inputs, *[WIDTH] * LAYERS, outputs], torch.nn.Tanh).requires_grad_(False)
    return {
        "jacrev": func.jacrev(model),
        "jacfwd": func.jacfwd(model),
        "tapeless": tapeless.jacobian(model),
    }, torch.randn(inputs)


def measure(shape: str, rounds: int) -> dict[str, dict[str, float]]:
    """Median time of each way, its median ratio to `tapeless`, its distance from `jacrev`."""
    found, x = ways(*SHAPES[shape])
    exact = found["jacrev"](x)
    for way in found.values():
        _seconds(way, x, WARM_UP)
    times: dict[str, list[float]] = {name: [] for name in found}
    names = list(found)
    for index in range(rounds):
        start = index % len(names)
        for name in names[start:] + names[:start]:
            times[name].append(_seconds(found[name], x, REPEAT))
    return {
        name: {
            "ms": 1e3 * statistics.median(times[name]),
            "ratio": statistics.median(t / own for t, own in zip(times[name], times["tapeless"], strict=True)),
            "error": float((found[name](x) - exact).abs().max() / exact.abs().max()),
        }
        for name in names
    }


def _seconds(way: Callable[[Tensor], Tensor], x: Tensor, times: int) -> float:
    start = Clock()
    for _ in range(times):
        way(x)
    return start.elapsed().cpu / times


def main() -> None:
    """Measure every shape and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    results = {shape: measure(shape, rounds) for shape in SHAPES}
    table = Table(
        "Jacobian of a network, processor time (median)",
        ("shape", "R^n → R^m", "way", "ms", "÷ tapeless", "difference from jacrev"),
        [
            (shape, "{} → {}".format(*SHAPES[shape]), way, number(r["ms"]), number(r["ratio"]), tiny(r["error"]))
            for shape, found in results.items()
            for way, r in found.items()
        ],
    )
    table.show()
    about = origin()
    (RESULTS / "jacobian.json").write_text(json.dumps({"origin": about, "results": results}, indent=1) + "\n")
    write_markdown(RESULTS / "jacobian.md", "Jacobians", about, [table])


if __name__ == "__main__":
    main()
