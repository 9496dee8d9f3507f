"""What a loop has to remember of each round for its reverse."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves

from tapeless.differentiate.reverse import Joint
from tapeless.errors import Unsupported
from tapeless.ir import graph as ir


def residuals(joint: Joint, again: Sequence[fx.Node], operands: Sequence[fx.Node]) -> list[fx.Node]:
    """Values of a body that its reverse reads and cannot have otherwise, in program order.

    The inputs `again`, rows and operands, are read once more. Views are derived once more, and so is what is made of
    operands alone, which is the same in all rounds, and what has another size in each, which cannot be stacked.
    """
    free = _derived_again(joint, operands)
    found: set[fx.Node] = set()
    seen = {*again, *joint.cotangents}
    stack = [g for g in joint.gradients if g is not None]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in joint.backward or node in free:
            stack.extend(node.all_input_nodes)
        else:
            found.add(node)
    return [node for node in joint.graph.nodes if node in found]


def _derived_again(joint: Joint, operands: Sequence[fx.Node]) -> set[fx.Node]:
    constant, free = set(operands), set()
    for node in ir.calls(joint.graph):
        if node in joint.backward:
            continue
        if all(a in constant for a in node.all_input_nodes) and not _is_random(node):
            constant.add(node)
        if _is_ragged(node) and _is_random(node):
            raise Unsupported(
                f"random numbers, as many as the data decide, inside a loop\n  at {ir.where(node)}\n"
                "  Its reverse would have to draw them again. Draw them before the loop and pass them in."
            )
        if node in constant or _is_view(node) or _is_ragged(node) or _is_part(node, free):
            free.add(node)
    return free


def _is_view(node: fx.Node) -> bool:
    """A view, or a number such as a size."""
    return bool(getattr(node.target, "is_view", False)) or isinstance(ir.value(node), (int, float, torch.SymInt))


def _is_part(node: fx.Node, free: set[fx.Node]) -> bool:
    return node.target is operator.getitem and node.args[0] in free


def _is_ragged(node: fx.Node) -> bool:
    """Does its size depend on data? So do the stacks of a `While`."""
    values = [v for v in tree_leaves(ir.value(node)) if isinstance(v, (torch.Tensor, torch.SymInt))]
    return any(map(free_unbacked_symbols, values))


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
