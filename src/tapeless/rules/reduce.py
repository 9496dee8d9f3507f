"""Reductions and scans: sums, products, extremes, moments, norms."""

from __future__ import annotations

import math
from typing import Any

import torch

from tapeless.rules.fit import is_one
from tapeless.rules.helpers import backwards, count, is_empty, scaled, unreduce
from tapeless.rules.registry import jvp, linear, vjp

aten = torch.ops.aten
where = torch.where

# -- sums ----------------------------------------------------------------------------------------------------------


@linear(aten.sum.default)
def sum_all(g, self):
    return g.expand(self.shape)


@linear(aten.sum.dim_IntList)
def sum_dims(g, self, dim, keepdim):
    return unreduce(g, self, dim, keepdim).expand(self.shape)


@linear(aten.mean.default)
def mean_all(g, self):
    return (g / self.numel()).expand(self.shape)


@linear(aten.mean.dim)
def mean_dims(g, self, dim, keepdim):
    return (unreduce(g, self, dim, keepdim) / count(self, dim)).expand(self.shape)


@vjp(aten.nansum.default)
def nansum(g, self, dim, keepdim):
    return where(self.isnan(), 0, unreduce(g, self, dim, keepdim))


@jvp(aten.nansum.default)
def nansum_jvp(self, self_t, dim, keepdim):
    return where(self.isnan(), 0, self_t).sum(dim, keepdim)


@linear(aten.cumsum.default)
def cumsum(g, dim):
    return sum_from(g, dim)


def sum_from(x, dim):
    """Σ over j ≥ k of xⱼ, at each k."""
    return backwards(backwards(x, dim).cumsum(dim), dim)


# -- moments -------------------------------------------------------------------------------------------------------


def freedom(self, dim, correction):
    """What a variance divides by, as a number."""
    return count(self, dim) - (1 if correction is None else correction)


def centred(self, dim):
    return self - (self.mean() if dim is None or len(dim) == 0 else self.mean(dim, keepdim=True))


def var_gradient(g, self, deviation, dim, correction, keepdim):
    """x̄ = ȳ · 2 (x − m) / (n − c)."""
    return unreduce(g, self, dim, keepdim) * 2 / freedom(self, dim, correction) * deviation


def var_tangent(self, self_t, dim, correction, keepdim):
    """ẏ = Σ 2 Re⟨x − m, ẋ⟩ / (n − c)."""
    product = (centred(self, dim).conj() * self_t).real
    return product.sum(dim, keepdim) * 2 / freedom(self, dim, correction)


@vjp(aten.var.correction)
def var(g, self, dim, correction, keepdim):
    return var_gradient(g, self, centred(self, dim), dim, correction, keepdim)


@jvp(aten.var.correction)
def var_jvp(self, self_t, dim, correction, keepdim):
    return var_tangent(self, self_t, dim, correction, keepdim)


def through_root(g, std):
    """The cotangent of the variance, of a standard deviation's: ȳ / 2s; 0 where s = 0."""
    return (g / (std * 2)).masked_fill(std == 0, 0)


@vjp(aten.std.correction)
def std(g, self, dim, correction, keepdim, out):
    return var_gradient(through_root(g, out), self, centred(self, dim), dim, correction, keepdim)


@jvp(aten.std.correction)
def std_jvp(self, self_t, dim, correction, keepdim, out):
    return through_root(var_tangent(self, self_t, dim, correction, keepdim), out)


@vjp(aten.var_mean.correction)
def var_mean(g, self, dim, correction, keepdim, out):
    deviation = self - unreduce(out[1], self, dim, keepdim)
    mean = unreduce(g[1], self, dim, keepdim) / count(self, dim)
    return var_gradient(g[0], self, deviation, dim, correction, keepdim) + mean


@jvp(aten.var_mean.correction)
def var_mean_jvp(self, self_t, dim, correction, keepdim):
    return var_tangent(self, self_t, dim, correction, keepdim), self_t.mean(dim, keepdim)


@vjp(aten.std_mean.correction)
def std_mean(g, self, dim, correction, keepdim, out):
    deviation = self - unreduce(out[1], self, dim, keepdim)
    mean = unreduce(g[1], self, dim, keepdim) / count(self, dim)
    return var_gradient(through_root(g[0], out[0]), self, deviation, dim, correction, keepdim) + mean


