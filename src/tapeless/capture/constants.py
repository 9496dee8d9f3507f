"""Constant tensors of the program, such as the 1.0 of `y[0] = 1.0`, become literals: the graph says all it computes."""

from __future__ import annotations

import torch
from torch import fx

from tapeless.errors import Unsupported
from tapeless.ir import graph as ir


def write_out_constants(graph: fx.Graph, module: torch.nn.Module) -> None:
    """Replace every attribute of `module` that the graph reads by a call that makes the same tensor."""
    for node in graph.find_nodes(op="get_attr"):
        value = getattr(module, str(node.target))
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"a graph inside the graph, as `torch.cond` makes one\n  at {_user_of(node)}")
        with graph.inserting_before(node):
            literal = graph.create_node("call_function", *_literal(value), name="constant")
        literal.meta = dict(node.meta)
        node.replace_all_uses_with(literal)
        graph.erase_node(node)


def _literal(value: torch.Tensor) -> tuple:
    how = {"dtype": value.dtype, "device": value.device}
    if value.numel() == 0:
        return torch.zeros, (list(value.shape),), how
    return torch.tensor, (value.tolist(),), how


def _user_of(node: fx.Node) -> object:
    return next((ir.where(user) for user in node.users), ir.where(node))
