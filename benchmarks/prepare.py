"""What the passes before differentiation are worth.

    python -m benchmarks.prepare

Node counts and saved bytes with and without them, batch norm folded for inference and with frozen statistics, the
share of compile time, and what packing weights and fusing parallel linear maps do. Programs that are compared run in
one process, taking turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers

import tapeless
from benchmarks import workloads
from benchmarks.tables import RESULTS, Table, number, origin, update_markdown
from tapeless.ir import graph as ir
from tapeless.options import Options
from tapeless.pipeline import preparation, trace

MODELS = ("bert_small", "gpt2_small", "llama_tiny", "resnet18", "vit_small", "tfm_plain")
FUSED = ("bert_small", "gpt2_small", "llama_tiny", "llama_lora", "vit_small", "eight_heads_all_used")
FUSE = "fuse_parallel_linears!"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="tables to make, separated by commas (default: all)")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    makers = {
        "nodes": nodes,
        "folding": lambda: folding(settings.rounds),
        "frozen": frozen,
        "serving": lambda: serving(settings.rounds),
        "fusing": lambda: fusing(settings.rounds),
        "share": share,
    }
    wanted = settings.only.split(",") if settings.only else list(makers)
    for name in wanted:
        table = makers[name]()
        table.show()
        update_markdown(RESULTS / "prepare.md", "Passes before differentiation", origin(), table)


def nodes() -> Table:
    """Calls in forward and backward, and bytes kept between them."""
    rows = []
    for name in MODELS:
        made = workloads.build(name)
        reports = [_explained(made, option) for option in ("off", "")]
        before, after = (sum(n for what, n in r.nodes.items() if what in COUNTED) for r in reports)
        saved = [r.saved_bytes / 2**20 for r in reports]
        rows.append([name, str(before), str(after), number(after / before), number(saved[0]), number(saved[1])])
    columns = ["workload", "calls without", "calls with", "ratio", "saved without, MB", "saved with, MB"]
    return Table("Calls in forward and backward", columns, rows)


COUNTED = ("operators", "operators in the backward")


def _explained(made: workloads.Workload, option: str) -> tapeless.Report:
    def loss(*inputs: Any) -> Any:
        return made.loss(made.model, *inputs)

    torch._dynamo.reset()
    return tapeless.explain(loss, *made.inputs, options={"prepare": option})


IMAGES = ((1, 64), (8, 64), (1, 224), (4, 224), (8, 224))
INFERENCE = {
    "neither": "-fold_batch_norm, -pack_convolutions, -convolve_channels_last",
    "channels last": "-fold_batch_norm, -pack_convolutions",
    "folded": "-pack_convolutions, -convolve_channels_last",
    "packed": "-fold_batch_norm",
    "both": "",
}


def folding(rounds: int) -> Table:
    """ResNet-50 without gradients: batch norms folded into convolutions, weights packed for their kernels."""
    rows = []
    for batch, size in IMAGES:
        model, x = _resnet50().eval(), torch.randn(batch, 3, size, size)
        torch._dynamo.reset()
        calls = {label: partial(_inference(model, option), x) for label, option in INFERENCE.items()}
        seconds = _turns(calls, rounds)
        cells = [number(statistics.median(s) * 1000, 0) for s in seconds.values()]
        ratios = [_ratio({"before": seconds["neither"], "after": seconds[label]}) for label in list(INFERENCE)[1:]]
        rows.append([f"{batch} × {size}²", *cells, *ratios])
    columns = [*(f"{label}, ms" for label in INFERENCE), *(f"neither / {label}" for label in list(INFERENCE)[1:])]
    return Table("ResNet-50, inference", ["batch", *columns], rows)


def _inference(model: torch.nn.Module, option: str) -> Callable[..., Any]:
    compiled = torch.compile(_first_of(model), backend="tapeless", options={"prepare": option, **PYTHON})

    def call(x: torch.Tensor) -> Any:
        with torch.no_grad():
            return compiled(x)

    return call


PYTHON = {"backend": "python", "cache": False}


def _first_of(model: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: model(x)[0]


def _resnet50() -> torch.nn.Module:
    torch.manual_seed(0)
    model = transformers.ResNetModel(transformers.ResNetConfig())
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return model


def frozen() -> Table:
    """Training ResNet-50 with frozen statistics: what is kept for the backward alone."""
    rows = []
    for batch, size in ((2, 224), (8, 224)):
        model, x = _resnet50().eval(), torch.randn(batch, 3, size, size)
        saved = []
        for option in ("-fold_batch_norm", ""):
            torch._dynamo.reset()
            report = tapeless.explain(_first_of(model), x, options={"prepare": option})
            saved.append(report.saved_bytes / 2**20)
        rows.append([f"{batch} × {size}²", *(number(s, 1) for s in saved), number(saved[1] / saved[0])])
    return Table("ResNet-50, frozen statistics: bytes saved", ["batch", "without, MB", "with, MB", "ratio"], rows)


def fusing(rounds: int) -> Table:
    """A training step with query, key and value (gate and up) fused into one product, and without."""
    rows = []
    for name in FUSED:
        steps = {label: _step(name, option) for label, option in (("off", ""), ("on", FUSE))}
        seconds = _turns(steps, rounds)
        rows.append([name, *(number(statistics.median(s) * 1000, 1) for s in seconds.values()), _ratio(seconds)])
    return Table(
        "Training, parallel linear maps fused wherever that is right (not the default)",
        ["workload", "apart, ms", "fused, ms", "apart / fused"],
        rows,
    )


def _step(name: str, option: str) -> Callable[[], Any]:
    made = workloads.build(name)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *inputs: made.loss(made.model, *inputs), backend="tapeless", options={"prepare": option, **PYTHON}
    )

    def step() -> None:
        made.model.zero_grad()
        compiled(*made.inputs).backward()

    return step


SERVED = ("bert_small", "llama_tiny", "llama_lora", "gpt2_small", "vit_small")
TOKENS = ((1, 1), (1, 8), None)  # None: the whole batch
SERVING = {
    "neither": "-fuse_parallel_linears, -pack_linears, -pack_convolutions",
    "packed": "-fuse_parallel_linears",
    "both": "",
}


def serving(rounds: int) -> Table:
    """Inference: weights packed, and query, key and value (gate and up) fused into one product.

    GPT-2 has them in one weight already: there the two programs are the same, and the ratio says what is noise.
    """
    rows = []
    for name in SERVED:
        for tokens in TOKENS if name != "vit_small" else (None,):
            calls = _forwards(name, tokens)
            seconds = _turns(calls, 3 * rounds)
            cells = [number(statistics.median(s) * 1000, 2) for s in seconds.values()]
            ratios = [_ratio({"before": seconds[a], "after": seconds["both"]}) for a in ("packed", "neither", "eager")]
            rows.append([f"{name}, {'whole batch' if tokens is None else '{} × {}'.format(*tokens)}", *cells, *ratios])
    columns = [*(f"{label}, ms" for label in (*SERVING, "eager"))]
    return Table(
        "Inference, weights packed and parallel linear maps fused",
        ["workload", *columns, "packed / both (fusing)", "neither / both", "eager / both"],
        rows,
    )


def _forwards(name: str, tokens: tuple[int, int] | None) -> dict[str, Callable[[], Any]]:
    """The model's logits, several times over so that a turn takes 20 ms at least."""
    made = workloads.build(name)
    network, given = made.model.model.eval(), made.inputs[0]
    given = given if tokens is None else given[: tokens[0], : tokens[1]].contiguous()
    torch._dynamo.reset()

    def logits(x: torch.Tensor) -> torch.Tensor:
        return network(**{made.model.names[0]: x}).logits

    calls = {
        label: torch.compile(_renamed(logits), backend="tapeless", options={"prepare": option, **PYTHON})
        for label, option in SERVING.items()
    }
    times = 1 if tokens is None else 10
    return {label: partial(_repeated, call, given, times) for label, call in {**calls, "eager": logits}.items()}


