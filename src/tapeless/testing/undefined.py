"""Law 3: for every subset of outputs, an undefined cotangent gives what a zero one gives."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map_only

from tapeless import torch_internals
from tapeless.backends.python import compile_graph
from tapeless.ir import graph as ir
from tapeless.partition.split import Split
from tapeless.rules.registry import named_arguments, rule_of
from tapeless.runtime.derivatives import differentiate_graph
from tapeless.runtime.signature import Signature
from tapeless.specialize.rewrite import specialize
from tapeless.testing.samples import Call

MOST_OUTPUTS = 4  # all subsets of these; more outputs are checked one by one


def undefined_equals_zero(call: Call, rtol: float = 1e-9, atol: float = 1e-9) -> int:
    """The operator's backward as a program, specialised to every mask of undefined cotangents; how many were met."""
    graph, tensors = single_call(call)
    known = _arguments_with_formula(call, graph)
    flags = [node in known and ir.is_differentiable_type(ir.value(node)) for node in ir.inputs(graph)]
    outs = [ir.is_differentiable_type(ir.value(node)) for node in ir.outputs(graph)]
    parts = differentiate_graph(graph, Signature(tuple(flags), tuple(outs)))
    if not parts.cotangent_outputs or not parts.gradient_inputs:
        return 0
    results = compile_graph(parts.forward)(list(tensors))
    captures = [tensors[i] for i in parts.captured_inputs] + [results[i] for i in parts.captured_outputs]
    cotangents = [_cotangent(results[i], seed) for seed, i in enumerate(parts.cotangent_outputs)]
    masks = list(_masks(len(cotangents)))
    for undefined in masks:
        expected = _run(
            parts, (), [torch.zeros_like(g) if k in undefined else g for k, g in enumerate(cotangents)], captures
        )
        actual = _run(parts, undefined, [None if k in undefined else g for k, g in enumerate(cotangents)], captures)
        for want, have in zip(expected, actual, strict=True):
            if want is not None:
                have = torch.zeros_like(want) if have is None else have
                want = torch.where(want.isnan(), have, want)  # a number that is zero times infinity; nobody sent ours
                torch.testing.assert_close(
                    have, want, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{call}: {m}"
                )
    return len(masks)


def _arguments_with_formula(call: Call, graph: fx.Graph) -> set[fx.Node]:
    """The inputs that the rule differentiates by; eager has no derivative by the others either."""
    rule, node = rule_of(call.op), ir.calls(graph)[0]
    named = named_arguments(call.op, node.args, node.kwargs)
    wanted = [given for name, given in named.items() if rule is not None and name in rule.vjps]
    return {leaf for leaf in tree_leaves(wanted) if isinstance(leaf, fx.Node)}


def single_call(call: Call) -> tuple[fx.Graph, list[torch.Tensor]]:
    """A graph of one call, and the tensors it is called with."""
    graph, fake_mode = fx.Graph(), torch_internals.FakeTensorMode()
    tensors: list[torch.Tensor] = []

    def placeholder(tensor: torch.Tensor) -> fx.Node:
        node = graph.placeholder(f"x{len(tensors)}")
        ir.set_value(node, fake_mode.from_tensor(tensor))
        tensors.append(tensor)
        return node

    args, kwargs = tree_map_only(torch.Tensor, placeholder, (call.args, call.kwargs))
    node = graph.call_function(call.op, args, kwargs)
    values, keywords = tree_map_only(fx.Node, ir.value, (args, kwargs))
    with fake_mode, torch.no_grad():
        ir.set_value(node, call.op(*values, **keywords))
    graph.output(_results(graph, node))
    return graph, tensors


def _results(graph: fx.Graph, node: fx.Node) -> list[fx.Node]:
    val = ir.value(node)
    if isinstance(val, torch.Tensor):
        return [node]
    found = []
    for index, element in enumerate(val):
        if isinstance(element, torch.Tensor):
            item = graph.call_function(operator.getitem, (node, index))
            ir.set_value(item, element)
            found.append(item)
    return found


def _masks(count: int) -> Any:
    if count > MOST_OUTPUTS:
        return ({k} for k in range(count))
    return (set(some) for n in range(count + 1) for some in itertools.combinations(range(count), n))


def _cotangent(result: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.randn(result.shape, dtype=result.dtype, generator=torch.Generator().manual_seed(seed))


def _run(parts: Split, undefined: Any, cotangents: list[Any], captures: list[Any]) -> list[Any]:
    backward = specialize(parts.backward, len(parts.cotangent_outputs), undefined)
    return compile_graph(backward, "backward")([*cotangents, *captures])
