"""Elementwise functions: one line per operator.

A derivative is written in `out` where that saves less. A function of `g` is the whole product: for a fused kernel,
a quotient, or a choice between g and 0; such choices are made by `where`, so that an infinite g meets no 0.
"""

from __future__ import annotations

import cmath
import math

import torch

from tapeless.rules.helpers import conj, scaled
from tapeless.rules.registry import jvp, pointwise, vjp, zero

aten = torch.ops.aten
where = torch.where
LN2, LN10 = math.log(2), math.log(10)

# -- powers, exponentials, logarithms ------------------------------------------------------------------------------

pointwise(aten.add.Scalar, lambda g: g)
pointwise(aten.sub.Scalar, lambda g: g)
pointwise(aten.rsub.Scalar, lambda g, alpha: scaled(g.neg(), conj(alpha)))
pointwise(aten.exp.default, lambda out: out)
pointwise(aten.exp2.default, lambda g, out: g * out.conj() * LN2)
pointwise(aten.expm1.default, lambda out: out + 1)
pointwise(aten.log.default, lambda g, self: g / self.conj())
pointwise(aten.log2.default, lambda g, self: g / (self.conj() * LN2))
pointwise(aten.log10.default, lambda g, self: g / (self.conj() * LN10))
pointwise(aten.log1p.default, lambda g, self: g / (self + 1).conj())
pointwise(aten.sqrt.default, lambda g, out: g / (2 * out.conj()))
pointwise(aten.rsqrt.default, lambda g, out: -0.5 * g * out.pow(3).conj())
pointwise(aten.reciprocal.default, lambda g, out: -g * (out * out).conj())
pointwise(aten.square.default, lambda g, self: g * (2 * self).conj())


def power_base(g, self, exponent):
    """x̄ = ȳ · n xⁿ⁻¹; 0 for n = 0, even where x = 0."""
    if isinstance(exponent, torch.Tensor):
        return where(exponent == 0, 0, g * (exponent * self.pow(exponent - 1)).conj())
    if exponent == 0:
        return torch.zeros_like(g)
    return g * (self * 2 if exponent == 2 else exponent * self.pow(exponent - 1)).conj()


def power_exponent(g, self, exponent, out):
    """n̄ = ȳ · xⁿ log x; 0 where x = 0 and n ≥ 0, though log x is infinite there."""
    real = exponent.real if exponent.is_complex() else exponent
    nonnegative = (real >= 0) & (exponent.imag == 0) if exponent.is_complex() else real >= 0
    if isinstance(self, torch.Tensor):
        base = self.to(out.dtype) if out.is_complex() else self  # a negative number has a complex logarithm
        return g * where((self == 0) & nonnegative, 0, out * base.log()).conj()
    slope = (out * _log(complex(self) if out.is_complex() else self)).conj()
    return where(nonnegative, 0, g * slope) if self == 0 else g * slope


def _log(number):
    """The logarithm of a number as a kernel computes it: infinite at 0, not a number below."""
    if isinstance(number, complex):
        return cmath.log(number) if number else complex(-math.inf, 0)
    return math.log(number) if number > 0 else -math.inf if number == 0 else math.nan


pointwise(aten.pow.Tensor_Scalar, power_base)
pointwise(aten.pow.Tensor_Tensor, self=power_base, exponent=power_exponent)
pointwise(aten.pow.Scalar, exponent=power_exponent)
pointwise(
    aten.logaddexp.default,
    self=lambda g, self, other: g / (1 + (other - self).exp()).conj(),
    other=lambda g, self, other: g / (1 + (self - other).exp()).conj(),
)
pointwise(
    aten.logaddexp2.default,
    self=lambda g, self, other: g / (1 + (other - self).exp2()),
    other=lambda g, self, other: g / (1 + (self - other).exp2()),
)
pointwise(
    aten.xlogy.Tensor,
    self=lambda g, self, other: torch.xlogy(g, other).masked_fill((self == 0) & (other <= 0), 0),
    other=lambda g, self, other: g * self / other,
)
pointwise(aten.xlogy.Scalar_Self, lambda g, self, other: g * self / other)
pointwise(aten.xlogy.Scalar_Other, lambda g, self, other: _xlogy(g, self, other, torch.xlogy, 0))
pointwise(
    aten.special_xlog1py.default,
    self=lambda g, self, other: torch.special.xlog1py(g, other).masked_fill((self == 0) & (other <= -1), 0),
    other=lambda g, self, other: g * self / (other + 1),
)
pointwise(aten.special_xlog1py.self_scalar, lambda g, self, other: g * self / (other + 1))
pointwise(aten.special_xlog1py.other_scalar, lambda g, self, other: _xlogy(g, self, other, torch.special.xlog1py, -1))


