"""Ways to run a workload: eager, or `torch.compile` with some backend and options; with or without the optimizer.

A label is `backend` or `backend:option=value:option=value`. In front of it, `train/` adds the update by AdamW to the
step: `train/eager`, `train/inductor` with a compiled optimizer, `train/tapeless:backend=python` for
`tapeless.train_step`. Two further labels are no compilers: `floor`, the step's products alone, and `jax`, the same
network in JAX.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks.workloads import Workload

EAGER, FLOOR, JAX = "eager", "floor", "jax"
WHOLE = "train/"
LEARNING_RATE = 1e-5


@dataclass(frozen=True)
class Variant:
    """A backend of `torch.compile` with its options; `eager` is torch without any compiler."""

    label: str
    backend: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """Read a label; values of options are JSON or plain words."""
        backend, *settings = text.removeprefix(WHOLE).split(":")
        pairs = (setting.partition("=") for setting in settings)
        return cls(text, backend, {name: _value(word) for name, _, word in pairs})

    @property
    def whole(self) -> bool:
        """Is the optimizer's update part of the step?"""
        return self.label.startswith(WHOLE)

    @property
    def compiles_slowly(self) -> bool:
        """Does Inductor take part, which has a cache on disk?"""
        return "inductor" in (self.backend, self.options.get("backend")) or self.settles_later

    @property
    def settles_later(self) -> bool:
        """Does it go on compiling behind the first step?"""
        return self.options.get("backend") == "auto"

    def missing(self) -> str | None:
        """Why this version of Tapeless cannot run the variant, if it cannot."""
        if self.backend != "tapeless":
            return None
        from tapeless.errors import BadOption
        from tapeless.options import Options

        try:
            Options.parse(self.options)
        except BadOption as problem:
            return str(problem)
        return None

    def compile(self, function: Callable, order: int = 1) -> Callable:
        """The function as this variant runs it.

        One that contains derivatives is compiled by `tapeless.compile`, which has them in its graph. `torch.compile`
        breaks the graph at these.
        """
        if self.backend == EAGER:
            return function
        if self.backend == "tapeless" and order > 1:
            import tapeless

            return tapeless.compile(function, options=self.options)
        return torch.compile(function, backend=self.backend, **({"options": self.options} if self.options else {}))


def _value(word: str) -> Any:
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        return word


class Runner(Protocol):
    """Something that is timed."""

    def step(self) -> Any:
        """What is timed."""


class Training:
    """A workload being trained by a variant, step by step."""

    def __init__(self, workload: Workload, variant: Variant) -> None:
        self.inputs = workload.inputs
        self.parameters = dict(workload.model.named_parameters())
        self.leaves = [*self.parameters.values(), *(value for value in workload.inputs if value.requires_grad)]
        self.forward = _compiled_loss(workload, variant)

    def step(self) -> Tensor:
        """Forward and backward from cleared gradients; the loss."""
        self.clear()
        loss = self.forward(*self.inputs)
        loss.backward()
        return loss

    def clear(self) -> None:
        """Drop the gradients of the step before."""
        for leaf in self.leaves:
            leaf.grad = None

    def gradients(self) -> dict[str, Tensor | None]:
        """The gradient of each parameter by name."""
        return {name: parameter.grad for name, parameter in self.parameters.items()}


Optimizer = Callable[[list[Tensor]], torch.optim.Optimizer]


def adamw(parameters: list[Tensor]) -> torch.optim.Optimizer:
    """What whole steps are timed with."""
    return torch.optim.AdamW(parameters, LEARNING_RATE)


class WholeTraining:
    """A workload being trained with the update of its parameters."""

    def __init__(self, workload: Workload, variant: Variant, optimizer: Optimizer = adamw) -> None:
        self.inputs = workload.inputs
        self.parameters = dict(workload.model.named_parameters())
        self._initial = {name: p.detach().clone() for name, p in self.parameters.items()}
        self._optimizer = optimizer([p for p in self.parameters.values() if p.requires_grad])
        self._run = _whole_step(workload, variant, self._optimizer)

    def step(self) -> Tensor:
        """Forward, backward and update; the loss."""
        return self._run(*self.inputs)

    def restart(self) -> None:
        """Put parameters and momenta back to where they began."""
        for name, parameter in self.parameters.items():
            parameter.detach().copy_(self._initial[name])
        for value in (value for state in self._optimizer.state.values() for value in state.values()):
            if isinstance(value, Tensor):
                value.zero_()

    def gradients(self) -> dict[str, Tensor | None]:
        """How far each parameter has moved, by name."""
        return {name: p.detach() - self._initial[name] for name, p in self.parameters.items()}


def _whole_step(workload: Workload, variant: Variant, optimizer: torch.optim.Optimizer) -> Callable[..., Tensor]:
    if variant.backend == "tapeless":
        import tapeless

        return tapeless.train_step(workload.model, workload.loss, optimizer, **variant.options)
    forward = _compiled_loss(workload, variant)
    update = variant.compile(_own_code(lambda: optimizer.step(), f"{variant.label} update"))

    def step(*inputs: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = forward(*inputs)
        loss.backward()
        update()
        return loss

    return step


def _compiled_loss(workload: Workload, variant: Variant) -> Callable[..., Tensor]:
    """The loss as a function of the inputs, with the workload's chosen part compiled."""
    model, loss = workload.model, workload.loss
    if workload.compiled == "loss":
        return variant.compile(_own_code(lambda *inputs: loss(model, *inputs), variant.label), workload.order)
    network = variant.compile(_own_code(lambda *inputs: model(*inputs), variant.label))
    return lambda *inputs: loss(network, *inputs)


def _own_code(function: Callable, label: str) -> Callable:
    """The function with a code object of its own: Dynamo keeps one cache per code object, shared by all variants."""
    assert isinstance(function, FunctionType)
    code = function.__code__.replace(co_name=f"loss_{zlib.crc32(label.encode())}")
    return FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
