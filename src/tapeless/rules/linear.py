"""Linear operators: views, shapes, copies, casts, joining and cutting. Each rule is the transpose of its operator."""

from __future__ import annotations

import torch

from tapeless.rules.helpers import conj, scaled
from tapeless.rules.registry import jvp, linear, vjp, zero

aten = torch.ops.aten
END = 2**63 - 1  # of a slice without an end

# -- the identity --------------------------------------------------------------------------------------------------

linear(
    aten.alias.default,
    aten.alias_copy.default,
    aten.clone.default,
    aten.detach.default,  # the engine's own; a user's detach is cut before rules are asked
    aten._lazy_clone.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
)(lambda g: g)

# the engine sums over expanded dims, here as everywhere
linear(aten.expand.default, aten.expand_copy.default)(lambda g: g)


@linear(aten._to_copy.default)
def to_copy(g, self):
    """x̄ = ȳ on the device of x; its dtype is restored as everywhere."""
    return g.to(self.device)


@linear(aten.copy.default, wrt="src")
def copy(g, src):
    return g.to(src.device)


zero(aten.copy.default, arguments="self")  # overwritten


@jvp(aten.copy.default)
def copy_jvp(self, src_t):
    """Of what is overwritten only the type counts."""
    return src_t.to(self.device, self.dtype).expand(self.shape).clone()


# -- views ---------------------------------------------------------------------------------------------------------


@linear(
    aten.view.default,
    aten.view_copy.default,
    aten._unsafe_view.default,
    aten._reshape_alias.default,
    aten._reshape_copy.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze_copy.default,
    aten.squeeze_copy.dim,
    aten.squeeze_copy.dims,
)
def view(g, self):
    return g.reshape(self.shape)


@jvp(aten.view.default, aten._unsafe_view.default)
def view_jvp(self_t, size):
    """A tangent may be laid out otherwise than the value it belongs to."""
    return self_t.reshape(size)


linear(aten.unsqueeze.default, aten.unsqueeze_copy.default)(lambda g, dim: g.squeeze(dim))
linear(aten.t.default, aten.t_copy.default)(lambda g: g.t())
linear(aten.transpose.int, aten.transpose_copy.int)(lambda g, dim0, dim1: g.transpose(dim0, dim1))


@linear(aten.permute.default, aten.permute_copy.default)
def permute(g, dims):
    order = [d % len(dims) for d in dims]
    return g.permute(sorted(range(len(dims)), key=order.__getitem__))


