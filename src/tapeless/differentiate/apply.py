"""Applying derivative rules to graph nodes: find the rule, name the values, fit the gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import singledispatch
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

from tapeless.errors import RuleFailed, TapelessError
from tapeless.ir import graph as ir
from tapeless.ir.custom import CustomFunction
from tapeless.ir.emit import Emitter
from tapeless.ir.opaque import AutogradVjp
from tapeless.ir.ops import accumulate, zeros_if_undefined
from tapeless.rules.fit import fit
from tapeless.rules.registry import gradients, named_arguments, rule_of
from tapeless.rules.traced import Untraceable, functional_graph, traced_gradients
from tapeless.torch_internals import fresh, has_registered_derivative

Pair = tuple[fx.Node, torch.Tensor]
Gradients = list[Pair]


def pull_back(emitter: Emitter, node: fx.Node, g: Any, active: Any) -> Gradients:
    """Gradients of the active arguments of `node`, given the cotangent(s) of its result."""
    try:
        if node.target in (accumulate, zeros_if_undefined):
            return [(side, g) for side in node.all_input_nodes if side in active]
        return list(pull_back_through(node.target, emitter, node, g, active))
    except (Untraceable, TapelessError):
        raise
    except Exception as problem:
        raise RuleFailed(str(node.target), ir.where(node), f"{type(problem).__name__}: {problem}") from problem


@singledispatch
def pull_back_through(target: Any, emitter: Emitter, node: fx.Node, g: Any, active: Any) -> Iterator[Pair]:
    """`pull_back` by the kind of target; control flow registers its own in the files beside this one."""
    raise Untraceable("it is not an ATen operator")


@pull_back_through.register
def _(op: OpOverload, emitter: Emitter, node: fx.Node, g: Any, active: Any) -> Iterator[Pair]:
    arguments = named_arguments(op, node.args, node.kwargs)
    wanted = [name for name, given in arguments.items() if any(a in active for a in _nodes(given))]
    values = {name: tree_map_only(fx.Node, ir.value, given) for name, given in arguments.items()}
    values |= {"out": ir.value(node), "g": cotangents(emitter, node, g)}
    try:
        found = _gradients(op, wanted, values)
    except Untraceable:
        if not has_registered_derivative(op):
            raise
        keyword_only = [a.name for a in op._schema.arguments if a.kwarg_only]
        keywords = {name: given for name, given in arguments.items() if name in keyword_only}
        positional = [given for name, given in arguments.items() if name not in keyword_only]
        yield from _by_autograd(emitter, node, g, active, positional, keywords)
        return
    for name in wanted:
        yield from _pairs(arguments[name], fit(found.get(name), values[name]), active)


@pull_back_through.register
def _(custom: CustomFunction, emitter: Emitter, node: fx.Node, g: Any, active: Any) -> Iterator[Pair]:
    """The user's own backward, on cotangents that are all defined: nothing says that it is linear."""
    _, arguments, saved = node.args
    filled = [None if element is None else emitter.defined(element) for element in cotangents(emitter, node, g)]
    inputs = [*custom.cotangents(filled), *custom.saved([ir.value(s) for s in saved], ir.value(node))]  # type: ignore[union-attr]
    module = functional_graph(fx.Interpreter(custom.backward).run, inputs)
    found = fx.Interpreter(module).run(*inputs)
    gradients_of_tensors = [grad for grad, keep in zip(found, custom.tensor_arguments, strict=True) if keep]
    for argument, gradient in zip(arguments, gradients_of_tensors, strict=True):  # type: ignore[arg-type]
        yield from _pairs(argument, fit(gradient, ir.value(argument)), active)


@pull_back_through.register
def _(vjp: AutogradVjp, emitter: Emitter, node: fx.Node, g: Any, active: Any) -> Iterator[Pair]:
    yield from _by_autograd(emitter, node, g, active, list(node.args), {})


def _by_autograd(
    emitter: Emitter, node: fx.Node, g: Any, active: Any, arguments: list[Any], keywords: dict[str, Any]
) -> Iterator[Pair]:
    """The derivative of `node.target(*arguments, **keywords)` as one node that is worked out at run time."""
    leaves = tree_leaves(arguments)
    wanted = [i for i, leaf in enumerate(leaves) if isinstance(leaf, fx.Node) and leaf in active]
    arriving = [None if emitter.is_zero(element) else element for element in tree_leaves(cotangents(emitter, node, g))]
    given = tree_map_only(fx.Node, ir.value, (arguments, keywords))
    types = tuple(fresh(ir.value(leaves[i])) for i in wanted)
    vjp = AutogradVjp(node.target, tuple(wanted))  # type: ignore[arg-type]
    results = None if isinstance(node.target, AutogradVjp) else ir.value(node)  # which runs again
    found = emitter.emit(vjp, (arriving, results, *given), {}, types)
    for i, gradient in zip(wanted, found, strict=True):
        yield leaves[i], defined_for(emitter, leaves[i], gradient)


def defined_for(emitter: Emitter, argument: fx.Node, gradient: torch.Tensor) -> torch.Tensor:
    """A gradient that may be undefined at run time: so it stays for an input of the graph; others go on as tensors."""
    if argument.op == "placeholder":
        return gradient
    how = (gradient, list(gradient.shape), gradient.dtype, gradient.device)
    return emitter.emit(zeros_if_undefined, how, {}, fresh(gradient))


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


def cotangents(emitter: Emitter, node: fx.Node, g: Any) -> Any:
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
