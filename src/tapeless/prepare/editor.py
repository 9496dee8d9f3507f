"""The one place where a prepared graph changes: every replacement is judged here before it is made.

Note [What a replacement must keep]
- the type of the value: shape, dtype, device, and strides (a contiguous copy is added where they differ);
- what the user said: all calls it goes through carry the same tags, and so will the new ones;
- random numbers and effects: no call that draws or acts is removed, added or moved;
- identity: a value that the program returns stays a value of its own. It does not become an input, another output, or
  a view of one, and `autograd.grad(loss, returned)` finds the paths that eager finds;
- the measure: estimated time decreases, or stays and the spelling becomes the usual one. So every pass ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map, tree_map_only

from tapeless.ir import graph as ir
from tapeless.ir.emit import Emitter
from tapeless.prepare import cost, facts
from tapeless.prepare.calls import operator_name
from tapeless.prepare.fixed import fixed_values
from tapeless.prepare.layout import relaid
from tapeless.prepare.passes import Pass, Safety
from tapeless.prepare.pattern import Found
from tapeless.prepare.report import Step
from tapeless.torch_internals import fresh

Built = Any  # a fake tensor, a tuple of them for a call with several results, or None

SPELLING = {"_unsafe_view": 1, "split": 1, "t": 0, "narrow": 1, "stack": 1, "squeeze": 1}


class Mistake(Exception):
    """A pass did what none may do."""


@dataclass
class Editor:
    """A graph under change by one pass."""

    graph: fx.Graph
    rule: Pass
    forced: bool  # the cost model is not asked
    active: set[fx.Node]
    fixed: set[fx.Node] = field(default_factory=set)  # made of weights alone, which costs nothing
    emitter: Emitter = field(init=False)
    values: dict[fx.Node, Any] = field(default_factory=dict)
    owners: dict[int, fx.Node] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    touched: list[fx.Node] = field(default_factory=list)  # to be looked at again
    relaid: dict[fx.Node, Any] | None = None  # new values of what a pending replacement gives other strides
    moved: bool = False  # some value is made after its users stand: the graph must be sorted

    def __post_init__(self) -> None:
        self.emitter = Emitter(self.graph, lambda *_: False)

    # -- what passes use ---------------------------------------------------------------------------------------------

    def value(self, argument: Any) -> Any:
        """An argument of a node as the code of a pass sees it: fake tensors in place of nodes."""
        return self._value(argument) if isinstance(argument, fx.Node) else tree_map(self._value, argument)

    def _value(self, leaf: Any) -> Any:
        if not isinstance(leaf, fx.Node):
            return leaf
        if leaf not in self.values:
            val = ir.value(leaf)
            self.values[leaf] = val if self._is_its_own(val, leaf) else tree_map_only(torch.Tensor, fresh, val)
            self.emitter.bind(self.values[leaf], leaf)
        return self.values[leaf]

    def _is_its_own(self, val: Any, node: fx.Node) -> bool:
        """Does this fake tensor stand for one node only?"""
        return all(self.owners.setdefault(id(part), node) is node for part in _parts(val))

    def is_fixed(self, *nodes: Any) -> bool:
        """Are these values, as far as they are any, made of weights alone, and kept from call to call?"""
        return all(node in self.fixed for node in nodes if isinstance(node, fx.Node))

    def replace(self, root: fx.Node, through: Sequence[fx.Node], build: Callable[[], Built]) -> bool:
        """Replace a value, made by the calls `through`, by what `build` returns; None declines."""
        return self.replace_all([root], through, lambda: None if (built := build()) is None else [built])

    def replace_all(
        self, roots: Sequence[fx.Node], through: Sequence[fx.Node], build: Callable[[], Sequence[Built] | None]
    ) -> bool:
        """Replace several values at once, one new one for each."""
        where = max(roots)
        if not self._may_touch([*roots, *through]):
            return False
        before = where.prev
        with self.graph.inserting_before(where):
            built = build()
            new = None if built is None else self._fitted(roots, built)
        made = _between(before, where)
        self.fixed = fixed_values(made, self.fixed)
        if new is None or not self._accepts(roots, new, made):
            self._discard(made)
            return False
        self._commit(roots, new, made)
        return True

    def rewrite(self, found: Found) -> bool:
        """Apply a local rewrite where its pattern fits."""
        root = found.nodes[0]
        site = Site(self, root, list(found.nodes))
        given = {"out": ir.value(root), "site": site}
        wanted = [name for name in self.rule.wants if name not in given]

        def build() -> Built:
            return self.rule.act(**{n: self.value(found.bindings[n]) for n in wanted}, **self._extras(given))

        return self.replace(root, site.through, build)

    def _extras(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name in self.rule.wants}

    # -- judging -----------------------------------------------------------------------------------------------------

    def _may_touch(self, nodes: Sequence[fx.Node]) -> bool:
        if not all(facts.is_pure(node) for node in nodes):
            return False
        if any(facts.tags(node) != facts.tags(nodes[0]) for node in nodes):
            return False
        if self.rule.safety is Safety.INFERENCE and any(node in self.active for node in nodes):
            return False
        return self.rule.symbolic or not any(facts.is_symbolic(n) for m in nodes for n in (m, *m.all_input_nodes))

    def _fitted(self, roots: Sequence[fx.Node], built: Sequence[Built]) -> list[Any] | None:
        """The nodes of the new values, with the layout of the old; None if they cannot have it."""
        found = []
        self.relaid = self._relaid(roots, built) if self.rule.relayout else {}
        for root, new in zip(roots, built, strict=True):
            old = ir.value(root)
            fitted = [self._fit(root, o, n) for o, n in zip(_parts(old), _parts(new), strict=True)]
            if any(part is None for part in fitted):
                return None
            found.append(tuple(fitted) if isinstance(old, (tuple, list)) else fitted[0])
        return found

    def _fit(self, root: fx.Node, old: torch.Tensor, new: torch.Tensor) -> fx.Node | None:
        if not isinstance(new, torch.Tensor) or not facts.same_type(old, new):
            raise Mistake(f"{root.name} is {_described(old)}, its replacement {_described(new)}")
        if facts.same_layout(old, new) or (self.relaid is not None and self.rule.relayout):
            return self.emitter.node(new)
        return self.emitter.node(new.contiguous()) if old.is_contiguous() and not new.is_contiguous() else None

    def _relaid(self, roots: Sequence[fx.Node], built: Sequence[Built]) -> dict[fx.Node, Any] | None:
        """The values whose strides change with those of the roots; None if that could be seen."""
        pairs = [(r, n) for r, n in zip(roots, built, strict=True) if isinstance(n, torch.Tensor)]
        changed = {r: n for r, n in pairs if not facts.same_layout(ir.value(r), n)}
        return relaid(changed) if len(pairs) == len(roots) else None

    def _accepts(self, roots: Sequence[fx.Node], new: Sequence[Any], made: list[fx.Node]) -> bool:
        if not all(facts.is_pure(node) for node in made):
            raise Mistake("it adds a call that draws random numbers or has effects")
        if not all(_keeps_identity(old, n, made) for old, n in _pairs(roots, new)):
            return False
        if any(old is n for old, n in _pairs(roots, new)):
            return False
        dead = facts.dying([old for old, _ in _pairs(roots, new)])
        if _operators(made) == _operators(dead):
            return False
        if self.forced or self.rule.always or self._measure(made) < self._measure(dead):
            return True
        saved = self._saved(dead, made)
        self.steps.append(Step(self.rule.name, False, _names(roots), (), ir.where(roots[0]), saved))
        return False

    def _measure(self, nodes: Sequence[fx.Node]) -> tuple[float, int]:
        return round(self._time(nodes)), sum(SPELLING.get(operator_name(node), 0) for node in nodes)

    def _saved(self, dead: Sequence[fx.Node], made: Sequence[fx.Node]) -> float:
        """Estimated microseconds."""
        return (self._time(dead) - self._time(made)) / 1000

    def _time(self, nodes: Sequence[fx.Node]) -> float:
        return cost.time(node for node in nodes if node not in self.fixed)

    def _discard(self, made: list[fx.Node]) -> None:
        for node in reversed(made):
            self.graph.erase_node(node)

    # -- changing ----------------------------------------------------------------------------------------------------

    def _commit(self, roots: Sequence[fx.Node], new: Sequence[Any], made: list[fx.Node]) -> None:
        pairs = _pairs(roots, new)
        dead = facts.dying([old for old, _ in pairs])
        saved = self._saved(dead, made)
        names, place = _names(roots), ir.where(roots[0])
        sources = tuple(node.name for node in dead)
        for node in made:
            val = ir.value(node)
            node.meta = {k: v for k, v in roots[0].meta.items() if k != "val"}
            ir.set_value(node, val)
            ir.set_origin(node, ir.Origin(self.rule.name, sources))
        self.moved = self.moved or len(roots) > 1
        for node, val in (self.relaid or {}).items():
            ir.set_value(node, val)
            self.values.pop(node, None)
        for old, node in pairs:
            old.replace_all_uses_with(node)
            if any(root in self.active for root in roots):
                self.active.update([*made, node])
            self.touched.extend(node.users)
        self._erase(dead)
        self._erase([node for node in reversed(made) if not node.users])
        for old, node in pairs:
            if node in made:
                ir.take_name(node, old)
        self.touched.extend(node for node in made if not node._erased)
        self.steps.append(Step(self.rule.name, True, names, _names([n for _, n in pairs]), place, saved))

    def _erase(self, nodes: list[fx.Node]) -> None:
        """Values and what only they read; each after its users, which `dying` found first or which are gone."""
        for node in sorted(nodes, reverse=True):
            if not node._erased and not node.users:
                self.graph.erase_node(node)


@dataclass(frozen=True)
class Site:
    """Where a rewrite stands, for those that look further than a pattern can say."""

    editor: Editor
    node: fx.Node
    through: list[fx.Node]

    @property
    def carries_derivative(self) -> bool:
        """May a derivative pass here, so that values are kept for the backward?"""
        return self.node in self.editor.active

    @property
    def forced(self) -> bool:
        """Is it wanted wherever it is right, whatever it costs?"""
        return self.editor.forced

    def trains(self, node: fx.Node) -> bool:
        """May a derivative be asked of this value?"""
        return node in self.editor.active

    def reach(self, nodes: Sequence[fx.Node]) -> bool:
        """Count further calls among those that the rewrite goes through; may it?"""
        self.through.extend(nodes)
        return self.editor._may_touch(self.through)

    def value(self, argument: Any) -> Any:
        return self.editor.value(argument)


def _keeps_identity(old: fx.Node, new: fx.Node, made: list[fx.Node]) -> bool:
    """See Note [What a replacement must keep]."""
    if not facts.is_returned(old):
        return True
    home = facts.memory(old)
    kept = facts.memory(new) is home if home is not old else facts.memory(new) in made
    return kept and new in made


def _operators(nodes: Sequence[fx.Node]) -> list[str]:
    """What is called on what sizes: the same as before is no progress, even where the cost model is not asked."""
    return sorted(f"{n.target} {n.kwargs} {_described(ir.value(n))}" for n in nodes if operator_name(n) != "getitem")


def _pairs(roots: Sequence[fx.Node], new: Sequence[Any]) -> list[tuple[fx.Node, fx.Node]]:
    """(old value, new value); of a call with several results, those that somebody reads."""
    found: list[tuple[fx.Node, fx.Node]] = []
    for root, node in zip(roots, new, strict=True):
        if isinstance(node, tuple):
            found.extend((item, node[item.args[1]]) for item in list(root.users))  # type: ignore[index]
        else:
            found.append((root, node))
    return found


def _parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _between(before: fx.Node, after: fx.Node) -> list[fx.Node]:
    found = []
    node = before.next
    while node is not after:
        found.append(node)
        node = node.next
    return found


def _names(nodes: Sequence[fx.Node]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _described(val: Any) -> str:
    return f"{val.dtype} {tuple(val.shape)}" if isinstance(val, torch.Tensor) else repr(val)
