"""Random programs as data: straight-line code in the operations of `operations.py`, printed as Python that runs."""

from __future__ import annotations

import hashlib
import linecache
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

LARGEST = 30.0  # values beyond this are left out: derivatives of derivatives would drown in rounding
ELEMENTS = 200
WAYS = ("captured", "compiled", "dynamic")  # without Dynamo, by `torch.compile`, by that with symbolic sizes


@dataclass(frozen=True)
class Input:
    """A tensor to start from."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float64
    requires_grad: bool = True
    transposed: bool = False  # not contiguous

    def text(self) -> str:
        transposed = self.transposed and len(self.shape) > 1
        sizes = ", ".join(map(str, self.shape[::-1] if transposed else self.shape))
        if self.dtype is torch.bool:
            made = f"torch.randn({sizes}) > 0" if sizes else "torch.randn(()) > 0"
        elif self.dtype is torch.int64:
            made = f"torch.randint(2, ({sizes}{',' if len(self.shape) == 1 else ''}))"
        else:
            made = f"torch.randn({sizes or '()'}, dtype={self.dtype})"
        made = f"{made}.permute({', '.join(map(str, reversed(range(len(self.shape)))))})" if transposed else made
        return f"{made}.requires_grad_()" if self.requires_grad else made


@dataclass(frozen=True)
class Line:
    """`results = expression`; values are named x0, x1, … in the order in which they are made."""

    results: tuple[str, ...]
    expression: str

    def text(self) -> str:
        return f"{', '.join(self.results)}{',' if len(self.results) == 1 and self.unpacks else ''} = {self.expression}"

    unpacks: bool = False


@dataclass(frozen=True)
class Program:
    """Inputs, lines, what is returned, masks of outputs that get a cotangent, one backward each, and how it runs."""

    inputs: tuple[Input, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    masks: tuple[tuple[bool, ...], ...]
    way: str = WAYS[0]

    def source(self) -> str:
        parameters = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        body = "".join(f"    {line.text()}\n" for line in self.lines)
        return f"def program({parameters}):\n{body}    return [{', '.join(self.outputs)}]\n"

    def text(self) -> str:
        """A file that runs and fails as this program does."""
        inputs = "".join(f"    {made.text()},\n" for made in self.inputs)
        return (
            "import torch\nimport torch.nn.functional as F\n\nfrom tapeless.testing.comparing import compare\n\n\n"
            f"{self.source()}\n\ntorch.manual_seed(0)\ninputs = [\n{inputs}]\n"
            f"compare(program, inputs, {list(self.masks)}{self._compiled_text()})\n"
        )

    def _compiled_text(self) -> str:
        if self.way == "captured":
            return ""
        dynamic = ", dynamic=True" if self.way == "dynamic" else ""
        return f', compiled=torch.compile(program, backend="tapeless"{dynamic})'

    def function(self) -> Callable[..., Any]:
        """In a file of its own: Dynamo takes sizes for symbolic that changed since the last function of that place."""
        source = self.source()
        file = f"<program {hashlib.sha256(source.encode()).hexdigest()[:12]}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        names: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(source, file, "exec"), names)
        return names["program"]

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """The function as it is to run; None: captured without Dynamo."""
        if self.way == "captured":
            return None
        return torch.compile(function, backend="tapeless", dynamic=self.way == "dynamic")

    def make_inputs(self) -> list[torch.Tensor]:
        torch.manual_seed(0)
        return [eval(made.text(), {"torch": torch}) for made in self.inputs]


class Builder:
    """Appends lines that run to a program, by running them."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self.inputs = tuple(inputs)
        self.lines: list[Line] = []
        self.values: dict[str, torch.Tensor] = {}
        for made in Program(self.inputs, (), (), ()).make_inputs():
            self._bind(made)

    def add(self, operation: str, choices: Sequence[int]) -> None:
        """The operation on operands picked by `choices`, unless it does not fit them or its values are not useful."""
        numbers = iter(choices)
        fields = [name for _, name, _, _ in string.Formatter().parse(operation) if name]
        picked: dict[str, str] = {}
        for name in sorted(set(fields)):
            candidate = self._pick(name, next(numbers), picked)
            if candidate is None:
                return
            picked[name] = candidate
        self._try(operation.format(**picked))

    def _pick(self, name: str, number: int, picked: dict[str, str]) -> str | None:
        if name == "n":
            return str(number % 3 + 1)
        if name in "de":
            rank = self.values[picked["a"]].dim()
            return str(number % (2 * rank) - rank) if rank else "0"
        known = [v for v, t in self.values.items() if _kind(t) == ("abc" if name in "abc" else name)]
        return known[-1 - number % len(known)] if known else None

    def _try(self, expression: str) -> None:
        before = {name: t.detach().clone() for name, t in self.values.items()}
        torch.manual_seed(len(self.lines))
        try:
            result = eval(expression, {"torch": torch, "F": F}, dict(self.values))
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            return self._restore(before)
        unpacks = isinstance(result, (tuple, list))
        made = list(result) if unpacks else [result]
        if not made or not all(_useful(t) for t in [*made, *self.values.values()]):
            return self._restore(before)
        self.lines.append(Line(tuple(self._bind(t) for t in made), expression, unpacks))
        return None

    def _restore(self, before: dict[str, torch.Tensor]) -> None:
        """Undo what a line did in place: run the program again up to here."""
        if any(t.shape != before[n].shape or not torch.equal(t, before[n]) for n, t in self.values.items()):
            self._replay()

    def _replay(self) -> None:
        lines, self.lines, self.values = self.lines, [], {}
        for made in Program(self.inputs, (), (), ()).make_inputs():
            self._bind(made)
        for line in lines:
            self._try(line.expression)

    def _bind(self, value: torch.Tensor) -> str:
        name = f"x{len(self.values)}"
        self.values[name] = value
        return name

    def differentiable(self) -> list[str]:
        return [name for name, value in self.values.items() if value.requires_grad]


def _kind(value: torch.Tensor) -> str:
    if value.dtype is torch.bool:
        return "m"
    return "abc" if value.is_floating_point() or value.is_complex() else "i"


def _useful(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.numel() > ELEMENTS or value.layout is not torch.strided:
        return False
    if value.numel() == 0 or value.dtype is torch.bool:
        return True
    return bool(value.detach().abs().max() < LARGEST)  # false for NaN
