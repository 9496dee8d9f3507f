"""Determinants and solutions of linear systems: the operators that return the factors they found as a by-product.

Torch takes these factors for constants. They are none: a program that differentiates with torch's own transforms reads
them, and is differentiated again. The matrix is factorized anew, so that nobody saves them for that.
"""

from __future__ import annotations

import torch

from tapeless.rules.factorize import lu_factors, lu_gradient, lu_tangent
from tapeless.rules.linalg import as_matrices, diagonal, solve
from tapeless.rules.registry import jvp, vjp

aten = torch.ops.aten
where = torch.where


# -- by-products ---------------------------------------------------------------------------------------------------


def is_transposed(A):
    """Is it the transpose that the determinant factorizes? It is the one that LAPACK takes without a copy."""
    return A.is_contiguous() and not A.is_complex()


def factors_gradient(g, A, transposed):
    bar = lu_gradient(g, *lu_factors(A.mT if transposed else A))
    return bar.mT if transposed else bar


def factors_tangent(A, A_t, transposed):
    return lu_tangent(A_t.mT, *lu_factors(A.mT)) if transposed else lu_tangent(A_t, *lu_factors(A))


# -- determinants --------------------------------------------------------------------------------------------------


@vjp(aten._linalg_det.default)
def det(g, A, out):
    """Ā = ȳ · conj(det A) · A⁻ᴴ."""
    bar = _regular_solve(A, _multiple_of_identity(g[0] * out[0].conj(), A), adjoint=True)
    return bar + factors_gradient(g[1], A, is_transposed(A))


@jvp(aten._linalg_det.default)
def det_jvp(A, A_t, out):
    tangent = out[0] * diagonal(_regular_solve(A, A_t)).sum(-1)
    return tangent, factors_tangent(A, A_t, is_transposed(A)), None


def _multiple_of_identity(factor, A):
    return torch.diag_embed(factor.unsqueeze(-1).expand(A.shape[:-1]))


def _regular_solve(A, B, adjoint=False):
    """A⁻¹B, with a small number for a pivot that is 0: the determinant is smooth where A is singular."""
    factors, pivots, _ = torch.linalg.lu_factor_ex(A)
    small = where(diagonal(factors) == 0, torch.finfo(A.dtype).eps, 0)
    return torch.linalg.lu_solve(factors + torch.diag_embed(small), pivots, B, adjoint=adjoint)


@vjp(aten._linalg_slogdet.default)
def slogdet(g, A, out):
    """Ā = (l̄ − i Im(s̄* s)) A⁻ᴴ: a complex determinant also turns."""
    slope = g[1] - 1j * (g[0].conj() * out[0]).imag if A.is_complex() else g[1]
    bar = slope.unsqueeze(-1).unsqueeze(-1) * torch.linalg.inv_ex(A)[0].mH  # a real sign alone: no gradient
    return bar + factors_gradient(g[2], A, is_transposed(A))


@jvp(aten._linalg_slogdet.default)
def slogdet_jvp(A, A_t, out):
    trace, factors = diagonal(solve(A, A_t)).sum(-1), factors_tangent(A, A_t, is_transposed(A))
    if not A.is_complex():
        return torch.zeros_like(out[0]), trace, factors, None
    return 1j * trace.imag * out[0], trace.real, factors, None


# -- systems of equations ------------------------------------------------------------------------------------------


@vjp(aten._linalg_solve_ex.default)
def solve_ex(g, A, B, left, out):
    """AX = B: B̄ = A⁻ᴴ X̄ and Ā = −B̄ Xᴴ; XA = B: B̄ = X̄ A⁻ᴴ and Ā = −Xᴴ B̄."""
    B_bar = solve(A.mH, g[0], left)
    bar, X = as_matrices(A, B_bar, out[0]) if left else (B_bar, out[0])
    return -(bar @ X.mH if left else X.mH @ bar) + factors_gradient(g[1], A, transposed=False), B_bar


@jvp(aten._linalg_solve_ex.default)
def solve_ex_jvp(A, A_t, B_t, left, out):
    (X,) = as_matrices(A, out[0]) if left else (out[0],)
    change = (A_t @ X if left else X @ A_t).reshape(out[0].shape)
    return solve(A, B_t - change, left), factors_tangent(A, A_t, transposed=False), None, None
