"""Which calls may write their result into an operand: elementwise work on a value that nobody reads any more.

The graph stays functional; only the text says `a.add_(b)`. Allowed for an operand that this program itself allocated
(by an operator known to return fresh memory) or that was given to it for good, of the type of the result, no part of
which is read later or returned. In a backward it may also be the whole of such a value seen in another shape.
"""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless.ir import graph as ir
from tapeless.ir import kernels
from tapeless.ir.ops import accumulate

aten = torch.ops.aten

IN_PLACE: dict[Any, str] = {
    aten.add.Tensor: "add_", aten.sub.Tensor: "sub_", aten.mul.Tensor: "mul_", aten.div.Tensor: "div_",
    aten.addmm.default: "addmm_", aten.neg.default: "neg_", aten.relu.default: "relu_", aten.exp.default: "exp_",
    aten.tanh.default: "tanh_", aten.sigmoid.default: "sigmoid_", aten.masked_fill.Scalar: "masked_fill_",
    aten.scatter_add.default: "scatter_add_", aten.bernoulli.p: "bernoulli_",
}  # fmt: skip

# Kernels without an in-place form that may be told to write their result over an operand, by the name of the argument.
# Elementwise ones do as any of these. Of softmax those on the CPU, over a last dimension without gaps: each row is read
# before it is written, and the last pass is elementwise.
OVER: dict[Any, tuple[OpOverload, str]] = {
    aten._log_softmax.default: (aten._log_softmax.out, "out"),
    aten._softmax.default: (aten._softmax.out, "out"),
    aten.gelu_backward.default: (aten.gelu_backward.grad_input, "grad_input"),
    aten.threshold_backward.default: (aten.threshold_backward.grad_input, "grad_input"),
    aten.tanh_backward.default: (aten.tanh_backward.grad_input, "grad_input"),
    aten.sigmoid_backward.default: (aten.sigmoid_backward.grad_input, "grad_input"),
    aten.silu_backward.default: (aten.silu_backward.grad_input, "grad_input"),
}

ROW_BY_ROW = (aten._log_softmax.default, aten._softmax.default)

COMMUTATIVE = (aten.add.Tensor, aten.mul.Tensor)

FRESH_KERNELS = frozenset([
    aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default, aten.sum.dim_IntList, aten.mean.dim,
    aten.cat.default, aten.stack.default, aten._softmax.default, aten._log_softmax.default,
    aten._softmax_backward_data.default, aten._log_softmax_backward_data.default, aten.embedding_dense_backward.default,
    aten.native_layer_norm_backward.default, aten.native_layer_norm.default, aten.native_group_norm.default,
    aten.native_group_norm_backward.default, aten.native_batch_norm_backward.default,
    aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit_no_training.default,
    aten.convolution.default, aten.convolution_backward.default,
    aten.slice_backward.default, aten.select_backward.default, aten.index_select.default, aten.embedding.default,
    aten.max_pool2d_with_indices_backward.default, aten.avg_pool2d_backward.default,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default, aten.gelu_backward.default,
    aten.native_dropout_backward.default, aten.nll_loss_backward.default, aten.index.Tensor, aten.gather.default,
    aten.index_put.default, aten.scatter_add.default, aten.scatter.value, aten.constant_pad_nd.default,
    aten.clone.default, aten._to_copy.default, aten.index_add.default, aten.full.default, aten.avg_pool2d.default,
    aten.nll_loss_forward.default, aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten.cumsum.default, aten.new_empty.default, aten.bernoulli.p,
    kernels.ops.convolve_packed.default, kernels.ops.multiply_packed.default,
])  # fmt: skip


# Views that show every element once.
WHOLE = frozenset([
    aten.view.default, aten._unsafe_view.default, aten.t.default, aten.transpose.int, aten.permute.default,
    aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
])  # fmt: skip

NOT_FRESH = frozenset([aten.conj_physical.default, aten.positive.default])  # elementwise, but may return its argument


@dataclass(frozen=True)
class Terms:
    """How a program is run. What is printed runs on any terms, so it is printed for the least of them."""

    unrecorded: bool = False  # autograd never looks on: it refuses to record calls that are told where to write
    donated: tuple[int, ...] = ()  # inputs that nobody else reads and that share memory with nothing else
    fused: bool = False  # by kernels that compute elementwise values on their way, in as much memory as one of them
    views: bool = False  # nobody minds if a result turns out to be a view of memory of its own
    defined: bool = False  # as it will be once all cotangents are known to be defined, and their sums are additions


ANY = Terms()


def reusable_operands(graph: fx.Graph, terms: Terms = ANY) -> dict[fx.Node, fx.Node]:
    """For each call that may work in place, the operand whose memory it takes."""
    if terms.fused:
        return {node: operand for node in ir.calls(graph) if (operand := _fused_with(node)) is not None}
    memory = _Memory(graph, terms)
    found: dict[fx.Node, fx.Node] = {}
    for node in ir.calls(graph):
        candidates = _candidates(_operator(node, terms.defined), node, terms)
        operand = next((a for a in candidates if memory.may_take(node, a)), None)
        if operand is not None:
            found[node] = operand
    return found


