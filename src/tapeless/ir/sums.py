"""Sums of matrix products, as they arise where a value is used more than once: a weight at every step of a loop.

    a.t() + b.t()  → (a + b).t()          one transpose, and the sum meets the products themselves
    c + a @ b      → addmm(c, a, b)       the product is added to the sum while it is computed

Done to graphs that are about to run; each kernel sees the same numbers as before, and rounds once less.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.ir import graph as ir
from tapeless.ir.cost import likely_bytes

aten = torch.ops.aten

TRANSPOSES = (aten.t.default, aten.transpose.int, aten.permute.default)
EXACT = (torch.float32, torch.float64, torch.complex64, torch.complex128)  # in fewer digits eager's sums round visibly


def gather_sums(graph: fx.Graph) -> fx.Graph:
    """Rewrite the sums of `graph`, in place."""
    order = {node: k for k, node in enumerate(graph.nodes)}
    for node in ir.calls(graph):
        if _is_plain_sum(node):
            node = _transposed_once(node, order) or node
            _added_to(node, order)
    return graph


def _is_plain_sum(node: fx.Node) -> bool:
    if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2 or node.args[0] is node.args[1]:
        return False
    kinds = {_kind(node), *map(_kind, _terms(node))}
    return len(kinds) == 1 and None not in kinds


def _terms(node: fx.Node) -> list[Any]:
    return list(node.args)


def _kind(node: Any) -> Any:
    """The type of a matrix; None of anything else."""
    val = ir.value(node) if isinstance(node, fx.Node) else None
    if not isinstance(val, torch.Tensor) or val.dim() != 2 or val.dtype not in EXACT:
        return None
    return val.dtype, val.device, *map(str, val.shape)


def _transposed_once(node: fx.Node, order: dict[fx.Node, int]) -> fx.Node | None:
    """The sum of two transposed matrices as the transpose of their sum, which is returned."""
    left, right = _terms(node)
    if not _are_transposes(node, left, right) or _strides(left.args[0]) != _strides(right.args[0]):
        return None
    with node.graph.inserting_before(node):
        total = node.graph.call_function(aten.add.Tensor, (left.args[0], right.args[0]))
        transposed = node.graph.call_function(left.target, (total, *left.args[1:]))
    _stand_for(total, node, ir.value(left.args[0]), order)
    _stand_for(transposed, node, ir.value(node), order)
    _replace(node, transposed, left, right)
    return total


def _are_transposes(node: fx.Node, *terms: Any) -> bool:
    left, right = terms
    if left.target not in TRANSPOSES or (left.target, left.args[1:]) != (right.target, right.args[1:]):
        return False
    return all(set(term.users) == {node} and term.args[0].op != "placeholder" for term in terms)


def _strides(node: Any) -> list[str]:
    return [*map(str, ir.value(node).stride())]


def _added_to(node: fx.Node, order: dict[fx.Node, int]) -> None:
    """The sum of something and a product as one call, which stands where the later of the two stood."""
    first, second = sorted(_terms(node), key=order.__getitem__)
    if _is_product_for(node, second):
        product, base, place = second, first, second
    elif _is_product_for(node, first) and _operands_outlive(first):
        product, base, place = first, second, node
    else:
        return
    with node.graph.inserting_before(place):
        total = node.graph.call_function(aten.addmm.default, (base, *product.args))
    _stand_for(total, node, ir.value(node), order)
    order[total] = order[place]
    _replace(node, total, product)


def _is_product_for(node: fx.Node, term: Any) -> bool:
    return term.target is aten.mm.default and set(term.users) == {node} and _strides(term) == _strides(node)


def _operands_outlive(product: fx.Node) -> bool:
    """Does computing it later keep no more alive than computing it now?"""
    last = [operand for operand in product.all_input_nodes if len(operand.users) == 1]
    return sum(likely_bytes(ir.value(operand)) for operand in last) <= likely_bytes(ir.value(product))


def _stand_for(new: fx.Node, old: fx.Node, val: torch.Tensor, order: dict[fx.Node, int]) -> None:
    ir.set_value(new, torch_internals.fresh(val))
    (ir.set_total if ir.total_of(old) else ir.set_where)(new, old)
    order[new] = order[old]


def _replace(node: fx.Node, new: fx.Node, *gone: Any) -> None:
    node.replace_all_uses_with(new)
    for dead in (node, *gone):
        node.graph.erase_node(dead)
    ir.take_name(new, node)
