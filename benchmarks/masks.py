"""Heads that take turns: what do changing patterns of undefined gradients cost, next to each pattern kept fixed?

    python -m benchmarks.masks --rounds 60

For each pattern one compiled network is trained on its masks in turn, and one network per mask on that mask alone.
Both run the same steps in the same round; the ratio of a round's times is taken, the median over rounds is printed.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import networks
from benchmarks.tables import RESULTS, Table, number, origin, write_markdown

HEADS = 8
WARM_UP = 6
PATTERNS: dict[str, list[tuple[int, ...]]] = {
    "A, B, A, B …": [(0,), (1,)],
    "random among 6": [(0,), (1, 2), (3,), (4, 5, 6), (7,), (0, 7)],
}

Step = Callable[[tuple[int, ...]], None]


def main() -> None:
    """Measure all patterns and write them down."""
    given = _arguments()
    torch.set_num_threads(1)
    rows = []
    for name, masks in PATTERNS.items():
        ratios, mispredictions, recompiled = measure(masks, given.rounds)
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append((name, f"{number(middle, 3)} ({number(low)}–{number(high)})", str(mispredictions), str(recompiled)))
    columns = ("pattern", "time ÷ fixed masks", "mispredictions while timed", "backwards built while timed")
    table = Table("Changing masks", columns, rows)
    table.show()
    write_markdown(given.out, "Changing masks", origin(), [table])


def measure(masks: Sequence[tuple[int, ...]], rounds: int) -> tuple[list[float], int, int]:
    """Ratios of the rounds, and how often the timed rounds met something new."""
    changing, fixed = _stepper(), {mask: _stepper() for mask in masks}
    order = Random(0)
    for _ in range(WARM_UP):
        _spend(changing, order.sample(masks, len(masks)))
        for mask, step in fixed.items():
            step(mask)
    before = _counts()
    ratios = []
    for turn in range(rounds):
        sequence = order.sample(masks, len(masks)) if len(masks) > 2 else list(masks)
        pair = [lambda s=sequence: _spend(changing, s), lambda s=sequence: sum(_spend(fixed[m], [m]) for m in s)]
        times = [pair[turn % 2](), pair[1 - turn % 2]()]
        ratios.append(times[0] / times[1] if turn % 2 == 0 else times[1] / times[0])
    return ratios, *(after - earlier for after, earlier in zip(_counts(), before, strict=True))


def _stepper() -> Step:
    """A network of its own: a step trains the heads that it is given."""
    torch.manual_seed(0)
    model, x, labels = networks.Heads(HEADS), torch.randn(128, 256), torch.randint(0, 10, (128,))
    network = torch.compile(_own_code(model), backend="tapeless", options={"backend": "python"})

    def step(heads: tuple[int, ...]) -> None:
        model.zero_grad()
        outputs = network(x)
        losses: list[Tensor] = [F.cross_entropy(outputs[head], labels) for head in heads]
        torch.stack(losses).sum().backward()

    return step


def _own_code(model: networks.Heads) -> Callable[[Tensor], list[Tensor]]:
    """A function per network, with a cache of its own in Dynamo."""
    namespace = {"model": model}
    exec("def network(x):\n    return model(x)\n", namespace)
    return namespace["network"]  # type: ignore[return-value]


def _spend(step: Step, sequence: Sequence[tuple[int, ...]]) -> float:
    start = perf_counter()
    for mask in sequence:
        step(mask)
    return perf_counter() - start


def _counts() -> tuple[int, int]:
    """Wrong guesses so far, and backwards built so far."""
    from tapeless.runtime.program import LIVE

    return sum(p.profile.mispredictions for p in LIVE), sum(p.profile.specialized for p in LIVE)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="rounds of each pattern")
    parser.add_argument("--out", type=Path, default=RESULTS / "masks.md", help="results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
