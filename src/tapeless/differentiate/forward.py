"""The tangent walk: graph → graph that also carries tangents. Special cases live in rules, never here."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only

from tapeless import torch_internals
from tapeless.differentiate.activity import carries_tangent, cut, is_cut
from tapeless.differentiate.apply import pull_back, result_is_zero
from tapeless.differentiate.decompose import can_decompose, write_out
from tapeless.differentiate.reverse import Joint, reverse
from tapeless.errors import MissingRule, RuleFailed, TapelessError
from tapeless.ir import graph as ir
from tapeless.ir.control import Control
from tapeless.ir.custom import CustomFunction
from tapeless.ir.emit import Emitter
from tapeless.ir.opaque import AutogradVjp
from tapeless.ir.ops import zeros_if_undefined
from tapeless.ir.symbols import has_symbols
from tapeless.rules.fit import fit
from tapeless.rules.registry import named_arguments, rule_of
from tapeless.rules.traced import Untraceable
from tapeless.torch_internals import fresh

Tangents = dict[fx.Node, Any]  # value → its tangent; for a tuple-valued node, a tuple


def push(graph: fx.Graph, wrt: Sequence[fx.Node]) -> Joint:
    """Append to `graph` the tangents of its outputs, given those of `wrt`.

    In the joint graph, tangents of inputs stand in place of cotangents, those of outputs in place of gradients.
    """
    inputs, forward, outputs = ir.inputs(graph), ir.calls(graph), ir.outputs(graph)
    graph.erase_node(graph.output_node())
    emitter = Emitter(graph, result_is_zero)
    emitter.bind_graph([*inputs, *forward])
    tangents: Tangents = {}
    given: dict[fx.Node, fx.Node] = {}
    with torch_internals.emission(torch_internals.fake_mode_of([ir.value(n) for n in inputs])), emitter:
        for node in reversed(wrt):
            with graph.inserting_after(inputs[-1]):
                given[node] = emitter.placeholder(f"{node.name}_t", torch_internals.fresh(ir.value(node)))
            tangents[node] = ir.value(given[node])
        for node in forward:
            if node.op == "call_function" and _has_tangent(node, tangents) and carries_tangent(node):
                emitter.origin = node
                before, found = len(emitter.emitted), _step(emitter, node, tangents)
                computed = len(emitter.emitted) > before  # else it is a tangent from elsewhere, with its own history
                tangents[node] = _severed(emitter, found) if computed and is_cut(node) else found
        results = [_result(emitter, tangents.get(o)) if isinstance(o, fx.Node) else None for o in outputs]
    later = emitter.emitted | set(given.values())
    nodes = set(graph.nodes)
    return Joint(graph, inputs, outputs, [given.get(node) for node in inputs], results, later, nodes, nodes)


def push_forward(graph: fx.Graph, wrt: Sequence[fx.Node]) -> None:
    """Rewrite `graph`: inputs gain the tangents of `wrt`, outputs become the tangents of the outputs (None if zero)."""
    graph.output(push(graph, wrt).gradients)
    graph.eliminate_dead_code()


def _has_tangent(node: fx.Node, tangents: Tangents) -> bool:
    return any(argument in tangents for argument in node.all_input_nodes)


def _step(emitter: Emitter, node: fx.Node, tangents: Tangents) -> Any:
    if node.target is operator.getitem:
        source, index = node.args
        return tangents[source][index]  # type: ignore[index]
    if node.target is zeros_if_undefined:
        return tangents[node.args[0]]  # type: ignore[index]
    try:
        return _fitted(node, push_through(node.target, emitter, node, tangents))
    except Untraceable as reason:
        raise MissingRule(str(node.target), ir.where(node), "", str(reason)) from reason
    except (RuntimeError, TypeError, AssertionError, ValueError) as problem:
        if isinstance(problem, TapelessError):
            raise
        what = f"in forward mode: {type(problem).__name__}: {problem}"
        raise RuleFailed(str(node.target), ir.where(node), what) from problem


@singledispatch
def push_through(target: Any, emitter: Emitter, node: fx.Node, tangents: Tangents) -> Any:
    """The tangent of `node` by the kind of its target; control flow registers its own in the files beside this one."""
    return _transposed(emitter, node, tangents)


@push_through.register
def _(custom: CustomFunction, emitter: Emitter, node: fx.Node, tangents: Tangents) -> Any:
    if custom.keeps_history:
        return _kept(emitter, node, tangents)
    return _transposed(emitter, node, tangents)


@push_through.register
def _(op: OpOverload, emitter: Emitter, node: fx.Node, tangents: Tangents) -> Any:
    """By the rule's jvp, written or derived; else by a decomposition; else by transposing its vjp."""
    rule = rule_of(op)
    if rule is None or rule.jvp is None:
        decomposes = can_decompose(node, "forward")
        return (_decomposed if decomposes else _transposed)(emitter, node, tangents)
    arguments = named_arguments(op, node.args, node.kwargs)
    values = {name: tree_map_only(fx.Node, ir.value, given) for name, given in arguments.items()}
    known = {name: tangent(emitter, given, tangents) for name, given in arguments.items()}
    return rule.jvp({**values, "out": ir.value(node)}, {n: t for n, t in known.items() if t is not None})