def _renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own: compiled programs belong to functions."""
    return lambda x: function(x)


@torch.no_grad()
def _repeated(call: Callable[..., Any], x: torch.Tensor, times: int) -> None:
    for _ in range(times):
        call(x)


def share() -> Table:
    """Seconds of the passes beside those of capture and of differentiation, by depth."""
    rows = []
    for layers in (2, 8, 32):
        layer = torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        model, x = torch.nn.TransformerEncoder(layer, layers), torch.randn(4, 16, 64, requires_grad=True)
        torch._dynamo.reset()
        begin = time.process_time()
        captured = trace(model, (x,), {})
        traced = time.process_time()
        calls = len(ir.calls(captured.graph))
        preparation(captured, Options())
        done = time.process_time()
        torch._dynamo.reset()
        torch.compile(model, backend="tapeless")(x).sum().backward()
        whole = time.process_time() - done
        took = done - traced
        cells = [number(traced - begin), number(took, 3), number(whole), f"{took / whole:.1%}"]
        rows.append([str(layers), str(calls), *cells, number(took / calls * 1e6, 0)])
    columns = ["layers", "calls", "capture, s", "passes, s", "first step, s", "share", "µs per call"]
    return Table("Time of the passes", columns, rows)


def _turns(steps: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Processor seconds of each, a round at a time, after two calls to warm up.

    Every other round goes backwards: who comes after whom is worth a few percent of a short program.
    """
    for step in (*steps.values(), *steps.values()):
        step()
    found: dict[str, list[float]] = {label: [] for label in steps}
    for turn in range(rounds):
        for label, step in list(steps.items())[:: 1 if turn % 2 else -1]:
            begin = time.process_time()
            step()
            found[label].append(time.process_time() - begin)
    return found


def _ratio(seconds: dict[str, list[float]]) -> str:
    first, second = seconds.values()
    ratios = sorted(a / b for a, b in zip(first, second, strict=True))
    low, middle, high = ratios[len(ratios) // 4], statistics.median(ratios), ratios[-1 - len(ratios) // 4]
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
