"""Applying derivative rules to graph nodes: find the rule, name the values, fit the gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

from tapeless.errors import MissingRule, RuleFailed, TapelessError
from tapeless.ir import graph as ir
from tapeless.ir.emit import Emitter
from tapeless.rules.fit import fit
from tapeless.rules.registry import Rule, gradients, named_arguments, rule_of
from tapeless.rules.traced import traced_gradients, why_untraceable

Gradients = Iterator[tuple[fx.Node, torch.Tensor]]


def pull_back(emitter: Emitter, node: fx.Node, g: Any, active: Any) -> Gradients:
    """Gradients of the active arguments of `node`, given the cotangent(s) of its result."""
    op: Any = node.target
    arguments = named_arguments(op, node.args, node.kwargs)
    wanted = [name for name, given in arguments.items() if any(a in active for a in _nodes(given))]
    values = {name: tree_map_only(fx.Node, ir.value, given) for name, given in arguments.items()}
    values |= {"out": ir.value(node), "g": _cotangents(emitter, node, g)}
    try:
        found = _gradients(op, wanted, values)
    except TapelessError:
        raise
    except Exception as problem:
        raise RuleFailed(str(op), ir.where(node), f"{type(problem).__name__}: {problem}") from problem
    for name in wanted:
        fitted = fit(found.get(name), values[name])
        yield from _pairs(arguments[name], fitted, active)


def _gradients(op: OpOverload, wanted: list[str], values: dict[str, Any]) -> dict[str, Any]:
    """By the written rule where there is one, else by tracing the operator's own derivative."""
    rule = rule_of(op)
    written = [name for name in wanted if rule and (name in rule.vjps or name in rule.constants)]
    found = gradients(rule, [n for n in written if n in rule.vjps], values) if rule else {}
    rest = [name for name in wanted if name not in written]
    return found | (traced_gradients(op, rest, values) if rest else {})


def _cotangents(emitter: Emitter, node: fx.Node, g: Any) -> Any:
    """What a rule gets as `g`: for several outputs a tuple, structural zeros where nothing arrived, None for integers."""
    val = ir.value(node)
    if isinstance(val, torch.Tensor):
        return g
    return type(val)(
        g[i] if i in g else emitter.zero(v) if ir.is_differentiable_type(v) else None for i, v in enumerate(val)
    )


def _pairs(given: Any, fitted: Any, active: Any) -> Gradients:
    if isinstance(given, (list, tuple)):
        for element, gradient in zip(given, fitted or [None] * len(given), strict=True):
            yield from _pairs(element, gradient, active)
    elif isinstance(given, fx.Node) and given in active and fitted is not None:
        yield given, fitted


def _nodes(given: Any) -> list[fx.Node]:
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, fx.Node)]


# -- what can be differentiated, and what zeros do -----------------------------------------------------------------


def check_rules(graph: fx.Graph, active: Any, reached: Iterable[fx.Node]) -> None:
    """Every operator between `wrt` and the outputs has a rule, or all that have none are reported at once."""
    needed = _ancestors(reached) & set(active)
    missing = [(node, reason) for node in ir.calls(graph) if node in needed and (reason := _missing(node, active))]
    if not missing:
        return
    node, reason = missing[0]
    others = dict.fromkeys(str(other.target) for other, _ in missing[1:] if other.target != node.target)
    raise MissingRule(str(node.target), ir.where(node), active[node].name, reason, tuple(others))


def _missing(node: fx.Node, active: Any) -> str | None:
    op: Any = node.target
    if not isinstance(op, OpOverload):
        return None if op.__name__ == "getitem" else "it is not an ATen operator"
    rule: Rule | None = rule_of(op)
    given = named_arguments(op, node.args, node.kwargs)
    wanted = [name for name, argument in given.items() if any(a in active for a in _nodes(argument))]
    if rule and all(name in rule.vjps or name in rule.constants for name in wanted):
        return None
    return why_untraceable(op)


def _ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    seen: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.all_input_nodes)
    return seen


def result_is_zero(op: Any, args: Sequence[Any], kwargs: dict[str, Any], is_zero: Callable[[Any], bool]) -> bool:
    """Is `op(*args)` structurally zero? By the rule's declaration: all arguments of one linear group are."""
    rule = rule_of(op)
    if rule is None or not rule.zero_groups:
        return False
    values = named_arguments(op, args, kwargs)
    return any(all(_all_zero(values.get(name), is_zero) for name in group) for group in rule.zero_groups)


def _all_zero(given: Any, is_zero: Callable[[Any], bool]) -> bool:
    """`x + 1` is not zero when `x` is: a number where a tensor may stand counts as itself."""
    if given is None:
        return True
    if isinstance(given, (list, tuple)):
        return all(_all_zero(element, is_zero) for element in given)
    return is_zero(given) if isinstance(given, torch.Tensor) else given == 0