def _xlogy(g, self, other, xlogy, pole):
    gradient = xlogy(g, other)
    return gradient if other > pole else gradient.masked_fill(self == 0, 0)


pointwise(
    aten.ldexp.Tensor,
    self=lambda g, other: g * conj(torch.pow(2, other)),
    other=lambda g, out: g * out.conj() * LN2,
)

# -- circles and hyperbolas ----------------------------------------------------------------------------------------

pointwise(aten.sin.default, lambda self: self.cos())
pointwise(aten.cos.default, lambda self: -self.sin())
pointwise(aten.tan.default, lambda out: 1 + out.pow(2))
pointwise(aten.asin.default, lambda self: (1 - self * self).rsqrt())
pointwise(aten.acos.default, lambda self: -(1 - self * self).rsqrt())
pointwise(aten.atan.default, lambda g, self: g / (self * self + 1).conj())
pointwise(aten.sinh.default, lambda self: self.cosh())
pointwise(aten.cosh.default, lambda self: self.sinh())
pointwise(aten.asinh.default, lambda self: (self.pow(2) + 1).rsqrt())
pointwise(aten.acosh.default, lambda self: (self + 1).rsqrt() * (self - 1).rsqrt())
pointwise(aten.atanh.default, lambda g, self: g / (1 - self.pow(2)).conj())
pointwise(
    aten.atan2.default,
    self=lambda g, self, other: g * other / (self * self + other * other),
    other=lambda g, self, other: -g * self / (self * self + other * other),
)
pointwise(
    aten.hypot.default,
    self=lambda g, self, out: g * (self / out),
    other=lambda g, other, out: g * (other / out),
)


def sinc(g, self):
    """y = sin(πx)/(πx), y′ = (πx cos πx − sin πx)/(πx²); 0 at 0."""
    x, square = self * math.pi, self * self * math.pi
    return where(square == 0, 0, g * ((x * x.cos() - x.sin()) / square).conj())


pointwise(aten.sinc.default, sinc)

# -- steps and remainders ------------------------------------------------------------------------------------------

zero(
    aten.ceil.default,
    aten.floor.default,
    aten.round.default,
    aten.round.decimals,
    aten.trunc.default,
    aten.sign.default,
    aten.zero.default,
    aten.div.Scalar_mode,
)
vjp(aten.frexp.Tensor)(lambda g, out: g[0] / out[1].exp2())
jvp(aten.frexp.Tensor)(lambda self_t, out: (self_t / out[1].exp2(), None))
pointwise(aten.heaviside.default, values=lambda g, self: where(self == 0, g, 0))
zero(aten.heaviside.default, arguments="self")
pointwise(aten.frac.default, lambda g: g)
pointwise(aten.fmod.Scalar, lambda g: g)
pointwise(aten.remainder.Scalar, lambda g: g)
pointwise(
    aten.fmod.Tensor, self=lambda g: g, other=lambda g, self, other: -g * torch.div(self, other, rounding_mode="trunc")
)
pointwise(
    aten.remainder.Tensor,
    self=lambda g: g,
    other=lambda g, self, other: -g * torch.div(self, other, rounding_mode="floor"),
)
pointwise(
    aten.div.Tensor_mode,
    self=lambda g, other, rounding_mode: torch.zeros_like(g) if rounding_mode else g / conj(other),
    other=lambda g, self, other, rounding_mode: (
        torch.zeros_like(g) if rounding_mode else -g * ((self / other) / other).conj()
    ),
)
pointwise(aten.nan_to_num.default, lambda self: self.isfinite())  # a product, as in eager: inf · 0 is NaN
pointwise(aten.copysign.Scalar, lambda g, self, out: g * where(self == 0, 0, out / self))
pointwise(aten.copysign.Tensor, lambda g, self, out: g * where(self == 0, 0, out / self))
zero(aten.copysign.Tensor, arguments="other")
pointwise(aten.nextafter.default, lambda g, self, other: where(self != other, g, 0))
zero(aten.nextafter.default, arguments="other")

