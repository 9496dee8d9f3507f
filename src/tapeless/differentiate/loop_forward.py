"""The tangent of a loop is the loop whose body carries tangents beside the values."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tapeless.differentiate.forward import Tangents, push, push_through
from tapeless.differentiate.loop import Flags, Section, chosen, no_cotangent, stable, value_of
from tapeless.differentiate.reverse import Joint
from tapeless.ir import graph as ir
from tapeless.ir.control import Loop, Scan, While
from tapeless.ir.copying import copy_graph, copy_nodes
from tapeless.ir.emit import Emitter
from tapeless.torch_internals import fresh, without_modes


@push_through.register(Scan)
@push_through.register(While)
def _(target: Scan | While, emitter: Emitter, node: fx.Node, tangents: Tangents) -> list[Any]:
    loop = Loop.of(node)
    given = {i: t for i, a in enumerate(loop.inputs) if _is_tangent(emitter, t := tangents.get(a))}

    joints: dict[tuple[bool, ...], Joint] = {}

    def reached(flags: Flags) -> Flags:
        graph = copy_graph(target.body)
        joints[tuple(flags)] = joint = push(graph, chosen(ir.inputs(graph), flags))
        return [t is not None for t in joint.gradients]

    with without_modes():
        joint = joints[tuple(stable([i in given for i in range(len(loop.inputs))], len(loop.carries), reached))]
    found = {loop.result(i): t for i, t in _pushed_loop(emitter, loop, joint, given).items()}
    return [found.get(i, _zero(emitter, val)) for i, val in enumerate(ir.value(node))]


def _is_tangent(emitter: Emitter, tangent: Any) -> bool:
    return isinstance(tangent, torch.Tensor) and not emitter.is_zero(tangent)


def _zero(emitter: Emitter, val: Any) -> Any:
    return emitter.zero(val) if ir.is_differentiable_type(val) else None


def _pushed_loop(emitter: Emitter, loop: Loop, joint: Joint, given: dict[int, Any]) -> dict[int, Any]:
    """Emit the loop with tangents; these, by the output of the body that they belong to."""
    carries, rows = len(loop.carries), len(loop.carries) + len(loop.rows)
    moving = {i: t for i, t in enumerate(joint.cotangents) if t is not None}
    passed = [i for i in moving if i < carries]
    later = [i for i, t in enumerate(joint.gradients) if t is not None and i >= carries]
    known = list(zip(joint.inputs, map(value_of, loop.inputs), strict=True))

    def section(first: int, end: int) -> Section:
        start = ((t, given.get(i, _zero(emitter, value_of(loop.inputs[i])))) for i, t in moving.items())
        return [*known[first:end], *(pair for i, pair in zip(moving, start, strict=True) if first <= i < end)]

    sections = [section(0, carries), section(carries, rows), section(rows, len(known))]
    next_tangents = [joint.gradients[i] or no_cotangent(joint, i) for i in passed]
    results = [*joint.outputs[:carries], *next_tangents, *(joint.gradients[i] for i in later)]
    body = copy_nodes([], [node for part in sections for node, _ in part], results)
    values = [[value for _, value in part] for part in sections]
    pushed = _with_tangents(loop, body, sections, passed, later)
    called = emitter.emit(pushed, loop.sections(*values), {}, _types(loop, passed, later))
    found = [*called[carries : carries + len(passed)], *called[len(called) - len(later) :]]
    return dict(zip([*passed, *later], found, strict=True))


def _types(loop: Loop, passed: list[int], later: list[int]) -> tuple[Any, ...]:
    results = ir.value(loop.node)
    rounds = [loop.length] if isinstance(loop.target, While) and later else []
    carries = [*results[: len(loop.carries)], *(results[i] for i in passed)]
    return (
        *(fresh(c) if isinstance(c, torch.Tensor) else c for c in carries),
        *rounds,
        *(fresh(results[loop.result(i)]) for i in later),
    )


def _with_tangents(
    loop: Loop, body: fx.Graph, sections: list[Section], passed: list[int], later: list[int]
) -> Scan | While:
    carries = len(loop.carries)
    if isinstance(loop.target, Scan):
        totals = len([i for i in later if i < carries + loop.totals])
        return Scan(body, carries + len(passed), totals, loop.target.reverse)
    condition = loop.target.condition
    of_carries, _, of_operands = ([node for node, _ in part] for part in sections)
    inputs = ir.inputs(condition)
    read = [*inputs[:carries], *of_carries[carries:], *inputs[carries:], *of_operands[len(loop.operands) :]]
    return While(copy_nodes(ir.calls(condition), read, ir.outputs(condition)), body, carries + len(passed))
