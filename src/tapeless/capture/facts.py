"""What tracing to ATen would lose, written on the Dynamo graph so that it reaches the ATen nodes.

AOTAutograd copies `node.meta["custom"]` of each traced node to the ATen nodes it becomes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.torch_internals import data_attribute, set_grad_enabled

INNER_AUTOGRAD = ("torch.autograd", "torch._functorch", "torch._C._functorch")  # modules


def carry_facts(module: fx.GraphModule) -> None:
    """Tag every node with its name, and with `no_grad` where the user cut the gradient (a region, or `.detach()`)."""
    _tag(module, True)


def _tag(module: fx.GraphModule, enabled: bool) -> None:
    for node in module.graph.nodes:
        if node.target is set_grad_enabled:
            enabled = bool(node.args[0])
        cut = not enabled or is_detach(node)
        node.meta["custom"] = {
            **(node.meta.get("custom") or {}),
            "name": node.name,
            **({"no_grad": True} if cut else {}),
        }
        body = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(body, fx.GraphModule):
            _tag(body, enabled)


def settle_detaches(graph: fx.Graph, module: fx.GraphModule) -> None:
    """In the ATen graph: mark the user's detaches as cuts, the engine's own as nothing at all.

    `autograd.grad` inside the program leaves a `detach` on every result it saved: the derivative goes right through.
    Elsewhere each `detach` is the user's, also where views of a detached value are made again after a write.
    """
    inner = any(_differentiates(node) for part in graph_modules(module) for node in part.graph.nodes)
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        facts = node.meta.get("custom") or {}
        if inner and not facts.get("no_grad"):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        else:
            node.meta["custom"] = {**facts, "no_grad": True}


def _differentiates(node: fx.Node) -> bool:
    """Is this a call of `torch.autograd.grad`, or of the machinery of `torch.func`?"""
    origin = getattr(node.target, "__module__", None) or ""
    return node.op == "call_function" and origin.startswith(INNER_AUTOGRAD)


def graph_modules(module: fx.GraphModule) -> list[fx.GraphModule]:
    return [part for part in module.modules() if isinstance(part, fx.GraphModule)]


def calls_in(module: fx.GraphModule, target: Any) -> list[fx.Node]:
    """Who calls `target`, in the graph of `module` and in the bodies that it calls."""
    return [n for part in graph_modules(module) for n in part.graph.find_nodes(op="call_function", target=target)]


@contextlib.contextmanager
def standing_in(module: fx.GraphModule, target: Any, make: Callable[[], Any], known: dict[int, Any]) -> Iterator[None]:
    """While it lasts, something that `make` made stands in for each call of `target`, `known` by its key."""
    calls = {node: make() for node in calls_in(module, target)}
    for node, call in calls.items():
        node.target = known[call.key] = call
    try:
        yield
    finally:
        for node, call in calls.items():
            node.target = target
            known.pop(call.key)


def is_cut_in_dynamo(node: fx.Node) -> bool:
    """May the gradient be cut here? Something that requires none is made of something that does, or a region begins."""
    result = node.meta.get("example_value")
    if node.target in (set_grad_enabled, data_attribute) or not isinstance(result, torch.Tensor):
        return node.target in (set_grad_enabled, data_attribute)
    arguments = [argument.meta.get("example_value") for argument in node.all_input_nodes]
    tracked = any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments)
    cut = is_detach(node) or not result.requires_grad  # a detached alias may be written to and require one since
    return tracked and cut and ir.is_differentiable_type(result)


def is_detach(node: fx.Node) -> bool:
    return node.target in ("detach", "detach_", torch.detach, torch.Tensor.detach, data_attribute)
