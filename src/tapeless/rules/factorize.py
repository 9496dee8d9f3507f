"""Factors of a matrix: LU, QR, eigenvectors, singular vectors."""

from __future__ import annotations

import torch

from tapeless.rules.linalg import diagonal, solve, solve_triangular, with_diagonal
from tapeless.rules.registry import jvp, vjp

aten = torch.ops.aten

# -- LU ------------------------------------------------------------------------------------------------------------


def _lu(L_bar, U_bar, L, U):
    """Pᵀ Ā = L⁻ᴴ (tril(Lᴴ L̄, −1) + triu(Ū Uᴴ)) U⁻ᴴ of the square part; what is beyond it depends on one factor only."""
    rows, columns, k = L.shape[-2], U.shape[-1], L.shape[-1]
    square_L, square_U = L.narrow(-2, 0, k), U.narrow(-1, 0, k)
    lower = square_L.mH @ L_bar.narrow(-2, 0, k)
    upper = U_bar.narrow(-1, 0, k) @ square_U.mH
    right, below = U_bar.narrow(-1, k, columns - k), L_bar.narrow(-2, k, rows - k)
    if columns > k:
        lower = lower - right @ U.narrow(-1, k, columns - k).mH
    if rows > k:
        upper = upper - L.narrow(-2, k, rows - k).mH @ below
    inner = solve_triangular(square_U.mH, lower.tril(-1) + upper.triu(), upper=False, left=False)
    bar = solve_triangular(square_L.mH, inner, upper=True, unitriangular=True)
    if columns > k:
        bar = torch.cat([bar, solve_triangular(square_L.mH, right, upper=True, unitriangular=True)], -1)
    if rows > k:
        bar = torch.cat([bar, solve_triangular(square_U.mH, below, upper=False, left=False)], -2)
    return bar


def _lu_jvp(A_t, L, U):
    """L̇ = L tril(Φ, −1) and U̇ = triu(Φ) U for Φ = L⁻¹ PᵀȦ U⁻¹ of the square part. `A_t` comes as PᵀȦ."""
    rows, columns, k = L.shape[-2], U.shape[-1], L.shape[-1]
    square_L, square_U = L.narrow(-2, 0, k), U.narrow(-1, 0, k)
    inner = solve_triangular(square_U, A_t.narrow(-2, 0, k).narrow(-1, 0, k), upper=True, left=False)
    inner = solve_triangular(square_L, inner, upper=False, unitriangular=True)
    lower, upper = inner.tril(-1), inner.triu()
    L_t, U_t = square_L @ lower, upper @ square_U
    if columns > k:
        rest = solve_triangular(square_L, A_t.narrow(-1, k, columns - k), upper=False, unitriangular=True)
        U_t = torch.cat([U_t, rest - lower @ U.narrow(-1, k, columns - k)], -1)
    if rows > k:
        rest = solve_triangular(square_U, A_t.narrow(-2, k, rows - k), upper=True, left=False)
        L_t = torch.cat([L_t, rest - L.narrow(-2, k, rows - k) @ upper], -2)
    return L_t, U_t


def _unpacked(LU):
    k = torch.sym_min(LU.shape[-2], LU.shape[-1])
    L = LU.narrow(-1, 0, k).tril(-1)
    return L.diagonal_scatter(torch.ones_like(diagonal(L)), 0, -2, -1), LU.narrow(-2, 0, k).triu()


def lu_factors(A):
    """The factors in one matrix, and the pivots."""
    return torch.linalg.lu_factor_ex(A)[:2]


def lu_gradient(g, LU, pivots, pivot=True):
    """Ā from the cotangent of LU."""
    (L, U), k = _unpacked(LU), torch.sym_min(g.shape[-2], g.shape[-1])
    bar = _lu(g.narrow(-1, 0, k).tril(-1), g.narrow(-2, 0, k).triu(), L, U)
    return torch.lu_unpack(LU, pivots, unpack_data=False)[0] @ bar if pivot else bar


def lu_tangent(A_t, LU, pivots, pivot=True):
    L, U = _unpacked(LU)
    if pivot:
        A_t = torch.lu_unpack(LU, pivots, unpack_data=False)[0].mT @ A_t
    return _packed(*_lu_jvp(A_t, L, U))


vjp(aten.linalg_lu_factor_ex.default)(lambda g, pivot, out: lu_gradient(g[0], out[0], out[1], pivot))
jvp(aten.linalg_lu_factor_ex.default)(lambda A_t, pivot, out: (lu_tangent(A_t, out[0], out[1], pivot), None, None))


def _packed(lower, upper):
    """The two factors of a matrix, or their tangents, in one: without the diagonal of the lower one."""
    rows, columns = lower.shape[-2], upper.shape[-1]
    lower = aten.constant_pad_nd(lower.tril(-1), [0, columns - lower.shape[-1]])
    return lower + aten.constant_pad_nd(upper.triu(), [0, 0, 0, rows - upper.shape[-2]])


@vjp(aten.linalg_lu.default)
def lu(g, pivot, out):
    P, L, U = out
    bar = _lu(g[1], g[2], L, U)
    return P @ bar if pivot else bar


