"""Capture: a Dynamo graph → a functional ATen graph that says where each value comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tapeless import torch_internals
from tapeless.capture.control import resolve_control_flow, undifferentiated_control_flow
from tapeless.capture.custom import marked_custom_functions, resolve_markers
from tapeless.capture.effects import keep_constants, remove_tokens
from tapeless.capture.facts import carry_facts, settle_detaches
from tapeless.capture.history import histories_kept
from tapeless.capture.hooks import marked_hooks, resolve_hooks
from tapeless.capture.names import name_values
from tapeless.capture.overwritten import cut_overwritten_views
from tapeless.capture.recurrent import keep_workspaces, recurrent_layers_kept
from tapeless.capture.rewritten import rightly_differentiated
from tapeless.errors import Unsupported
from tapeless.ir import graph as ir
from tapeless.torch_internals import Convention


@dataclass(frozen=True)
class Captured:
    """A pure ATen graph and how it is called."""

    graph: fx.Graph
    convention: Convention
    inputs: Sequence[Any]  # the example inputs
    versionless: tuple[int, ...] = ()  # those that are written to through `.data`: their version stays what it was

    @property
    def needs_gradient(self) -> bool:
        return self.convention.differentiable

    @property
    def wrt(self) -> list[bool]:
        """Per graph input: did the example require a gradient? (A mutated input may do so only afterwards.)"""
        flags = self.convention.input_requires_grad()
        examples = map(self.example, ir.inputs(self.graph))
        return [f and (e is None or e.requires_grad) for f, e in zip(flags, examples, strict=True)]

    def example(self, placeholder: fx.Node) -> torch.Tensor | None:
        """The example tensor that a graph input stands for, if it is one of the program's own."""
        index = self.convention.argument_of(placeholder)
        found = self.inputs[index] if index is not None and index < len(self.inputs) else None
        return found if isinstance(found, torch.Tensor) else None

    @property
    def differentiable(self) -> list[bool]:
        hidden = set(self.convention.hidden_outputs())
        return [d and i not in hidden for i, d in enumerate(self.convention.output_requires_grad())]


def capture(module: fx.GraphModule, inputs: Sequence[Any]) -> Captured:
    """The graph of `module` with no mutation and no aliasing left, and the convention that restores both."""
    _refuse_subclasses(inputs)
    carry_facts(module)
    with (
        histories_kept(module) as versionless,
        marked_custom_functions(module),
        marked_hooks(module),
        undifferentiated_control_flow(module),
        rightly_differentiated(module),
        recurrent_layers_kept(module),
    ):
        traced, convention = torch_internals.capture_forward(module, inputs)
        graph = traced.graph
        keep_constants(graph, traced)
        settle_detaches(graph, module)
        cut_overwritten_views(graph)
        resolve_control_flow(graph, traced)
        remove_tokens(graph, convention.tokens)
        keep_workspaces(graph)
        resolve_markers(traced)
        resolve_hooks(traced)
    name_values(graph, module.graph, convention)
    return Captured(graph, convention, inputs, versionless)


def _refuse_subclasses(inputs: Sequence[Any]) -> None:
    """The graph of a tensor subclass works on its parts, which nobody puts together again here."""
    found = sorted({type(value).__name__ for value in inputs if is_traceable_wrapper_subclass(value)})
    if found:
        raise Unsupported(f"a program on tensors of type {', '.join(found)}: convert to plain tensors first")
