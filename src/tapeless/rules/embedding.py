"""Rows of a table, and bags of them."""

from __future__ import annotations

import torch

from tapeless.rules.decompositions import decomposition
from tapeless.rules.registry import jvp, linear, vjp

aten = torch.ops.aten
where = torch.where
MAX = 2  # the mode of a bag; 0 is sum, 1 is mean


@linear(aten.embedding.default, wrt="weight")
def embedding(g, weight, indices, padding_idx, scale_grad_by_freq):
    return aten.embedding_dense_backward(g, indices, weight.shape[0], padding_idx, scale_grad_by_freq)


@linear(aten.embedding_dense_backward.default, wrt="grad_output")
def embedding_dense_backward(g, indices, num_weights, padding_idx, scale_grad_by_freq):
    """Rows of the cotangent, none for the padding; divided by how often a row was used if the kernel does."""
    if scale_grad_by_freq:
        flat = indices.reshape(-1)
        uses = g.new_zeros(num_weights).index_add(0, flat, torch.ones_like(flat, dtype=g.dtype))
        g = g / uses.unsqueeze(1)
    return where((indices == padding_idx).unsqueeze(-1), 0, aten.embedding(g, indices))


# -- bags: indices from one offset to the next, their rows reduced to one ------------------------------------------


@vjp(aten._embedding_bag.default, wrt="weight")
def embedding_bag(g, weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx, out):
    how = (weight.shape[0], scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx)
    return aten._embedding_bag_backward(g[0], indices, offsets, *out[1:], *how)


@vjp(aten._embedding_bag.default, wrt="per_sample_weights")
def embedding_bag_weights(g, weight, indices, offsets, mode, padding_idx, out):
    return aten._embedding_bag_per_sample_weights_backward(g[0], weight, indices, offsets, out[1], mode, padding_idx)


@jvp(aten._embedding_bag.default)
def embedding_bag_jvp(
    weight,
    weight_t,
    indices,
    offsets,
    mode,
    per_sample_weights,
    per_sample_weights_t,
    include_last_offset,
    padding_idx,
    out,
):
    if mode == MAX:
        return _at_largest(weight_t, out[2], out[3]), None, None, None

    def bag(rows, weights):
        return aten._embedding_bag(
            rows, indices, offsets, False, mode, False, weights, include_last_offset, padding_idx
        )[0]

    tangent = bag(weight_t, per_sample_weights)
    if per_sample_weights is not None:
        tangent = tangent + bag(weight, per_sample_weights_t)
    return tangent, None, None, None


def _at_largest(rows, bag_size, maximum_indices):
    """What a bag's largest elements stand for; 0 of an empty bag."""
    return where((bag_size == 0).unsqueeze(1), 0, rows.gather(0, maximum_indices.clamp(min=0)))


@decomposition(aten._embedding_bag_forward_only.default)
def embedding_bag_forward_only(
    weight,
    indices,
    offsets,
    scale_grad_by_freq,
    mode,
    sparse,
    per_sample_weights,
    include_last_offset,
    padding_idx,
):
    """What eager calls where no gradient is wanted; a tangent may be there all the same."""
    how = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
    return aten._embedding_bag(weight, indices, offsets, *how)


@vjp(aten._embedding_bag_backward.default, wrt=("grad", "per_sample_weights"), linear_in="grad")
def embedding_bag_backward(
    g,
    grad,
    indices,
    offsets,
    offset2bag,
    bag_size,
    maximum_indices,
    scale_grad_by_freq,
    mode,
    per_sample_weights,
    padding_idx,
):
    """The transpose of the transpose: the bags again, of the cotangent's rows."""
    if mode == MAX:
        return _at_largest(g, bag_size, maximum_indices), None
    if scale_grad_by_freq:
        uses = g.new_zeros(g.shape[0]).index_add(0, indices, torch.ones_like(indices, dtype=g.dtype))
        g = g / uses.clamp(min=1).unsqueeze(1)
    last = offsets.shape[0] != grad.shape[0]
    bags = aten._embedding_bag(g, indices, offsets, False, mode, False, per_sample_weights, last, padding_idx)[0]
    if per_sample_weights is None:
        return bags, None
    how = (indices, offsets, offset2bag, mode, padding_idx)
    return bags, aten._embedding_bag_per_sample_weights_backward(grad, g, *how)


@vjp(
    aten._embedding_bag_per_sample_weights_backward.default, wrt=("grad", "weight"), linear_in=(("grad",), ("weight",))
)
def embedding_bag_weights_backward(g, grad, weight, indices, offsets, padding_idx):
    """Of ⟨ȳ of the bag, row⟩ at each index: rows weighed by the cotangent, summed by bag, and the reverse."""
    bag = (
        torch.searchsorted(offsets, torch.arange(indices.shape[0], device=g.device, dtype=offsets.dtype), right=True)
        - 1
    )
    g = where(indices == padding_idx, 0, g).unsqueeze(1)
    by_bag = torch.zeros_like(grad).index_add(0, bag, g * weight.index_select(0, indices))
    return by_bag, torch.zeros_like(weight).index_add(0, indices, g * grad.index_select(0, bag))