def _fused_with(node: fx.Node) -> fx.Node | None:
    """The operand of an elementwise call in whose memory its result may be thought to be: one like it, or any if only
    elementwise calls read the result, which then is in no memory at all."""
    if not _is_elementwise(node):
        return None
    operands = node.all_input_nodes
    alike = (a for a in operands if _layout(a) == _layout(node))
    return next(alike, operands[0] if operands and all(map(_is_elementwise, node.users)) else None)


def _is_elementwise(node: fx.Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def overwritten_inputs(graph: fx.Graph, terms: Terms) -> tuple[int, ...]:
    """Those of the donated inputs that some call of the program works in."""
    taken = {_seen(node) for node in reusable_operands(graph, terms).values()} if terms.donated else set()
    return tuple(k for k, node in enumerate(ir.inputs(graph)) if node in taken)


def _seen(node: fx.Node) -> fx.Node:
    """The value of which `node` shows every element."""
    while node.target in WHOLE:
        node = node.all_input_nodes[0]
    return node


def own_results(graph: fx.Graph) -> frozenset[int]:
    """The results that live in memory which the program allocated for them alone: no input and no other result does."""
    memory = _Memory(graph)
    results = [r for r in ir.outputs(graph) if isinstance(r, fx.Node)]
    lives = {r: memory.root[r] for r in results}
    held = Counter(_place(root) for root in (lives[r] for r in results) if root is not None)
    own = {r for r, root in lives.items() if root is r and r not in memory.shared and held[_place(r)] == 1}
    return frozenset(k for k, r in enumerate(ir.outputs(graph)) if r in own)


def _place(root: fx.Node) -> Any:
    """The same for two nodes that take the same part out of the results of one call."""
    return root.args if root.target is operator.getitem else root


class _Memory:
    """Whose memory each value lives in, and when that is read for the last time."""

    def __init__(self, graph: fx.Graph, terms: Terms = ANY) -> None:
        self.defined, self.views = terms.defined, terms.views
        self.donated = {node for k, node in enumerate(ir.inputs(graph)) if k in terms.donated}
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.root: dict[fx.Node, fx.Node | None] = {}  # None: not known to be allocated by this program
        self.shared: set[fx.Node] = set()  # roots that an operator we know nothing about may have returned
        self.last: dict[fx.Node, int] = {}
        for node in graph.nodes:
            self.root[node] = self._root(node)
        for node, root in self.root.items():
            if root is not None:
                self.last[root] = max([self.last.get(root, 0), *(self.order[user] for user in node.users)])

    def _root(self, node: fx.Node) -> fx.Node | None:
        if node in self.donated:
            return node
        if node.target is operator.getitem:
            source: Any = node.args[0]
            return node if self.root[source] is source else self.root[source]
        if _is_fresh(_operator(node, self.defined)):
            return node
        roots = [self.root[a] for a in node.all_input_nodes]
        if len(roots) == 1:
            return roots[0]  # perhaps a view of its one operand
        self.shared.update(root for root in roots if root is not None and node.op != "output")
        return None

    def may_take(self, node: fx.Node, operand: Any) -> bool:
        """Is `operand` this program's own, whole, of the result's type, and read here for the last time?"""
        if not isinstance(operand, fx.Node):
            return False
        root = _seen(operand) if self.views else operand
        if self.root.get(operand) is not root or root in self.shared:
            return False
        if self.last[root] != self.order[node] or _layout(operand) is None or _layout(operand) != _layout(node):
            return False
        if node.args.count(operand) > 1 and torch.Tag.pointwise not in _operator(node, self.defined).tags:
            return False  # a product reads all of its operand for each element that it writes
        return all(self.root.get(a) is not root for a in node.all_input_nodes if a is not operand)


def _is_fresh(op: Any) -> bool:
    if op in FRESH_KERNELS:
        return True
    if not isinstance(op, OpOverload) or op.namespace != "aten" or op in NOT_FRESH:
        return False
    return torch.Tag.pointwise in op.tags


def _operator(node: fx.Node, defined: bool) -> Any:
    return aten.add.Tensor if defined and node.target is accumulate else node.target


def _candidates(op: Any, node: fx.Node, terms: Terms) -> list[Any]:
    if op in OVER and terms.unrecorded:
        return _under(op, node)
    if op not in IN_PLACE or node.kwargs:
        return []
    return list(node.args[:2] if op in COMMUTATIVE else node.args[:1])


def _under(op: Any, node: fx.Node) -> list[Any]:
    """The operands that the result may be written over."""
    if op not in ROW_BY_ROW:
        return list(node.args[:2])
    operand, dim = node.args[:2]
    val = ir.value(operand)  # type: ignore[arg-type]
    return [operand] if val.is_cpu and val.is_contiguous() and dim in (-1, val.dim() - 1) else []


def _layout(node: fx.Node) -> Any:
    val = ir.value(node)
    if not isinstance(val, torch.Tensor):
        return None
    return val.dtype, tuple(map(str, val.shape)), tuple(map(str, val.stride()))
