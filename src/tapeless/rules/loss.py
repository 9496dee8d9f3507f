"""Losses. The fused backward kernels carry the first order; their own derivatives are written out.

`reduction` is 0 for none, 1 for the mean, 2 for the sum. Weights of classes or elements have no gradient: eager refuses
those that ask for one, and so does a rule that does not name them.
"""

from __future__ import annotations

import torch

from tapeless.rules.registry import jvp, linear, nondifferentiable, vjp, zero

aten = torch.ops.aten

NONE, MEAN = 0, 1


# -- of the difference d = x − t: the gradients of x and t are opposite --------------------------------------------


@vjp(aten.mse_loss.default)
def mse_loss(g, self, target, reduction):
    """ℓ = d², x̄ = 2 d ȳ."""
    return _opposite(aten.mse_loss_backward(g, self, target, reduction))


@jvp(aten.mse_loss.default)
def mse_loss_jvp(self, target, self_t, target_t, reduction):
    """ℓ̇ = 2 d ḋ."""
    return _reduced(aten.mse_loss_backward(self_t - target_t, self, target, NONE), reduction)


@vjp(aten.mse_loss_backward.default, linear_in="grad_output")
def mse_loss_backward(g, grad_output, self, target, reduction):
    """ℓ″ = 2."""
    curvature = _averaged(g * grad_output * 2, reduction)
    return aten.mse_loss_backward(g, self, target, reduction), *_opposite(curvature)


@jvp(aten.mse_loss_backward.default)
def mse_loss_backward_jvp(grad_output, self, target, grad_output_t, self_t, target_t, reduction):
    """2 (ȳ̇ d + ȳ ḋ)."""
    curvature = _averaged(grad_output * (self_t - target_t) * 2, reduction)
    return aten.mse_loss_backward(grad_output_t, self, target, reduction) + curvature


@vjp(aten.smooth_l1_loss.default)
def smooth_l1_loss(g, self, target, reduction, beta):
    """ℓ = d²/2β where |d| < β, |d| − β/2 elsewhere."""
    return _opposite(aten.smooth_l1_loss_backward(g, self, target, reduction, beta))


@jvp(aten.smooth_l1_loss.default)
def smooth_l1_loss_jvp(self, target, self_t, target_t, reduction, beta):
    """ℓ̇ = ℓ′(d) ḋ."""
    return _reduced(aten.smooth_l1_loss_backward(self_t - target_t, self, target, NONE, beta), reduction)


@vjp(aten.smooth_l1_loss_backward.default, linear_in="grad_output")
def smooth_l1_loss_backward(g, grad_output, self, target, reduction, beta):
    """ℓ″ = 1/β where |d| < β, 0 elsewhere."""
    curvature = _averaged(_where_near(self, target, beta, g * grad_output / beta), reduction)
    return aten.smooth_l1_loss_backward(g, self, target, reduction, beta), *_opposite(curvature)


