"""The reverse of a loop is a scan.

The loop also stacks what its body's backward will read, and a scan runs that backward over the stacks, last round
first. What passed from round to round passes back; a row's gradient is stacked, an operand's is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from tapeless.differentiate.activity import active_nodes
from tapeless.differentiate.apply import Pair, cotangents, defined_for, pull_back_through
from tapeless.differentiate.residuals import residuals
from tapeless.differentiate.reverse import Joint, reverse
from tapeless.errors import Unsupported
from tapeless.ir import graph as ir
from tapeless.ir.control import Loop, Scan, While
from tapeless.ir.copying import copy_graph, copy_nodes
from tapeless.ir.emit import Emitter
from tapeless.ir.undefined import settled
from tapeless.torch_internals import fake_mode_of, fresh, stacked_type, unknown_size, without_modes

aten = torch.ops.aten

Flags = list[bool]
Given = dict[int, torch.Tensor]  # cotangents by output of the body, or tangents by input


def stable(flags: Flags, carries: int, reach: Callable[[Flags], Flags]) -> Flags:
    """`flags` with the carries that are reached in a later round: what one round gives, the next one reads."""
    while True:
        reached = reach(flags)
        wider = [f or (i < carries and reached[i]) for i, f in enumerate(flags)]
        if wider == flags:
            return flags
        flags = wider


def chosen(nodes: Sequence[fx.Node], flags: Flags) -> list[fx.Node]:
    return [node for node, flag in zip(nodes, flags, strict=True) if flag]


@pull_back_through.register(Scan)
@pull_back_through.register(While)
def _(target: Scan | While, emitter: Emitter, node: fx.Node, g: Any, active: Any) -> Iterator[Pair]:
    loop = Loop.of(node)
    if not all(ir.is_tensor(carry) for carry in loop.carries):
        raise Unsupported(
            f"the reverse of a loop that carries a number\n  at {ir.where(node)}\n  Carry a tensor instead."
        )
    arriving = cotangents(emitter, node, g)
    outputs = range(len(ir.outputs(target.body)))
    sent = {i: v for i in outputs if (v := arriving[loop.result(i)]) is not None and not emitter.is_zero(v)}
    with without_modes():
        joint = _reversed_body(loop, [a in active for a in loop.inputs], sent)
    kept = residuals(joint, joint.inputs[len(loop.carries) :], joint.inputs[len(loop.carries) + len(loop.rows) :])
    stacks = _stack_also(emitter, loop, joint, kept)
    for i, gradient in _reversed_scan(emitter, loop, joint, sent, dict(zip(kept, stacks, strict=True))):
        if (given := loop.inputs[i]) in active:
            may_be_none = isinstance(target, While) and i >= len(loop.carries)  # an operand, if there was no round
            yield given, defined_for(emitter, given, gradient) if may_be_none else gradient


def _reversed_body(loop: Loop, active: Flags, given: Given) -> Joint:
    """The body with its reverse behind it, for every cotangent that arrives in some round."""
    body, carries = loop.target.body, len(loop.carries)

    def depends(flags: Flags) -> Flags:
        reached = active_nodes(body, chosen(ir.inputs(body), flags))
        return [output in reached for output in ir.outputs(body)]

    joints: dict[tuple[bool, ...], Joint] = {}

    def reached(flags: Flags) -> Flags:
        graph = copy_graph(body)
        joints[tuple(flags)] = joint = reverse(graph, chosen(ir.inputs(graph), wrt), flags)
        return [g is not None for g in joint.gradients]

    wrt = stable(active, carries, depends)
    return joints[tuple(stable([i in given for i in range(len(ir.outputs(body)))], carries, reached))]


def _stack_also(emitter: Emitter, loop: Loop, joint: Joint, kept: list[fx.Node]) -> list[torch.Tensor]:
    """Let the loop itself return the values `kept` of each round, stacked, unless it does so already; these stacks."""
    node, values = loop.node, list(ir.value(loop.node))
    first = len(loop.carries) + loop.totals
    stacked = {output: loop.result(i) for i, output in enumerate(joint.outputs) if i >= first}
    new = [value for value in kept if value not in stacked]
    forward = [n for n in joint.graph.nodes if n not in joint.backward]
    body = copy_nodes(forward, joint.inputs, [*joint.outputs, *new])
    node.target = replace(loop.target, body=body)
    if isinstance(loop.target, While) and len(values) == first:
        values.append(unknown_size(fake_mode_of(values)))
    length = values[first] if isinstance(loop.target, While) else loop.length
    stacked |= {value: len(values) + i for i, value in enumerate(new)}
    ir.set_value(node, (*values, *(stacked_type(ir.value(value), length) for value in new)))
    emitter.bind(ir.value(node), node)
    for value in new:
        ir.rename(emitter.element(node, stacked[value]), f"{value.name}_stack")
    if isinstance(loop.target, While):
        rounds = emitter.element(node, first)
        ir.rename(rounds, "rounds")
        emitter.bind(length, rounds)
    return [ir.value(node)[stacked[value]] for value in kept]


def _reversed_scan(
    emitter: Emitter, loop: Loop, joint: Joint, given: Given, stacks: dict[fx.Node, torch.Tensor]
) -> Iterator[tuple[int, torch.Tensor]]:
    """Emit the scan over the rounds, last first; gradients by the input of the body that they belong to."""
    carries, totals = len(loop.carries), len(loop.carries) + loop.totals
    rows = range(carries, carries + len(loop.rows))
    arriving = {i: g for i, g in enumerate(joint.cotangents) if g is not None}
    found = {i: g for i, g in enumerate(joint.gradients) if g is not None}
    passed = [i for i in arriving if i < carries]
    summed, stacked = [i for i in found if i >= rows.stop], [i for i in found if i in rows]

    def read(output: int) -> tuple[fx.Node, Any]:
        return arriving[output], given[output] if output in given else _start(emitter, joint, output)

    known = list(zip(joint.inputs, map(value_of, loop.inputs), strict=True))
    of_rows = [*(read(i) for i in arriving if i >= totals), *known[carries : rows.stop], *stacks.items()]
    of_operands = [*(read(i) for i in arriving if carries <= i < totals), *known[rows.stop :]]
    results = [*(found.get(i) or no_cotangent(joint, i) for i in passed), *(found[i] for i in [*summed, *stacked])]
    sections = [[read(i) for i in passed], of_rows, of_operands]
    body = settled(copy_nodes([], [node for section in sections for node, _ in section], results))
    sections = _only_read(body, sections)
    linear = [
        i for i, (node, _) in enumerate(pair for section in sections for pair in section) if node in arriving.values()
    ]
    backwards = isinstance(loop.target, While) or not loop.target.reverse
    scan = Scan(body, len(passed), len(summed), backwards, tuple(linear))
    order = [*passed, *summed, *stacked]
    arguments = (loop.length, *([value for _, value in section] for section in sections))
    gradients = emitter.emit(scan, arguments, {}, tuple(fresh(ir.value(loop.inputs[i])) for i in order))
    for i, gradient in zip(order, gradients, strict=True):
        if i in found:
            yield i, gradient


def value_of(given: Any) -> Any:
    return ir.value(given) if isinstance(given, fx.Node) else given


def _start(emitter: Emitter, joint: Joint, carry: int) -> torch.Tensor:
    """The cotangent of a last carry that nobody sent one for, though rounds before may."""
    return emitter.defined(emitter.zero(ir.value(joint.outputs[carry])))


def no_cotangent(joint: Joint, carry: int) -> fx.Node:
    """The cotangent of a carry that the round does not read."""
    node = joint.graph.call_function(aten.zeros_like.default, (joint.cotangents[carry],))
    ir.set_value(node, fresh(ir.value(joint.inputs[carry])))
    return node


Section = list[tuple[fx.Node, Any]]  # inputs of a body, and what the loop is called with


def _only_read(body: fx.Graph, sections: list[Section]) -> list[Section]:
    """Remove the rows and operands that the body does not read."""
    carried, *others = sections
    inputs = dict(zip((node for section in sections for node, _ in section), ir.inputs(body), strict=True))
    read = {node for section in others for node, _ in section if inputs[node].users}
    for section in others:
        for node, _ in section:
            if node not in read:
                body.erase_node(inputs[node])
    return [carried, *([pair for pair in section if pair[0] in read] for section in others)]
