"""The reverse walk: graph → joint graph. Special cases live in rules and passes, never here."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.differentiate.activity import active_nodes, carries_derivative
from tapeless.differentiate.apply import Gradients, has_written_rule, pull_back, result_is_zero
from tapeless.differentiate.decompose import can_decompose, reverse_use, write_out
from tapeless.errors import MissingRule
from tapeless.ir import graph as ir
from tapeless.ir.custom import CustomFunction
from tapeless.ir.emit import Emitter
from tapeless.rules.traced import Untraceable


@dataclass
class Joint:
    """A graph with its own reverse written behind it."""

    graph: fx.Graph
    inputs: list[fx.Node]
    outputs: list[Any]
    cotangents: list[fx.Node | None]  # per output; None where none can arrive
    gradients: list[fx.Node | None]  # per input; None where there is none to give
    backward: set[fx.Node]  # the nodes of the reverse part
    active: set[fx.Node]  # values that carry a derivative
    reached: set[fx.Node]  # and those of them to which cotangents came


Cotangents = dict[fx.Node, Any]  # value → its cotangent; for a tuple-valued node, one per element


@dataclass(frozen=True)
class _Walk:
    """What a walk has met so far."""

    reached: set[fx.Node] = field(default_factory=set)  # values that had a cotangent
    missing: list[tuple[fx.Node, str]] = field(default_factory=list)  # operators without a rule, and why


def reverse(graph: fx.Graph, wrt: Sequence[fx.Node], differentiable: Sequence[bool]) -> Joint:
    """Append to `graph` the computation of the gradients of `wrt` from cotangents of its `differentiable` outputs."""
    active = active_nodes(graph, wrt)
    outputs = ir.outputs(graph)
    reached = [d and isinstance(o, fx.Node) and o in active for o, d in zip(outputs, differentiable, strict=True)]
    inputs, forward = ir.inputs(graph), [*ir.inputs(graph), *ir.calls(graph)]
    graph.erase_node(graph.output_node())
    emitter = Emitter(graph, result_is_zero)
    emitter.bind_graph(forward)
    with torch_internals.emission(torch_internals.fake_mode_of([ir.value(n) for n in inputs])), emitter:
        placeholders = _cotangent_inputs(emitter, inputs, outputs, reached)
        cotangents: Cotangents = {}
        walk = _Walk()
        for output, g in zip(outputs, placeholders, strict=True):
            if g is not None:
                cotangents[output] = emitter.accumulate(cotangents.get(output), ir.value(g), output)
        for node in reversed(forward):
            if node.op == "call_function" and node in cotangents:
                _step(emitter, node, active, cotangents, walk)
        _report(walk.missing, active)
        gradients = [_gradient(emitter, cotangents.get(node)) if node in wrt else None for node in inputs]
    backward = _with_readers(graph, emitter.emitted | {g for g in placeholders if g is not None})
    everything = active_nodes(graph, wrt)  # loops have been made to return more since
    return Joint(graph, inputs, outputs, placeholders, gradients, backward, set(everything), walk.reached)


def _with_readers(graph: fx.Graph, backward: set[fx.Node]) -> set[fx.Node]:
    """`backward` with the symbolic sizes that are read off a cotangent, for want of another tensor of that size."""
    for node in graph.nodes:
        if any(argument in backward for argument in node.all_input_nodes):
            backward.add(node)
    return backward


def _step(emitter: Emitter, node: fx.Node, active: Any, cotangents: Cotangents, walk: _Walk) -> None:
    """Pop the cotangent of one value, pull it back through its operator, add it to the cotangents of the arguments."""
    g = cotangents.pop(node)
    walk.reached.add(node)
    if node.target is operator.getitem:
        source, index = cast(tuple[fx.Node, int], node.args)
        slots = cotangents.setdefault(source, {})
        slots[index] = emitter.accumulate(slots.get(index), g, node)
        return
    with emitter.in_region(_region(node)):
        try:
            if not has_written_rule(node) and can_decompose(node, reverse_use(node)):
                gradients = _pull_back_decomposed(emitter, node, g, active, walk)
            else:
                gradients = pull_back(emitter, node, g, active)
        except Untraceable as reason:
            walk.missing.append((node, str(reason)))
            gradients = [(a, emitter.defined(emitter.zero(ir.value(a)))) for a in node.all_input_nodes if a in active]
    for argument, gradient in gradients:
        if not emitter.is_zero(gradient):  # undefined in eager: nothing goes on from here
            cotangents[argument] = emitter.accumulate(cotangents.get(argument), gradient, argument)


def _pull_back_decomposed(emitter: Emitter, node: fx.Node, g: Any, active: Any, walk: _Walk) -> Gradients:
    """Through what the operator decomposes into, from its last step to its first."""
    written, results = write_out(emitter, node, reverse_use(node))
    for step in written:
        source = next((active[a] for a in step.all_input_nodes if a in active), None)
        if source is not None and carries_derivative(step):
            active[step] = source
    cotangents: Cotangents = {}
    for index, gradient in g.items() if isinstance(g, dict) else [(0, g)]:
        result = results[index]
        if result is not None:
            cotangents[result] = emitter.accumulate(cotangents.get(result), gradient, result)
    for step in reversed(written):
        if step in cotangents:
            _step(emitter, step, active, cotangents, walk)
    return [(node, gradient) for node, gradient in cotangents.items() if node in active]


def _region(node: fx.Node) -> ir.Region:
    name = getattr(node.target, "__name__", "") if isinstance(node.target, CustomFunction) else str(node.target)
    return ir.Region(node.name, name, ir.where(node), linear=not isinstance(node.target, CustomFunction))


def _report(missing: list[tuple[fx.Node, str]], active: Any) -> None:
    """All operators without a rule at once, the first in program order with its source line."""
    if missing:
        node, reason = missing[-1]
        others = dict.fromkeys(str(other.target) for other, _ in reversed(missing) if other.target != node.target)
        raise MissingRule(str(node.target), ir.where(node), active[node].name, reason, tuple(others))


def _cotangent_inputs(emitter: Emitter, inputs: Any, outputs: Any, reached: Sequence[bool]) -> list[fx.Node | None]:
    """One new input per output that a cotangent can reach, of the output's type, contiguous as its gradient will be."""
    found: list[fx.Node | None] = []
    with emitter.graph.inserting_after(inputs[-1]):
        for output, has in zip(outputs, reached, strict=True):
            found.append(emitter.placeholder(f"g_{output.name}", _cotangent_type(ir.value(output))) if has else None)
    return found


def _cotangent_type(val: torch.Tensor) -> torch.Tensor:
    with torch_internals.without_modes():
        return torch.empty_like(val, memory_format=memory_format(val))


def memory_format(val: torch.Tensor) -> torch.memory_format:
    """The memory format in which the cotangent of `val` is expected."""
    if val.dim() == 4 and not val.is_contiguous() and val.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    if val.dim() == 5 and not val.is_contiguous() and val.is_contiguous(memory_format=torch.channels_last_3d):
        return torch.channels_last_3d
    return torch.contiguous_format


def _gradient(emitter: Emitter, g: torch.Tensor | None) -> fx.Node | None:
    return None if g is None or emitter.is_zero(g) else emitter.node(g)
