"""A program in stages, cut where it returns a value that a later result depends on.

`h, loss = model(x)`: in eager one can ask for the gradient of `loss` by `h`, or hang a hook on `h`. One autograd
function that returns both knows no path from one to the other. So the graph is cut at `h`: a first program computes
it, a second one takes it as an input. Views are not passed on but derived again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tapeless.differentiate.activity import active_nodes
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_nodes
from tapeless.options import Options
from tapeless.partition.rederive import is_free
from tapeless.runtime import bridge
from tapeless.runtime.program import Program, is_random
from tapeless.runtime.signature import Signature

Run = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class Stage:
    """A part of a graph: what it reads, what it gives, and the program that does it."""

    inputs: list[fx.Node]
    results: list[fx.Node]
    program: Program


def runnable_program(graph: fx.Graph, signature: Signature, options: Options) -> Run:
    """The graph as a function under autograd."""
    stages = _stages(graph, signature, options)
    if len(stages) == 1:
        program = stages[0].program
        return lambda args: bridge.run(program, args)
    arguments, outputs = ir.inputs(graph), ir.outputs(graph)

    def run(args: list[Any]) -> list[Any]:
        values = dict(zip(arguments, args, strict=True))
        for stage in stages:
            found = bridge.run(stage.program, [values[node] for node in stage.inputs])
            values |= zip(stage.results, found, strict=True)
        return [values[output] if isinstance(output, fx.Node) else output for output in outputs]

    return run


def _stages(graph: fx.Graph, signature: Signature, options: Options) -> list[Stage]:
    cuts = _returned_on_the_way(graph, signature)
    if not cuts:
        return [Stage(ir.inputs(graph), [], Program(graph, signature, options))]
    level = _levels(graph, cuts)
    active = active_nodes(graph, [n for n, w in zip(ir.inputs(graph), signature.wrt, strict=True) if w])
    wholes = [_Cut(graph, signature, cuts, level, number) for number in range(max(level.values()) + 1)]
    read_later = {node for cut in wholes for node in cut.inputs}
    return [cut.stage(read_later, active, options) for cut in wholes]


def _returned_on_the_way(graph: fx.Graph, signature: Signature) -> set[fx.Node]:
    """Differentiable outputs that another differentiable output depends on."""
    returned = [o for o, d in zip(ir.outputs(graph), signature.differentiable, strict=True) if d and _is_call(o)]
    above: set[fx.Node] = set()
    stack = [argument for output in returned for argument in output.all_input_nodes]
    while stack:
        node = stack.pop()
        if node not in above:
            above.add(node)
            stack.extend(node.all_input_nodes)
    return {output for output in returned if output in above}


def _levels(graph: fx.Graph, cuts: set[fx.Node]) -> dict[fx.Node, int]:
    """How many cuts lie, one behind the other, between the inputs and each value."""
    level = dict.fromkeys(ir.inputs(graph), 0)
    ordered = 0  # random numbers are drawn, and effects happen, in the order of the program
    for node in ir.calls(graph):
        level[node] = max((level[a] + (a in cuts) for a in node.all_input_nodes), default=0)
        if is_random(node) or node.is_impure():
            level[node] = ordered = max(level[node], ordered)
    return level


class _Cut:
    """The part of a graph at one level."""

    def __init__(self, graph: fx.Graph, signature: Signature, cuts: set[fx.Node], level: Any, number: int) -> None:
        self.graph, self.signature, self.cuts, self.level, self.number = graph, signature, cuts, level, number
        self.nodes = [node for node in ir.calls(graph) if level[node] == number]
        self.outputs = [o for o in dict.fromkeys(ir.outputs(graph)) if _is_call(o) and level[o] == number]
        self.inputs = self._read_from_before([a for node in self.nodes for a in node.all_input_nodes])

    def _read_from_before(self, values: Iterable[fx.Node]) -> list[fx.Node]:
        found: dict[fx.Node, None] = {}
        stack = list(values)
        while stack:
            node = stack.pop()
            if node.op != "placeholder" and self.level[node] == self.number:
                continue
            if node.op != "placeholder" and is_free(node) and node not in self.cuts:
                stack.extend(node.all_input_nodes)
            else:
                found[node] = None
        return [node for node in self.graph.nodes if node in found or _is_size(node)]

    def stage(self, read_later: set[fx.Node], active: Any, options: Options) -> Stage:
        passed = [node for node in self.nodes if node in read_later and node not in self.outputs]
        results = [*self.outputs, *passed]
        part = copy_nodes(self.nodes, self.inputs, results)
        return Stage(self.inputs, results, Program(part, self._signature(results, active), options))

    def _signature(self, results: list[fx.Node], active: Any) -> Signature:
        asked, outputs = self.signature, ir.outputs(self.graph)
        position = {node: i for i, node in reversed(list(enumerate(outputs))) if isinstance(node, fx.Node)}
        wanted = dict(zip(ir.inputs(self.graph), asked.wrt, strict=True))
        parameters = dict(zip(ir.inputs(self.graph), asked.parameters, strict=False))
        mutated = {node for i, node in enumerate(ir.inputs(self.graph)) if i in asked.mutated}
        return Signature(
            wrt=tuple(wanted.get(node, node in active) for node in self.inputs),
            differentiable=tuple(asked.differentiable[position[n]] if n in position else n in active for n in results),
            hidden=tuple(k for k, node in enumerate(results) if position.get(node, -1) in asked.hidden),
            mutated=tuple(k for k, node in enumerate(self.inputs) if node in mutated),
            parameters=tuple(parameters.get(node, False) for node in self.inputs),
        )


def _is_size(node: fx.Node) -> bool:
    """A symbolic size among the inputs: the rules of any stage may ask for it."""
    return node.op == "placeholder" and isinstance(ir.value(node), torch.SymInt)


def _is_call(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.op != "placeholder"
