"""What has to be saved together, for the sake of second derivatives.

A rule for an operator with several results reads what the cotangents that arrive make it read: the gradient of the
singular values takes U and V alone. Of second order, cotangents of the saved U and V arrive at the same operator, and
now its rule reads the singular values too. So whoever saves one result saves all that the rule may ever read.

A backward of the user's may read values that no cotangent reaches at first order, `w.exp()` in `g * w.exp()`. Of second
order one does, and what the rules read on the way to the inputs is saved along.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass, field

import torch
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
    reached: Collection[fx.Node]  # those of the active values to which cotangents go
    known: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)

    def of(self, captured: fx.Node) -> list[fx.Node]:
        """The values to save along with `captured`, which has a derivative: most have none.

        What its rule reads, where it is one of several results or no cotangent comes at first order.
        """
        if captured not in self.active or captured.op == "placeholder":
            return []
        if captured in self.reached and captured.target is not operator.getitem:
            return []
        if all(is_inert(captured, user) for user in captured.users if user in self.backward):
            return []
        return self._with_sources(captured) if captured not in self.reached else self._read_by(captured)

    def _read_by(self, value: fx.Node) -> list[fx.Node]:
        """What the rule of the operator that makes `value` may read."""
        node: fx.Node = value.args[0] if value.target is operator.getitem else value  # type: ignore[assignment]
        if not isinstance(node.target, OpOverload):
            return []  # control flow returns all that its derivatives read
        arguments, results = self._reads(node)
        return [*arguments, *(_element(node, i) for i in results)]

    def _with_sources(self, value: fx.Node) -> list[fx.Node]:
        """What is read by all the rules between `value` and those that cotangents reach anyway."""
        found: dict[fx.Node, None] = {}
        seen, waiting = {value}, [value]
        while waiting:
            node = waiting.pop()
            found.update(dict.fromkeys(self._read_by(node)))
            on = [a for a in node.all_input_nodes if a in self.active and a not in self.reached and a not in seen]
            seen.update(on)
            waiting.extend(a for a in on if a.op != "placeholder")
        return list(found)

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
    """What the gradient of an operator reads if all its results have cotangents."""
    try:
        with torch_internals.without_modes():
            vjp = SingleVjp(node, active)
    except (Untraceable, TapelessError):
        return [], []  # it is written out instead, or second order will say that it cannot be
    vjp.graph.eliminate_dead_code()
    call = vjp.copies[node]
    arguments = [a for a, copy in vjp.copies.items() if a is not node and any(user is not call for user in copy.users)]
    if isinstance(ir.value(node), torch.Tensor):
        return arguments, [0] * any(True for _ in call.users)
    results = [int(item.args[1]) for item in call.users]  # type: ignore[arg-type]
    return arguments, results


def _element(node: fx.Node, index: int) -> fx.Node:
    """One result of a node; of a tuple made now if nobody has asked for it so far."""
    if isinstance(ir.value(node), torch.Tensor):
        return node
    known = next((user for user in node.users if user.target is operator.getitem and user.args[1] == index), None)
    if known is not None:
        return known
    with node.graph.inserting_after(node):
        item = node.graph.call_function(operator.getitem, (node, index))
    item.meta = dict(node.meta)
    ir.set_value(item, ir.value(node)[index])
    return item
