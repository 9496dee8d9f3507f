"""Accumulating a product costs nothing extra: a + x @ y is one call."""

from __future__ import annotations

import torch
from torch import fx

from tapeless.ir import graph as ir

aten = torch.ops.aten


def fuse_accumulation(graph: fx.Graph) -> fx.Graph:
    """Turn `add(a, mm(x, y))` into `addmm(a, x, y)` where nobody else reads the product and `a` comes first."""
    position = {node: i for i, node in enumerate(graph.nodes)}
    for node in graph.find_nodes(op="call_function", target=aten.add.Tensor):
        a, product = _sides(node, position)
        if product is not None and _same_type(a, node):
            with graph.inserting_before(node):
                fused = graph.create_node("call_function", aten.addmm.default, (a, *product.args), name="total")
            fused.meta = dict(node.meta)
            node.replace_all_uses_with(fused)
            graph.erase_node(node)
            graph.erase_node(product)
    return graph


def _sides(node: fx.Node, position: dict[fx.Node, int]) -> tuple[fx.Node, fx.Node | None]:
    """The running sum and the product added to it: the later of the two, so that no product waits for a sum."""
    if node.kwargs or len(node.args) != 2 or not all(isinstance(a, fx.Node) for a in node.args):
        return node, None
    earlier, later = sorted(node.args, key=lambda a: position.get(a, -1))  # type: ignore[arg-type]
    fits = later.target is aten.mm.default and len(later.users) == 1 and earlier is not later  # type: ignore[union-attr]
    return earlier, later if fits else None  # type: ignore[return-value]


def _same_type(a: fx.Node, b: fx.Node) -> bool:
    x, y = ir.value(a), ir.value(b)
    return x.dtype == y.dtype and tuple(map(str, x.shape)) == tuple(map(str, y.shape))
