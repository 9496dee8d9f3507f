"""What has to be saved together, for the sake of second derivatives.

A rule for an operator with several results reads what the cotangents that arrive make it read: the gradient of the
singular values takes U and V alone. Of second order, cotangents of the saved U and V arrive at the same operator, and
now its rule reads the singular values too. So whoever saves one result saves all that the rule may ever read.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass, field

from torch import fx
from torch._ops import OpOverload

from tapeless import torch_internals
from tapeless.differentiate.activity import is_inert
from tapeless.differentiate.forward import SingleVjp
from tapeless.errors import TapelessError
from tapeless.ir import graph as ir
from tapeless.ir.content import Indescribable, describe
from tapeless.rules.traced import Untraceable

Reads = tuple[list[fx.Node], list[int]]  # values from before the call, positions among its results


@dataclass(frozen=True)
class Companions:
    """Answers for one graph; what was found out about a call holds for every call like it."""

    active: Collection[fx.Node]
    backward: Collection[fx.Node]
    known: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)

    def of(self, captured: fx.Node) -> list[fx.Node]:
        """The values to save along with `captured`: none, unless it is one of several results that has a derivative."""
        if captured.target is not operator.getitem or captured not in self.active:
            return []
        if all(is_inert(captured, user) for user in captured.users if user in self.backward):
            return []
        node: fx.Node = captured.args[0]  # type: ignore[assignment]
        if not isinstance(node.target, OpOverload):
            return []  # control flow returns all that its derivatives read
        arguments, results = self._reads(node)
        return [*arguments, *(_element(node, i) for i in results)]

    def _reads(self, node: fx.Node) -> Reads:
        given = node.all_input_nodes
        active = [argument for argument in given if argument in self.active]
        kind = _kind(node, active)
        if kind is None:
            return _reads(node, active)
        if kind not in self.known:
            arguments, results = _reads(node, active)
            self.known[kind] = [given.index(argument) for argument in arguments], results
        positions, results = self.known[kind]
        return [given[i] for i in positions], results


def _kind(node: fx.Node, active: list[fx.Node]) -> str | None:
    """The call but for the names of its arguments; None if text cannot say it."""
    position = {argument: f"#{i}" for i, argument in enumerate(node.all_input_nodes)}
    types = [(ir.value(argument), argument in active) for argument in position]
    try:
        call = describe(fx.map_arg((node.args, dict(node.kwargs)), position.__getitem__))
        return f"{node.target} {call} {describe(types)}"
    except Indescribable:
        return None


def _reads(node: fx.Node, active: list[fx.Node]) -> Reads:
    """What the gradient of a tuple-valued operator reads if all its results have cotangents."""
    try:
        with torch_internals.without_modes():
            vjp = SingleVjp(node, active)
    except (Untraceable, TapelessError):
        return [], []  # it is written out instead, or second order will say that it cannot be
    vjp.graph.eliminate_dead_code()
    call = vjp.copies[node]
    arguments = [a for a, copy in vjp.copies.items() if a is not node and any(user is not call for user in copy.users)]
    results = [int(item.args[1]) for item in call.users]  # type: ignore[arg-type]
    return arguments, results


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
