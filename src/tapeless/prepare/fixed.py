"""What is made of weights alone. Where no derivative is asked it need not be computed at every call.

So it counts as free in the passes, which may scale, join or pack weights as they like; and `split` takes it out of the
program, for the runtime to keep (`runtime/kept.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import fx

from tapeless.ir import cost
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_nodes
from tapeless.prepare import facts

SMALL = 2**20  # bytes that are kept without asking what they are made of


def fixed_inputs(graph: fx.Graph, flags: Sequence[bool]) -> set[fx.Node]:
    return {node for node, fixed in zip(ir.inputs(graph), flags, strict=False) if fixed}


def fixed_values(nodes: Iterable[fx.Node], known: set[fx.Node]) -> set[fx.Node]:
    """`known`, and those of `nodes` that depend on nothing else; none if nothing is known."""
    found = set(known)
    for node in nodes if known else ():
        if node.op == "call_function" and facts.is_pure(node) and all(a in found for a in node.all_input_nodes):
            found.add(node)
    return found


@dataclass(frozen=True)
class Parts:
    """A program in two: what is made of weights alone, and the rest, to which that is given in addition."""

    weights: tuple[int, ...]  # the inputs that the first part reads
    made: fx.Graph
    rest: fx.Graph


def split(graph: fx.Graph, flags: Sequence[bool]) -> Parts | None:
    """The two parts; None if nothing is worth keeping."""
    weights = fixed_inputs(graph, flags)
    kept = _kept(graph, weights)
    front = [n for n in ir.calls(graph) if n in kept and any(user not in kept for user in n.users)]
    if not front:
        return None
    inputs = ir.inputs(graph)
    read = _read_by(front, weights)
    made = copy_nodes([], [node for node in inputs if node in read], front)
    rest = copy_nodes([n for n in ir.calls(graph) if n not in kept], [*inputs, *front], ir.outputs(graph))
    return Parts(tuple(i for i, node in enumerate(inputs) if node in read), made, rest)


def _kept(graph: fx.Graph, weights: set[fx.Node]) -> set[fx.Node]:
    """Fixed values behind at least one call that computes; neither returned nor larger than what they are made of."""
    fixed = fixed_values(ir.calls(graph), weights) - _returned(graph)
    size: dict[fx.Node, int] = {node: cost.likely_bytes(ir.value(node)) for node in weights}
    kept: set[fx.Node] = set()
    for node in ir.calls(graph):
        sources = node.all_input_nodes
        if node not in fixed or facts.is_symbolic(node) or any(a not in size for a in sources):
            continue
        size[node] = sum({a: size[a] for a in sources}.values())
        computes = not facts.is_view(node) or any(a in kept for a in sources)
        if computes and cost.likely_bytes(ir.value(node)) <= max(size[node], SMALL):
            kept.add(node)
        elif computes:
            del size[node]
    return kept


def _returned(graph: fx.Graph) -> set[fx.Node]:
    """The values that the program returns, and those in whose memory they live."""
    found: set[fx.Node] = set()
    stack = graph.output_node().all_input_nodes
    while stack:
        node = stack.pop()
        found.add(node)
        if node.op == "call_function" and facts.is_view(node):
            stack.extend(node.all_input_nodes)
    return found


def _read_by(nodes: Sequence[fx.Node], weights: set[fx.Node]) -> set[fx.Node]:
    """The weights that `nodes` are made of."""
    stack, seen = list(nodes), set(nodes)
    while stack:
        fresh = [a for a in stack.pop().all_input_nodes if a not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return seen & weights
