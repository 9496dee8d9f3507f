"""The end of a chain of linear maps of which one number per row is read: the chain is run from its other end.

    ⟨e, L₁ (s₁ + L₂ (s₂ + …))⟩ = ⟨L₁ᵀ e, s₁⟩ + ⟨L₂ᵀ L₁ᵀ e, s₂⟩ + …      per row

A second derivative in one direction is such a number: u_xx is column x of the gradient of u_x, which collects something
at every layer and is carried down to the input. The transposed maps applied to the direction x are the tangents from
which that something was made: they are there already, and the chain with its products goes. What is not there is not
made: a chain is transposed as far as its products are known. See docs/decisions/0026-transposed-chains.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare import facts
from tapeless.prepare.calls import arguments, operator_name
from tapeless.prepare.editor import Editor
from tapeless.prepare.numbering import Numbering
from tapeless.prepare.passes import Pass, Phase, sweep
from tapeless.prepare.rowwise import PRODUCTS, Carried, carriers, rows_before
from tapeless.torch_internals import fresh

Tensor = torch.Tensor
EXACT = (torch.float32, torch.float64)  # in fewer digits another order of sums shows


@sweep(phase=Phase.ALGEBRA, symbolic=True, relayout=True)
def transpose_chain(editor: Editor) -> None:
    """⟨e, L s⟩ = ⟨Lᵀ e, s⟩ per row: of a chain of products one direction is read, for which Lᵀ e is known."""
    products = _products_behind(editor.graph)
    numbering: Numbering | None = None
    for ends in _ends(editor.graph, products):
        if not any(end._erased for end in ends):
            numbering = numbering or Numbering(node for node in editor.graph.nodes if node.op != "output")
            known = Known(editor, numbering, _descendants(ends), max(ends))
            chains = [Chain(known, end, frozenset(ends), products) for end in ends]
            done = editor.replace_all(ends, ends, lambda chains=chains: _built(editor, chains))
            numbering = None if done else numbering


def _products_behind(graph: fx.Graph) -> dict[fx.Node, int]:
    """How many products of matrices each value is linear in, along the longest of its chains."""
    found: dict[fx.Node, int] = {}
    for node in ir.calls(graph):
        behind = [found.get(a, 0) for group in carriers(node) for a in group.values()]
        found[node] = max(behind, default=0) + (operator_name(node) in PRODUCTS)
    return found


def _ends(graph: fx.Graph, products: dict[fx.Node, int]) -> list[list[fx.Node]]:
    """Values of one number per row, by the wider one that they and nobody else read, if products are behind it."""
    found: dict[fx.Node, list[fx.Node]] = {}
    for node in ir.calls(graph):
        wide = next(iter(_carried(node, _rows(node), products).values()), None) if products[node] else None
        if wide is not None and ir.value(node).dtype in EXACT and _is_narrower(node, wide):
            found.setdefault(wide, []).append(node)
    return [ends for wide, ends in found.items() if set(wide.users) == set(ends)]


def _rows(end: fx.Node) -> int:
    """How many dimensions of the end are rows: all but the last ones of size 1."""
    sizes = [*ir.value(end).shape]
    while sizes and str(sizes[-1]) == "1":
        sizes.pop()
    return len(sizes)


def _is_narrower(node: fx.Node, wide: fx.Node) -> bool:
    return str(ir.value(node).numel()) != str(ir.value(wide).numel())


def _carried(node: fx.Node, rows: int, products: dict[fx.Node, int]) -> Carried:
    """The arguments through which a chain goes on from this call: of two factors the one with products behind it."""
    kept = [g for g in carriers(node) if all(rows_before(node, a, rows) is not None for a in g.values())]
    return max(kept, key=lambda g: max((len(a.users) == 1, products.get(a, 0)) for a in g.values()), default={})


def _descendants(ends: Sequence[fx.Node]) -> set[fx.Node]:
    found, stack = set(ends), list(ends)
    while stack:
        new = [user for user in stack.pop().users if user not in found]
        found.update(new)
        stack.extend(new)
    return found


@dataclass(frozen=True)
class Known:
    """The values of the graph, for a replacement that must not read what depends on it."""

    editor: Editor
    numbering: Numbering
    descendants: set[fx.Node]
    place: fx.Node  # where new calls are put

    def value(self, t: Tensor) -> Tensor | None:
        """The value of the graph that equals `t`."""
        node = self.numbering.equal(self.editor.emitter.node(t))
        if node is None or node in self.descendants:
            return None
        self.editor.moved = self.editor.moved or node > self.place
        return self.editor.value(node)


@dataclass
class Chain:
    """A walk from one end back to the sources, with what each value on the way counts for the end: its factor t."""

    known: Known
    end: fx.Node
    ends: frozenset[fx.Node]  # of the same wide value: none of them counts as another reader of the chain
    products: dict[fx.Node, int]
    left: set[fx.Node] = field(default_factory=set)  # known to lead to no known product: a source
    through: dict[fx.Node, Carried] = field(default_factory=dict)
    sources: list[tuple[fx.Node, Tensor, int]] = field(default_factory=list)  # value, factor, dimensions of rows

    def walk(self) -> bool:
        """Walk as far as known products lead; False if that is nowhere."""
        while True:
            self._walk_once()
            useful = self._useful()
            if useful == set(self.through):
                return bool(useful)
            self.left |= set(self.through) - useful

    def _walk_once(self) -> None:
        """From each value to the arguments in which it is linear, a value after all its readers."""
        out = ir.value(self.end)
        factors: dict[fx.Node, Tensor] = {self.end: torch.ones(out.shape, dtype=out.dtype, device=out.device)}
        rows = {self.end: _rows(self.end)}
        self.through, self.sources = {}, []
        while factors:
            node = max(factors)
            t = factors.pop(node)
            pulled = self._pulled(node, t, rows[node])
            if not pulled:
                self.sources.append((node, t, rows[node]))
            for argument, factor in pulled:
                rows[argument] = rows_before(node, argument, rows[node]) or 0
                total = factors[argument] + factor if argument in factors else factor
                factors[argument] = self._if_known(total)

    def _pulled(self, node: fx.Node, t: Tensor, rows: int) -> list[tuple[fx.Node, Tensor]]:
        """The factors of the arguments of a call on the chain; none if the chain begins behind it."""
        carried = self._carried(node, rows)
        if not carried:
            return []
        found = _transposed(self.known.editor, node, carried, t)
        if operator_name(node) in PRODUCTS and any(self.known.value(factor) is None for factor in found):
            return []
        self.through[node] = carried
        return [(a, self._if_known(factor)) for a, factor in zip(carried.values(), found, strict=True)]

    def _carried(self, node: fx.Node, rows: int) -> Carried:
        inside = node is self.end or all(user in self.through or user in self.ends for user in node.users)
        if not inside or node in self.left or node.op != "call_function" or not facts.is_pure(node):
            return {}
        return _carried(node, rows, self.products) if facts.tags(node) == facts.tags(self.end) else {}

    def _if_known(self, t: Tensor) -> Tensor:
        known = self.known.value(t)
        return t if known is None else known

    def _useful(self) -> set[fx.Node]:
        """The calls on the way to a product: all products walked through are known."""
        found: set[fx.Node] = set()
        for node in sorted(self.through):
            if operator_name(node) in PRODUCTS or any(a in found for a in self.through[node].values()):
                found.add(node)
        return found

    def total(self) -> Tensor:
        """Σ ⟨t, s⟩ per row, of the type of the end."""
        value, out = self.known.editor.value, ir.value(self.end)
        terms = [_per_row(t * value(source), rows, out) for source, t, rows in self.sources]
        return sum(terms[1:], start=terms[0])


def _per_row(x: Tensor, rows: int, out: Tensor) -> Tensor:
    x = x.sum(list(range(rows, x.dim()))) if x.dim() > rows else x
    return x if facts.same_type(x, out) else x.reshape(out.shape)


def _transposed(editor: Editor, node: fx.Node, carried: Carried, t: Tensor) -> Sequence[Tensor]:
    """Lᵀ t for a call that is linear in the arguments `carried`: torch's own derivative of it, as captured ones are."""
    target: Any = node.target
    given = {name: editor.value(value) for name, value in arguments(node).items()}
    with torch.enable_grad():
        own = {name: fresh(given[name]).requires_grad_() for name in carried}
        for name, x in own.items():
            editor.emitter.bind(x, carried[name])
        names = [a.name for a in target._schema.arguments if not a.kwarg_only]
        named = {**given, **own}
        out = target(*(named[n] for n in names), **{n: v for n, v in named.items() if n not in names})
        found = torch.autograd.grad(out, list(own.values()), t)
    editor.graph.erase_node(editor.emitter.node(out))  # it is there already
    return found


def _built(editor: Editor, chains: Sequence[Chain]) -> list[Tensor] | None:
    """The ends made from the other side, without the calls that served to find out how."""
    before = set(editor.emitter.emitted)
    if not all(chain.walk() for chain in chains):
        return None
    totals = [chain.total() for chain in chains]
    kept = {editor.emitter.node(total) for total in totals}
    for node in sorted(editor.emitter.emitted - before, reverse=True):
        if not node._erased and not node.users and node not in kept:
            editor.graph.erase_node(node)
    return totals


CHAINS: tuple[Pass, ...] = (transpose_chain,)