def _kept(emitter: Emitter, node: fx.Node, tangents: Tangents) -> Any:
    """A write that reverse mode does not see gave the value another number and left its derivative; so its tangent."""
    written, before = ([tangent(emitter, given, tangents)] for given in (node.args[0][0], node.args[1][0]))  # type: ignore[index]
    if node.target.keeps_tangent:  # type: ignore[union-attr]
        return before
    if emitter.is_zero(before[0]):
        return _severed(emitter, written)
    arguments = ([emitter.defined(written[0])], [emitter.defined(before[0])], [])
    return emitter.emit(node.target, arguments, {}, [torch_internals.fresh(written[0])])


def _severed(emitter: Emitter, moved: Any) -> Any:
    """A tangent that was computed under `no_grad`: reverse mode sees a constant."""
    if isinstance(moved, (list, tuple)):
        return type(moved)(_severed(emitter, element) for element in moved)
    if moved is None or emitter.is_zero(moved):
        return moved
    found = emitter.emit(torch.ops.aten.alias.default, (moved,), {}, torch_internals.fresh(moved))
    cut(emitter.node(found))
    return found


def _decomposed(emitter: Emitter, node: fx.Node, tangents: Tangents) -> Any:
    """The tangent of what the operator decomposes into."""
    written, results = write_out(emitter, node, "forward")
    for step in written:
        if _has_tangent(step, tangents) and carries_tangent(step):
            tangents[step] = _step(emitter, step, tangents)
    moved = [None if result is None else tangent(emitter, result, tangents) for result in results]
    return moved[0] if isinstance(ir.value(node), torch.Tensor) else moved


def tangent(emitter: Emitter, given: Any, tangents: Tangents) -> Any:
    """The tangent of an argument: a structural zero where it has none, None if it cannot have one."""
    if isinstance(given, (list, tuple)) and any(isinstance(element, fx.Node) for element in given):
        return [tangent(emitter, element, tangents) for element in given]
    if not isinstance(given, fx.Node) or not ir.is_differentiable_type(ir.value(given)):
        return None
    found = tangents.get(given)
    return emitter.zero(ir.value(given)) if found is None else found


def _fitted(node: fx.Node, tangent: Any) -> Any:
    val = ir.value(node)
    if isinstance(val, torch.Tensor):
        return fit(tangent, val)
    return tuple(fit(t, v) if ir.is_differentiable_type(v) else None for t, v in zip(tangent, val, strict=True))


def _result(emitter: Emitter, tangent: Any) -> fx.Node | None:
    if not isinstance(tangent, torch.Tensor) or emitter.is_zero(tangent):
        return None
    return emitter.node(tangent)


# -- forward from reverse ------------------------------------------------------------------------------------------


