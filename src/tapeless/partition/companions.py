"""What has to be saved together, for the sake of second derivatives.

A rule for an operator with several results reads what the cotangents that arrive make it read: the gradient of the
singular values takes U and V alone. Of second order, cotangents of the saved U and V arrive at the same operator, and
now its rule reads the singular values too. So whoever saves one result saves all that the rule may ever read.
"""

from __future__ import annotations

import operator
from collections.abc import Collection

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from tapeless.ir import graph as ir
from tapeless.rules.registry import is_nondifferentiable, named_arguments, rule_of


def companions(captured: fx.Node, active: Collection[fx.Node], backward: Collection[fx.Node]) -> list[fx.Node]:
    """The values to save along with `captured`: none, unless it is one of several results that has a derivative."""
    if captured.target is not operator.getitem or captured not in active:
        return []
    if all(_is_inert(captured, user) for user in captured.users if user in backward):
        return []
    return _reads(captured.args[0])  # type: ignore[arg-type]


def _is_inert(value: fx.Node, user: fx.Node) -> bool:
    """Does no derivative go from `user` to `value`?"""
    op = user.target
    if not isinstance(op, OpOverload) or is_nondifferentiable(op):
        return isinstance(op, OpOverload)
    rule = rule_of(op)
    holding = [n for n, given in named_arguments(op, user.args, user.kwargs).items() if value in tree_leaves(given)]
    return rule is not None and all(name in rule.constants for name in holding)


def _reads(node: fx.Node) -> list[fx.Node]:
    """Everything that the rule of a tuple-valued node names, in the graph of that node."""
    op = node.target
    rule = rule_of(op) if isinstance(op, OpOverload) else None
    if rule is None or rule.form == "linear":
        return []
    names = {name for formula in rule.vjps.values() for name in formula.reads}
    given = [value for name, value in named_arguments(op, node.args, node.kwargs).items() if name in names]  # type: ignore[arg-type]
    arguments = [leaf for leaf in tree_leaves(given) if ir.is_tensor(leaf)]
    return [*arguments, *(_elements(node) if "out" in names else [])]


def _elements(node: fx.Node) -> list[fx.Node]:
    """The results of a tuple-valued node; those that nobody has asked for so far are made."""
    known = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    return [known.get(i) or _element(node, i) for i, v in enumerate(ir.value(node)) if isinstance(v, torch.Tensor)]


def _element(node: fx.Node, index: int) -> fx.Node:
    with node.graph.inserting_after(node):
        item = node.graph.call_function(operator.getitem, (node, index))
    item.meta = dict(node.meta)
    ir.set_value(item, ir.value(node)[index])
    return item