@jvp(aten.std_mean.correction)
def std_mean_jvp(self, self_t, dim, correction, keepdim, out):
    variance = var_tangent(self, self_t, dim, correction, keepdim)
    return through_root(variance, out[0]), self_t.mean(dim, keepdim)


# -- products ------------------------------------------------------------------------------------------------------


def product_of_others(x, dim):
    """∏ of all other elements along `dim`, at each element; right at zeros, where dividing the product would not be."""
    if x.dim() == 0 or x.shape[dim] == 0:
        return torch.ones_like(x)
    one, rest = torch.ones_like(x.narrow(dim, 0, 1)), x.shape[dim] - 1
    before = torch.cat([one, x.narrow(dim, 0, rest)], dim).cumprod(dim)
    after = torch.cat([one, x.flip(dim).narrow(dim, 0, rest)], dim).cumprod(dim).flip(dim)
    return before * after


@vjp(aten.prod.default)
def prod_all(g, self, out):
    others = product_of_others(self.to(out.dtype).reshape(-1), 0)
    return (g * others.conj()).reshape(self.shape)


@jvp(aten.prod.default)
def prod_all_jvp(self, self_t, out):
    others = product_of_others(self.to(out.dtype).reshape(-1), 0)
    return (others * self_t.reshape(-1)).sum()


@vjp(aten.prod.dim_int)
def prod_dim(g, self, dim, keepdim, out):
    return unreduce(g, self, dim, keepdim) * product_of_others(self.to(out.dtype), dim).conj()


@jvp(aten.prod.dim_int)
def prod_dim_jvp(self, self_t, dim, keepdim, out):
    return (product_of_others(self.to(out.dtype), dim) * self_t).sum(dim, keepdim)


@vjp(aten.cumprod.default)
def cumprod(g, self, dim, out):
    """x̄ₖ = Σ over j ≥ k of ȳⱼ yⱼ / xₖ up to the first zero; at it, the same with the zero left out.

    Beyond it the gradient is that zero times what it is multiplied with: 0, but not its derivative.
    """
    if self.dim() == 0 or is_one(self.shape[dim]):
        return g
    x = self.to(out.dtype)
    zeros = (x == 0).cumsum(dim)
    first, second = ((x == 0) & (zeros == n) for n in (1, 2))
    before = sum_from(g * out.conj(), dim) / where(x == 0, 1, x).conj()
    at = sum_from(g * where(first, 1, x).cumprod(dim).conj(), dim)
    beyond = where(zeros == 1, at / where(x == 0, 1, x).conj(), 0)
    beyond = where(second, sum_from(g * where(first | second, 1, x).cumprod(dim).conj(), dim), beyond)
    zero = where(first, x, 0).sum(dim, keepdim=True).conj()
    return where(zeros == 0, before, where(first, at, zero * beyond))


@jvp(aten.cumprod.default)
def cumprod_jvp(self, self_t, dim, out):
    """ẏₖ = Σ over j ≤ k of yₖ ẋⱼ / xⱼ; from the first zero on only its own tangent counts."""
    if self.dim() == 0 or is_one(self.shape[dim]):
        return self_t
    x = self.to(out.dtype)
    zeros = (x == 0).cumsum(dim)
    first = (x == 0) & (zeros == 1)
    before = out * (self_t / where(x == 0, 1, x)).cumsum(dim)
    after = where(first, 1, x).cumprod(dim) * where(first, self_t, 0).cumsum(dim)
    return where(zeros == 0, before, after)


# -- sums of exponentials ------------------------------------------------------------------------------------------


@vjp(aten.logsumexp.default)
def logsumexp(g, self, dim, keepdim, out):
    """x̄ = ȳ · exp(x − y)."""
    return unreduce(g, self, dim, keepdim) * (self - unreduce(out, self, dim, keepdim)).exp().conj()


@jvp(aten.logsumexp.default)
def logsumexp_jvp(self, self_t, dim, keepdim, out):
    return (self_t * (self - unreduce(out, self, dim, keepdim)).exp()).sum(dim, keepdim)


