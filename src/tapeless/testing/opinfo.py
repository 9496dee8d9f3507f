"""PyTorch's OpInfo samples through `torch.compile(backend="tapeless")`, next to eager.

`python -m tapeless.testing.opinfo MOST` reads names of entries, one per line, and answers each with a row of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from types import FunctionType
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from tapeless.capture.dynamo import backend
from tapeless.ir.graph import is_differentiable_type
from tapeless.rules.support import support
from tapeless.testing.samples import opinfo_entries

NOT_CAPTURED = "not captured: Dynamo leaves it to eager"
TOLERANCE: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-9, "equal_nan": True}


@dataclass
class Row:
    """What became of one OpInfo entry."""

    name: str
    samples: int = 0
    ok: int = 0
    problem: str = ""  # the first one
    operators: dict[str, str] = field(default_factory=dict)  # ATen operator met → how it is differentiated


def entry_name(entry: Any) -> str:
    return f"{entry.name}.{entry.variant_test_name}".rstrip(".")


def entry_names() -> list[str]:
    return list(dict.fromkeys(map(entry_name, opinfo_entries())))


def check_entry(entry: Any, most: int) -> Row:
    """Compare the first `most` samples of an entry that have a gradient in eager."""
    row = Row(entry_name(entry))
    function = _visible(entry.op)
    for sample in _samples(entry, most):
        expected = _eager(function, sample, row.operators)
        if expected is None:
            continue
        row.samples += 1
        problem = _difference(function, sample, expected)
        row.ok += not problem
        row.problem = row.problem or problem
    return row


@dataclass(frozen=True)
class Outcome:
    """Differentiable outputs and gradients of one call."""

    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor | None]


class _Recorder(TorchDispatchMode):
    """Notes the operators called on tensors that may carry a derivative."""

    def __init__(self, operators: dict[str, str]) -> None:
        super().__init__()
        self.operators = operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _may_be_captured(func) and any(is_differentiable_type(leaf) for leaf in tree_leaves(args)):
            self.operators[str(func)] = support(func)
        return func(*args, **(kwargs or {}))


def _may_be_captured(func: Any) -> bool:
    """Captured graphs do not mutate; `detach` is how autograd itself saves results."""
    return isinstance(func, OpOverload) and not func._schema.is_mutable and func is not torch.ops.aten.detach.default


def _recorded(function: Callable[..., Any], operators: dict[str, str]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with _Recorder(operators):
            return function(*args, **kwargs)

    return call


def _samples(entry: Any, most: int) -> Iterator[Any]:
    for index, sample in enumerate(entry.sample_inputs("cpu", torch.float64, requires_grad=True)):
        if index >= most:
            return
        yield sample


def _visible(function: Any) -> Any:
    """An OpInfo lambda as a function that Dynamo looks into (it skips torch's own files), without a seed of its own."""
    if not isinstance(function, FunctionType) or "torch/testing" not in function.__code__.co_filename:
        return function
    names = {**function.__globals__, "wrapper_set_seed": _call_plainly}
    code = function.__code__.replace(co_filename="<OpInfo>")
    return FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)


def _call_plainly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _eager(function: Callable[..., Any], sample: Any, operators: dict[str, str]) -> Outcome | None:
    """What eager computes; None where it has no gradient to give."""
    try:
        outputs = _call(_recorded(function, operators), sample)[1]
        return _differentiate(function, sample) if any(o.requires_grad for o in outputs) else None
    except (RuntimeError, NotImplementedError, ValueError):
        return None


def _difference(function: Callable[..., Any], sample: Any, expected: Outcome) -> str:
    """The first thing that differs from eager, or an empty string."""
    graphs = []

    def counting(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return backend(module, inputs)

    torch.compiler.reset()
    try:
        actual = _differentiate(
            torch.compile(lambda *args, **kwargs: function(*args, **kwargs), backend=counting), sample
        )
        _assert_equal(actual, expected)
    except Exception as problem:
        return _brief(problem)
    return "" if graphs else NOT_CAPTURED


def _differentiate(function: Callable[..., Any], sample: Any) -> Outcome:
    inputs, outputs = _call(function, sample)
    generator = torch.Generator().manual_seed(0)
    roots = [o for o in outputs if o.requires_grad]
    seeds = [torch.randn(o.shape, dtype=o.dtype, generator=generator) for o in roots]
    return Outcome(outputs, list(torch.autograd.grad(roots, inputs, seeds, allow_unused=True)))


def _call(function: Callable[..., Any], sample: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Fresh inputs that require a gradient, and the tensors returned for them."""
    given = (sample.input, sample.args, sample.kwargs)
    first, args, kwargs = tree_map_only(torch.Tensor, _copy, given)
    torch.manual_seed(0)
    result = function(first, *args, **kwargs)
    inputs = [leaf for leaf in tree_leaves((first, args, kwargs)) if _requires_grad(leaf)]
    return inputs, [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _requires_grad(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _assert_equal(actual: Outcome, expected: Outcome) -> None:
    missing = [[g is None for g in outcome.gradients] for outcome in (expected, actual)]
    if missing[0] != missing[1]:
        raise AssertionError(f"gradients that are None: {missing[1]}, in eager {missing[0]}")
    torch.testing.assert_close(actual.outputs, expected.outputs, **TOLERANCE)
    pairs = [(a, e) for a, e in zip(actual.gradients, expected.gradients, strict=True) if a is not None]
    torch.testing.assert_close([a for a, _ in pairs], [e for _, e in pairs], **TOLERANCE)


def _brief(problem: Exception) -> str:
    """The message in one line, without what Dynamo puts around it."""
    message = str(problem).partition("Set TORCHDYNAMO_VERBOSE")[0].removeprefix("backend='counting' raised:")
    lines = [line.strip() for line in message.splitlines() if line.strip() and not line.startswith("  at ")]
    return f"{type(problem).__name__}: {' '.join(lines)}"[:240]


def main() -> None:
    """Serve entries by name until the input ends. What entries print themselves must not reach the answers."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    entries: dict[str, list[Any]] = {}
    for entry in opinfo_entries():
        entries.setdefault(entry_name(entry), []).append(entry)
    for line in sys.stdin:
        row = check_entry(entries[line.strip()][0], int(sys.argv[1]))
        answers.write(json.dumps(asdict(row)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
