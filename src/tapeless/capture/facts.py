"""What tracing to ATen would lose, written on the Dynamo graph so that it reaches the ATen nodes.

AOTAutograd copies `node.meta["custom"]` of each traced node to the ATen nodes it becomes.
"""

from __future__ import annotations

import torch
from torch import fx

from tapeless.torch_internals import set_grad_enabled


def carry_facts(module: fx.GraphModule) -> None:
    """Tag every node with its name, and with `no_grad` where the user cut the gradient (a region, or `.detach()`)."""
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            _tag(part.graph)


def _tag(graph: fx.Graph) -> None:
    enabled = True
    for node in graph.nodes:
        if node.target is set_grad_enabled:
            enabled = bool(node.args[0])
        cut = not enabled or _is_detach(node)
        node.meta["custom"] = {
            **(node.meta.get("custom") or {}),
            "name": node.name,
            **({"no_grad": True} if cut else {}),
        }


def _is_detach(node: fx.Node) -> bool:
    return node.target in ("detach", "detach_", torch.detach, torch.Tensor.detach)