@jvp(aten.linalg_lu.default)
def lu_jvp(A_t, pivot, out):
    P, L, U = out
    return None, *_lu_jvp(P.mT @ A_t if pivot else A_t, L, U)


@vjp(aten.lu_unpack.default, wrt="LU_data")
def lu_unpack(g, unpack_data):
    return _packed(g[1], g[2]) if unpack_data else None


@jvp(aten.lu_unpack.default)
def lu_unpack_jvp(LU_data_t, unpack_data):
    if not unpack_data:
        return None, None, None
    k = torch.sym_min(LU_data_t.shape[-2], LU_data_t.shape[-1])
    return None, LU_data_t.narrow(-1, 0, k).tril(-1), LU_data_t.narrow(-2, 0, k).triu()


@vjp(aten.linalg_lu_solve.default, wrt="B", linear_in="B")
def lu_solve(g, LU, pivots, left, adjoint):
    return torch.linalg.lu_solve(LU, pivots, g, left=left, adjoint=not adjoint)


@vjp(aten.linalg_lu_solve.default, wrt="LU")
def lu_solve_factors(g, LU, pivots, left, adjoint, out):
    """PLUX = B: with W = U⁻ᴴX̄, Ū = −WXᴴ and L̄ = −(L⁻ᴴW)(UX)ᴴ; from the right: the adjoint from the left."""
    X, bar, adjoint = (out, g, adjoint) if left else (out.mH, g.mH, not adjoint)
    L, U = _unpacked(LU)
    if not adjoint:
        W = solve_triangular(U.mH, bar, upper=False)
        upper, lower = W @ X.mH, solve_triangular(L.mH, W, upper=True, unitriangular=True) @ (U @ X).mH
    else:
        P = torch.lu_unpack(LU, pivots, unpack_data=False)[0]
        Z, W = P.mT @ X, solve_triangular(L, P.mT @ bar, upper=False, unitriangular=True)
        upper, lower = (L.mH @ Z) @ solve_triangular(U, W, upper=True).mH, Z @ W.mH
    return -(upper.triu() + lower.tril(-1))


@jvp(aten.linalg_lu_solve.default)
def lu_solve_jvp(LU, LU_t, pivots, B_t, left, adjoint, out):
    """X = A⁻¹B: Ẋ = A⁻¹(Ḃ − ȦX), Ȧ = P(L̇U + LU̇)."""
    (L, U), P = _unpacked(LU), torch.lu_unpack(LU, pivots, unpack_data=False)[0]
    A_t = P @ (LU_t.tril(-1) @ U + L @ LU_t.triu())
    A_t = A_t.mH if adjoint else A_t
    return torch.linalg.lu_solve(LU, pivots, B_t - (A_t @ out if left else out @ A_t), left=left, adjoint=adjoint)


# -- eigenvalues and singular values -------------------------------------------------------------------------------


def _gaps(values):
    """vⱼ − vᵢ off the diagonal, 1 on it."""
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    return with_diagonal(gaps, torch.ones_like(values))


@vjp(aten._linalg_eigh.default)
def eigh(g, out):
    """Ā = V (diag λ̄ + ½ skew(VᴴV̄) / (λⱼ − λᵢ)) Vᴴ."""
    values, V = out
    inner = with_diagonal(_skew(V.mH @ g[1]) / (2 * _gaps(values)), g[0].to(V.dtype))
    return V @ (inner @ V.mH)


@jvp(aten._linalg_eigh.default)
def eigh_jvp(A_t, out):
    values, V = out
    inner = V.mH @ (A_t @ V)
    turn = with_diagonal(inner / _gaps(values), torch.zeros_like(values, dtype=V.dtype))
    slope = diagonal(inner)
    return (slope.real if slope.is_complex() else slope), V @ turn


@vjp(aten.linalg_eig.default)
def eig(g, out):
    """Ā = V⁻ᴴ (diag λ̄ + (VᴴV̄ − VᴴV Re diag(VᴴV̄)) / (λⱼ − λᵢ)*) Vᴴ, for eigenvectors of length 1."""
    values, V = out
    inner = V.mH @ g[1]
    inner = (inner - (V.mH @ V) * diagonal(inner).real.unsqueeze(-2)) / _gaps(values).conj()
    return solve(V.mH, with_diagonal(inner, g[0]) @ V.mH)


@jvp(aten.linalg_eig.default)
def eig_jvp(self_t, out):
    values, V = out
    inner = solve(V, self_t.to(V.dtype) @ V)
    turn = V @ with_diagonal(inner / _gaps(values), torch.zeros_like(values))
    return diagonal(inner), turn - V * (V.conj() * turn).sum(-2, keepdim=True).real


