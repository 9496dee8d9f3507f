"""Runs passes over a graph until none acts any more.

A pass is tried at every call that its pattern can end in, and again wherever it changed something. Every replacement
lowers the measure of the editor, so this ends; a bound that is linear in the size of the graph says so as well.
"""

from __future__ import annotations

import operator
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.errors import PassFailed
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_graph
from tapeless.prepare import check, facts
from tapeless.prepare.calls import NAMESPACES, operator_name
from tapeless.prepare.editor import Editor, Mistake
from tapeless.prepare.fixed import fixed_inputs, fixed_values
from tapeless.prepare.order import sort_calls
from tapeless.prepare.passes import Pass
from tapeless.prepare.pattern import match
from tapeless.prepare.registry import Chosen, Registry
from tapeless.prepare.report import Preparation, Step

ROUNDS = 8  # over all passes; two do for every model tried
MOST = 8  # replacements of one pass in one round, per call of the graph


def run(
    graph: fx.Graph,
    wrt: Sequence[bool],
    registry: Registry,
    option: str = "",
    checking: bool | str = False,
    examples: Sequence[Any] = (),
    fixed: Sequence[bool] = (),
) -> tuple[fx.Graph, Preparation]:
    """A graph that computes the same with less, and what was done.

    `wrt`: which inputs may carry a derivative. `fixed`: which are weights; what is made of these alone will be kept.
    """
    spare = copy_graph(graph)
    try:
        return _run(graph, wrt, registry, option, checking, examples, fixed)
    except PassFailed as problem:
        if checking is True:
            raise
        registry.wrong[problem.name] = str(problem)
        warnings.warn(f"switched off: {problem}", stacklevel=2)
    return run(spare, wrt, registry, option, checking, examples, fixed)  # all that the pass did is undone


def _run(
    graph: fx.Graph, wrt: Sequence[bool], registry: Registry, option: str, checking: bool | str,
    examples: Sequence[Any], fixed: Sequence[bool],
) -> tuple[fx.Graph, Preparation]:  # fmt: skip
    chosen, calls = registry.choose(option), len(ir.calls(graph))
    steps: list[Step] = []
    for _ in range(ROUNDS):
        made = 0
        for choice in chosen:
            done = _checked(graph, wrt, choice, examples, fixed) if checking else apply(graph, wrt, choice, fixed)
            steps.extend(done)
            made += sum(step.made for step in done)
        if not made:
            break
    last = {(s.rule, s.before): s for s in steps if not s.made}  # declined in every round: once is enough
    kept = [s for s in steps if s.made or last[s.rule, s.before] is s]
    return graph, Preparation(tuple(kept), calls, len(ir.calls(graph)))


def _checked(
    graph: fx.Graph, wrt: Sequence[bool], choice: Chosen, examples: Sequence[Any], fixed: Sequence[bool]
) -> list[Step]:
    """One pass, its result compared with what was there before."""
    before = copy_graph(graph)
    steps = apply(graph, wrt, choice, fixed)
    if any(step.made for step in steps):
        _compare(before, graph, wrt, choice.rule, steps, examples)
    return steps


def _compare(before: fx.Graph, after: fx.Graph, wrt: Sequence[bool], rule: Pass, steps: Any, examples: Any) -> None:
    difference = check.difference(before, after, wrt, examples)
    if difference:
        first = next(step for step in steps if step.made)
        raise PassFailed(rule.name, " or ".join(map(str, rule.patterns)) or rule.says, first.where, difference)


def apply(graph: fx.Graph, wrt: Sequence[bool], choice: Chosen, fixed: Sequence[bool] = ()) -> list[Step]:
    """Run one pass to its fixpoint."""
    rule = choice.rule
    ends = [n for t in _ends(rule) for n in graph.find_nodes(op="call_function", target=t, sort=False)]
    if rule.patterns and not ends:
        return []
    weights = fixed_values(ir.calls(graph), fixed_inputs(graph, fixed))
    editor = Editor(graph, rule, choice.forced, facts.active_values(graph, wrt), weights)
    fakes = torch_internals.fake_mode_of([ir.value(node) for node in ir.inputs(graph)])
    with torch_internals.emission(fakes), editor.emitter:
        if rule.patterns:
            _rewrite_everywhere(editor, ends)
        else:
            _blamed(editor, None, lambda: rule.act(editor))
    if editor.moved:
        sort_calls(graph)
    if editor.steps:
        graph.eliminate_dead_code()
    return editor.steps


def _rewrite_everywhere(editor: Editor, ends: list[fx.Node]) -> None:
    rule, wanted = editor.rule, _ends(editor.rule)
    queue, waiting = deque(sorted(ends)), set(ends)
    budget = MOST * (len(ends) + 8)
    while queue and budget:
        node = queue.popleft()
        waiting.discard(node)
        if node._erased or not _rewrite_at(editor, rule, node):
            continue
        budget -= 1
        again = [n for n in editor.touched if n.target in wanted and n not in waiting]
        editor.touched.clear()
        queue.extend(again)
        waiting.update(again)


def _rewrite_at(editor: Editor, rule: Pass, node: fx.Node) -> bool:
    name = operator_name(node)
    for pattern in rule.patterns:
        found = match(pattern, node) if pattern.name == name else None
        if found is not None and _blamed(editor, node, partial(editor.rewrite, found)):
            return True
    return False


def _blamed(editor: Editor, node: fx.Node | None, act: Any) -> Any:
    """Run a piece of a pass; whatever goes wrong in it is the pass's failure."""
    rule = editor.rule
    try:
        return act()
    except Mistake as mistake:
        problem = str(mistake)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    place = ir.where(node if node is not None else next(iter(editor.graph.nodes)))
    raise PassFailed(rule.name, " or ".join(map(str, rule.patterns)) or rule.says, place, problem)


def _ends(rule: Pass) -> frozenset[Any]:
    """The operators that a match can end in."""
    return frozenset(overload for name in _names(rule) for overload in _overloads(name))


@cache
def _names(rule: Pass) -> frozenset[str]:
    return frozenset(pattern.name for pattern in rule.patterns)


def _overloads(name: str) -> Iterator[Any]:
    if name == "getitem":
        yield operator.getitem
    for namespace in NAMESPACES:
        if (namespace, name) not in _KNOWN and (packet := getattr(getattr(torch.ops, namespace), name, None)):
            _KNOWN[namespace, name] = tuple(getattr(packet, overload) for overload in packet.overloads())
        yield from _KNOWN.get((namespace, name), ())


_KNOWN: dict[tuple[str, str], tuple[Any, ...]] = {}  # what is missing may be there next time: libraries load late
