"""Choosing elements: by index, by mask, by order. A choice is linear in what is chosen from."""

from __future__ import annotations

import torch

from tapeless.rules.registry import jvp, linear, vjp, zero

aten = torch.ops.aten
where = torch.where

# -- by mask -------------------------------------------------------------------------------------------------------

linear(aten.where.self, wrt=("self", "other"))(lambda g, condition: (where(condition, g, 0), where(condition, 0, g)))

vjp(aten.masked_fill.Scalar, wrt="self")(lambda g, mask: g.masked_fill(mask, 0))
jvp(aten.masked_fill.Scalar)(lambda self_t, mask: self_t.masked_fill(mask, 0))
linear(aten.masked_fill.Tensor, wrt=("self", "value"))(
    lambda g, mask: (g.masked_fill(mask, 0), where(mask, g, 0).sum())
)


@linear(aten.masked_select.default, wrt="self")
def masked_select(g, self, mask):
    shape = torch.broadcast_shapes(self.shape, mask.shape)
    return g.new_zeros(shape).masked_scatter(mask.expand(shape), g)


@linear(aten.masked_scatter.default, wrt=("self", "source"))
def masked_scatter(g, mask, source):
    return g.masked_fill(mask, 0), aten.masked_scatter_backward(g, mask, source.shape)


@linear(aten.masked_scatter_backward.default, wrt="grad_output")
def masked_scatter_backward(g, grad_output, mask):
    return torch.zeros_like(grad_output).masked_scatter(mask, g)


# -- by index along one dim ----------------------------------------------------------------------------------------


@linear(aten.gather.default, wrt="self")
def gather(g, self, dim, index):
    return g.new_zeros(self.shape).scatter_add(dim, index, g)


@linear(aten.scatter.src, wrt=("self", "src"))
def scatter(g, dim, index, src):
    return g.scatter(dim, index, 0), _for_source(g.gather(dim, index), src)


vjp(aten.scatter.value, wrt="self")(lambda g, dim, index: g.scatter(dim, index, 0))
jvp(aten.scatter.value)(lambda self_t, dim, index: self_t.scatter(dim, index, 0))


@linear(aten.scatter_add.default, wrt=("self", "src"))
def scatter_add(g, dim, index, src):
    return g, _for_source(g.gather(dim, index), src)


def _for_source(gathered, src):
    """Elements of `src` beyond the index are not read: their gradient is 0."""
    if gathered.shape == src.shape:
        return gathered
    pad = [n for size, own in zip(reversed(src.shape), reversed(gathered.shape)) for n in (0, size - own)]
    return aten.constant_pad_nd(gathered, pad)


@linear(aten.index_select.default, wrt="self")
def index_select(g, self, dim, index):
    return g.new_zeros(self.shape).index_add(dim, index, g)


def _rows(g, dim, index, source):
    return g.index_select(dim, index if source.dim() else index.reshape(()))


@linear(aten.index_add.default, wrt=("self", "source"))
def index_add(g, dim, index, source, alpha):
    return g, _rows(g, dim, index, source) * alpha


@linear(aten.index_copy.default, wrt=("self", "source"))
def index_copy(g, dim, index, source):
    return g.index_fill(dim, index, 0), _rows(g, dim, index, source)


vjp(aten.index_fill.int_Scalar, wrt="self")(lambda g, dim, index: g.index_fill(dim, index, 0))
jvp(aten.index_fill.int_Scalar)(lambda self_t, dim, index: self_t.index_fill(dim, index, 0))


@linear(aten.index_fill.int_Tensor, wrt=("self", "value"))
def index_fill(g, dim, index):
    rest = g.index_fill(dim, index, 0)
    filled = torch.zeros_like(g, dtype=torch.bool).index_fill(dim, index, True)
    return rest, where(filled, g, 0).sum()


# -- by index in all dims ------------------------------------------------------------------------------------------


@linear(aten.index.Tensor, aten._unsafe_index.Tensor, wrt="self")
def index(g, self, indices):
    return aten.index_put(g.new_zeros(self.shape), indices, g, True)


