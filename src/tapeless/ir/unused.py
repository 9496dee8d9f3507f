"""A loop computes only what somebody reads: the rest of its results go, and what its body needs for them alone."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.control import Loop, Scan, While
from tapeless.ir.copying import copy_nodes


def narrow_loop(node: fx.Node) -> None:
    """Drop the results that nobody reads, the carries that nothing depends on, the rows and operands left over."""
    if not all(user.target is operator.getitem for user in node.users):
        return
    for user in [user for user in node.users if not user.users]:
        node.graph.erase_node(user)
    if not node.users:
        node.graph.erase_node(node)
        return
    loop = Loop.of(node)
    kept, read = _needed(loop)
    if len(kept) == len(ir.outputs(loop.target.body)) and len(read) == len(loop.inputs):
        return
    _replace_results(loop, kept)
    node.target = _smaller(loop, kept, read)
    first, second = len(loop.carries), len(loop.carries) + len(loop.rows)
    chosen = [[loop.inputs[i] for i in read if start <= i < end] for start, end in _ranges(first, second)]
    node.args = loop.sections(*chosen)


def _ranges(first: int, second: int) -> list[tuple[int, float]]:
    return [(0, first), (first, second), (second, float("inf"))]


def _needed(loop: Loop) -> tuple[list[int], list[int]]:
    """The outputs and the inputs of the body that count. A carry that is read in one round is needed of the last."""
    body, carries = loop.target.body, len(loop.carries)
    inputs, outputs = ir.inputs(body), ir.outputs(body)
    used = {index for user in loop.node.users if isinstance(index := user.args[1], int)}
    kept = {i for i in range(len(outputs)) if loop.result(i) in used}
    tested = _tested(loop)
    while True:
        reached = _reached(outputs[i] for i in kept)
        read = {i for i, node in enumerate(inputs) if node in reached} | tested
        more = kept | {i for i in read if i < carries}
        if more == kept:
            return sorted(kept), sorted(read | {i for i in kept if i < carries})
        kept = more


def _tested(loop: Loop) -> set[int]:
    """Inputs that the condition of a `While` reads: it takes no rows, so the positions are those of the body."""
    if isinstance(loop.target, Scan):
        return set()
    return {i for i, node in enumerate(ir.inputs(loop.target.condition)) if node.users}


def _reached(results: Iterable[Any]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    stack = [result for result in results if isinstance(result, fx.Node)]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


def _smaller(loop: Loop, kept: list[int], read: list[int]) -> Scan | While:
    target, carries = loop.target, len([i for i in kept if i < len(loop.carries)])
    inputs, outputs = ir.inputs(target.body), ir.outputs(target.body)
    body = copy_nodes([], [inputs[i] for i in read], [outputs[i] for i in kept])
    if isinstance(target, While):
        tested = target.condition
        condition = copy_nodes(ir.calls(tested), [ir.inputs(tested)[i] for i in read], ir.outputs(tested))
        return replace(target, condition=condition, body=body, carries=carries)
    totals = len([i for i in kept if len(loop.carries) <= i < len(loop.carries) + loop.totals])
    linear = tuple(k for k, i in enumerate(read) if i in target.linear)
    return replace(target, body=body, carries=carries, totals=totals, linear=linear)


def _replace_results(loop: Loop, kept: list[int]) -> None:
    """The node returns the results `kept`; a `While` its rounds as well, behind the carries."""
    values = ir.value(loop.node)
    results = [loop.result(i) for i in kept]
    if isinstance(loop.target, While) and len(values) > len(loop.carries):
        results = sorted([*results, len(loop.carries)])
    ir.set_value(loop.node, tuple(values[i] for i in results))
    for user in list(loop.node.users):
        user.update_arg(1, results.index(user.args[1]))  # type: ignore[arg-type]
