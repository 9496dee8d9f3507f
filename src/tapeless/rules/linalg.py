"""Inverses, exponentials, triangular systems, Cholesky factors.

A rule uses the factors an operator returns as differentiable, and factorizes again rather than use a by-product: so its
second order is right too.
"""

from __future__ import annotations

import torch

from tapeless.rules.registry import jvp, nondifferentiable, vjp

aten = torch.ops.aten
where = torch.where


def solve(A, B, left=True):
    """A⁻¹B, or BA⁻¹, without a check that waits for the result."""
    return torch.linalg.solve_ex(A, B, left=left)[0]


def solve_triangular(A, B, upper, left=True, unitriangular=False):
    return torch.linalg.solve_triangular(A, B, upper=upper, left=left, unitriangular=unitriangular)


def diagonal(A):
    return A.diagonal(0, -2, -1)


def with_diagonal(A, d):
    return A.diagonal_scatter(d.expand(A.shape[:-1]), 0, -2, -1)


# -- inverses ------------------------------------------------------------------------------------------------------


@vjp(aten.linalg_inv_ex.default)
def inv(g, out):
    """Ā = −A⁻ᴴ ȳ A⁻ᴴ."""
    return -(out[0].mH @ (g[0] @ out[0].mH))


@jvp(aten.linalg_inv_ex.default)
def inv_jvp(A_t, out):
    return -(out[0] @ A_t @ out[0]), None


@vjp(aten.linalg_pinv.atol_rtol_tensor, wrt="self")
def pinv(g, self, out):
    """Ā = −Pᴴ ȳ Pᴴ + (I − AP) ȳᴴ PPᴴ + PᴴP ȳᴴ (I − PA) for P = A⁺."""
    A, P, left, right = self, out, g.mH @ (out @ out.mH), (out.mH @ out) @ g.mH
    return -(P.mH @ (g @ P.mH)) + (left - A @ (P @ left)) + (right - (right @ P) @ A)


nondifferentiable(aten.linalg_pinv.atol_rtol_tensor, arguments=("atol", "rtol"))


@jvp(aten.linalg_pinv.atol_rtol_tensor)
def pinv_jvp(self, self_t, out):
    A, P, left, right = self, out, (out @ out.mH) @ self_t.mH, self_t.mH @ (out.mH @ out)
    return -(P @ (self_t @ P)) + (left - (left @ A) @ P) + (right - P @ (A @ right))


# -- the exponential -----------------------------------------------------------------------------------------------


def matrix_exp_derivative(A, direction):
    """The upper right block of exp of [[A, direction], [0, A]]."""
    n = A.shape[-1]
    above, below = torch.cat([A, direction], -1), torch.cat([torch.zeros_like(A), A], -1)
    return torch.linalg.matrix_exp(torch.cat([above, below], -2)).narrow(-2, 0, n).narrow(-1, n, n)


vjp(aten.linalg_matrix_exp.default)(lambda g, self: matrix_exp_derivative(self.mH, g))
jvp(aten.linalg_matrix_exp.default)(lambda self, self_t: matrix_exp_derivative(self, self_t))

# -- systems of equations ------------------------------------------------------------------------------------------


def as_matrices(A, *vectors):
    """Right-hand sides of A that may be one column each, as matrices."""
    single = vectors[0].dim() == 1 or (vectors[0].dim() == A.dim() - 1 and vectors[0].shape == A.shape[:-1])
    return [v.unsqueeze(-1) if single else v for v in vectors]


@vjp(aten.linalg_solve_triangular.default, linear_in="B")
def triangular(g, self, upper, left, unitriangular, out):
    """As `solve_ex`, of the triangle that is read."""
    B_bar = solve_triangular(self.mH, g, not upper, left, unitriangular)
    A_bar = -(B_bar @ out.mH if left else out.mH @ B_bar)
    return _triangle(A_bar, upper, unitriangular), B_bar


@jvp(aten.linalg_solve_triangular.default)
def triangular_jvp(self, self_t, B_t, upper, left, unitriangular, out):
    change = _triangle(self_t, upper, unitriangular)
    rest = B_t - (change @ out if left else out @ change)
    return solve_triangular(self, rest, upper, left, unitriangular)


def _triangle(A, upper, unitriangular=False):
    return A.triu(int(unitriangular)) if upper else A.tril(-int(unitriangular))


@vjp(aten.triangular_solve.default)
def triangular_solve(g, A, upper, transpose, unitriangular, out):
    """Two results: the solution, and a copy of A."""
    given = A.mT.conj() if not transpose else A.conj()
    B_bar = solve_triangular(given, g[0], upper == transpose, True, unitriangular)
    A_bar = -(out[0].conj() @ B_bar.mT if transpose else B_bar @ out[0].mH)
    return B_bar, _triangle(A_bar, upper, unitriangular) + g[1]