@linear(aten.index_put.default, wrt=("self", "values"))
def index_put(g, indices, values, accumulate):
    rest = g if accumulate else aten.index_put(g, indices, torch.zeros_like(values))
    return rest, aten.index(g, indices)


@linear(aten._unsafe_index_put.default, wrt=("self", "values"))
def unsafe_index_put(g, indices, values, accumulate):
    rest = g if accumulate else aten._unsafe_index_put(g, indices, torch.zeros_like(values))
    return rest, aten._unsafe_index(g, indices)


@vjp(aten._unsafe_masked_index.default, wrt="self")
def unsafe_masked_index(g, self, mask, indices):
    return aten._unsafe_masked_index_put_accumulate(g.new_zeros(self.shape), mask, indices, g)


@jvp(aten._unsafe_masked_index.default)
def unsafe_masked_index_jvp(self_t, mask, indices):
    return aten._unsafe_masked_index(self_t, mask, indices, 0)


@linear(aten._unsafe_masked_index_put_accumulate.default, wrt=("self", "values"))
def unsafe_masked_index_put_accumulate(g, mask, indices):
    return g, aten._unsafe_masked_index(g, mask, indices, 0)


@linear(aten.take.default, wrt="self")
def take(g, self, index):
    return g.new_zeros(self.shape).put(index, g, accumulate=True)


@linear(aten.put.default, wrt=("self", "source"))
def put(g, index, source, accumulate):
    rest = g if accumulate else g.put(index, torch.zeros_like(source))
    return rest, g.take(index).reshape(source.shape)


# -- by order: values with the indices they came from --------------------------------------------------------------


@vjp(aten.sort.default, aten.sort.stable, aten.topk.default)
def sort(g, self, dim, out):
    return _put_back(g[0], self, dim, out[1])


def _put_back(g, self, dim, indices):
    """Every value's gradient goes to where it came from."""
    return g.new_zeros(self.shape).scatter(dim, indices, g)


@jvp(aten.sort.default, aten.sort.stable, aten.topk.default)
def sort_jvp(self_t, dim, out):
    return self_t.gather(dim, out[1]), None


@vjp(
    aten.max.dim,
    aten.min.dim,
    aten.median.dim,
    aten.nanmedian.dim,
    aten.mode.default,
    aten.kthvalue.default,
)
def max_dim(g, self, dim, keepdim, out):
    if keepdim or self.dim() == 0:
        return _put_back(g[0], self, dim, out[1])
    return _put_back(g[0].unsqueeze(dim), self, dim, out[1].unsqueeze(dim))


@jvp(
    aten.max.dim,
    aten.min.dim,
    aten.median.dim,
    aten.nanmedian.dim,
    aten.mode.default,
    aten.kthvalue.default,
)
def max_dim_jvp(self_t, dim, keepdim, out):
    if keepdim or self_t.dim() == 0:
        return self_t.gather(dim, out[1]), None
    return self_t.gather(dim, out[1].unsqueeze(dim)).squeeze(dim), None


@vjp(aten.cummax.default, aten.cummin.default)
def cummax(g, self, dim, out):
    """A value that stays the largest for several steps collects their gradients."""
    return g[0].new_zeros(self.shape).scatter_add(dim, out[1], g[0])


jvp(aten.cummax.default, aten.cummin.default)(lambda self_t, dim, out: (self_t.gather(dim, out[1]), None))


# -- reduced where they meet ---------------------------------------------------------------------------------------


def scatter_weights(self, dim, index, src, reduce, include_self, out):
    """∂y/∂self, and ∂y/∂src in the shape of `index`: what a reduction of elements that meet weighs each of them by."""
    src = src if src.shape == index.shape else _leading(src, index)
    by_self, by_src = _WEIGHTS[reduce](self, dim, index, src, include_self, out)
    return (by_self if include_self else by_self.scatter(dim, index, 0)), by_src


def _leading(src, index):
    for d in range(index.dim()):
        src = src.narrow(d, 0, index.shape[d])
    return src


def _sum_weights(self, dim, index, src, include_self, out):
    return torch.ones_like(self), torch.ones_like(src)


