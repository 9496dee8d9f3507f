"""Which values carry a derivative: they depend on `wrt` through differentiable operations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from tapeless.ir import graph as ir
from tapeless.rules.registry import is_nondifferentiable, named_arguments, rule_of


def active_nodes(graph: fx.Graph, wrt: Iterable[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Every value that depends differentiably on `wrt`, with the first input it depends on (for error messages)."""
    return _reached(graph, wrt, carries_derivative)


def moving_nodes(graph: fx.Graph, wrt: Iterable[fx.Node]) -> dict[fx.Node, fx.Node]:
    """The same in forward mode: every value that has a tangent if `wrt` have."""
    return _reached(graph, wrt, carries_tangent)


def _reached(graph: fx.Graph, wrt: Iterable[fx.Node], carries: Callable[[fx.Node], bool]) -> dict[fx.Node, fx.Node]:
    active = {node: node for node in wrt if ir.is_differentiable_type(ir.value(node))}
    for node in ir.calls(graph):
        source = next((active[a] for a in node.all_input_nodes if a in active), None)
        if source is not None and carries(node):
            active[node] = source
    return active


def carries_derivative(node: fx.Node) -> bool:
    """False for integers, for operators without derivative, and where the user cut the gradient."""
    return not is_cut(node) and carries_tangent(node)


def carries_tangent(node: fx.Node) -> bool:
    """The same in forward mode, which `.detach()` ends and `no_grad` does not."""
    if node.op == "get_attr" or node.target is torch.ops.aten.detach.default or is_nondifferentiable(node.target):  # type: ignore[arg-type]
        return False
    if node.target is operator.getitem:
        return ir.is_differentiable_type(ir.value(node)) and not _is_constant_result(*node.args)
    val = ir.value(node)
    return any(ir.is_differentiable_type(v) for v in (val if isinstance(val, (tuple, list)) else (val,)))


def _is_constant_result(call: Any, index: Any) -> bool:
    rule = rule_of(call.target)
    return rule is not None and index in rule.constant_results


def is_inert(value: fx.Node, user: fx.Node) -> bool:
    """Does no derivative go from `user` to `value`?"""
    op = user.target
    if not isinstance(op, OpOverload) or is_nondifferentiable(op):
        return isinstance(op, OpOverload)
    rule = rule_of(op)
    holding = [n for n, given in named_arguments(op, user.args, user.kwargs).items() if value in tree_leaves(given)]
    return rule is not None and all(map(rule.is_constant_in, holding))


def is_cut(node: fx.Node) -> bool:
    """Did the user write `.detach()` here, or is this inside a `no_grad` region?"""
    return bool(node.meta.get("custom", {}).get("no_grad"))


def cut(node: fx.Node) -> None:
    """End the derivative here in reverse mode, and only there, as `no_grad` does."""
    node.meta["custom"] = {**node.meta.get("custom", {}), "no_grad": True}
