"""A step as it runs: one program of generated Python; for other backends one that computes and one that updates.

A backend that orders calls itself, runs them in the background or times them on real calls must be given a program
without effects. So it gets forward and backward, which end in the gradients; the update follows as generated Python,
where torch's fused kernels are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx

from tapeless.backends.python import Code
from tapeless.backends.select import compile_graph
from tapeless.ir import graph as ir
from tapeless.ir import text
from tapeless.ir.copying import prune_inputs
from tapeless.options import Options
from tapeless.training.program import Further, Update, Whole, Writer, returning_gradients, taking_gradients

SMALL = 2**20  # bytes


@dataclass(frozen=True, eq=False)
class Program:
    """A step as it runs."""

    run: Callable[[list[Any], list[Any]], list[Any]]  # arguments of the graph, further ones → its outputs, gradients
    graphs: dict[str, fx.Graph]  # what is printed, by name
    further: list[Further]
    results: int  # outputs of the captured graph; gradients stand behind them where the optimizer steps itself
    updated: list[int]  # the parameters that it writes to
    returned: list[int]  # those whose gradients are returned

    @cached_property
    def kept(self) -> dict[int, list[str]]:
        """The inputs for which the optimizer keeps a state, and the names in it."""
        of = dict.fromkeys(further.of for further in self.further if further.what == "state")
        return {i: [f.name for f in self.further if f.what == "state" and f.of == i] for i in of}

    @cached_property
    def summed(self) -> list[int]:
        """The inputs for which the gradients of several calls are added up."""
        return [further.of for further in self.further if further.what == "sum"]

    def __str__(self) -> str:
        return "\n\n".join(text.program(graph, name) for name, graph in self.graphs.items())


def compile_step(whole: Whole, update: Update, options: Options) -> Program:
    """Forward, backward and update, made to run by a backend."""
    return _in_one(whole, update) if options.lone_backend == "python" else _in_two(whole, update, options)


def _in_one(whole: Whole, update: Update) -> Program:
    results = ir.outputs(whole.graph)
    further, updated, returned = _written(whole, update)
    whole.graph.output_node().args = ([*results, *(whole.gradients[i] for i in returned)],)
    code = Code(whole.graph, "train_step")

    def run(args: list[Any], others: list[Any]) -> list[Any]:
        return code.run([*args, *others])

    return Program(run, {"train_step": whole.graph}, further, len(results), updated, returned)


def _in_two(whole: Whole, update: Update, options: Options) -> Program:
    results = len(ir.outputs(whole.graph))
    after = taking_gradients(whole)
    further, updated, returned = _written(after, update)
    after.graph.output_node().args = ([after.gradients[i] for i in returned],)
    kept = prune_inputs(after.graph)
    loss = ir.value(whole.seed)
    compute = compile_graph(returning_gradients(whole), "train_step", options.lone_backend, options.cache)
    apply = Code(after.graph, "update")
    held: list[torch.Tensor] = []

    def run(args: list[Any], others: list[Any]) -> list[Any]:
        found = compute([*args, _one(loss)])
        held[:] = _last_in_memory(found[results:])
        values = [*args, *found[results:], *others]
        del found[results:]
        chosen = [values[i] for i in kept]
        values.clear()  # a gradient goes when the update has read it
        return [*found, *apply.run(chosen)]

    return Program(run, {"train_step": whole.graph, "update": after.graph}, further, results, updated, returned)


def _last_in_memory(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """The small gradient with the highest address, to be held until the next step has its gradients.

    They are freed together. Where nothing lies behind them, the C library gives their memory back to the system, and
    the next step asks for it page by page. See docs/decisions/0025-large-pages.md.
    """
    small = [gradient for gradient in gradients if gradient.untyped_storage().nbytes() <= SMALL]
    return [max(small, key=torch.Tensor.data_ptr)] if small else []


def _one(val: torch.Tensor) -> torch.Tensor:
    """The gradient of a loss of this type, which holds one number."""
    return torch.ones([1] * val.dim(), dtype=val.dtype, device=val.device)


def _written(whole: Whole, update: Update) -> tuple[list[Further], list[int], list[int]]:
    """Write the update; what it takes beside the inputs, the parameters it updates, and those that it leaves alone."""
    writer = Writer(whole, update)
    writer.write()
    reached = list(whole.gradients) if update.last else []
    return (writer.further, [], reached) if update.kind is None else (writer.further, reached, [])
