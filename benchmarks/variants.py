"""Ways to run a workload: eager, or `torch.compile` with some backend and options."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from benchmarks.workloads import Workload

EAGER = "eager"


@dataclass(frozen=True)
class Variant:
    """A backend of `torch.compile` with its options; `eager` is torch without any compiler."""

    label: str
    backend: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """Read `backend` or `backend:option=value:option=value`; values are JSON or plain words."""
        backend, *settings = text.split(":")
        pairs = (setting.partition("=") for setting in settings)
        return cls(text, backend, {name: _value(word) for name, _, word in pairs})

    def compile(self, function: Callable) -> Callable:
        """The function as this variant runs it."""
        if self.backend == EAGER:
            return function
        return torch.compile(function, backend=self.backend, **({"options": self.options} if self.options else {}))


def _value(word: str) -> Any:
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        return word


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


def _compiled_loss(workload: Workload, variant: Variant) -> Callable[..., Tensor]:
    """The loss as a function of the inputs, with the workload's chosen part compiled."""
    model, loss = workload.model, workload.loss
    if workload.compiled == "loss":
        return variant.compile(_own_code(lambda *inputs: loss(model, *inputs), variant.label))
    network = variant.compile(_own_code(lambda *inputs: model(*inputs), variant.label))
    return lambda *inputs: loss(network, *inputs)


def _own_code(function: Callable, label: str) -> Callable:
    """The function with a code object of its own: Dynamo keeps one cache per code object, shared by all variants."""
    assert isinstance(function, FunctionType)
    code = function.__code__.replace(co_name=f"loss_{abs(hash(label))}")
    return FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
