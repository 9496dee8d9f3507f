"""The gradient of cross entropy in one piece.

By the rules of its two halves it is a matrix of zeros with one number in each row, from which the gradient of the
logarithms of softmax is computed: three matrices of the size of the logits at once, and in a language model that is
where memory peaks. Of such a row only the number c at the target matters: x̄ = c (onehot − eʸ). One matrix beside the
saved one, and less memory to pass over.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from tapeless import torch_internals
from tapeless.differentiate.apply import result_is_zero
from tapeless.differentiate.reverse import Joint
from tapeless.ir import graph as ir
from tapeless.ir.cost import likely_bytes
from tapeless.ir.emit import Emitter
from tapeless.rules.registry import named_arguments

aten = torch.ops.aten

MEAN = 1
LARGE = 2**20  # bytes of logits: for fewer, ten small calls take longer than the two


def join_cross_entropy(joint: Joint) -> None:
    """Replace each pair of the two halves, the first of which nobody else reads."""
    pairs = [node for node in joint.graph.nodes if node in joint.backward and _is_pair(node)]
    if not pairs:
        return
    emitter = Emitter(joint.graph, result_is_zero)
    emitter.bind_graph([*joint.graph.nodes])
    with torch_internals.emission(torch_internals.fake_mode_of([ir.value(node) for node in pairs])), emitter:
        for whole in pairs:
            _replace(joint, emitter, whole, whole.args[0])
    joint.backward |= emitter.emitted


def _is_pair(node: fx.Node) -> bool:
    """`node` takes the gradient of log-softmax from that of the negative log-likelihood of the same rows."""
    if node.target is not aten._log_softmax_backward_data.default:
        return False
    g, out, dim, dtype = node.args
    if not isinstance(g, fx.Node) or g.target is not aten.nll_loss_backward.default or len(g.users) > 1:
        return False
    val = ir.value(out)  # type: ignore[arg-type]
    precise = val.dtype in (torch.float32, torch.float64)  # kernels round halves only at the end
    rows = g.args[1] is out and val.dim() == 2 and dim in (1, -1)
    return rows and precise and dtype == val.dtype and likely_bytes(val) >= LARGE


def _replace(joint: Joint, emitter: Emitter, whole: fx.Node, half: fx.Node) -> None:
    given = named_arguments(half.target, half.args, half.kwargs)  # type: ignore[arg-type]
    values = {name: ir.value(a) if isinstance(a, fx.Node) else a for name, a in given.items()}
    with joint.graph.inserting_before(whole), emitter.in_region(ir.region(half)):
        gradient = emitter.node(_gradient(**values))
    whole.replace_all_uses_with(gradient)
    joint.gradients[:] = [gradient if g is whole else g for g in joint.gradients]
    for node in (whole, half):
        joint.backward.discard(node)
        joint.graph.erase_node(node)


def _gradient(
    grad_output: Tensor, self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int, total_weight: Any
) -> Tensor:
    """x̄ = c (onehot − eʸ), where c = −ȳ w, for a mean over the sum of all w, and 0 where the target is ignored."""
    ignored = target == ignore_index
    target = target.masked_fill(ignored, 0)
    each = grad_output / total_weight if reduction == MEAN else grad_output
    each = each.expand(target.shape) if weight is None else each * weight.index_select(0, target)
    each = each.masked_fill(ignored, 0).unsqueeze(1)
    return (self.exp() * each).scatter_add(1, target.unsqueeze(1), -each)
