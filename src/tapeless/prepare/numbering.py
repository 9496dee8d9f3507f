"""Equal values, however they are spelled: each value has a number, and equal numbers mean equal values.

Products are sets of factors and sums sets of terms, so their order does not count; a slope (`tanh_backward(g, y)`) is a
factor of g. Reshapes of reshapes, transposes of transposes and tensors of one number have one spelling. Equal values
may differ by rounding. Values under different tags are never equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare import facts
from tapeless.prepare.calls import arguments, number, operator_name
from tapeless.prepare.rowwise import RESHAPES, SLOPES
from tapeless.prepare.views import TRANSPOSES, axes

Key = tuple[Any, ...]  # its first element says of what kind; the second, for some kinds, of what


class Numbering:
    """The numbers of the values of a graph, and of values that are added to it."""

    def __init__(self, nodes: Iterable[fx.Node]) -> None:
        self.keys: list[Key] = []  # by number
        self.known: dict[Key, int] = {}
        self.numbers: dict[fx.Node, int] = {}
        self.types: dict[int, Key] = {}
        self.first: dict[int, fx.Node] = {}  # of the values that were there to begin with
        for node in nodes:
            self.first.setdefault(self.of(node), node)

    def of(self, node: fx.Node) -> int:
        """The number of a value; those of its arguments are known, or asked for."""
        if node not in self.numbers:
            found = self.numbers[node] = self._named(self._key(node))
            self.types.setdefault(found, _type(node))
        return self.numbers[node]

    def equal(self, node: fx.Node) -> fx.Node | None:
        """The first value that was there to begin with and equals this one."""
        return self.first.get(self.of(node))

    def _named(self, key: Key) -> int:
        if key[0] == "same":
            return key[1]
        if key not in self.known:
            self.known[key] = len(self.keys)
            self.keys.append(key)
        return self.known[key]

    def _key(self, node: fx.Node) -> Key:
        if node.op != "call_function" or not ir.is_tensor(node) or not facts.is_pure(node):
            return "leaf", node
        name, given, filled = operator_name(node), arguments(node), number(node)
        if filled is not None:
            return "full", float(filled), *_type(node)
        if not facts.may_carry(node):
            return "leaf", node  # cut off: no value through which a derivative passes may stand for it
        if name in RESHAPES:
            return self._view("reshaped", node, *_type(node))
        if name in TRANSPOSES and axes(node) == [1, 0]:
            return self._view("transposed", node)
        if name in SLOPES:
            rest = [(key, value) for key, value in given.items() if key != "grad_output"]
            slope = self._named(("slope", name, self._frozen(rest), *_type(node), facts.tags(node)))
            return self._product(node, [given["grad_output"]], 1.0, slope)
        if name in ("mul", "neg"):
            factors = [given["self"], given.get("other", -1)]
            scale = float(prod(factor for factor in factors if not isinstance(factor, fx.Node)))
            return self._product(node, [factor for factor in factors if isinstance(factor, fx.Node)], scale)
        if name == "add" and given["alpha"] == 1 and ir.is_tensor(given["other"]):
            return self._sum(node, given["self"], given["other"])
        return node.target, self._frozen(list(given.items())), facts.tags(node)

    def _view(self, kind: str, node: fx.Node, *how: Any) -> Key:
        """Of a view of the same kind it is one of what that views; two transposes are none."""
        base, tags = self.of(node.all_input_nodes[0]), facts.tags(node)
        inner = self.keys[base]
        if inner[0] != kind or inner[-1] != tags:
            return kind, base, *how, tags
        return ("same", inner[1]) if kind == "transposed" else (kind, inner[1], *how, tags)

    def _factor(self, node: fx.Node, tags: Any) -> int:
        """A product broadcasts by itself what is expanded for it."""
        expanded = operator_name(node) == "expand" and facts.tags(node) == tags
        return self._factor(node.args[0], tags) if expanded else self.of(node)  # type: ignore[arg-type]

    def _product(self, node: fx.Node, factors: list[fx.Node], scale: float, *others: int) -> Key:
        """The numbers of all factors, and the product of those that are one number throughout."""
        found, type_and_tags = list[int](), (*_type(node), facts.tags(node))
        for factor in (*(self._factor(factor, facts.tags(node)) for factor in factors), *others):
            inner = self.keys[factor]
            if inner[0] == "product" and inner[3:] == type_and_tags:
                scale, found = scale * inner[1], [*found, *inner[2]]
            elif inner[0] == "full":
                scale *= inner[1]
            else:
                found.append(factor)
        whole = scale == 1 and len(found) == 1 and self.types.get(found[0]) == _type(node)
        return ("same", found[0]) if whole else ("product", scale, tuple(sorted(found)), *type_and_tags)

    def _sum(self, node: fx.Node, *terms: fx.Node) -> Key:
        found, tags = list[int](), facts.tags(node)
        for term in terms:
            inner = self.keys[self.of(term)]
            found += inner[1] if inner[0] == "sum" and inner[2:] == (*_type(node), tags) else [self.of(term)]
        return "sum", tuple(sorted(found)), *_type(node), tags

    def _frozen(self, value: Any) -> Any:
        """Comparable by what it is: nodes by their numbers, Python numbers by type and value."""
        if isinstance(value, fx.Node):
            return "value", self.of(value)
        if isinstance(value, (list, tuple)):
            return tuple(map(self._frozen, value))
        return type(value), str(value)


def _type(node: fx.Node) -> Key:
    val = ir.value(node)
    return (tuple(map(str, val.shape)), val.dtype, val.device) if ir.is_tensor(node) else ()
