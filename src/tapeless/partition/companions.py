"""What has to be saved together, for the sake of second derivatives.

A rule for an operator with several results reads what the cotangents that arrive make it read: the gradient of the
singular values takes U and V alone. Of second order, cotangents of the saved U and V arrive at the same operator, and
now its rule reads the singular values too. So whoever saves one result saves all that the rule may ever read.
"""

from __future__ import annotations

import operator
from collections.abc import Collection

from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from tapeless import torch_internals
from tapeless.differentiate.forward import SingleVjp
from tapeless.errors import TapelessError
from tapeless.ir import graph as ir
from tapeless.rules.registry import is_nondifferentiable, named_arguments, rule_of
from tapeless.rules.traced import Untraceable


def companions(captured: fx.Node, active: Collection[fx.Node], backward: Collection[fx.Node]) -> list[fx.Node]:
    """The values to save along with `captured`: none, unless it is one of several results that has a derivative."""
    if captured.target is not operator.getitem or captured not in active:
        return []
    if all(_is_inert(captured, user) for user in captured.users if user in backward):
        return []
    return _reads(captured.args[0], active)  # type: ignore[arg-type]


def _is_inert(value: fx.Node, user: fx.Node) -> bool:
    """Does no derivative go from `user` to `value`?"""
    op = user.target
    if not isinstance(op, OpOverload) or is_nondifferentiable(op):
        return isinstance(op, OpOverload)
    rule = rule_of(op)
    holding = [n for n, given in named_arguments(op, user.args, user.kwargs).items() if value in tree_leaves(given)]
    return rule is not None and all(name in rule.constants for name in holding)


def _reads(node: fx.Node, active: Collection[fx.Node]) -> list[fx.Node]:
    """What the gradient of a tuple-valued operator reads if all its results have cotangents."""
    if not isinstance(node.target, OpOverload):
        return []  # control flow returns all that its derivatives read
    try:
        with torch_internals.without_modes():
            vjp = SingleVjp(node, [argument for argument in node.all_input_nodes if argument in active])
    except (Untraceable, TapelessError):
        return []  # it is written out instead, or second order will say that it cannot be
    vjp.graph.eliminate_dead_code()
    call = vjp.copies[node]
    arguments = [a for a, copy in vjp.copies.items() if a is not node and any(user is not call for user in copy.users)]
    return [*arguments, *(_element(node, int(item.args[1])) for item in call.users)]  # type: ignore[arg-type]


def _element(node: fx.Node, index: int) -> fx.Node:
    """One result of a tuple-valued node; made now if nobody has asked for it so far."""
    known = next((user for user in node.users if user.target is operator.getitem and user.args[1] == index), None)
    if known is not None:
        return known
    with node.graph.inserting_after(node):
        item = node.graph.call_function(operator.getitem, (node, index))
    item.meta = dict(node.meta)
    ir.set_value(item, ir.value(node)[index])
    return item
