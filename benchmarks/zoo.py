"""Train one step of many architectures and compare the gradients with eager's.

    python -m benchmarks.zoo --backend tapeless [--resume] [names ...]

Every model has a process and a time limit of its own. Dynamo alone (`backend="eager"`) is tried beside the backend,
so that what Dynamo breaks, changes or cannot read is not put down to the backend.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from rich.console import Console
from torch import Tensor, nn

from benchmarks import isolate
from benchmarks.gradients import Gradients, compare
from benchmarks.measure import Clock, captured
from benchmarks.tables import RESULTS, Table, number, origin, tiny, write_markdown
from benchmarks.variants import Variant
from benchmarks.zoo_models import BY_NAME, Architecture, Inputs

Result = dict[str, Any]

TOLERANCE = {"float64": 1e-9, "float32": 1e-4}


def train(name: str, label: str) -> Result:
    """One model in eager, through Dynamo alone and through the backend."""
    architecture = BY_NAME[name]
    model, inputs = architecture.build()
    expected = step(model, model, inputs)
    return {
        "dtype": str(architecture.dtype).removeprefix("torch."),
        "dynamo": _compared(architecture, expected, _dynamo_alone),
        "backend": _compared(architecture, expected, Variant.parse(label).compile),
    }


def _dynamo_alone(model: Callable) -> Callable:
    return torch.compile(model, backend="eager")


def _compared(architecture: Architecture, expected: Gradients, compiler: Callable[[Callable], Callable]) -> Result:
    """Gradients of a compiled step against eager's, the graphs it took, and its seconds."""
    _forget()
    model, inputs = architecture.build()
    start = Clock()
    try:
        network = compiler(model)
        difference = compare(expected, step(model, network, inputs)).as_dict()
        return {**difference, "seconds": start.elapsed().wall, **captured()}
    except Exception as error:
        return {"failed": isolate.describe(error), **captured()}


def _forget() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def step(model: nn.Module, network: Callable, inputs: Inputs) -> Gradients:
    """Gradients of a fixed random projection of the usual output: the first one."""
    torch.manual_seed(0)
    output = _first_tensor(network(**inputs))
    torch.manual_seed(1)
    (output * torch.randn(output.shape, dtype=output.dtype)).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def _first_tensor(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


# Verdicts


def verdict(result: Result) -> str:
    """One word on what became of the model, or on who is to blame."""
    if "error" in result:
        return "not run"
    if "failed" in result["backend"]:
        return "Dynamo fails" if "failed" in result["dynamo"] else "fails"
    return "equal" if _equal(result) else "differs"


def _equal(result: Result) -> bool:
    backend, dynamo = result["backend"], result["dynamo"]
    allowed = max(TOLERANCE[result["dtype"]], 10 * dynamo.get("error", 0.0))
    return backend["error"] <= allowed and backend["zero_for_none"] + backend["none_for_tensor"] == 0


def tables_of(models: dict[str, Result], label: str) -> list[Table]:
    """A line per model, and how often each verdict fell."""
    columns = (
        "architecture",
        "verdict",
        "error",
        "Dynamo alone",
        "None differs",
        "graphs",
        "first step s",
        "commit",
        "remark",
    )
    rows = [[name, verdict(result), *_cells(result)] for name, result in sorted(models.items())]
    counts = Counter(verdict(result) for result in models.values())
    totals = [[word, str(count)] for word, count in counts.most_common()]
    return [Table(f"Verdicts on {label}", ("verdict", "models"), totals), Table("Every model", columns, rows)]


def _cells(result: Result) -> list[str]:
    if "error" in result:
        return [""] * 5 + [result["commit"], result["error"]]
    backend, dynamo = result["backend"], result["dynamo"]
    return [
        _error(backend),
        _error(dynamo),
        _nones(backend),
        str(dynamo.get("graphs", "")),
        number(backend.get("seconds"), 1),
        result["commit"],
        _remark(backend, dynamo),
    ]


def _error(found: Result) -> str:
    return "fails" if "failed" in found else tiny(found["error"])


def _nones(backend: Result) -> str:
    parts = [(backend.get("zero_for_none"), "zeros for None"), (backend.get("none_for_tensor"), "lost")]
    return ", ".join(f"{count} {word}" for count, word in parts if count)


def _remark(backend: Result, dynamo: Result) -> str:
    failures = [found["failed"] for found in (dynamo, backend) if "failed" in found]
    breaks = [f"graph breaks: {'; '.join(dynamo['break_reasons'])}"] if dynamo["graph_breaks"] else []
    return "; ".join([*failures[:1], *breaks])


# The command


def main() -> None:
    """Train what the command line asks for and write it down."""
    given = _arguments()
    models = _earlier(given.out, given.backend) if given.names or given.resume else {}
    console, about = Console(stderr=True), origin()  # before the results change, which are part of the repository
    for name in given.names or [name for name in BY_NAME if name not in models]:
        with console.status(name):
            result = isolate.call(train, name, given.backend, limit=given.limit)
            models[name] = {**result, "commit": about["commit"]}
        console.print(f"{name}: {verdict(models[name])}")
        _save(models, given, about)
    for table in tables_of(models, given.backend):
        table.show()


def _earlier(path: Path, label: str) -> dict[str, Result]:
    """Results of an earlier run of the same backend, which a run of some models brings up to date."""
    earlier = json.loads(path.read_text()) if path.exists() else {}
    return earlier["models"] if earlier.get("backend") == label else {}


def _save(models: dict[str, Result], given: argparse.Namespace, about: dict[str, str]) -> None:
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({"origin": about, "backend": given.backend, "models": models}, indent=1) + "\n")
    tables = tables_of(models, given.backend)
    write_markdown(given.out.with_suffix(".md"), "Many architectures, one training step", about, tables)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"architectures; all without: {', '.join(BY_NAME)}")
    parser.add_argument("--backend", default="tapeless", help="backend of torch.compile, or backend:option=value")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was interrupted")
    parser.add_argument("--limit", type=float, default=180, help="seconds allowed to one model")
    parser.add_argument("--out", type=Path, default=RESULTS / "zoo.json", help="results file")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in BY_NAME]
    if unknown:
        parser.error(f"no architecture named {', '.join(unknown)}")
    return given


if __name__ == "__main__":
    main()