def _signed(weights):
    """Weights as (factor, logarithm): their parts of either sign apart, so that nothing overflows under `exp`."""
    parts = [(weights.real, 1), (weights.imag, 1j)] if weights.is_complex() else [(weights, 1)]
    for part, unit in parts:
        none = torch.finfo(part.dtype).min / 2**20  # the logarithm of nothing, finite so that it can be differentiated
        for sign in (1, -1):
            present = sign * part > 0
            yield sign * unit, where(present, where(present, sign * part, 1).log(), none)


@vjp(aten.logcumsumexp.default)
def logcumsumexp(g, self, dim, out):
    """x̄ₖ = Σ over j ≥ k of ȳⱼ exp(xₖ − yⱼ)."""
    if self.dim() == 0:
        return g
    x, y = self.conj(), out.conj()
    sums = [(factor, backwards(backwards(log - y, dim).logcumsumexp(dim), dim)) for factor, log in _signed(g)]
    return sum(factor * (total + x).exp() for factor, total in sums)


@jvp(aten.logcumsumexp.default)
def logcumsumexp_jvp(self, self_t, dim, out):
    """ẏₖ = Σ over j ≤ k of ẋⱼ exp(xⱼ − yₖ)."""
    if self.dim() == 0 or is_empty(self):
        return self_t
    return sum(factor * ((log + self).logcumsumexp(dim) - out).exp() for factor, log in _signed(self_t))


# -- extremes ------------------------------------------------------------------------------------------------------


def shared(g, chosen, dim):
    """The gradient of an extreme, in equal parts over the elements that have its value."""
    return where(chosen, g / chosen.sum(dim, keepdim=True), 0)


def average(self_t, chosen, dim, keepdim):
    """The tangent of an extreme: the mean over the elements that have its value."""
    return where(chosen, self_t, 0).sum(dim, keepdim) / chosen.sum(dim, keepdim)


@vjp(aten.amax.default, aten.amin.default)
def amax(g, self, dim, keepdim, out):
    return shared(unreduce(g, self, dim, keepdim), self == unreduce(out, self, dim, keepdim), dim)


@jvp(aten.amax.default, aten.amin.default)
def amax_jvp(self, self_t, dim, keepdim, out):
    return average(self_t, self == unreduce(out, self, dim, keepdim), dim, keepdim)


@vjp(aten.aminmax.default)
def aminmax(g, self, dim, keepdim, out):
    dims = [] if dim is None else [dim]
    small, large = (self == unreduce(extreme, self, dims, keepdim) for extreme in out)
    g_small, g_large = (unreduce(part, self, dims, keepdim) for part in g)
    return shared(g_small, small, dims) + shared(g_large, large, dims)


@jvp(aten.aminmax.default)
def aminmax_jvp(self, self_t, dim, keepdim, out):
    dims = [] if dim is None else [dim]
    small, large = (self == unreduce(extreme, self, dims, keepdim) for extreme in out)
    return average(self_t, small, dims, keepdim), average(self_t, large, dims, keepdim)


def is_value(self, value):
    """Where `self` equals `value`, a NaN being equal to a NaN."""
    return (self == value) | (self.isnan() & value.isnan())


@vjp(aten.max.default, aten.min.default, aten.median.default, aten.nanmedian.default)
def max_all(g, self, out):
    chosen = is_value(self, out)
    return where(chosen, g / chosen.sum(), 0)


@jvp(aten.max.default, aten.min.default, aten.median.default, aten.nanmedian.default)
def max_all_jvp(self, self_t, out):
    chosen = is_value(self, out)
    return where(chosen, self_t, 0).sum() / chosen.sum()


# -- norms ---------------------------------------------------------------------------------------------------------


