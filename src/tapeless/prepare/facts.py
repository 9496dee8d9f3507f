"""What the engine asks about values before it touches them. Nothing here changes a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless.ir import graph as ir
from tapeless.prepare.calls import NAMESPACES, operator_name

HIDDEN_VIEWS = ("_unsafe_view", "conj_physical", "getitem")  # may return their argument's memory without saying so


def tags(node: fx.Node) -> Any:
    """What the user said about this piece of the program: `no_grad`, checkpoints, annotations."""
    custom = {k: v for k, v in (node.meta.get("custom") or {}).items() if k != "name"}
    return node.meta.get("recompute"), node.meta.get("ac_graph_id"), tuple(sorted(custom.items(), key=str))


def is_pure(node: fx.Node) -> bool:
    """A call of an operator that only computes: no random numbers, no effects, no function of the user's own."""
    if operator_name(node) == "getitem":
        return True
    if node.target not in _PURE:
        _PURE[node.target] = _is_pure(node, node.target)
    return _PURE[node.target]


_PURE: dict[Any, bool] = {}  # by operator


def _is_pure(node: fx.Node, target: Any) -> bool:
    if not isinstance(target, OpOverload) or target.namespace not in NAMESPACES:
        return False
    return not (target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags or node.is_impure())


def is_view(node: fx.Node) -> bool:
    """Does the call return memory of its argument?"""
    if operator_name(node) in HIDDEN_VIEWS:
        return operator_name(node) != "getitem" or is_view(node.args[0])  # type: ignore[arg-type]
    return isinstance(node.target, OpOverload) and _returns_alias(node.target)


@cache
def _returns_alias(target: OpOverload) -> bool:
    return any(result.alias_info is not None for result in target._schema.returns)


def memory(node: fx.Node) -> fx.Node:
    """The value whose memory this one lives in: itself, unless it is a view."""
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def is_returned(node: fx.Node) -> bool:
    """Does the program return this value, or a view of it?"""
    return any(user.op == "output" or (is_view(user) and is_returned(user)) for user in node.users)


def is_symbolic(node: fx.Node) -> bool:
    """Does the value have a size that is not a plain number?"""
    val = ir.value(node)
    parts = val if isinstance(val, (tuple, list)) else (val,)
    sizes = [n for v in parts for n in (v.shape if isinstance(v, torch.Tensor) else (v,))]
    return any(isinstance(n, torch.SymInt) for n in sizes)


def active_values(graph: fx.Graph, wrt: Sequence[bool]) -> set[fx.Node]:
    """What may carry a derivative: it depends on an input that does, and is no integer and behind no cut."""
    found = {node for node, wanted in zip(ir.inputs(graph), wrt, strict=True) if wanted}
    for node in ir.calls(graph):
        if any(a in found for a in node.all_input_nodes) and may_carry(node):
            found.add(node)
    return found


def may_carry(node: fx.Node) -> bool:
    val = ir.value(node)
    parts = val if isinstance(val, (tuple, list)) else (val,)
    cut = (node.meta.get("custom") or {}).get("no_grad")
    return not cut and any(map(ir.is_differentiable_type, parts))


def dying(roots: Iterable[fx.Node]) -> list[fx.Node]:
    """The values that nobody needs once `roots` are replaced: these and what only they read."""
    found = dict.fromkeys(roots)
    stack = list(found)
    while stack:
        for argument in stack.pop().all_input_nodes:
            known = argument in found or argument.op != "call_function" or not is_pure(argument)
            if not known and all(user in found for user in argument.users):
                found[argument] = None
                stack.append(argument)
    return list(found)


def same_type(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Shape, dtype and device; sizes are compared as they are written, which guards nothing."""
    return (a.dtype, a.device, [*map(str, a.shape)]) == (b.dtype, b.device, [*map(str, b.shape)])


def same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Strides, also of dimensions of size 1: kernels guess the order of channels from them."""
    return [*map(str, a.stride())] == [*map(str, b.stride())] or "0" in map(str, a.shape)