@vjp(aten._linalg_svd.default)
def svd(g, full_matrices, out):
    """Ā = U (skew(UᴴŪ)/E S + S skew(VᴴV̄)/E + diag S̄) Vᴴ, E = σⱼ² − σᵢ², and what leaves the spaces of U and V."""
    k = out[1].shape[-1]
    (U, S, Vh), (U_bar, S_bar, Vh_bar) = out, g
    if full_matrices:
        U, U_bar, Vh, Vh_bar = U.narrow(-1, 0, k), U_bar.narrow(-1, 0, k), Vh.narrow(-2, 0, k), Vh_bar.narrow(-2, 0, k)
    gaps = (S.unsqueeze(-2) - S.unsqueeze(-1)) * (S.unsqueeze(-2) + S.unsqueeze(-1))
    gaps = with_diagonal(gaps, torch.ones_like(S))
    in_U, in_V = U.mH @ U_bar, Vh @ Vh_bar.mH
    inner = _skew(in_U) / gaps * S.unsqueeze(-2) + S.unsqueeze(-1) * (_skew(in_V) / gaps)
    inner = inner + torch.diag_embed(S_bar)
    if U.is_complex():  # a phase that U and V share
        inner = inner + torch.diag_embed(1j * diagonal(in_U).imag / S)
    bar = U @ (inner @ Vh)
    if U.shape[-2] > k:  # else its space is everything, and σ may be zero
        bar = bar + (U_bar - U @ in_U) @ (Vh / S.unsqueeze(-1))
    if Vh.shape[-1] > k:
        bar = bar + (U / S.unsqueeze(-2)) @ (Vh_bar - in_V.mH @ Vh)
    return bar


def _skew(A):
    return A - A.mH


@vjp(aten.linalg_qr.default)
def qr(g, A, out):
    """Ā = (Q̄ + Q sym(R R̄ᴴ − Q̄ᴴQ)) R⁻ᴴ; columns beyond the square part give Q R̄ and add to Q̄."""
    (Q, R), (Q_bar, R_bar) = out, g
    k, more = Q.shape[-1], R.shape[-1] - Q.shape[-1]
    beyond = R_bar.narrow(-1, k, more)
    if more:
        Q_bar = Q_bar + A.narrow(-1, k, more) @ beyond.mH
        R, R_bar = R.narrow(-1, 0, k), R_bar.narrow(-1, 0, k)
    lower = (R @ R_bar.mH - Q_bar.mH @ Q).tril()
    both = with_diagonal(lower + lower.mH, diagonal(lower).real)
    bar = solve_triangular(R.mH, Q_bar + Q @ both, upper=False, left=False)
    return torch.cat([bar, Q @ beyond], -1) if more else bar


@jvp(aten.linalg_qr.default)
def qr_jvp(A_t, out):
    """With Φ = QᴴȦR⁻¹ and the antihermitian Ω that makes U = Φ − Ω triangular, of a real diagonal: Ṙ = U R and
    Q̇ = ȦR⁻¹ − Q U. If Q is square, Ṙ = QᴴȦ − Ω R and Q̇ = Q Ω, which is finite where Φ is not."""
    Q, R = out
    k = Q.shape[-1]
    square = R.narrow(-1, 0, k)
    scaled = solve_triangular(square, A_t.narrow(-1, 0, k), upper=True, left=False)
    inner = Q.mH @ scaled
    lower = inner.tril(-1)
    if Q.shape[-2] > k:
        upper = with_diagonal(inner.triu(1) + lower.mH, diagonal(inner).real)
        return scaled - Q @ upper, upper @ square
    turn = with_diagonal(lower - lower.mH, diagonal(inner) - diagonal(inner).real)
    return Q @ turn, Q.mH @ A_t - turn @ R


@jvp(aten._linalg_svd.default)
def svd_jvp(A_t, full_matrices, out):
    """With Φ = UᴴȦV: σ̇ = Re diag Φ; U and V turn by the antihermitian parts, and leave their spaces by what is left."""
    U, S, Vh = out
    k = S.shape[-1]
    if full_matrices:
        U, Vh = U.narrow(-1, 0, k), Vh.narrow(-2, 0, k)
    inner = U.mH @ (A_t @ Vh.mH)
    gaps = with_diagonal((S.unsqueeze(-2) - S.unsqueeze(-1)) * (S.unsqueeze(-2) + S.unsqueeze(-1)), torch.ones_like(S))
    low, high = S.unsqueeze(-1), S.unsqueeze(-2)
    turn_U, turn_V = (inner * high + low * inner.mH) / gaps, (low * inner + inner.mH * high) / gaps
    slope = diagonal(inner)
    phase = 1j * slope.imag / S if slope.is_complex() else torch.zeros_like(S)
    turn_U, turn_V = with_diagonal(turn_U, phase), with_diagonal(turn_V, torch.zeros_like(phase))
    U_t, Vh_t = U @ turn_U, turn_V.mH @ Vh
    if U.shape[-2] > k:  # else its space is everything, and σ may be zero
        U_t = U_t + (A_t @ Vh.mH - U @ inner) / S.unsqueeze(-2)
    if Vh.shape[-1] > k:
        Vh_t = Vh_t + (U.mH @ A_t - inner @ Vh) / S.unsqueeze(-1)
    return U_t, (slope.real if slope.is_complex() else slope), Vh_t