def norm_slope(self, p, norm, dim, g: Any = 1):
    """g · ∂‖x‖ₚ/∂x for `norm` with its dims kept: sgn(x) |x|ᵖ⁻¹ / ‖x‖ᵖ⁻¹; 0 where the norm is 0.

    Where p > 1 is not 2 it is the factor g / ‖x‖ᵖ⁻¹ that is 0 there, as in eager: so is every g, even if not finite.
    """
    if p == 0:
        return torch.zeros_like(self)
    if p == 1:
        return scaled(self.sgn(), g)
    if p == 2:
        return scaled((self / norm).masked_fill(norm == 0, 0), g)
    if math.isinf(p):
        chosen = is_value(self.abs(), norm)
        return scaled(where(chosen, self.sgn() / chosen.sum(dim, keepdim=True), 0), g)
    if p < 1:
        return scaled((self.sgn() * self.abs().pow(p - 1)).masked_fill(self == 0, 0) * norm.pow(1 - p), g)
    powers = self.sgn() * self.abs().pow(p - 1) if p < 2 else self * self.abs().pow(p - 2)
    return powers * (g / norm.pow(p - 1)).masked_fill(norm == 0, 0)


def norm_gradient(g, self, p, dim, keepdim, out):
    if p == 0:
        return None  # it counts
    dims = [] if dim is None else dim
    g, norm = unreduce(g, self, dims, keepdim), unreduce(out, self, dims, keepdim)
    return norm_slope(self.to(torch.promote_types(self.dtype, out.dtype)), p, norm, dims, g=g)


def norm_tangent(self, self_t, p, dim, keepdim, out):
    dims = [] if dim is None else dim
    slope = norm_slope(self.to(torch.promote_types(self.dtype, out.dtype)), p, unreduce(out, self, dims, keepdim), dims)
    return (slope.conj() * self_t).real.sum(dims, keepdim)


@vjp(aten.linalg_vector_norm.default)
def vector_norm(g, self, ord, dim, keepdim, out):
    return norm_gradient(g, self, ord, dim, keepdim, out)


@jvp(aten.linalg_vector_norm.default)
def vector_norm_jvp(self, self_t, ord, dim, keepdim, out):
    return norm_tangent(self, self_t, ord, dim, keepdim, out)


@vjp(aten.norm.Scalar, aten.norm.ScalarOpt_dtype)
def norm_all(g, self, p, out):
    return norm_gradient(g, self, 2 if p is None else p, None, False, out)


@jvp(aten.norm.Scalar, aten.norm.ScalarOpt_dtype)
def norm_all_jvp(self, self_t, p, out):
    return norm_tangent(self, self_t, 2 if p is None else p, None, False, out)


@vjp(aten.norm.ScalarOpt_dim, aten.norm.ScalarOpt_dim_dtype)
def norm_dims(g, self, p, dim, keepdim, out):
    return norm_gradient(g, self, 2 if p is None else p, dim, keepdim, out)


@jvp(aten.norm.ScalarOpt_dim, aten.norm.ScalarOpt_dim_dtype)
def norm_dims_jvp(self, self_t, p, dim, keepdim, out):
    return norm_tangent(self, self_t, 2 if p is None else p, dim, keepdim, out)


@vjp(aten.dist.default)
def dist(g, self, other, p, out):
    gradient = norm_slope(self - other, p, out, [], g)
    return gradient, -gradient


@jvp(aten.dist.default)
def dist_jvp(self, self_t, other, other_t, p, out):
    return norm_tangent(self - other, self_t - other_t, p, None, False, out)


@vjp(aten.renorm.default)
def renorm(g, self, p, dim, maxnorm):
    """y = x·s for the slices longer than the limit, s = limit/(‖x‖ + ε): x̄ = ȳs − ⟨ȳ, x⟩ s/(‖x‖ + ε) ∂‖x‖."""
    norm, scale, long, dims = _lengths(self, p, dim, maxnorm)
    along = (g * self.conj()).sum(dims, keepdim=True).real
    return where(long, g * scale - along * scale / (norm + 1e-7) * norm_slope(self, p, norm, dims), g)


@jvp(aten.renorm.default)
def renorm_jvp(self, self_t, p, dim, maxnorm):
    norm, scale, long, dims = _lengths(self, p, dim, maxnorm)
    norm_t = (norm_slope(self, p, norm, dims).conj() * self_t).real.sum(dims, keepdim=True)
    return where(long, self_t * scale - self * scale / (norm + 1e-7) * norm_t, self_t)


def _lengths(self, p, dim, maxnorm):
    dims = [d for d in range(self.dim()) if d != dim % self.dim()]
    norm = torch.linalg.vector_norm(self, p, dims, keepdim=True)
    return norm, maxnorm / (norm + 1e-7), norm > maxnorm, dims