@jvp(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward_jvp(grad_output, self, target, grad_output_t, self_t, target_t, reduction, beta):
    """ȳ̇ ℓ′ + ȳ ℓ″ ḋ."""
    curvature = _averaged(_where_near(self, target, beta, grad_output * (self_t - target_t) / beta), reduction)
    return aten.smooth_l1_loss_backward(grad_output_t, self, target, reduction, beta) + curvature


@vjp(aten.huber_loss.default)
def huber_loss(g, self, target, reduction, delta):
    """ℓ = d²/2 where |d| < δ, δ(|d| − δ/2) elsewhere."""
    return _opposite(aten.huber_loss_backward(g, self, target, reduction, delta))


@jvp(aten.huber_loss.default)
def huber_loss_jvp(self, target, self_t, target_t, reduction, delta):
    """ℓ̇ = ℓ′(d) ḋ."""
    return _reduced(aten.huber_loss_backward(self_t - target_t, self, target, NONE, delta), reduction)


@vjp(aten.huber_loss_backward.default, linear_in="grad_output")
def huber_loss_backward(g, grad_output, self, target, reduction, delta):
    """ℓ″ = 1 where |d| < δ, 0 elsewhere."""
    curvature = _averaged(_where_near(self, target, delta, g * grad_output), reduction)
    return aten.huber_loss_backward(g, self, target, reduction, delta), *_opposite(curvature)


@jvp(aten.huber_loss_backward.default)
def huber_loss_backward_jvp(grad_output, self, target, grad_output_t, self_t, target_t, reduction, delta):
    """ȳ̇ ℓ′ + ȳ ℓ″ ḋ."""
    curvature = _averaged(_where_near(self, target, delta, grad_output * (self_t - target_t)), reduction)
    return aten.huber_loss_backward(grad_output_t, self, target, reduction, delta) + curvature


# -- of probabilities and logits -----------------------------------------------------------------------------------


@vjp(aten.binary_cross_entropy.default, wrt="self")
def binary_cross_entropy(g, self, target, weight, reduction):
    """ℓ = −t ln x − (1 − t) ln(1 − x), ℓ′ = (x − t)/(x (1 − x))."""
    return aten.binary_cross_entropy_backward(g, self, target, weight, reduction)


@vjp(aten.binary_cross_entropy.default, wrt="target")
def binary_cross_entropy_target(g, self, weight, reduction):
    """∂ℓ/∂t = −logit x."""
    return _averaged(_weighted(-g * self.logit(), weight), reduction)


@jvp(aten.binary_cross_entropy.default)
def binary_cross_entropy_jvp(self, target, self_t, target_t, weight, reduction):
    """ℓ̇ = (x − t) ẋ/(x (1 − x)) − ṫ logit x."""
    by_self = aten.binary_cross_entropy_backward(self_t, self, target, weight, NONE)
    return _reduced(by_self - _weighted(target_t * self.logit(), weight), reduction)


@vjp(aten.binary_cross_entropy_backward.default, wrt=("grad_output", "self", "target"), linear_in="grad_output")
def binary_cross_entropy_backward(g, grad_output, self, target, weight, reduction):
    """Of (x − t)/(x (1 − x)): by x (x² − 2xt + t)/(x (1 − x))², by t −1/(x (1 − x))."""
    by_self, by_target = _binary_curvature(self, target)
    both = _averaged(_weighted(g * grad_output, weight), reduction)
    return aten.binary_cross_entropy_backward(g, self, target, weight, reduction), both * by_self, both * by_target


@jvp(aten.binary_cross_entropy_backward.default)
def binary_cross_entropy_backward_jvp(grad_output, self, target, grad_output_t, self_t, target_t, weight, reduction):
    """ȳ̇ ℓ′ + ȳ (ℓ″ ẋ − ṫ/(x (1 − x)))."""
    by_self, by_target = _binary_curvature(self, target)
    curved = _averaged(_weighted(grad_output * (by_self * self_t + by_target * target_t), weight), reduction)
    return aten.binary_cross_entropy_backward(grad_output_t, self, target, weight, reduction) + curved


@vjp(aten.binary_cross_entropy_with_logits.default, wrt=("self", "target"))
def binary_cross_entropy_with_logits(g, self, target, weight, pos_weight, reduction):
    """ℓ = (1 − t) x + (1 + (p − 1) t) ln(1 + e⁻ˣ): by x (1 − t + p t) σ(x) − p t, by t −x + (p − 1) ln(1 + e⁻ˣ)."""
    by_self, by_target = _logit_slopes(self, target, pos_weight)
    g = _averaged(_weighted(g.expand_as(self), weight), reduction)
    return g * by_self, g * by_target


@jvp(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits_jvp(self, target, self_t, target_t, weight, pos_weight, reduction):
    """ℓ̇ = ∂ℓ/∂x ẋ + ∂ℓ/∂t ṫ."""
    by_self, by_target = _logit_slopes(self, target, pos_weight)
    return _reduced(_weighted(by_self * self_t + by_target * target_t, weight), reduction)


@vjp(aten.soft_margin_loss.default, wrt="self")
def soft_margin_loss(g, self, target, reduction):
    """ℓ = ln(1 + e^(−tx))."""
    return aten.soft_margin_loss_backward(g, self, target, reduction)


@jvp(aten.soft_margin_loss.default)
def soft_margin_loss_jvp(self, target, self_t, reduction):
    """ℓ̇ = −t σ(−tx) ẋ."""
    return _reduced(aten.soft_margin_loss_backward(self_t, self, target, NONE), reduction)


@vjp(aten.soft_margin_loss_backward.default, wrt=("grad_output", "self"), linear_in="grad_output")
def soft_margin_loss_backward(g, grad_output, self, target, reduction):
    """ℓ″ = t² σ(tx) σ(−tx)."""
    curved = _averaged(g * grad_output * _soft_margin_curvature(self, target), reduction)
    return aten.soft_margin_loss_backward(g, self, target, reduction), curved


@jvp(aten.soft_margin_loss_backward.default)
def soft_margin_loss_backward_jvp(grad_output, self, target, grad_output_t, self_t, reduction):
    """ȳ̇ ℓ′ + ȳ ℓ″ ẋ."""
    curved = _averaged(grad_output * self_t * _soft_margin_curvature(self, target), reduction)
    return aten.soft_margin_loss_backward(grad_output_t, self, target, reduction) + curved


# -- of classes ----------------------------------------------------------------------------------------------------


def _total_weight(out, reduction):
    """The sum of the weights, which only a mean reads: nothing to save for the others."""
    return out[1] if reduction == MEAN else torch.ones((), dtype=out[1].dtype, device=out[1].device)


@vjp(aten.nll_loss_forward.default, wrt="self", linear_in="self")
def nll_loss(g, self, target, weight, reduction, ignore_index, out):
    """x̄ = −w[t] ȳ at the target's place, over the total weight for the mean."""
    return aten.nll_loss_backward(g[0], self, target, weight, reduction, ignore_index, _total_weight(out, reduction))


@jvp(aten.nll_loss_forward.default)
def nll_loss_jvp(self_t, target, weight, reduction, ignore_index):
    """Linear in x."""
    return aten.nll_loss_forward(self_t, target, weight, reduction, ignore_index)[0], None


@linear(aten.nll_loss_backward.default, wrt="grad_output")
def nll_loss_backward(g, target, weight, reduction, ignore_index):
    """The transpose of the transpose: the loss itself."""
    return aten.nll_loss_forward(g, target, weight, reduction, ignore_index)[0]


@vjp(aten.nll_loss2d_forward.default, wrt="self", linear_in="self")
def nll_loss2d(g, self, target, weight, reduction, ignore_index, out):
    """x̄ = −w[t] ȳ at the target's place, over the total weight for the mean."""
    return aten.nll_loss2d_backward(g[0], self, target, weight, reduction, ignore_index, _total_weight(out, reduction))


@jvp(aten.nll_loss2d_forward.default)
def nll_loss2d_jvp(self_t, target, weight, reduction, ignore_index):
    """Linear in x."""
    return aten.nll_loss2d_forward(self_t, target, weight, reduction, ignore_index)[0], None


@linear(aten.nll_loss2d_backward.default, wrt="grad_output")
def nll_loss2d_backward(g, target, weight, reduction, ignore_index):
    """The transpose of the transpose: the loss itself."""
    return aten.nll_loss2d_forward(g, target, weight, reduction, ignore_index)[0]


zero(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default, arguments="self")
nondifferentiable(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default, arguments="total_weight")


@vjp(aten.multi_margin_loss.default, wrt="self")
def multi_margin_loss(g, self, target, p, margin, weight, reduction):
    """ℓ = Σ w[t] max(0, m − x[t] + x[j])ᵖ / C over the classes j ≠ t."""
    return _margin_slope(g, self, target, p, margin, weight, reduction)


@jvp(aten.multi_margin_loss.default)
def multi_margin_loss_jvp(self, target, self_t, out, p, margin, weight, reduction):
    """ℓ̇ = ⟨∂ℓ/∂x, ẋ⟩."""
    slope = _margin_slope(torch.ones_like(out), self, target, p, margin, weight, reduction)
    return _per_loss(slope * self_t, out)


@vjp(aten.multi_margin_loss_backward.default, wrt=("grad_output", "self"), linear_in="grad_output")
def multi_margin_loss_backward(g, grad_output, self, target, p, margin, weight, reduction):
    """⟨ḡ, ∂ℓ/∂x⟩, and ȳ ∂²ℓ/∂x² ḡ, which is symmetric."""
    slope = _margin_slope(torch.ones_like(grad_output), self, target, p, margin, weight, reduction)
    return _per_loss(g * slope, grad_output), _margin_bend(grad_output, self, target, g, p, margin, weight, reduction)


@jvp(aten.multi_margin_loss_backward.default)
def multi_margin_loss_backward_jvp(grad_output, self, target, grad_output_t, self_t, p, margin, weight, reduction):
    """ȳ̇ ∂ℓ/∂x + ȳ ∂²ℓ/∂x² ẋ."""
    straight = _margin_slope(grad_output_t, self, target, p, margin, weight, reduction)
    return straight + _margin_bend(grad_output, self, target, self_t, p, margin, weight, reduction)


def _margin_slope(g, self, target, p, margin, weight, reduction):
    """ȳ ∂ℓ/∂x: p w[t] max(0, m − x[t] + x[j])ᵖ⁻¹ / C at j ≠ t, and minus their sum at t. A margin just kept is kept."""
    rows, labels = self.reshape(target.numel(), -1), target.reshape(-1, 1)
    excess = margin - rows.gather(1, labels) + rows
    return _at_classes(g, self, labels, torch.where(excess > 0, excess ** (p - 1), 0), p, weight, reduction)


def _margin_bend(g, self, target, direction, p, margin, weight, reduction):
    """ȳ ∂²ℓ/∂x² v: the same of the derivative of max(0, ·)ᵖ⁻¹."""
    if p == 1:
        return torch.zeros_like(self)
    labels = target.reshape(-1, 1)
    rows, along = (x.reshape(target.numel(), -1) for x in (self, direction))
    missed = margin - rows.gather(1, labels) + rows > 0
    return _at_classes(g, self, labels, torch.where(missed, along - along.gather(1, labels), 0), p, weight, reduction)


def _at_classes(g, self, labels, value, p, weight, reduction):
    """What each class adds, taken off again at the label."""
    count, classes = value.shape
    scaled = p * value / classes * (1 if weight is None else weight[labels])
    others = scaled.scatter(1, labels, 0)
    whole = others.scatter(1, labels, -others.sum(1, keepdim=True))
    return (whole * g.reshape(-1, 1) / (count if reduction == MEAN else 1)).reshape(self.shape)


@vjp(aten.multilabel_margin_loss_forward.default, wrt="self")
def multilabel_margin_loss(g, self, target, reduction, out):
    """ℓ = Σ max(0, 1 − x[t] + x[j]) / C over the labels t and the other classes j."""
    return aten.multilabel_margin_loss_backward(g[0], self, target, reduction, out[1])


@jvp(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss_jvp(self, target, self_t, reduction, out):
    """ℓ̇ = ⟨∂ℓ/∂x, ẋ⟩."""
    slope = aten.multilabel_margin_loss_backward(torch.ones_like(out[0]), self, target, reduction, out[1])
    return _per_loss(slope * self_t, out[0]), None


@linear(aten.multilabel_margin_loss_backward.default, wrt="grad_output")
def multilabel_margin_loss_backward(g, grad_output, self, target, reduction, is_target):
    """⟨ḡ, ∂ℓ/∂x⟩."""
    slope = aten.multilabel_margin_loss_backward(torch.ones_like(grad_output), self, target, reduction, is_target)
    return _per_loss(g * slope, grad_output)


zero(aten.multilabel_margin_loss_backward.default, arguments="self")
nondifferentiable(aten.multilabel_margin_loss_backward.default, arguments="is_target")


# -- of sequences --------------------------------------------------------------------------------------------------


@vjp(aten._ctc_loss.default, aten._ctc_loss.Tensor, wrt="log_probs")
def ctc_loss(g, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, out):
    """By the forward-backward algorithm, of which the forward half is saved."""
    return aten._ctc_loss_backward(
        g[0], log_probs, targets, input_lengths, target_lengths, out[0], out[1], blank, zero_infinity
    )


@jvp(aten._ctc_loss.default, aten._ctc_loss.Tensor)
def ctc_loss_jvp(log_probs, log_probs_t, targets, input_lengths, target_lengths, blank, zero_infinity, out):
    """ℓ̇ = ⟨∂ℓ/∂x, ẋ⟩."""
    slope = aten._ctc_loss_backward(
        torch.ones_like(out[0]), log_probs, targets, input_lengths, target_lengths, *out, blank, zero_infinity
    )
    return (slope * log_probs_t).sum([0, -1]), None


@vjp(aten._ctc_loss_backward.default, aten._ctc_loss_backward.Tensor, wrt="grad", linear_in="grad")
def ctc_loss_backward(
    g, grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank, zero_infinity
):
    """⟨ḡ, ∂ℓ/∂x⟩."""
    slope = aten._ctc_loss_backward(
        torch.ones_like(grad), log_probs, targets, input_lengths, target_lengths,
        neg_log_likelihood, log_alpha, blank, zero_infinity,
    )  # fmt: skip
    return (g * slope).sum([0, -1])


# -- shared --------------------------------------------------------------------------------------------------------


def _opposite(gradient):
    return gradient, -gradient


def _averaged(gradient, reduction):
    """The share of each element in a mean."""
    return gradient / gradient.numel() if reduction == MEAN else gradient


def _reduced(losses, reduction):
    if reduction == NONE:
        return losses
    return losses.mean() if reduction == MEAN else losses.sum()


def _weighted(losses, weight):
    return losses if weight is None else losses * weight


def _per_loss(products, loss):
    """Summed over the classes, or over everything if the loss is one number."""
    return products.sum(-1) if loss.dim() else products.sum()


def _where_near(self, target, distance, value):
    return torch.where((self - target).abs() < distance, value, 0)


def _binary_curvature(self, target, epsilon=1e-12):
    """∂²ℓ/∂x² and ∂²ℓ/∂x∂t of the binary cross entropy, kept finite at 0 and 1."""
    by_self = (self * self - 2 * self * target + target) / ((self + epsilon) * (1 - self + epsilon)) ** 2
    return by_self, -1 / ((self + epsilon) * (1 - self + epsilon))


def _logit_slopes(self, target, pos_weight):
    """∂ℓ/∂x and ∂ℓ/∂t of the binary cross entropy of logits."""
    if pos_weight is None:
        return self.sigmoid() - target, -self
    positive = pos_weight * target
    by_target = torch.nn.functional.logsigmoid(-self) - pos_weight * torch.nn.functional.logsigmoid(self)
    return (positive + 1 - target) * self.sigmoid() - positive, by_target


def _soft_margin_curvature(self, target):
    probability = (self * target).sigmoid()
    return target * target * probability * (1 - probability)