@jvp(aten.triangular_solve.default)
def triangular_solve_jvp(self_t, A, A_t, upper, transpose, unitriangular, out):
    change = _triangle(A_t, upper, unitriangular)
    rest = self_t - (change.mT if transpose else change) @ out[0]
    return solve_triangular(A.mT if transpose else A, rest, upper != transpose, True, unitriangular), A_t


@vjp(aten.linalg_lstsq.default)
def lstsq(g, self, b, out):
    """X = A⁺B: B̄ = A⁺ᴴ X̄, and Ā by the rule of A⁺ from X̄ Bᴴ; and of the residuals |AX − B|², where there are any."""
    P = torch.linalg.pinv(self)
    B, X, bar = as_matrices(self, b, out[0], g[0])
    A_bar, B_bar = pinv(bar @ B.mH, self, P), P.mH @ bar
    if out[1].numel():
        gap = 2 * g[1].unsqueeze(-2) * (self @ X - B)
        A_bar, B_bar = A_bar + gap @ X.mH, B_bar - gap
    return A_bar, B_bar.reshape(b.shape)


@jvp(aten.linalg_lstsq.default)
def lstsq_jvp(self, self_t, b, b_t, out):
    P = torch.linalg.pinv(self)
    B, B_t, X = as_matrices(self, b, b_t, out[0])
    X_t = pinv_jvp(self, self_t, P) @ B + P @ B_t
    gap, gap_t = self @ X - B, self_t @ X + self @ X_t - B_t
    residual = 2 * (gap.conj() * gap_t).real.sum(-2) if out[1].numel() else None
    return X_t.reshape(out[0].shape), residual, None, None


# -- Cholesky ------------------------------------------------------------------------------------------------------


def _cholesky(g, L):
    """Ā = ½ L⁻ᴴ Φ L⁻¹, Φ the lower half of Lᴴ L̄, mirrored."""
    lower = (L.mH @ g).tril()
    both = lower + lower.tril(-1).mH
    return solve_triangular(L.mH, solve_triangular(L, both, upper=False, left=False), upper=True) / 2


def _cholesky_jvp(A_t, L):
    """L̇ = L Φ, Φ the lower half of L⁻¹ Ȧ L⁻ᴴ with half its diagonal."""
    inner = solve_triangular(L, solve_triangular(L.mH, A_t, upper=True, left=False), upper=False).tril()
    return L @ with_diagonal(inner, diagonal(inner) / 2)


@vjp(aten.linalg_cholesky_ex.default)
def cholesky_ex(g, upper, out):
    return _cholesky(g[0].mH, out[0].mH) if upper else _cholesky(g[0], out[0])


@jvp(aten.linalg_cholesky_ex.default)
def cholesky_ex_jvp(self_t, upper, out):
    return (_cholesky_jvp(self_t, out[0].mH).mH if upper else _cholesky_jvp(self_t, out[0])), None


@vjp(aten.cholesky.default)
def cholesky(g, upper, out):
    return _cholesky(g.mH, out.mH) if upper else _cholesky(g, out)


@jvp(aten.cholesky.default)
def cholesky_jvp(self_t, upper, out):
    return _cholesky_jvp(self_t, out.mH).mH if upper else _cholesky_jvp(self_t, out)


@vjp(aten.cholesky_inverse.default)
def cholesky_inverse(g, self, upper, out):
    """y = (LLᴴ)⁻¹: L̄ = −y (ȳ + ȳᴴ) y L, of the triangle that is read. As in eager, L̄ is not halved."""
    L, inner = _triangle(self, upper), out @ ((g + g.mH) @ out)
    return -(L @ inner if upper else inner @ L)


@jvp(aten.cholesky_inverse.default)
def cholesky_inverse_jvp(self, self_t, upper, out):
    return -(out @ (_squared_jvp(self, self_t, upper) @ out))


def _squared_jvp(L, L_t, upper):
    """The tangent of LLᴴ, or of UᴴU."""
    L = _triangle(L, upper)
    product = L_t.mH @ L if upper else L_t @ L.mH
    return product + product.mH


@vjp(aten.cholesky_solve.default)
def cholesky_solve(g, self, input2, upper, out):
    """X = (LLᴴ)⁻¹B: B̄ = (LLᴴ)⁻¹ X̄, L̄ = −(B̄Xᴴ + XB̄ᴴ) L."""
    B_bar = torch.cholesky_solve(g, input2, upper)
    product = B_bar @ out.mH
    product = product + product.mH
    L = _triangle(input2, upper)
    return B_bar, -(L @ product if upper else product @ L)


@jvp(aten.cholesky_solve.default)
def cholesky_solve_jvp(self_t, input2, input2_t, upper, out):
    return torch.cholesky_solve(self_t - _squared_jvp(input2, input2_t, upper) @ out, input2, upper)
