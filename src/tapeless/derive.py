"""Derivatives of traced functions, graph to graph: what `transforms` composes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map_only

from tapeless import torch_internals
from tapeless.differentiate.forward import push
from tapeless.differentiate.reverse import Joint, reverse
from tapeless.errors import Unsupported
from tapeless.functions import Runner, Slot, Traced, slots
from tapeless.ir import graph as ir
from tapeless.ir import text
from tapeless.ir.copying import copy_graph, copy_nodes
from tapeless.partition.split import Split, split
from tapeless.rules.traced import functional_graph
from tapeless.runtime.functional import refuse_choices
from tapeless.specialize.rewrite import specialize

aten = torch.ops.aten

Run = Callable[[list[Any]], Sequence[Any]]


# -- reverse -----------------------------------------------------------------------------------------------------------


def gradient(traced: Traced, value: Slot, wrt: Sequence[Slot]) -> tuple[Traced, list[Slot]]:
    """With the gradients of the scalar output `value` by the inputs `wrt` as further outputs, and where they are."""
    result = traced.output_value(value)
    if not ir.is_differentiable_type(result) or result.dim():
        raise Unsupported(
            f"grad needs a function that returns one real number, not {text.type_of(result)}: "
            "sum it, use `vjp` with a cotangent of your own, or `jacobian`"
        )
    joint = _reversed(traced, [value], wrt)
    seed = joint.cotangents[value.position]
    found = [joint.gradients[slot.position] for slot in wrt]
    arguments = [*([] if seed is None else [seed]), *joint.inputs]
    graph = copy_nodes(list(joint.graph.nodes), arguments, [*joint.outputs, *found])
    graph = specialize(graph, len(arguments) - len(joint.inputs))
    if seed is not None:
        _replace_by_one(graph, ir.inputs(graph)[0])
    return _with_more_outputs(traced, graph, [traced.input_value(slot) for slot in wrt])


def _reversed(traced: Traced, outputs: Sequence[Slot], wrt: Sequence[Slot]) -> Joint:
    graph = copy_graph(traced.graph)
    inputs, wanted = ir.inputs(graph), {slot.position for slot in outputs}
    flags = [i in wanted for i in range(len(ir.outputs(graph)))]
    return reverse(graph, [inputs[slot.position] for slot in wrt], flags)


def _replace_by_one(graph: fx.Graph, seed: fx.Node) -> None:
    """The cotangent of the value itself."""
    with graph.inserting_after(ir.inputs(graph)[-1]):
        _replace(seed, _full(graph, ir.value(seed), 1))


def _replace(placeholder: fx.Node, node: fx.Node) -> None:
    placeholder.replace_all_uses_with(node)
    placeholder.graph.erase_node(placeholder)


def _full(graph: fx.Graph, like: torch.Tensor, number: int) -> fx.Node:
    options: dict[str, Any] = {"dtype": like.dtype, "device": like.device, "pin_memory": False}
    node = graph.call_function(aten.full.default, (list(like.shape), number), options)
    ir.set_value(node, torch_internals.fresh(like))
    return node


def _with_more_outputs(traced: Traced, graph: fx.Graph, types: Sequence[torch.Tensor]) -> tuple[Traced, list[Slot]]:
    """`traced` with `graph`, whose last outputs are new ones of these `types`; structural zeros are filled in."""
    outputs = ir.outputs(graph)
    first = len(outputs) - len(types)
    with graph.inserting_before(graph.output_node()):
        zeros = [_full(graph, val, 0) if o is None else o for o, val in zip(outputs[first:], types, strict=True)]
    graph.output_node().args = ([*outputs[:first], *zeros],)
    more = [Slot(i) for i in range(first, len(outputs))]
    return Traced(graph, traced.args, traced.out, traced.live, traced.mutated), more


# -- forward -----------------------------------------------------------------------------------------------------------


def tangents(traced: Traced, wrt: Sequence[Slot], of: Sequence[Slot]) -> tuple[Traced, list[Slot], list[Slot]]:
    """With tangents of `wrt` as further inputs and those of `of` as further outputs, and where they are."""
    joint = _pushed(traced, wrt)
    given = [joint.cotangents[slot.position] for slot in wrt]
    results = [joint.gradients[slot.position] for slot in of]
    arguments = [*joint.inputs, *given]
    graph = specialize(copy_nodes(list(joint.graph.nodes), arguments, [*joint.outputs, *results]), 0)
    found, more = _with_more_outputs(traced, graph, [traced.output_value(slot) for slot in of])
    return found, [Slot(len(joint.inputs) + i) for i in range(len(given))], more


def _pushed(traced: Traced, wrt: Sequence[Slot]) -> Joint:
    """The graph with tangents behind it: those of inputs in place of cotangents, those of outputs of gradients."""
    graph = copy_graph(traced.graph)
    return push(graph, [ir.inputs(graph)[slot.position] for slot in wrt])


# -- evaluated once, applied many times --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Halves:
    """A function and a linear map that belongs to its point: its pullback or its pushforward.

    forward: inputs → outputs, then what the map needs;  linear: vectors, then that → results
    """

    traced: Traced
    parts: Split
    vectors: list[Slot]  # what the map can be applied to: outputs (pullback) or inputs (pushforward)
    results: list[Slot]
    forward: Runner
    linear: Runner

    @classmethod
    def of(cls, traced: Traced, joint: Joint, vectors: Sequence[Slot], results: Sequence[Slot]) -> Halves:
        mutated = tuple(position for _, position in traced.mutated)
        parts = split(joint, mutated)
        linear = specialize(parts.backward, len(parts.cotangent_outputs))
        return cls(traced, parts, list(vectors), list(results), Runner(parts.forward, mutated), Runner(linear))

    def captures(self, inputs: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        return [*(inputs[i] for i in self.parts.captured_inputs), *(outs[i] for i in self.parts.captured_outputs)]

    def apply(
        self, vectors: Sequence[Any], captures: Sequence[Any], run: Callable[..., Any] | None = None
    ) -> list[Any]:
        """The map on one vector per slot of `vectors`; None for a result that is zero."""
        by_position = {slot.position: vector for slot, vector in zip(self.vectors, vectors, strict=True)}
        given = [by_position[i] for i in self.parts.cotangent_outputs]
        found = (run or self.linear)([*given, *captures])
        by_result = dict(zip(self.parts.gradient_inputs, found, strict=True))
        return [by_result.get(slot.position) for slot in self.results]


def pullback(traced: Traced, outputs: Sequence[Slot], wrt: Sequence[Slot]) -> Halves:
    """Cotangents of `outputs` → gradients of `wrt`."""
    return Halves.of(traced, _reversed(traced, outputs, wrt), outputs, wrt)


def pushforward(traced: Traced, wrt: Sequence[Slot], outputs: Sequence[Slot]) -> Halves:
    """Tangents of `wrt` → tangents of `outputs`."""
    return Halves.of(traced, _pushed(traced, wrt), wrt, outputs)


# -- all rows, all columns ---------------------------------------------------------------------------------------------


def jacobian(traced: Traced, of: Sequence[Slot], wrt: Sequence[Slot], forward: bool) -> tuple[Traced, list[Slot]]:
    """With the Jacobian of each of `of` by each of `wrt`, row by row, as further outputs, and where they are."""
    halves = pushforward(traced, wrt, of) if forward else pullback(traced, of, wrt)
    refuse_choices(halves.linear.graph, "a Jacobian through")
    captured = halves.captures(ir.inputs(halves.forward.graph), ir.outputs(halves.forward.graph))
    rows = [traced.output_value(slot) for slot in of]
    columns = [traced.input_value(slot) for slot in wrt]
    anchor = torch_internals.fake_mode_of([*columns, *rows]).from_tensor(torch.empty(0), static_shapes=True)
    body = _columnwise if forward else _rowwise
    template = functional_graph(
        lambda _, *captures: body(halves, rows, columns, captures), [anchor, *(ir.value(node) for node in captured)]
    ).graph
    graph = copy_graph(halves.forward.graph)
    given = halves.captures(ir.inputs(graph), ir.outputs(graph))
    blocks = _spliced(graph, template, [None, *given])
    graph.output_node().args = ([*ir.outputs(graph)[: halves.parts.real_outputs], *blocks],)
    graph.eliminate_dead_code()
    types = [ir.value(block) for block in blocks]
    return _with_more_outputs(traced, graph, types)


def _rowwise(halves: Halves, rows: Any, columns: Any, captures: Any) -> list[torch.Tensor]:
    """One pullback per element of the outputs, all at once."""
    sizes = [row.numel() for row in rows]
    found = _all_at_once(halves, rows, columns, captures)
    parts = [f.split(sizes) for f in found]
    pairs = itertools.product(enumerate(rows), enumerate(columns))
    return [parts[j][i].reshape(*row.shape, *column.shape) for (i, row), (j, column) in pairs]


def _columnwise(halves: Halves, rows: Any, columns: Any, captures: Any) -> list[torch.Tensor]:
    """One pushforward per element of the inputs, all at once."""
    sizes = [column.numel() for column in columns]
    found = _all_at_once(halves, columns, rows, captures)
    parts = [f.movedim(0, -1).split(sizes, -1) for f in found]
    pairs = itertools.product(enumerate(rows), enumerate(columns))
    return [parts[i][j].reshape(*row.shape, *column.shape) for (i, row), (j, column) in pairs]


def _all_at_once(halves: Halves, vectors: Any, results: Any, captures: Any) -> list[torch.Tensor]:
    """The map on every unit vector: results with one more dimension in front."""
    count = sum(vector.numel() for vector in vectors)

    def one(*units: torch.Tensor) -> list[torch.Tensor]:
        found = halves.apply(units, captures, lambda args: halves.linear.functional(*args))
        return [
            torch.zeros(val.shape, dtype=val.dtype, device=val.device) if f is None else f
            for f, val in zip(found, results, strict=True)
        ]

    units = _units(vectors, count)
    try:
        return list(torch.func.vmap(one)(*units))
    except (RuntimeError, NotImplementedError):  # an operator that cannot be batched
        each = [one(*(unit[k] for unit in units)) for k in range(count)]
        return [torch.stack(column) for column in zip(*each, strict=True)]


def _units(vectors: Any, count: int) -> list[torch.Tensor]:
    """The unit vectors of the direct sum of the spaces of `vectors`, as one batch per summand."""
    units, start = [], 0
    for vector in vectors:
        block = torch.eye(count, dtype=vector.dtype, device=vector.device)[:, start : start + vector.numel()]
        units.append(block.reshape(count, *vector.shape))
        start += vector.numel()
    return units


def _spliced(graph: fx.Graph, template: fx.Graph, arguments: Sequence[fx.Node | None]) -> list[fx.Node]:
    """Copy `template` to the end of `graph`, reading `arguments`; the nodes of its outputs."""
    copies: dict[fx.Node, Any] = dict(zip(ir.inputs(template), arguments, strict=True))
    with graph.inserting_before(graph.output_node()):
        for node in ir.calls(template):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return [copies[output] for output in template.output_node().args[0]]  # type: ignore[union-attr]


def renumbered(tree: Any, old: Sequence[Slot], new: Sequence[Slot]) -> Any:
    """The tree with each slot of `old` replaced by its counterpart in `new`."""
    table = dict(zip(old, new, strict=True))
    return tree_map_only(Slot, table.__getitem__, tree)


def differentiable(traced: Traced, tree: Any) -> list[Slot]:
    """The outputs in `tree` that can carry a derivative."""
    return [slot for slot in slots(tree) if ir.is_differentiable_type(traced.output_value(slot))]