# -- choices -------------------------------------------------------------------------------------------------------


def clamp_self(g, self, min, max):
    """ȳ where min ≤ x ≤ max."""
    if min is None and max is None:
        return g
    inside = self <= max if min is None else self >= min if max is None else (self >= min) & (self <= max)
    return where(inside, g, 0)


def clamp_low(g, self, min, max):
    return where(self < min if max is None else (self < min) & (min < max), g, 0)


def clamp_high(g, self, min, max):
    return where(self > max if min is None else (self > max) | (max < min), g, 0)


pointwise(aten.clamp.default, clamp_self)
pointwise(aten.clamp.Tensor, self=clamp_self, min=clamp_low, max=clamp_high)
pointwise(aten.clamp_min.default, lambda g, self, min: where(self >= min, g, 0))
pointwise(aten.clamp_max.default, lambda g, self, max: where(self <= max, g, 0))
pointwise(
    aten.clamp_min.Tensor,
    self=lambda g, self, min: where(self >= min, g, 0),
    min=lambda g, self, min: where(self < min, g, 0),
)
pointwise(
    aten.clamp_max.Tensor,
    self=lambda g, self, max: where(self <= max, g, 0),
    max=lambda g, self, max: where(self > max, g, 0),
)


def half_at_ties(g, self, other):
    """The larger and the smaller of two share the gradient where they are equal."""
    return where(self == other, g / 2, g)


pointwise(
    aten.maximum.default,
    self=lambda g, self, other: half_at_ties(g, self, other).masked_fill(self < other, 0),
    other=lambda g, self, other: half_at_ties(g, self, other).masked_fill(self > other, 0),
)
pointwise(
    aten.minimum.default,
    self=lambda g, self, other: half_at_ties(g, self, other).masked_fill(self > other, 0),
    other=lambda g, self, other: half_at_ties(g, self, other).masked_fill(self < other, 0),
)
pointwise(
    aten.fmax.default,
    self=lambda g, self, other: where((self >= other) | other.isnan(), g, 0),
    other=lambda g, self, other: where((self >= other) | other.isnan(), 0, g),
)
pointwise(
    aten.fmin.default,
    self=lambda g, self, other: where((self <= other) | other.isnan(), g, 0),
    other=lambda g, self, other: where((self <= other) | other.isnan(), 0, g),
)

# -- size and direction: not holomorphic, so a tangent is not a gradient backwards ---------------------------------


def direction(g, self, out):
    """x̄ = (ȳ − Re⟨y, ȳ⟩ y) / |x| for y = x/|x|; a real direction does not turn."""
    if not self.is_complex():
        return torch.zeros_like(g)
    size = self.abs()
    return ((g - (g * out.conj()).real * out) / size).masked_fill(size == 0, 0)


vjp(aten.abs.default)(lambda g, self: g * self.sgn())
jvp(aten.abs.default)(lambda self, self_t: (self_t.conj() * self.sgn()).real)
vjp(aten.sgn.default)(direction)
jvp(aten.sgn.default)(lambda self, self_t, out: direction(self_t, self, out))


@vjp(aten.angle.default)
def angle(g, self):
    """x̄ = i x ȳ / |x|²; 0 for a real x, and at 0."""
    if not self.is_complex():
        return torch.zeros_like(g)
    return where(self == 0, 0, g * self * 1j / self.abs().pow(2))


@jvp(aten.angle.default)
def angle_jvp(self, self_t):
    if not self.is_complex():
        return torch.zeros_like(self)
    return where(self == 0, 0, (self_t.conj() * self * 1j / self.abs().pow(2)).real)


@vjp(aten.polar.default)
def polar(g, out):
    return (g.conj() * out.sgn()).real, (g.conj() * out * 1j).real


@jvp(aten.polar.default)
def polar_jvp(abs_t, angle, angle_t, out):
    return torch.polar(torch.ones_like(angle), angle) * abs_t + out * 1j * angle_t