def _mean_weights(self, dim, index, src, include_self, out):
    start = torch.ones_like(self) if include_self else torch.zeros_like(self)
    met = start.scatter_add(dim, index, torch.ones_like(src))
    weight = where(met == 0, 1, met).reciprocal()
    return weight, weight.gather(dim, index)


def _extreme_weights(self, dim, index, src, include_self, out):
    """Equal parts to all that have the extreme value."""
    mine, theirs = self == out, src == out.gather(dim, index)
    weight = mine.to(out.dtype).scatter_add(dim, index, theirs.to(out.dtype)).reciprocal()
    return where(mine, weight, 0), where(theirs, weight.gather(dim, index), 0)


def _product_weights(self, dim, index, src, include_self, out):
    """The product of all others: the product divided by an element, or, for a zero, the product without it."""

    def product(own, given):
        return torch.scatter_reduce(own, dim, index, given, "prod", include_self=include_self)

    own = where(self == 0, 1, self)
    zeros = torch.zeros_like(self).scatter_add(dim, index, (src == 0).to(self.dtype)).gather(dim, index)
    alone = (src == 0) & (zeros == 1)
    by_src = out.gather(dim, index) / where(src == 0, 1, src)
    by_src = where(alone, product(self, where(alone, 1, src)).gather(dim, index), by_src)
    return product(own, src) / own, where(zeros > 1, 0, by_src)


_WEIGHTS = {
    "sum": _sum_weights,
    "mean": _mean_weights,
    "amax": _extreme_weights,
    "amin": _extreme_weights,
    "prod": _product_weights,
}


@vjp(aten.scatter_reduce.two, wrt=("self", "src"))
def scatter_reduce(g, self, dim, index, src, reduce, include_self, out):
    by_self, by_src = scatter_weights(self, dim, index, src, reduce, include_self, out)
    return g * by_self, _for_source(g.gather(dim, index) * by_src, src)


@jvp(aten.scatter_reduce.two)
def scatter_reduce_jvp(self, self_t, dim, index, src, src_t, reduce, include_self, out):
    by_self, by_src = scatter_weights(self, dim, index, src, reduce, include_self, out)
    return (by_self * self_t).scatter_add(dim, index, by_src * _leading(src_t, index))


def _across(index, dim, source):
    """An index of rows as an index of elements."""
    return index.reshape([-1 if d == dim % source.dim() else 1 for d in range(source.dim())]).expand(source.shape)


@vjp(aten.index_reduce.default, wrt=("self", "source"))
def index_reduce(g, self, dim, index, source, reduce, include_self, out):
    return scatter_reduce(g, self, dim, _across(index, dim, source), source, reduce, include_self, out)


@jvp(aten.index_reduce.default)
def index_reduce_jvp(self, self_t, dim, index, source, source_t, reduce, include_self, out):
    index = _across(index, dim, source)
    return scatter_reduce_jvp(self, self_t, dim, index, source, source_t, reduce, include_self, out)


@vjp(aten.segment_reduce.default, wrt="data")
def segment_reduce(g, data, reduce, lengths, offsets, axis, initial, out):
    return aten._segment_reduce_backward(
        g.contiguous(), out, data, reduce, lengths=lengths, offsets=offsets, axis=axis, initial=initial
    )


@jvp(aten.segment_reduce.default)
def segment_reduce_jvp(data, data_t, reduce, lengths, offsets, axis, unsafe, initial, out):
    """ẏ = Σ wⱼẋⱼ over each segment, where x̄ⱼ = wⱼȳ: each element belongs to one segment."""
    slope = segment_reduce(torch.ones_like(out), data, reduce, lengths, offsets, axis, initial, out)
    return aten.segment_reduce(
        slope * data_t, "sum", lengths=lengths, offsets=offsets, axis=axis, unsafe=unsafe, initial=0
    )


# -- filled --------------------------------------------------------------------------------------------------------

zero(aten.fill.Scalar)
linear(aten.fill.Tensor, wrt="value")(lambda g: g.sum())
zero(aten.fill.Tensor, arguments="self")
