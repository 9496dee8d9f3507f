"""The tangent walk: graph → graph that also carries tangents. Special cases live in rules, never here."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only

from tapeless import torch_internals
from tapeless.differentiate.activity import carries_tangent
from tapeless.differentiate.apply import pull_back, result_is_zero
from tapeless.differentiate.reverse import Joint, reverse
from tapeless.errors import MissingRule, RuleFailed
from tapeless.ir import graph as ir
from tapeless.ir.branch import Branch
from tapeless.ir.custom import CustomFunction
from tapeless.ir.emit import Emitter
from tapeless.ir.ops import accumulate
from tapeless.rules.fit import fit
from tapeless.rules.registry import named_arguments, rule_of
from tapeless.rules.traced import Untraceable

Tangents = dict[fx.Node, Any]  # value → its tangent; for a tuple-valued node, a tuple


def push_forward(graph: fx.Graph, wrt: Sequence[fx.Node]) -> None:
    """Rewrite `graph`: inputs gain the tangents of `wrt`, outputs become the tangents of the outputs (None if zero)."""
    inputs, forward, outputs = ir.inputs(graph), ir.calls(graph), ir.outputs(graph)
    graph.erase_node(graph.output_node())
    emitter = Emitter(graph, result_is_zero)
    emitter.bind_graph([*inputs, *forward])
    tangents: Tangents = {}
    with torch_internals.emission(torch_internals.fake_mode_of([ir.value(n) for n in inputs])), emitter:
        for node in reversed(wrt):
            with graph.inserting_after(inputs[-1]):
                tangents[node] = ir.value(emitter.placeholder(f"{node.name}_t", torch_internals.fresh(ir.value(node))))
        for node in forward:
            if node.op == "call_function" and _has_tangent(node, tangents) and carries_tangent(node):
                tangents[node] = _step(emitter, node, tangents)
        results = [_result(emitter, tangents.get(o)) if isinstance(o, fx.Node) else None for o in outputs]
    graph.output(results)
    graph.eliminate_dead_code()


def _has_tangent(node: fx.Node, tangents: Tangents) -> bool:
    return any(argument in tangents for argument in node.all_input_nodes)


def _step(emitter: Emitter, node: fx.Node, tangents: Tangents) -> Any:
    if node.target is operator.getitem:
        source, index = node.args
        return tangents[source][index]  # type: ignore[index]
    if isinstance(node.target, CustomFunction) and node.target.keeps_history:
        return _tangent(emitter, node.args[0], tangents)
    if isinstance(node.target, (CustomFunction, Branch)) or node.target is accumulate:
        return _fitted(node, _transposed(emitter, node, tangents))
    op: Any = node.target
    if not isinstance(op, OpOverload):
        raise MissingRule(str(op), ir.where(node), "", "it is not an ATen operator")
    try:
        return _fitted(node, _operator_tangent(emitter, node, op, tangents))
    except Untraceable as reason:
        raise MissingRule(str(op), ir.where(node), "", str(reason)) from reason
    except (RuntimeError, TypeError, AssertionError, ValueError) as problem:
        raise RuleFailed(str(op), ir.where(node), f"in forward mode: {type(problem).__name__}: {problem}") from problem


def _operator_tangent(emitter: Emitter, node: fx.Node, op: OpOverload, tangents: Tangents) -> Any:
    """By the rule's jvp, written or derived; else by transposing its vjp."""
    rule = rule_of(op)
    if rule is None or rule.jvp is None:
        return _transposed(emitter, node, tangents)
    arguments = named_arguments(op, node.args, node.kwargs)
    values = {name: tree_map_only(fx.Node, ir.value, given) for name, given in arguments.items()}
    known = {name: _tangent(emitter, given, tangents) for name, given in arguments.items()}
    return rule.jvp({**values, "out": ir.value(node)}, {n: t for n, t in known.items() if t is not None})


def _tangent(emitter: Emitter, given: Any, tangents: Tangents) -> Any:
    """The tangent of an argument: a structural zero where it has none, None if it cannot have one."""
    if isinstance(given, (list, tuple)) and any(isinstance(element, fx.Node) for element in given):
        return [_tangent(emitter, element, tangents) for element in given]
    if not isinstance(given, fx.Node) or not ir.is_differentiable_type(ir.value(given)):
        return None
    return tangents[given] if given in tangents else emitter.zero(ir.value(given))


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
    found = iter([values_of(g, values) if g is not None else None for g in _gradients_in_order(joint, vjp)])
    val = ir.value(node)
    if isinstance(val, torch.Tensor):
        return next(found)
    return [next(found) if ir.is_differentiable_type(v) else None for v in val]


def _gradients_in_order(joint: Joint, vjp: SingleVjp) -> list[fx.Node | None]:
    by_input = dict(zip(joint.inputs, joint.gradients, strict=True))
    return [by_input[g] for g in vjp.cotangents]


def values_of(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    """The value of a node under emission, computing what it depends on first."""
    stack = [node]
    while stack:
        top = stack[-1]
        missing = [a for a in top.all_input_nodes if a not in values]
        if top not in values and not missing:
            args, kwargs = tree_map_only(fx.Node, values.__getitem__, (top.args, top.kwargs))
            values[top] = top.target(*args, **kwargs)  # type: ignore[operator]
        stack = [*stack, *missing] if missing else stack[:-1]
    return values[node]


class SingleVjp:
    """The vjp of one node as a graph of its own: cotangents in, gradients of `active` out."""

    def __init__(self, node: fx.Node, active: list[fx.Node]) -> None:
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}
        for argument in dict.fromkeys([*ir.inputs(node.graph), *node.all_input_nodes]):  # inputs: for their sizes
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
