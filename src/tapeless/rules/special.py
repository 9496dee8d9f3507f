"""Special functions: error functions, gamma and its kin, Bessel functions, entropies."""

from __future__ import annotations

import math

import torch

from tapeless.rules.registry import pointwise

aten = torch.ops.aten
where = torch.where
SQRT_PI, SQRT_2PI = math.sqrt(math.pi), math.sqrt(2 * math.pi)

# -- the bell curve ------------------------------------------------------------------------------------------------

pointwise(aten.erf.default, lambda self: (-self.pow(2)).exp() * (2 / SQRT_PI))
pointwise(aten.erfc.default, lambda self: (-self.pow(2)).exp() * (-2 / SQRT_PI))
pointwise(aten.special_erfcx.default, lambda self, out: 2 * self * out - 2 / SQRT_PI)
pointwise(aten.erfinv.default, lambda out: out.pow(2).exp() * (SQRT_PI / 2))
pointwise(aten.special_ndtri.default, lambda out: (out.square() / 2).exp() * SQRT_2PI)
pointwise(aten.special_log_ndtr.default, lambda self, out: (-(out + self.pow(2) / 2)).exp() / SQRT_2PI)
pointwise(aten.special_entr.default, lambda self: -(1 + self.log()))

# -- gamma and zeta ------------------------------------------------------------------------------------------------

pointwise(aten.lgamma.default, lambda self: torch.digamma(self))
pointwise(aten.digamma.default, lambda self: torch.polygamma(1, self))
pointwise(aten.polygamma.default, lambda n, self: torch.polygamma(n + 1, self))
pointwise(aten.special_zeta.default, other=lambda self, other: -self * torch.special.zeta(self + 1, other))
pointwise(aten.special_zeta.self_scalar, lambda self, other: -self * torch.special.zeta(self + 1.0, other))


def gamma_density(self, other):
    """xᵃ⁻¹ e⁻ˣ / Γ(a): how the regularised incomplete gamma function grows with its upper limit x."""
    return ((self - 1) * other.log() - other - self.lgamma()).exp()


pointwise(aten.igamma.default, other=gamma_density)
pointwise(aten.igammac.default, other=lambda self, other: -gamma_density(self, other))
pointwise(
    aten.mvlgamma.default,
    lambda self, p: (self.unsqueeze(-1) - torch.arange(p, dtype=self.dtype, device=self.device) / 2).digamma().sum(-1),
)

# -- Bessel functions ----------------------------------------------------------------------------------------------


def over_x(value, self, at_zero):
    """value(x), which divides by x, for an x that is not 0; `at_zero` where it is."""
    tiny = self.abs() <= torch.finfo(self.dtype).eps
    return where(tiny, at_zero, value(where(tiny, 1, self)))


pointwise(aten.i0.default, lambda self: torch.special.i1(self))
pointwise(aten.special_i0e.default, lambda self, out: torch.special.i1e(self) - self.sgn() * out)
pointwise(aten.special_i1.default, lambda self, out: over_x(lambda x: torch.special.i0(x) - out / x, self, 0.5))
pointwise(
    aten.special_i1e.default,
    lambda self, out: over_x(lambda x: torch.special.i0e(x) - out * (x.sgn() + x.reciprocal()), self, 0.5),
)
pointwise(aten.special_bessel_j0.default, lambda self: -torch.special.bessel_j1(self))
pointwise(
    aten.special_bessel_j1.default,
    lambda self, out: over_x(lambda x: torch.special.bessel_j0(x) - out / x, self, 0.5),
)
pointwise(aten.special_bessel_y0.default, lambda self: -torch.special.bessel_y1(self))
pointwise(aten.special_bessel_y1.default, lambda self, out: torch.special.bessel_y0(self) - out / self)
pointwise(aten.special_modified_bessel_i0.default, lambda self: torch.special.modified_bessel_i1(self))
pointwise(
    aten.special_modified_bessel_i1.default,
    lambda self, out: over_x(lambda x: torch.special.modified_bessel_i0(x) - out / x, self, 0.5),
)
pointwise(aten.special_modified_bessel_k0.default, lambda self: -torch.special.modified_bessel_k1(self))
pointwise(
    aten.special_modified_bessel_k1.default,
    lambda self, out: -torch.special.modified_bessel_k0(self) - out / self,
)
pointwise(
    aten.special_spherical_bessel_j0.default,
    lambda x, out: over_x(lambda x: (x.cos() - out) / x, x, 0),
)
