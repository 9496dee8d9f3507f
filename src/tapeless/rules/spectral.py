"""Fourier transforms, all linear. The transpose (with conjugation) of a transform is the opposite, unnormalized one."""

from __future__ import annotations

import torch

from tapeless.rules.registry import linear

aten = torch.ops.aten


@linear(aten._fft_c2c.default)
def fft_c2c(g, dim, normalization, forward):
    """x̄ = F* ȳ: the transform in the other direction."""
    return aten._fft_c2c(g, dim, normalization, not forward)


@linear(aten._fft_r2c.default)
def fft_r2c(g, self, dim, normalization, onesided):
    """x̄ = Re F* ȳ. Of a one-sided result only half of the frequencies were kept: the others get no cotangent."""
    if onesided:
        missing = self.shape[dim[-1]] - g.shape[dim[-1]]
        g = aten.constant_pad_nd(g, _padding(g, dim[-1], missing))
    return torch.real(aten._fft_c2c(g, dim, normalization, False))


@linear(aten._fft_c2r.default)
def fft_c2r(g, dim, normalization, last_dim_size):
    """x̄ = F ȳ on the frequencies given, those that stand for their mirror images too being counted twice."""
    spectrum = aten._fft_r2c(g, dim, normalization, True)
    doubled = last_dim_size - spectrum.shape[dim[-1]]
    middle = spectrum.narrow(dim[-1], 1, doubled)
    rest = spectrum.shape[dim[-1]] - 1 - doubled
    parts = [spectrum.narrow(dim[-1], 0, 1), middle * 2, spectrum.narrow(dim[-1], 1 + doubled, rest)]
    return torch.cat(parts, dim[-1])


def _padding(g, dim, missing):
    """For `constant_pad_nd`: `missing` zeros at the end of `dim`."""
    return [0, 0] * (g.dim() - 1 - dim % g.dim()) + [0, missing]
