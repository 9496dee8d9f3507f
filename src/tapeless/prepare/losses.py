"""Losses written out by hand: one operator knows them, and its backward."""

from __future__ import annotations

from typing import Any

import torch

from tapeless.prepare.calls import operator_name
from tapeless.prepare.editor import Site
from tapeless.prepare.passes import Pass, Phase, rewrite
from tapeless.prepare.pattern import anything, op, tensors

x, target = tensors("x target")
dim, axis, last, dims, keep = anything("dim axis last dims keep")

Tensor = torch.Tensor

NOTHING = -(2**62)  # the label to be left out: none, so that every wrong label is an error as it is in `gather`
MEAN, SUM = 1, 2

PICKED = op.gather(op._log_softmax(x, axis, False), dim, op.unsqueeze(target, last))
FLAT = (PICKED, op.squeeze(PICKED, dims), op.view(PICKED, dims))
REDUCED = tuple(reduce(inner) for inner in FLAT for reduce in (op.mean, op.sum))


@rewrite(
    *(op.neg(reduced) for reduced in REDUCED),
    *(reduce(op.neg(inner)) for inner in FLAT for reduce in (op.mean, op.sum)),
    phase=Phase.ALGEBRA,
)  # fmt: skip
def cross_entropy(x: Tensor, target: Tensor, axis: int, dim: int, last: int, site: Site) -> Any:
    """−mean(log_softmax(x)[i, target[i]]) is the negative log likelihood; its gradient is one scatter."""
    if (x.dim(), target.dim(), axis % 2, dim % 2, last % 2) != (2, 1, 1, 1, 1) or target.shape[0] != x.shape[0]:
        return None
    if x.shape[0] == 0 or target.dtype is not torch.int64:
        return None
    reduction = MEAN if "mean" in map(operator_name, site.through) else SUM
    scores = site.value(next(node for node in site.through if operator_name(node) == "_log_softmax"))
    return torch.ops.aten.nll_loss_forward(scores, target, None, reduction, NOTHING)[0]


LOSSES: tuple[Pass, ...] = (cross_entropy,)
