"""The bridge to `torch.autograd`: a differentiated graph as a function that autograd can call, to any order.

Captured temporaries are outputs of the forward, so they have cotangents of their own. At first order nobody sends those and
the backward does not know them; under `create_graph=True` the backward is itself such a program, its gradients flow back
into the temporaries, and that is all it takes for derivatives of any order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx

from tapeless.backends.python import compile_graph
from tapeless.differentiate.reverse import memory_format, reverse
from tapeless.ir import graph as ir
from tapeless.ir.custom import inline_custom
from tapeless.partition.split import Split, copy_graph, prune_inputs, split
from tapeless.specialize.rewrite import specialize

Mask = tuple[bool, ...]
Boxed = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class Signature:
    """What is asked of a graph: which inputs want gradients, which outputs may send cotangents."""

    wrt: Mask
    differentiable: Mask
    hidden: tuple[int, ...] = ()  # outputs that autograd must not see: the calling convention rebuilds them
    mutated: tuple[int, ...] = ()  # inputs that are overwritten after the call


class Program:
    """A graph that runs, and that autograd can differentiate in the inputs `signature.wrt`."""

    def __init__(self, graph: fx.Graph, signature: Signature) -> None:
        self.signature = signature
        self.first = differentiate_graph(graph, signature)
        self.forward = compile_graph(runnable(self.first.forward), "forward")
        self.formats = [memory_format(ir.value(o)) if ir.is_tensor(o) else None for o in ir.outputs(self.first.forward)]
        self.constant_outputs = self._constant_outputs()
        self.saves_numbers = not all(ir.is_tensor(node) for node in self.first.captures)
        self._backwards: dict[Mask, Backward] = {}
        self._programs: dict[tuple[Mask, Mask], tuple[Backward, Program]] = {}
        self._lock = threading.RLock()

    def __call__(self, args: list[Any]) -> list[Any]:
        outs = Bridge.apply(self, *args)
        return [out.tensor if isinstance(out, _Hidden) else out for out in outs[: self.first.real_outputs]]

    def _constant_outputs(self) -> list[int]:
        """Outputs that no gradient will ever reach."""
        known = {i for i, d in enumerate(self.signature.differentiable) if d}
        temporaries = range(self.first.real_outputs, len(ir.outputs(self.first.forward)))
        active = known | {i for i in temporaries if self.first.active_outputs[i]}
        return [i for i in range(len(self.first.active_outputs)) if i not in active and i not in self.signature.hidden]

    @cached_property
    def full(self) -> Split:
        """The backward that takes cotangents of the temporaries too: that of the forward with all it returns."""
        temporaries = self.first.active_outputs[self.first.real_outputs :]
        flags = (*self.signature.differentiable, *temporaries)
        return differentiate_graph(self.first.forward, Signature(self.signature.wrt, flags, (), self.signature.mutated))

    def backward(self, mask: Mask) -> Backward:
        """The backward for cotangents defined as in `mask` (one flag per output of the forward)."""
        found = self._backwards.get(mask)
        if found is None:
            with self._lock:
                found = self._backwards.setdefault(mask, self._specialized(mask))
        return found

    def differentiable_backward(self, mask: Mask, requires_grad: Mask) -> tuple[Backward, Program]:
        """The same as a program of its own, differentiable in those of its inputs that require a gradient."""
        with self._lock:
            if (mask, requires_grad) not in self._programs:
                backward = self._specialized(mask)
                wrt = tuple(requires_grad[i] for i in backward.arguments)
                signature = Signature(wrt, tuple(ir.is_tensor(o) for o in ir.outputs(backward.graph)))
                self._programs[mask, requires_grad] = (backward, Program(backward.graph, signature))
            return self._programs[mask, requires_grad]

    def _specialized(self, mask: Mask) -> Backward:
        parts = self.first if not any(mask[self.first.real_outputs :]) else self.full
        saved = {key: len(mask) + k for k, key in enumerate(self.first.capture_keys)}
        positions = [*parts.cotangent_outputs, *(saved[key] for key in parts.capture_keys)]
        undefined = [k for k, i in enumerate(parts.cotangent_outputs) if not mask[i]]
        graph = specialize(parts.backward, len(parts.cotangent_outputs), undefined)
        kept = prune_inputs(graph)
        return Backward(graph, tuple(positions[k] for k in kept), parts.gradient_inputs, len(self.signature.wrt))


@dataclass
class Backward:
    """A backward specialised to one pattern of undefined cotangents."""

    graph: fx.Graph
    arguments: tuple[int, ...]  # positions among [one cotangent per output of the forward, captures]
    gradient_inputs: tuple[int, ...]  # for each result, the input it is the gradient of
    inputs: int

    @cached_property
    def run(self) -> Boxed:
        return compile_graph(self.graph, "backward")

    def select(self, available: list[Any]) -> list[Any]:
        return [available[i] for i in self.arguments]

    def spread(self, found: Sequence[Any]) -> list[Any]:
        """What autograd expects: a gradient or None for each input."""
        gradients = [None] * self.inputs
        for i, gradient in zip(self.gradient_inputs, found, strict=True):
            gradients[i] = gradient
        return gradients


def differentiate_graph(graph: fx.Graph, signature: Signature) -> Split:
    """A copy of `graph`, differentiated and cut into forward and backward."""
    graph = copy_graph(graph)
    wrt = [node for node, wanted in zip(ir.inputs(graph), signature.wrt, strict=True) if wanted]
    return split(reverse(graph, wrt, signature.differentiable), signature.mutated)


def runnable(forward: fx.Graph) -> fx.Graph:
    """The forward as it runs: custom functions inlined, and no tensor returned twice (autograd gives each one history)."""
    graph = inline_custom(copy_graph(forward))
    seen: set[fx.Node] = set()
    results = []
    for result in ir.outputs(graph):
        if isinstance(result, fx.Node) and result in seen and ir.is_tensor(result):
            with graph.inserting_before(graph.output_node()):
                result = graph.call_function(torch.ops.aten.alias.default, (result,))
        seen.add(result)
        results.append(result)
    graph.output_node().args = (results,)
    return graph


class _Hidden:
    """An output that autograd must not see."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class Bridge(torch.autograd.Function):
    """Runs a program's forward and backward under autograd, leaving undefined gradients undefined."""

    @staticmethod
    def forward(ctx: Any, program: Program, *args: Any) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)
        outs = program.forward(list(args))
        parts = program.first
        saved = [*(args[i] for i in parts.captured_inputs), *(outs[i] for i in parts.captured_outputs)]
        ctx.save_for_backward(*(v for v in saved if isinstance(v, torch.Tensor)))
        ctx.program = program
        ctx.numbers = [None if isinstance(v, torch.Tensor) else v for v in saved] if program.saves_numbers else None
        for i in program.signature.hidden:
            outs[i] = _Hidden(outs[i])
        ctx.mark_non_differentiable(*(outs[i] for i in program.constant_outputs if isinstance(outs[i], torch.Tensor)))
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        program: Program = ctx.program
        mask = tuple(g is not None for g in cotangents)
        if torch.is_grad_enabled():
            return None, *_differentiable_backward(ctx, program, mask, cotangents)
        backward = program.backward(mask)
        args = backward.select([*_coerced(cotangents, program.formats), *_saved(ctx)])
        del cotangents
        ctx.maybe_clear_saved_tensors()
        return None, *backward.spread(backward.run(args))


def _differentiable_backward(ctx: Any, program: Program, mask: Mask, cotangents: Sequence[Any]) -> list[Any]:
    available = [*_coerced(cotangents, program.formats), *_saved(ctx)]
    requires_grad = tuple(isinstance(a, torch.Tensor) and a.requires_grad for a in available)
    backward, derivative = program.differentiable_backward(mask, requires_grad)
    return backward.spread(derivative(backward.select(available)))


def _coerced(cotangents: Sequence[Any], formats: Sequence[Any]) -> list[Any]:
    """Cotangents in the memory format that the backward was written for; autograd may send expanded ones."""
    return [None if g is None else g.contiguous(memory_format=f) for g, f in zip(cotangents, formats, strict=True)]


def _saved(ctx: Any) -> list[Any]:
    if ctx.numbers is None:
        return list(ctx.saved_tensors)
    tensors = iter(ctx.saved_tensors)
    return [next(tensors) if number is None else number for number in ctx.numbers]
