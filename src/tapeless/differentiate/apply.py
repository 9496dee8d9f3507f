"""Applying derivative rules to graph nodes: find the rule, name the values, fit the gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

from tapeless.errors import RuleFailed, TapelessError
from tapeless.ir import graph as ir
from tapeless.ir.branch import Branch
from tapeless.ir.custom import CustomFunction
from tapeless.ir.emit import Emitter
from tapeless.ir.ops import accumulate
from tapeless.rules.fit import fit
from tapeless.rules.registry import gradients, named_arguments, rule_of
from tapeless.rules.traced import Untraceable, functional_graph, traced_gradients
from tapeless.torch_internals import fresh

Pair = tuple[fx.Node, torch.Tensor]
Gradients = list[Pair]


def pull_back(emitter: Emitter, node: fx.Node, g: Any, active: Any) -> Gradients:
    """Gradients of the active arguments of `node`, given the cotangent(s) of its result."""
    try:
        if node.target is accumulate:
            return [(side, g) for side in node.all_input_nodes if side in active]
        if isinstance(node.target, Branch):
            return list(_pull_back_branch(emitter, node, node.target, g, active))
        if isinstance(node.target, CustomFunction):
            return list(_pull_back_custom(emitter, node, node.target, g, active))
        return list(_pull_back_operator(emitter, node, node.target, g, active))
    except (Untraceable, TapelessError):
        raise
    except Exception as problem:
        raise RuleFailed(str(node.target), ir.where(node), f"{type(problem).__name__}: {problem}") from problem


def _pull_back_operator(emitter: Emitter, node: fx.Node, op: Any, g: Any, active: Any) -> Iterator[Pair]:
    if not isinstance(op, OpOverload):
        raise Untraceable("it is not an ATen operator")
    arguments = named_arguments(op, node.args, node.kwargs)
    wanted = [name for name, given in arguments.items() if any(a in active for a in _nodes(given))]
    values = {name: tree_map_only(fx.Node, ir.value, given) for name, given in arguments.items()}
    values |= {"out": ir.value(node), "g": _cotangents(emitter, node, g)}
    found = _gradients(op, wanted, values)
    for name in wanted:
        yield from _pairs(arguments[name], fit(found.get(name), values[name]), active)


def _pull_back_custom(emitter: Emitter, node: fx.Node, custom: CustomFunction, g: Any, active: Any) -> Iterator[Pair]:
    """The user's own backward, on cotangents that are all defined: nothing says that it is linear."""
    _, arguments, saved = node.args
    filled = [None if element is None else emitter.defined(element) for element in _cotangents(emitter, node, g)]
    inputs = [*custom.cotangents(filled), *custom.saved([ir.value(s) for s in saved])]  # type: ignore[union-attr]
    module = functional_graph(fx.Interpreter(custom.backward).run, inputs)
    found = fx.Interpreter(module).run(*inputs)
    gradients_of_tensors = [grad for grad, keep in zip(found, custom.tensor_arguments, strict=True) if keep]
    for argument, gradient in zip(arguments, gradients_of_tensors, strict=True):  # type: ignore[arg-type]
        yield from _pairs(argument, fit(gradient, ir.value(argument)), active)


def _pull_back_branch(emitter: Emitter, node: fx.Node, branch: Branch, g: Any, active: Any) -> Iterator[Pair]:
    from tapeless.differentiate.branch import backward_branch  # which walks the bodies in reverse, by these very rules

    predicate, *operands = node.args
    wanted = [i for i, operand in enumerate(operands) if operand in active]
    cotangents = [emitter.defined(element) for element in _cotangents(emitter, node, g) if element is not None]
    values = [ir.value(operand) if isinstance(operand, fx.Node) else operand for operand in operands]
    gradients_of = tuple(fresh(ir.value(operands[i])) for i in wanted)  # type: ignore[arg-type]  # active: nodes
    arguments = (ir.value(predicate), *cotangents, *values)  # type: ignore[arg-type]
    found = emitter.emit(backward_branch(branch, wanted), arguments, {}, gradients_of)
    for i, gradient in zip(wanted, found, strict=True):
        yield operands[i], gradient  # type: ignore[misc]


def has_written_rule(node: fx.Node) -> bool:
    """Does somebody's own formula, rather than torch's, pull cotangents back through `node`?"""
    rule = rule_of(node.target) if isinstance(node.target, OpOverload) else None
    return rule is not None and bool(rule.vjps)


def _gradients(op: OpOverload, wanted: list[str], values: dict[str, Any]) -> dict[str, Any]:
    """By the written rule where there is one, else by tracing the operator's own derivative."""
    rule = rule_of(op)
    written = [name for name in wanted if rule and (name in rule.vjps or name in rule.constants)]
    found = gradients(rule, [n for n in written if n in rule.vjps], values) if rule else {}
    rest = [name for name in wanted if name not in written]
    return found | (traced_gradients(op, rest, values) if rest else {})


def _cotangents(emitter: Emitter, node: fx.Node, g: Any) -> Any:
    """What a rule gets as `g`: for several outputs a tuple; Zero where nothing arrived, None for integers."""
    val = ir.value(node)
    if isinstance(val, torch.Tensor):
        return g
    return type(val)(
        g[i] if i in g else emitter.zero(v) if ir.is_differentiable_type(v) else None for i, v in enumerate(val)
    )


def _pairs(given: Any, fitted: Any, active: Any) -> Iterator[Pair]:
    if isinstance(given, (list, tuple)):
        for element, gradient in zip(given, fitted or [None] * len(given), strict=True):
            yield from _pairs(element, gradient, active)
    elif isinstance(given, fx.Node) and given in active and fitted is not None:
        yield given, fitted


def _nodes(given: Any) -> list[fx.Node]:
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, fx.Node)]


# -- what zeros do -----------------------------------------------------------------


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
