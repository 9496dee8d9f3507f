"""An operator written out: it keeps computing the value itself, what it decomposes into is differentiated.

The decomposition runs on the operator's arguments and leaves its nodes behind the graph; what a derivative does not
read of them is dead code.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only

from tapeless.errors import RuleFailed, TapelessError
from tapeless.ir import graph as ir
from tapeless.ir.emit import Emitter
from tapeless.rules.decompositions import Asked, has_decomposition, run_decomposition


def can_decompose(node: fx.Node, use: Asked) -> bool:
    return isinstance(node.target, OpOverload) and has_decomposition(node.target, use)


def reverse_use(node: fx.Node) -> Asked:
    """Differentiating an operator of a backward, one of ours or torch's, is second order."""
    op = cast(OpOverload, node.target)
    return "second order" if ir.region(node) is not None or "_backward" in op.__name__ else "first order"


def write_out(emitter: Emitter, node: fx.Node, use: Asked) -> tuple[list[fx.Node], list[fx.Node | None]]:
    """The nodes of `node`'s decomposition in order, and which of them (or of the graph's) are its results."""
    last = next(iter(reversed(node.graph.nodes)))
    args, kwargs = tree_map_only(fx.Node, ir.value, (node.args, node.kwargs))
    try:
        found = run_decomposition(cast(OpOverload, node.target), args, kwargs, use)
    except TapelessError:
        raise
    except Exception as problem:
        reason = f"in its decomposition: {type(problem).__name__}: {problem}"
        raise RuleFailed(str(node.target), ir.where(node), reason) from problem
    given, values = _listed(found), _listed(ir.value(node))
    if len(given) != len(values):
        reason = f"its decomposition gives {len(given)} results for {len(values)}"
        raise RuleFailed(str(node.target), ir.where(node), reason)
    results = [_checked(emitter, node, *pair) for pair in zip(given, values, strict=True)]
    written = []
    while last.next.op != "root":
        last = last.next
        written.append(last)
    return written, results


def _checked(emitter: Emitter, node: fx.Node, found: Any, expected: Any) -> fx.Node | None:
    """The node of one result, which must look like the operator's own if it carries a derivative."""
    if not ir.is_differentiable_type(expected):
        return None
    if not isinstance(found, torch.Tensor) or (found.shape, found.dtype) != (expected.shape, expected.dtype):
        reason = f"its decomposition gives {_described(found)} for {_described(expected)}"
        raise RuleFailed(str(node.target), ir.where(node), reason)
    return emitter.node(found)


def _described(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