def _transposed(emitter: Emitter, node: fx.Node, tangents: Tangents) -> Any:
    """A vjp is linear in its cotangent; its transpose, the vjp of the vjp, is the jvp."""
    active = [a for a in node.all_input_nodes if isinstance(tangents.get(a), torch.Tensor)]
    with torch_internals.without_modes():
        vjp = SingleVjp(node, active)
        joint = reverse(vjp.graph, vjp.cotangents, [isinstance(g, fx.Node) for g in ir.outputs(vjp.graph)])
    values: dict[fx.Node, Any] = {copy: ir.value(original) for original, copy in vjp.copies.items()}
    values |= {g: emitter.zero(ir.value(g)) for g in vjp.cotangents}
    values |= {c: tangents[a] for c, a in zip(joint.cotangents, active, strict=True) if c is not None}
    gradients = _gradients_in_order(joint, vjp)
    found = iter([values_of(emitter, g, values) if g is not None else None for g in gradients])
    val = ir.value(node)
    if isinstance(val, torch.Tensor):
        return next(found)
    return [next(found) if ir.is_differentiable_type(v) else None for v in val]


def _gradients_in_order(joint: Joint, vjp: SingleVjp) -> list[fx.Node | None]:
    by_input = dict(zip(joint.inputs, joint.gradients, strict=True))
    return [by_input[g] for g in vjp.cotangents]


def values_of(emitter: Emitter, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    """The value of a node under emission, computing what it depends on first."""
    stack = [node]
    while stack:
        top = stack[-1]
        missing = [a for a in top.all_input_nodes if a not in values]
        if top not in values and not missing:
            args, kwargs = tree_map_only(fx.Node, values.__getitem__, (top.args, top.kwargs))
            values[top] = _called(emitter, top, args, kwargs)
        stack = [*stack, *missing] if missing else stack[:-1]
    return values[node]


def _called(emitter: Emitter, node: fx.Node, args: Any, kwargs: Any) -> Any:
    """An operator is called; what cannot be called on fake tensors is emitted as it stands."""
    if isinstance(node.target, (Control, AutogradVjp)) or node.target is zeros_if_undefined:
        return emitter.emit(node.target, args, kwargs, tree_map_only(torch.Tensor, fresh, ir.value(node)))
    return node.target(*args, **kwargs)  # type: ignore[operator]


class SingleVjp:
    """The vjp of one node as a graph of its own: cotangents in, gradients of `active` out."""

    def __init__(self, node: fx.Node, active: list[fx.Node]) -> None:
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}
        for argument in dict.fromkeys([*filter(has_symbols, ir.inputs(node.graph)), *node.all_input_nodes]):
            self.copies[argument] = self.graph.placeholder(argument.name)
            self.copies[argument].meta = dict(argument.meta)
        outputs = ir.value(node) if not isinstance(ir.value(node), torch.Tensor) else (ir.value(node),)
        emitter = Emitter(self.graph, result_is_zero)
        emitter.bind_graph(list(self.copies.values()))
        with torch_internals.emission(torch_internals.fake_mode_of([ir.value(a) for a in self.copies])), emitter:
            slots = {
                i: emitter.placeholder(f"g_{i}", torch_internals.fresh(v))
                for i, v in enumerate(outputs)
                if ir.is_differentiable_type(v)
            }
            call = self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
            emitter.bind(ir.value(call), call)
            g = {i: ir.value(slot) for i, slot in slots.items()}
            found = self._pull_back(emitter, call, g, {self.copies[a] for a in active})
            self.graph.output(
                [emitter.node(found[self.copies[a]]) if self.copies[a] in found else None for a in active]
            )
        self.cotangents = list(slots.values())

    def _pull_back(self, emitter: Emitter, call: fx.Node, g: Any, active: set[fx.Node]) -> dict[fx.Node, Any]:
        single = g[0] if isinstance(ir.value(call), torch.Tensor) else g
        found: dict[fx.Node, Any] = {}
        for argument, gradient in pull_back(emitter, call, single, active):
            found[argument] = emitter.accumulate(found.get(argument), gradient, argument)
        return {argument: gradient for argument, gradient in found.items() if not emitter.is_zero(gradient)}
