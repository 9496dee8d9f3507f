"""Writes through views, as functionalization spells them: `copy(select(base, 0, 0), new)`, then put back into the base.

The view is there for its shape; what it held is gone, and the base has its gradient from where the result is put back.
So nothing goes from the copy to the view. A tensor that is overwritten whole has a gradient, as in eager: zeros.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import OpOverload

aten = torch.ops.aten

OVERWRITING = (aten.copy.default, aten.fill.Scalar, aten.fill.Tensor, aten.zero.default)


def cut_overwritten_views(graph: fx.Graph) -> None:
    """Mark views that are only written over as carrying no gradient."""
    for op in OVERWRITING:
        for node in graph.find_nodes(op="call_function", target=op):
            view = node.args[0]
            if isinstance(view, fx.Node) and _is_view(view) and list(view.users) == [node]:
                view.meta["custom"] = {**(view.meta.get("custom") or {}), "no_grad": True}


def _is_view(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target.is_view
