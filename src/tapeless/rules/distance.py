"""Pairwise distances D = ‖x − y‖ₚ. The kernels carry the first order; beyond it the differences are written out."""

from __future__ import annotations

import math

import torch

from tapeless.rules.registry import jvp, nondifferentiable, vjp

aten = torch.ops.aten


@vjp(aten._cdist_forward.default)
def cdist(g, x1, x2, p, out):
    """x̄ᵢ = Σⱼ ḡᵢⱼ ∂Dᵢⱼ/∂xᵢ; the other side is the same with the roles exchanged."""
    g = g.contiguous()
    by_x2 = aten._cdist_backward(g.mT.contiguous(), x2, x1, p, out.mT.contiguous())
    return aten._cdist_backward(g, x1, x2, p, out), by_x2


@jvp(aten._cdist_forward.default)
def cdist_jvp(x1, x2, x1_t, x2_t, p):
    """Ḋᵢⱼ = ⟨∂D/∂δ, ẋᵢ − ẏⱼ⟩, with δ = xᵢ − yⱼ."""
    slope, _ = _slope(_differences(x1, x2), p)
    return (slope * _differences(x1_t, x2_t)).sum(-1)


@vjp(aten._cdist_backward.default, wrt=("grad", "x1", "x2"), linear_in="grad")
def cdist_backward(g, grad, x1, x2, p):
    """Of x̄ᵢ = Σⱼ ḡᵢⱼ ∂D/∂δ with cotangent u: by ḡ ⟨∂D/∂δ, u⟩, by δ ḡ ∂²D/∂δ² u."""
    slope, bend = _slope(_differences(x1, x2), p)
    u = g.unsqueeze(-2)
    by_difference = grad.unsqueeze(-1) * bend(u)
    return (slope * u).sum(-1), by_difference.sum(-2), -by_difference.sum(-3)


@jvp(aten._cdist_backward.default)
def cdist_backward_jvp(grad, grad_t, x1, x2, x1_t, x2_t, p):
    """Σⱼ (ḡ̇ ∂D/∂δ + ḡ ∂²D/∂δ² δ̇)."""
    slope, bend = _slope(_differences(x1, x2), p)
    return (grad_t.unsqueeze(-1) * slope + grad.unsqueeze(-1) * bend(_differences(x1_t, x2_t))).sum(-2)


@vjp(aten._pdist_forward.default)
def pdist(g, self, p, out):
    """As `cdist`, of the pairs i < j of one set."""
    return aten._pdist_backward(g.contiguous(), self, p, out)


@jvp(aten._pdist_forward.default)
def pdist_jvp(self, self_t, p):
    """Ḋᵢⱼ = ⟨∂D/∂δ, ẋᵢ − ẋⱼ⟩."""
    slope, _ = _slope(_pairs(self), p)
    return (slope * _pairs(self_t)).sum(-1)


@vjp(aten._pdist_backward.default, wrt=("grad", "self"), linear_in="grad")
def pdist_backward(g, grad, self, p):
    """As `cdist_backward`; a difference belongs to both of its points."""
    slope, bend = _slope(_pairs(self), p)
    u = _pairs(g)
    return (slope * u).sum(-1), _gather_pairs(grad.unsqueeze(-1) * bend(u), self)


@jvp(aten._pdist_backward.default)
def pdist_backward_jvp(grad, grad_t, self, self_t, p):
    """As `cdist_backward_jvp`; a difference belongs to both of its points."""
    slope, bend = _slope(_pairs(self), p)
    return _gather_pairs(grad_t.unsqueeze(-1) * slope + grad.unsqueeze(-1) * bend(_pairs(self_t)), self)


@vjp(aten._euclidean_dist.default)
def euclidean_dist(g, x1, x2, out):
    """x̄ᵢ = Σⱼ ḡᵢⱼ (xᵢ − yⱼ)/Dᵢⱼ, by products of matrices; 0 where D is."""
    ratio = torch.where(out == 0, 0, g / out)
    by_x1 = x1 * ratio.sum(-1, keepdim=True) - ratio @ x2
    return by_x1, x2 * ratio.sum(-2).unsqueeze(-1) - ratio.mT @ x1


@jvp(aten._euclidean_dist.default)
def euclidean_dist_jvp(x1, x2, x1_t, x2_t, out):
    """Ḋᵢⱼ = ⟨xᵢ − yⱼ, ẋᵢ − ẏⱼ⟩/Dᵢⱼ."""
    inner = (x1 * x1_t).sum(-1, keepdim=True) + (x2 * x2_t).sum(-1).unsqueeze(-2) - x1_t @ x2.mT - x1 @ x2_t.mT
    return torch.where(out == 0, 0, inner / out)


nondifferentiable(aten._cdist_backward.default, arguments="cdist")
nondifferentiable(aten._pdist_backward.default, arguments="pdist")


def _differences(x1, x2):
    return x1.unsqueeze(-2) - x2.unsqueeze(-3)


def _pairs(x):
    """xᵢ − xⱼ for i < j."""
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return x.index_select(0, first) - x.index_select(0, second)


def _gather_pairs(differences, x):
    """The transpose of `_pairs`."""
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return torch.zeros_like(x).index_add(0, first, differences).index_add(0, second, -differences)


def _slope(difference, p):
    """∂D/∂δ = sgn(δ) |δ|ᵖ⁻¹ D¹⁻ᵖ, and ∂²D/∂δ² as a map: u ↦ (p − 1) (|δ|ᵖ⁻² D²⁻ᵖ u − ∂D ⟨∂D, u⟩) / D."""
    distance, size = torch.linalg.vector_norm(difference, p, -1, keepdim=True), difference.abs()
    if p == 0:
        return torch.zeros_like(difference), torch.zeros_like
    if p in (1, math.inf):
        slope = difference.sgn() if p == 1 else torch.where(size == distance, difference.sgn(), 0)
        return slope, torch.zeros_like
    nothing = (size == 0) if p < 2 else (distance == 0)
    relative = size / distance
    slope = torch.where(nothing, 0, difference.sgn() * relative ** (p - 1))
    curvature = torch.where(nothing, 0, relative ** (p - 2))

    def bend(u):
        along = (slope * u).sum(-1, keepdim=True)
        return torch.where(distance == 0, 0, (p - 1) * (curvature * u - slope * along) / distance)

    return slope, bend
