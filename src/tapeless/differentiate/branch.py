"""The derivative of a choice is the choice of the derivatives.

Each side is differentiated on its own; its backward computes what it needs of its forward again, so that nothing but
the operands passes from one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from tapeless.differentiate.reverse import Joint, reverse
from tapeless.ir import graph as ir
from tapeless.ir.branch import Branch
from tapeless.ir.copying import copy_graph, copy_nodes
from tapeless.torch_internals import fresh, without_modes

aten = torch.ops.aten


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
    return copy_nodes([], [*cotangents, *joint.inputs], gradients)


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
    operand = joint.inputs[index]
    node = joint.graph.call_function(aten.zeros_like.default, (operand,))
    ir.set_value(node, fresh(ir.value(operand)))
    return node
