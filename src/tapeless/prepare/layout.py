"""What other strides of a value do to the values made of it."""

from __future__ import annotations

import heapq
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map_only

from tapeless.ir import graph as ir
from tapeless.prepare import facts
from tapeless.prepare.calls import operator_name
from tapeless.torch_internals import without_modes


def relaid(changed: dict[fx.Node, torch.Tensor]) -> dict[fx.Node, Any] | None:
    """The values that get other strides if those of `changed` do; None if somebody could see it.

    Somebody can where a value is returned or read by its strides.
    """
    found: dict[fx.Node, Any] = {}
    queue: list[fx.Node] = []
    for node, val in changed.items():
        found[node] = val
        queue += [user for user in node.users if user not in queue]
    heapq.heapify(queue)
    seen = set(queue)
    while queue:
        node = heapq.heappop(queue)
        if node.op == "output" or operator_name(node) in ("", "as_strided"):
            return None
        val = _value(node, found)
        if val is None:
            return None
        if not _same(val, ir.value(node)):
            found[node] = val
            fresh = [user for user in node.users if user not in seen]
            seen.update(fresh)
            for user in fresh:
                heapq.heappush(queue, user)
    return {node: val for node, val in found.items() if node not in changed}


def _value(node: fx.Node, found: dict[fx.Node, Any]) -> Any:
    args, kwargs = tree_map_only(fx.Node, lambda n: found.get(n, ir.value(n)), (node.args, node.kwargs))
    with without_modes(), torch.no_grad():
        if operator_name(node) in ("view", "_unsafe_view"):
            return args[0].reshape(*args[1:])  # as the text has it
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return facts.same_type(a, b) and facts.same_layout(a, b)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    return str(a) == str(b)