@linear(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_(g, self, dim, start, end, step):
    return aten.slice_backward(g, self.shape, dim, 0 if start is None else start, END if end is None else end, step)


@linear(aten.slice_backward.default)
def slice_backward(g, dim, start, end, step):
    return aten.slice(g, dim, start, end, step)


@linear(aten.narrow_copy.default)
def narrow_copy(g, self, dim, start, length):
    return aten.slice_backward(g, self.shape, dim, start, start + length, 1)


@linear(aten.select.int, aten.select_copy.int)
def select(g, self, dim, index):
    return aten.select_backward(g, self.shape, dim, index)


linear(aten.select_backward.default)(lambda g, dim, index: g.select(dim, index))


@linear(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(g, self, offset, dim1, dim2):
    return aten.diagonal_backward(g, self.shape, offset, dim1, dim2)


linear(aten.diagonal_backward.default, aten.diag_embed.default)(
    lambda g, offset, dim1, dim2: g.diagonal(offset, dim1, dim2)
)


@linear(aten.unfold.default, aten.unfold_copy.default)
def unfold(g, self, dimension, size, step):
    return aten.unfold_backward(g, self.shape, dimension, size, step)


linear(aten.unfold_backward.default)(lambda g, dim, size, step: g.unfold(dim, size, step))


# -- pieces written into a whole -----------------------------------------------------------------------------------


@linear(aten.slice_scatter.default)
def slice_scatter(g, src, dim, start, end, step):
    return aten.slice_scatter(g, torch.zeros_like(src), dim, start, end, step), aten.slice(g, dim, start, end, step)


@linear(aten.select_scatter.default)
def select_scatter(g, src, dim, index):
    return aten.select_scatter(g, torch.zeros_like(src), dim, index), g.select(dim, index)


@linear(aten.diagonal_scatter.default)
def diagonal_scatter(g, src, offset, dim1, dim2):
    return aten.diagonal_scatter(g, torch.zeros_like(src), offset, dim1, dim2), g.diagonal(offset, dim1, dim2)


# -- joining and cutting -------------------------------------------------------------------------------------------


@linear(
    aten.split.Tensor,
    aten.split_copy.Tensor,
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
)
def split(g, dim):
    return torch.cat(g, dim)


linear(aten.unbind.int, aten.unbind_copy.int)(lambda g, dim: torch.stack(g, dim))
linear(aten.stack.default)(lambda g, dim: g.unbind(dim))


@linear(aten.cat.default)
def cat(g, tensors, dim):
    """Cuts ȳ where the pieces met. An empty vector joins tensors of any rank, and is given back as it was."""
    odd = [t.dim() != g.dim() for t in tensors]
    pieces = g.split_with_sizes([0 if skip else t.shape[dim] for t, skip in zip(tensors, odd)], dim)
    return [torch.zeros_like(t) if skip else piece for piece, t, skip in zip(pieces, tensors, odd)]


@linear(aten.block_diag.default)
def block_diag(g, tensors):
    rows = [t.shape[0] if t.dim() == 2 else 1 for t in tensors]
    columns = [t.shape[-1] if t.dim() else 1 for t in tensors]
    bands = g.split_with_sizes(rows, 0)
    blocks = [band.split_with_sizes(columns, 1)[i] for i, band in enumerate(bands)]
    return [block.reshape(t.shape) for block, t in zip(blocks, tensors)]


# -- moving elements about -----------------------------------------------------------------------------------------

linear(aten.flip.default)(lambda g, dims: g.flip(dims))
linear(aten.roll.default)(lambda g, shifts, dims: g.roll([-s for s in shifts], dims))
linear(aten.rot90.default)(lambda g, k, dims: g.rot90(-k, dims))
linear(aten.tril.default)(lambda g, diagonal: g.tril(diagonal))
linear(aten.triu.default)(lambda g, diagonal: g.triu(diagonal))


@linear(aten.repeat.default)
def repeat(g, self, repeats):
    """Sums the copies: ȳ as [r₀, n₀, r₁, n₁, …] over every rᵢ."""
    sizes = [1] * (len(repeats) - self.dim()) + list(self.shape)
    pairs = [n for pair in zip(repeats, sizes) for n in pair]
    return g.reshape(pairs).sum(list(range(0, len(pairs), 2))) if pairs else g


@linear(aten.trace.default)
def trace(g, self):
    return aten.diagonal_backward(g.expand(torch.sym_min(*self.shape)), self.shape, 0, 0, 1)


@vjp(aten.constant_pad_nd.default)
def constant_pad_nd(g, pad):
    """Padding by −p crops what padding by p added, and the reverse."""
    return aten.constant_pad_nd(g, [-p for p in pad])


@jvp(aten.constant_pad_nd.default)
def constant_pad_nd_jvp(self_t, pad):
    return aten.constant_pad_nd(self_t, pad)


# -- complex as pairs of reals -------------------------------------------------------------------------------------

linear(aten._conj.default, aten._conj_copy.default, aten._conj_physical.default)(lambda g: g.conj())
linear(aten._neg_view.default, aten._neg_view_copy.default)(lambda g: g.neg())
linear(aten.view_as_real.default, aten.view_as_real_copy.default)(lambda g: _as_complex(g))
linear(aten.view_as_complex.default, aten.view_as_complex_copy.default)(lambda g: _as_real(g))
jvp(aten.view_as_real.default, aten.view_as_real_copy.default)(lambda self_t: _as_real(self_t))
jvp(aten.view_as_complex.default, aten.view_as_complex_copy.default)(lambda self_t: _as_complex(self_t))


def _as_real(z):
    return torch.view_as_real(z.resolve_conj())


def _as_complex(pairs):
    return torch.view_as_complex(pairs.resolve_neg().contiguous())


linear(aten.complex.default)(lambda g: (g.real, g.imag))

# -- sums ----------------------------------------------------------------------------------------------------------

linear(aten.neg.default)(lambda g: g.neg())
linear(aten.add.Tensor)(lambda g, alpha: (g, scaled(g, conj(alpha))))
linear(aten.sub.Tensor)(lambda g, alpha: (g, scaled(g.neg(), conj(alpha))))
linear(aten.rsub.Tensor)(lambda g, alpha: (scaled(g.neg(), conj(alpha)), g))
linear(aten.mul.Scalar)(lambda g, other: g * conj(other))
linear(aten.div.Scalar)(lambda g, other: g / conj(other))
linear(aten.lerp.Scalar)(lambda g, weight: (g * (1 - conj(weight)), g * conj(weight)))
linear(aten.deg2rad.default)(lambda g: torch.deg2rad(g))
linear(aten.rad2deg.default)(lambda g: torch.rad2deg(g))

# -- memory as seen by as_strided ----------------------------------------------------------------------------------


def _extent(shape, stride, offset):
    return offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride))


def _through_memory(x, source, target):
    """`x`, written to a zero memory at geometry `source` (overlaps add up), read at geometry `target`."""
    size = torch.sym_max(_extent(*source), _extent(*target))
    places = torch.arange(size, device=x.device).as_strided(*source).reshape(-1)
    return x.new_zeros(size).index_add(0, places, x.reshape(-1)).as_strided(*target)


def _geometries(self, size, stride, storage_offset):
    start = self.storage_offset()
    return (self.shape, self.stride(), start), (size, stride, start if storage_offset is None else storage_offset)


@linear(aten.as_strided.default, aten.as_strided_copy.default)
def as_strided(g, self, size, stride, storage_offset):
    own, seen = _geometries(self, size, stride, storage_offset)
    return _through_memory(g, seen, own)


@linear(aten.as_strided_scatter.default)
def as_strided_scatter(g, self, src, size, stride, storage_offset):
    """What `src` overwrites of `self` gets no gradient; `src` gets what lies in its places. (Eager's self is wrong.)"""
    own, seen = _geometries(self, size, stride, storage_offset)
    overwritten = _through_memory(torch.ones_like(src), seen, own) != 0
    return torch.where(overwritten, 0, g), _through_memory(g, own, seen)
