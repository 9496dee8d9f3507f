"""What further orders cost where nobody asks for them; and a step of this version beside that of another one.

    python -m benchmarks.against --workloads mlp_deep,gru_cell_loop --rounds 200 --revision main~20

`first order only`: the same programs under an `autograd.Function` that cannot be differentiated again: it hides what it
saves, and knows neither forward mode nor replay. Both take turns step by step in one process, on the same memory.
`--revision`: the version of any commit with today's workloads, in a process of its own. Processes differ by some
percent whatever they run, so there are several groups of them, each with this version twice: how far `again` is from 1
is how far the ratio can be trusted.

Ratios of processor time are taken within rounds; the tables show their median and quartiles.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from benchmarks.isolate import ROOT
from benchmarks.measure import rotated
from benchmarks.memory import step_memory
from benchmarks.peer import Answering
from benchmarks.tables import RESULTS, Table, number, origin, write_markdown
from benchmarks.variants import Training, Variant
from benchmarks.workloads import build

HERE, AGAIN, FIRST_ORDER = "here", "again", "first order only"
WORKLOADS = "mlp_deep,gru_cell_loop,tfm_plain,resnet18"
WARM_UP = 8
SAMPLE_SECONDS = 0.03

Samples = dict[str, list[float]]


def main() -> None:
    """Measure all workloads and write them down."""
    given = _arguments()
    names = given.workloads.split(",")
    tables = [_table(FIRST_ORDER, {name: first_order(name, given.rounds) for name in names})]
    if given.revision:
        with _source(given.revision) as source:
            found = {name: beside(name, given.revision, source, given.rounds, given.groups) for name in names}
        tables.append(_table(given.revision, found))
    for table in tables:
        table.show()
    write_markdown(given.out, "Against other versions", origin(), tables)


def _table(other: str, found: dict[str, tuple[Samples, dict[str, float]]]) -> Table:
    rows = [
        (name, _ratio(samples, HERE, other), _ratio(samples, AGAIN, HERE), *(number(mb, 3) for mb in saved.values()))
        for name, (samples, saved) in found.items()
    ]
    return Table(
        f"A step, processor time, against: {other}",
        ("workload", "here ÷ there", "again ÷ here", "saved MB, here", "saved MB, there"),
        rows,
    )


def _ratio(samples: Samples, above: str, below: str) -> str:
    ratios = (a / b for a, b in zip(samples[above], samples[below], strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{number(middle, 3)} ({number(low, 3)}–{number(high, 3)})"


def first_order(name: str, rounds: int) -> tuple[Samples, dict[str, float]]:
    """Times, and megabytes saved, with and without the possibility of further orders."""
    worker = Answering(*_command(name, ROOT / "src"))
    found = [worker.ask("bridges") for _ in range(rounds)]
    saved = worker.ask("saved")
    worker.close()
    return {way: [answer[way] for answer in found] for way in (HERE, AGAIN, FIRST_ORDER)}, saved


def beside(name: str, revision: str, source: Path, rounds: int, groups: int) -> tuple[Samples, dict[str, float]]:
    """Times, and megabytes saved, of this version and of a revision whose sources are in the folder `source`."""
    sources = {HERE: ROOT / "src", AGAIN: ROOT / "src", revision: source}
    samples: Samples = {way: [] for way in sources}
    saved: dict[str, float] = {}
    for _ in range(groups):
        workers = {way: Answering(*_command(name, folder)) for way, folder in sources.items()}
        times = max(1, round(SAMPLE_SECONDS / workers[HERE].sample(1)["cpu"]))
        for turn in range(rounds // groups):
            for way in rotated(list(workers), turn):
                samples[way].append(workers[way].sample(times)["cpu"])
        saved = {way: worker.ask("saved")[HERE] for way, worker in workers.items() if way != AGAIN}
        for worker in workers.values():
            worker.close()
    return samples, saved


@contextmanager
def _source(revision: str) -> Iterator[Path]:
    """The sources of a revision."""
    with tempfile.TemporaryDirectory(prefix="tapeless-against-") as folder:
        archive = subprocess.run(["git", "-C", ROOT, "archive", revision, "src"], capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder, "src")


def _command(name: str, source: Path) -> tuple[list[str], dict[str, str]]:
    steady = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "TAPELESS_BACKEND": "python"}
    paths = os.pathsep.join([str(source), str(ROOT)])
    return [sys.executable, "-m", "benchmarks.against", "--serve", name], {**steady, "PYTHONPATH": paths}


# In the process that is measured


def serve(name: str) -> None:
    """One workload of one version: what its steps take, and what it saves, until nobody asks any more."""
    training = Training(build(name), Variant.parse("tapeless"))
    for _ in range(WARM_UP):
        training.step()
    answers = {"bridges": lambda: _by_bridge(training), "saved": lambda: _saved(training)}
    _answer({})
    for line in map(str.strip, sys.stdin):
        _answer(answers[line]() if line in answers else {"cpu": _seconds(training, int(line))})


def _answer(value: dict[str, float]) -> None:
    print(json.dumps(value), flush=True)


def _seconds(training: Training, times: int = 1) -> float:
    start = time.process_time()
    for _ in range(times):
        training.step()
    return (time.process_time() - start) / times


def _by_bridge(training: Training) -> dict[str, float]:
    """Seconds of a step, each way; the ways take turns."""
    spent = dict.fromkeys((HERE, AGAIN, FIRST_ORDER), 0.0)
    for turn in itertools.count():
        for way in rotated(list(spent), turn):
            with hidden_temporaries() if way == FIRST_ORDER else nullcontext():
                spent[way] += _seconds(training)
        if spent[HERE] > SAMPLE_SECONDS:
            return spent
    raise AssertionError


def _saved(training: Training) -> dict[str, float]:
    found = {HERE: step_memory(training)["saved"]}
    with (
        contextlib.suppress(ImportError, AttributeError),
        hidden_temporaries(),
    ):  # an old version may have no such part
        found[FIRST_ORDER] = step_memory(training)["saved"]
    return found


class FirstOrder(torch.autograd.Function):
    """A program as it would be called if nobody could ever differentiate its backward."""

    @staticmethod
    def forward(ctx: Any, program: Any, variant: Any, probe: Any, *args: Any) -> tuple[Any, ...]:
        from tapeless.runtime import bridge

        ctx.set_materialize_grads(False)
        ctx.program, ctx.variant = program, variant
        outs = list(variant.forward(list(args)))
        bridge._save(ctx, variant.captured(args, outs))
        del outs[variant.parts.real_outputs :]
        constant = [i for i in variant.constant_outputs if i < len(outs)]
        if constant:
            ctx.mark_non_differentiable(*(outs[i] for i in constant if isinstance(outs[i], torch.Tensor)))
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        from tapeless.runtime import bridge

        program, variant = ctx.program, ctx.variant
        hidden = [None] * (variant.outputs - len(cotangents))
        mask = (*(g is not None for g in cotangents), *(False for _ in hidden))
        program.profile.record(mask[: len(cotangents)])
        backward = program.backward(variant, mask, ctx.needs_input_grad[bridge.LEADING :])
        args = backward.select([*bridge._coerced(cotangents, variant.formats), *hidden, *bridge._saved(ctx)])
        ctx.maybe_clear_saved_tensors()
        return None, None, None, *backward.spread(backward.run(args))


@contextmanager
def hidden_temporaries() -> Iterator[None]:
    """While it lasts, programs are called by `FirstOrder`."""
    from tapeless import torch_internals
    from tapeless.runtime import bridge

    usual = bridge.Bridge, bridge._direct_apply
    bridge.Bridge, bridge._direct_apply = FirstOrder, torch_internals.direct_apply(FirstOrder)  # type: ignore[misc]
    try:
        yield
    finally:
        bridge.Bridge, bridge._direct_apply = usual  # type: ignore[misc]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=WORKLOADS, help="names, separated by commas")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--revision", help="a commit whose version is measured as well")
    parser.add_argument("--groups", type=int, default=4, help="groups of processes for that")
    parser.add_argument("--out", type=Path, default=RESULTS / "against.md", help="results file")
    return parser.parse_args()


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1:2] == ["--serve"] else main()
