"""The derivative of a choice is the choice of the derivatives.

Each side is differentiated on its own; its backward computes what it needs of its forward again, so that nothing but
the operands passes from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from tapeless.differentiate.apply import Pair, cotangents, pull_back_through
from tapeless.differentiate.forward import Tangents, push, push_through
from tapeless.differentiate.reverse import Joint, reverse
from tapeless.ir import graph as ir
from tapeless.ir.control import Branch
from tapeless.ir.copying import copy_graph, copy_nodes
from tapeless.ir.emit import Emitter
from tapeless.ir.undefined import settled
from tapeless.torch_internals import fresh, without_modes

aten = torch.ops.aten


@pull_back_through.register
def _(branch: Branch, emitter: Emitter, node: fx.Node, g: Any, active: Any) -> Iterator[Pair]:
    predicate, *operands = node.args
    wanted = [i for i, operand in enumerate(operands) if operand in active]
    arriving = [emitter.defined(element) for element in cotangents(emitter, node, g) if element is not None]
    values = [ir.value(operand) if isinstance(operand, fx.Node) else operand for operand in operands]
    gradients_of = tuple(fresh(ir.value(operands[i])) for i in wanted)  # type: ignore[arg-type]  # active: nodes
    arguments = (ir.value(predicate), *arriving, *values)  # type: ignore[arg-type]
    found = emitter.emit(backward_branch(branch, wanted), arguments, {}, gradients_of)
    for i, gradient in zip(wanted, found, strict=True):
        yield operands[i], gradient  # type: ignore[misc]


def backward_branch(branch: Branch, wanted: Sequence[int]) -> Branch:
    """Operands: a cotangent per differentiable result, then the branch's own. Results: the gradients of `wanted`."""
    with without_modes():
        return Branch(_backward(branch.true, wanted), _backward(branch.false, wanted))


def _backward(side: fx.Graph, wanted: Sequence[int]) -> fx.Graph:
    graph = copy_graph(side)
    results = ir.outputs(graph)
    flags = [ir.is_tensor(r) and ir.is_differentiable_type(ir.value(r)) for r in results]
    joint = reverse(graph, [ir.inputs(graph)[i] for i in wanted], flags)
    cotangents = [_cotangent(joint, i) for i, flag in enumerate(flags) if flag]
    gradients = [_gradient(joint, i) for i in wanted]
    return settled(copy_nodes([], [*cotangents, *joint.inputs], gradients))


@push_through.register
def _(branch: Branch, emitter: Emitter, node: fx.Node, tangents: Tangents) -> tuple[Any, ...]:
    predicate, *operands = node.args
    moving = [i for i, operand in enumerate(operands) if isinstance(tangents.get(operand), torch.Tensor)]  # type: ignore[arg-type]
    with without_modes():
        sides = Branch(_tangents(branch.true, moving), _tangents(branch.false, moving))
    given = [emitter.defined(tangents[operands[i]]) for i in moving]  # type: ignore[index]
    values = [ir.value(operand) if isinstance(operand, fx.Node) else operand for operand in operands]
    types = tuple(fresh(v) if ir.is_differentiable_type(v) else None for v in ir.value(node))
    return emitter.emit(sides, (ir.value(predicate), *given, *values), {}, types)  # type: ignore[arg-type]


def _tangents(side: fx.Graph, moving: Sequence[int]) -> fx.Graph:
    """Operands: the tangents of those in `moving`, then the branch's own. Results: tangents, None for integers."""
    graph = copy_graph(side)
    joint = push(graph, [ir.inputs(graph)[i] for i in moving])
    results = [_tangent(joint, i) for i in range(len(joint.outputs))]
    return copy_nodes([], [*(joint.cotangents[i] for i in moving), *joint.inputs], results)


def _tangent(joint: Joint, index: int) -> fx.Node | None:
    """The tangent of a result; zeros where this side has none, since the other may."""
    result = joint.outputs[index]
    if joint.gradients[index] is not None or not ir.is_differentiable_type(ir.value(result)):
        return joint.gradients[index]
    return _zeros_like(joint, result)


def _cotangent(joint: Joint, index: int) -> fx.Node:
    """The input for the cotangent of a result; one that this side never reads is an input all the same."""
    found = joint.cotangents[index]
    if found is not None:
        return found
    with joint.graph.inserting_after(joint.inputs[-1]):
        node = joint.graph.placeholder(f"g_{index}")
    ir.set_value(node, fresh(ir.value(joint.outputs[index])))
    return node


def _gradient(joint: Joint, index: int) -> fx.Node:
    """The gradient of an operand; zeros where this side does not depend on it, since the other may."""
    found = joint.gradients[index]
    if found is not None:
        return found
    return _zeros_like(joint, joint.inputs[index])


def _zeros_like(joint: Joint, value: fx.Node) -> fx.Node:
    node = joint.graph.call_function(aten.zeros_like.default, (value,))
    ir.set_value(node, fresh(ir.value(value)))
    return node
