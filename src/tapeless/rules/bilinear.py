"""Products: elementwise, of matrices and vectors, and their sums with a third term."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from tapeless.rules.helpers import conj, scaled
from tapeless.rules.registry import bilinear, jvp, pointwise, vjp

aten = torch.ops.aten

# -- elementwise ---------------------------------------------------------------------------------------------------

bilinear(aten.mul.Tensor)(lambda g, self, other: (g * conj(other), g * conj(self)))

pointwise(
    aten.div.Tensor,
    linear_in="self",
    self=lambda g, other: g / conj(other),
    other=lambda g, self, other: -g * ((self / other) / other).conj(),
)
pointwise(
    aten.addcmul.default,
    self=lambda g: g,
    tensor1=lambda g, tensor2, value: g * scaled(tensor2, value).conj(),
    tensor2=lambda g, tensor1, value: g * scaled(tensor1, value).conj(),
)
pointwise(
    aten.addcdiv.default,
    self=lambda g: g,
    tensor1=lambda g, tensor2, value: g * (value / tensor2).conj(),
    tensor2=lambda g, tensor1, tensor2, value: -g * (value * tensor1 / (tensor2 * tensor2)).conj(),
)
pointwise(
    aten.lerp.Tensor,
    self=lambda g, weight: g * (1 - weight).conj(),
    end=lambda g, weight: g * weight.conj(),
    weight=lambda g, self, end: g * (end - self).conj(),
)

# -- matrices ------------------------------------------------------------------------------------------------------

# Note [Gradients lie as their matrices do]
# A product of matrices can be computed as itself or as the transpose of the transposed product. The gradient of one
# that lies column by column (the transposed weight of a linear layer) is computed transposed, so that it lies as its
# matrix does: the weight's gradient is then contiguous, and no copy is needed to accumulate it.


def by_columns(x):
    return statically_known_true(x.stride(0) == 1) and statically_known_true(x.stride(1) == x.shape[0])


def left_gradient(g, left, right):
    """L̄ = ȳ Rᴴ. Note [Gradients lie as their matrices do]."""
    return right.conj().mm(g.t()).t() if by_columns(left) else g.mm(right.t().conj())


def right_gradient(g, left, right):
    """R̄ = Lᴴ ȳ. Note [Gradients lie as their matrices do]."""
    return g.t().mm(left.conj()).t() if by_columns(right) else left.t().conj().mm(g)


@bilinear(aten.mm.default)
def mm(g, self, mat2):
    return left_gradient(g, self, mat2), right_gradient(g, self, mat2)


bilinear(aten.bmm.default)(lambda g, self, mat2: (g.bmm(mat2.mH), self.mH.bmm(g)))
bilinear(aten.mv.default)(lambda g, self, vec: (torch.outer(g, vec.conj()), self.mH.mv(g)))
bilinear(aten.dot.default)(lambda g, self, tensor: (g * tensor.conj(), g * self.conj()))
bilinear(aten.vdot.default)(lambda g, self, other: (g.conj() * other, g * self))
bilinear(aten.linalg_cross.default)(
    lambda g, self, other, dim: (
        torch.linalg.cross(other.conj(), g, dim=dim),
        torch.linalg.cross(g, self.conj(), dim=dim),
    )
)

# -- β · self + α · product ----------------------------------------------------------------------------------------

vjp(
    aten.addmm.default,
    aten.baddbmm.default,
    aten.addbmm.default,
    aten.addmv.default,
    aten.addr.default,
    wrt="self",
)(lambda g, beta: scaled(g, conj(beta)))


@vjp(aten.addmm.default, wrt=("mat1", "mat2"), linear_in=(("self", "mat1"), ("self", "mat2")))
def addmm(g, mat1, mat2, alpha):
    g = scaled(g, conj(alpha))
    return left_gradient(g, mat1, mat2), right_gradient(g, mat1, mat2)


@vjp(aten.baddbmm.default, wrt=("batch1", "batch2"), linear_in=(("self", "batch1"), ("self", "batch2")))
def baddbmm(g, batch1, batch2, alpha):
    g = scaled(g, conj(alpha))
    return g.bmm(batch2.mH), batch1.mH.bmm(g)


@vjp(aten.addbmm.default, wrt=("batch1", "batch2"), linear_in=(("self", "batch1"), ("self", "batch2")))
def addbmm(g, batch1, batch2, alpha):
    """The batch is summed over: every matrix of it meets the same ȳ."""
    g = scaled(g, conj(alpha)).expand(batch1.shape[0], batch1.shape[1], batch2.shape[2])
    return g.bmm(batch2.mH), batch1.mH.bmm(g)


@vjp(aten.addmv.default, wrt=("mat", "vec"), linear_in=(("self", "mat"), ("self", "vec")))
def addmv(g, mat, vec, alpha):
    g = scaled(g, conj(alpha))
    return torch.outer(g, vec.conj()), mat.mH.mv(g)


@vjp(aten.addr.default, wrt=("vec1", "vec2"), linear_in=(("self", "vec1"), ("self", "vec2")))
def addr(g, vec1, vec2, alpha):
    g = scaled(g, conj(alpha))
    return g.mv(vec2.conj()), g.t().mv(vec1.conj())


@jvp(aten.addmm.default)
def addmm_jvp(self_t, mat1, mat1_t, mat2, mat2_t, beta, alpha):
    return scaled(self_t, beta) + scaled(mat1_t.mm(mat2) + mat1.mm(mat2_t), alpha)


@jvp(aten.baddbmm.default)
def baddbmm_jvp(self_t, batch1, batch1_t, batch2, batch2_t, beta, alpha):
    return scaled(self_t, beta) + scaled(batch1_t.bmm(batch2) + batch1.bmm(batch2_t), alpha)


@jvp(aten.addbmm.default)
def addbmm_jvp(self_t, batch1, batch1_t, batch2, batch2_t, beta, alpha):
    return scaled(self_t, beta) + scaled((batch1_t.bmm(batch2) + batch1.bmm(batch2_t)).sum(0), alpha)


@jvp(aten.addmv.default)
def addmv_jvp(self_t, mat, mat_t, vec, vec_t, beta, alpha):
    return scaled(self_t, beta) + scaled(mat_t.mv(vec) + mat.mv(vec_t), alpha)


@jvp(aten.addr.default)
def addr_jvp(self_t, vec1, vec1_t, vec2, vec2_t, beta, alpha):
    return scaled(self_t, beta) + scaled(torch.outer(vec1_t, vec2) + torch.outer(vec1, vec2_t), alpha)


# -- three factors -------------------------------------------------------------------------------------------------


@vjp(aten._trilinear.default, linear_in=(("i1",), ("i2",), ("i3",)))
def trilinear(g, i1, i2, i3, expand1, expand2, expand3, sumdim):
    """The same product with ȳ in the place of one factor: its dims are summed where the result's were expanded."""
    return (
        aten._trilinear(g, i2.conj(), i3.conj(), sumdim, expand2, expand3, expand1),
        aten._trilinear(i1.conj(), g, i3.conj(), expand1, sumdim, expand3, expand2),
        aten._trilinear(i1.conj(), i2.conj(), g, expand1, expand2, sumdim, expand3),
    )


@jvp(aten._trilinear.default)
def trilinear_jvp(i1, i1_t, i2, i2_t, i3, i3_t, expand1, expand2, expand3, sumdim):
    how = (expand1, expand2, expand3, sumdim)
    return (
        aten._trilinear(i1_t, i2, i3, *how) + aten._trilinear(i1, i2_t, i3, *how) + aten._trilinear(i1, i2, i3_t, *how)
    )
