"""Hooks that a program hangs on its own intermediate values: `h.register_hook(lambda g: 2 * g)`.

Dynamo hands one over as a call of `register_hook` with the hook's body as a graph. Tracing the forward to ATen would
lose it, so the call leaves a marker, and after tracing the hooked value passes through a `CustomFunction` node whose
backward is the hook. A hook sees the whole gradient of its tensor: also what comes from uses before it was hung up.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from typing import Any

import torch
from torch import fx
from torch.fx.node import has_side_effect
from torch.utils._pytree import tree_leaves

from tapeless import torch_internals
from tapeless.capture.facts import calls_in, standing_in
from tapeless.errors import Unsupported
from tapeless.ir import graph as ir
from tapeless.ir.custom import CustomFunction

_KEYS = itertools.count()
_CALLS: dict[int, _HookCall] = {}


@torch.library.custom_op("tapeless::hook", mutates_args=())
def marker(tensor: torch.Tensor, saved: list[torch.Tensor], key: int) -> torch.Tensor:
    """Says that the gradient of `tensor` goes through the hook `key`, which reads `saved`."""
    return torch.empty(0)


@marker.register_fake
def _(tensor: torch.Tensor, saved: list[torch.Tensor], key: int) -> torch.Tensor:
    return torch.empty(0)


has_side_effect(torch.ops.tapeless.hook.default)  # nobody reads its result


class _HookCall:
    """Takes the place of `register_hook` in a Dynamo graph."""

    __name__ = "register_hook"  # fx names it so when the call fails

    def __init__(self) -> None:
        self.key = next(_KEYS)
        self.function: CustomFunction | None = None

    def __call__(self, tensor: torch.Tensor, body: fx.GraphModule, *saved: Any) -> torch.Tensor:
        constants = tuple(None if isinstance(s, torch.Tensor) else (s,) for s in saved)
        tensors = [s for s in saved if isinstance(s, torch.Tensor)]
        own = tuple(0 if s is tensor else None for s in tensors)
        self.function = CustomFunction(_backward(body), constants, 1, (0,), (True,), True, True, "hook", own)
        tensor.register_hook(lambda g: body(g, *saved))  # for `torch.autograd.grad` inside the program
        with torch.no_grad():
            marker(tensor, tensors, self.key)
        return tensor


def _backward(body: fx.GraphModule) -> fx.GraphModule:
    """(gradient, what the hook reads) → [the gradient that goes on], which is the same one if the hook returns None."""
    graph = fx.Graph()
    result = graph.graph_copy(body.graph, {})
    graph.output([next(iter(graph.nodes)) if result is None else result])
    return fx.GraphModule(body, graph)


def marked_hooks(module: fx.GraphModule) -> contextlib.AbstractContextManager[None]:
    """While it lasts, every hook in a Dynamo graph leaves a marker when it is traced."""
    return standing_in(module, torch_internals.register_hook, _HookCall, _CALLS)


def resolve_hooks(module: fx.GraphModule) -> None:
    """In the traced graph, and in the bodies that it calls: who reads a hooked value reads it through its hook.

    Of several hooks on one value the first is nearest to the readers: gradients meet it first.
    """
    for node in calls_in(module, torch.ops.tapeless.hook.default):
        key: Any = node.args[2]
        function = _CALLS[key].function
        assert function is not None
        _pass_through(node, function)
        node.graph.erase_node(node)


def _pass_through(marker: fx.Node, function: CustomFunction) -> None:
    """Put `function` between the marked value and those of its readers that send it a gradient."""
    graph, (tensor, saved, _) = marker.graph, marker.args
    assert isinstance(tensor, fx.Node)
    order = {node: i for i, node in enumerate(graph.nodes)}
    readers = [user for user in tensor.users if user.target != marker.target and not _is_cut(user)]
    first = min([marker, *readers], key=order.__getitem__)
    if any(order[each] >= order[first] for each in saved):  # type: ignore[union-attr, index]
        what = "a hook that reads what is made after the first use of its tensor"
        raise Unsupported(f"{what}: make it of a detached copy, or register the hook earlier ({ir.where(marker)})")
    with graph.inserting_before(first):
        hooked = graph.call_function(function, ([tensor], [tensor], saved))
        item = graph.call_function(operator.getitem, (hooked, 0))
    for node, val in ((hooked, [ir.value(tensor)]), (item, ir.value(tensor))):
        ir.set_value(node, val)
        ir.set_where(node, marker)
    for reader in readers:
        reader.replace_input_with(tensor, item)


def _is_cut(node: fx.Node) -> bool:
    """Does no gradient come from what is computed here?"""
    made = tree_leaves(ir.value(node))
    cut = (node.meta.get("custom") or {}).get("no_grad", False)
    return cut or (node.op != "output" and not any(map(ir.is_differentiable_type, made)))
