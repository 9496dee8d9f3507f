"""Less to save: a backward makes itself what it can make, in a step or two, of other values that it reads anyway.

The partitioner lets a backward recompute what its kernels need on their way. An operand of a product is not on the way
of any kernel: it is saved, beside what it was made of. Made again it is one more result of a kernel that reads its
sources as it is, so that it is written instead of kept. See docs/decisions/0031-lean.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.partition.rederive import is_view

LARGE = 2**20  # bytes of a value that is made again
BYTES = 2.0  # that have to be spared by each element that is computed for it alone
SMALL = 2**16  # bytes of an input that is saved, as a copy, to make a value of it


def save_less(forward: fx.GraphModule, backward: fx.GraphModule, outputs: int) -> None:
    """Rewrite both, in place. The forward returns its first `outputs` results, and what the backward reads by name."""
    pair = _Pair(forward.graph, backward.graph, outputs)
    for node in pair.saved():
        if (recipe := pair.recipe(node)) is not None:
            pair.make_again(node, recipe)
    if pair.dropped:
        pair.finish()
        forward.recompile()
        backward.recompile()


@dataclass
class _Recipe:
    """How a value is made."""

    calls: dict[fx.Node, None] = field(default_factory=dict)  # of the forward, each behind its operands
    sources: dict[fx.Node, None] = field(default_factory=dict)  # what these read


class _Pair:
    """A forward and its backward, which knows values of the forward by their names."""

    def __init__(self, forward: fx.Graph, backward: fx.Graph, outputs: int) -> None:
        self.forward, self.backward = forward, backward
        results = list(forward.output_node().args[0])  # type: ignore[arg-type]
        self.real, self.hidden = results[:outputs], results[outputs:]
        self.arguments = {node.name: node for node in ir.inputs(backward)}
        self.made = {node.name for node in ir.calls(backward)}
        self.order = {node: k for k, node in enumerate(backward.nodes)}
        self.needed: set[fx.Node] = set()
        self.dropped: set[fx.Node] = set()
        self.copies: dict[fx.Node, fx.Node] = {}

    def saved(self) -> list[fx.Node]:
        """Large values that are kept for the backward alone."""
        found = (node for node in dict.fromkeys(self.hidden) if node.op == "call_function" and node not in self.real)
        return [node for node in found if ir.is_tensor(node) and _bytes(node) >= LARGE]

    def recipe(self, node: fx.Node) -> _Recipe | None:
        """How to make it of what the backward has besides, if that is worth it."""
        found = _Recipe()
        if node in self.needed or not self._trace(node, node, found):
            return None
        alone = sum(ir.value(call).numel() for call in found.calls if call.name not in self.made and not is_view(call))
        return found if _bytes(node) >= BYTES * alone else None

    def _trace(self, node: fx.Node, wanted: fx.Node, found: _Recipe) -> bool:
        if node in found.calls or node in found.sources:
            return True
        if node is not wanted and self._is_at_hand(node):
            found.sources[node] = None
            return True
        if not _is_elementwise(node) or not all(self._trace(a, wanted, found) for a in node.all_input_nodes):
            return False
        found.calls[node] = None
        return True

    def _is_at_hand(self, node: fx.Node) -> bool:
        """Does the backward read it, or is it an input so small that a copy costs nothing?"""
        if node.op == "placeholder" and ir.is_tensor(node) and _bytes(node) <= SMALL:
            return True
        return node.name in self.arguments and node not in self.dropped

    def make_again(self, node: fx.Node, recipe: _Recipe) -> None:
        """Let the backward make it, where it is first read."""
        argument = self.arguments[node.name]
        known: dict[fx.Node, fx.Node] = {source: self._argument(source) for source in recipe.sources}
        with self.backward.inserting_before(min(argument.users, key=self.order.__getitem__)):
            for call in recipe.calls:
                known[call] = self.backward.node_copy(call, known.__getitem__)
        argument.replace_all_uses_with(known[node])
        self.backward.erase_node(argument)
        self.needed.update(recipe.sources)
        self.dropped.add(node)

    def _argument(self, source: fx.Node) -> fx.Node:
        if source.name in self.arguments:
            return self.arguments[source.name]
        if source not in self.copies:
            self.copies[source] = self._copied(source)
        return self.arguments[self.copies[source].name]

    def _copied(self, source: fx.Node) -> fx.Node:
        """A copy of an input: who changes that before the backward may do so in eager."""
        name = f"copy_of_{source.name}"
        with self.forward.inserting_before(self.forward.output_node()):
            copy = self.forward.create_node("call_function", torch.ops.aten.clone.default, (source,), name=name)
        with self.backward.inserting_before(ir.calls(self.backward)[0]):
            argument = self.backward.placeholder(copy.name)
        for node in (copy, argument):
            ir.set_value(node, ir.value(source))
        self.arguments[copy.name] = argument
        return copy

    def finish(self) -> None:
        """What the forward returns now."""
        hidden = [*(node for node in self.hidden if node not in self.dropped), *self.copies.values()]
        self.forward.output_node().args = ([*self.real, *hidden],)


def _is_elementwise(node: fx.Node) -> bool:
    """Is it computed element by element, or seen in another shape?"""
    if node.op != "call_function" or not ir.is_tensor(node):
        return False
    tags: Collection[torch.Tag] = getattr(node.target, "tags", ())
    return is_view(node) or (torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags)


def _bytes(node: fx.Node) -> int:
    val: torch.Tensor = ir.value(node)
    return val.numel() * val.element_size()
