"""Dropout and sampling. A sample has the gradient that eager gives it: of its distribution's parameters where the
reparametrization is known, zero elsewhere."""

from __future__ import annotations

import torch

from tapeless.rules.registry import jvp, linear, vjp, zero

aten = torch.ops.aten


@vjp(aten.native_dropout.default, linear_in="input")
def dropout(g, out, p, train):
    """x̄ = ȳ ⊙ mask / (1 − p). Saves the mask only."""
    return aten.native_dropout_backward(g[0], out[1], _scale(p, train))


@jvp(aten.native_dropout.default)
def dropout_jvp(input_t, out, p, train):
    """ẏ = ẋ ⊙ mask / (1 − p), with the mask that was drawn."""
    return aten.native_dropout_backward(input_t, out[1], _scale(p, train)), None


@linear(aten.native_dropout_backward.default, wrt="grad_output")
def dropout_backward(g, mask, scale):
    """Diagonal, so its own transpose."""
    return aten.native_dropout_backward(g, mask, scale)


@vjp(aten._standard_gamma.default)
def standard_gamma(g, self, out):
    """ᾱ = ȳ ∂y/∂α by implicit reparametrization."""
    return g * aten._standard_gamma_grad(self, out)


@jvp(aten._standard_gamma.default)
def standard_gamma_jvp(self, self_t, out):
    """ẏ = α̇ ∂y/∂α."""
    return self_t * aten._standard_gamma_grad(self, out)


# The remaining samples do not follow their parameters: eager's gradient is a tensor of zeros.
zero(
    aten.bernoulli.Tensor,
    aten.bernoulli.default,
    aten.bernoulli.p,
    aten.cauchy.default,
    aten.exponential.default,
    aten.geometric.default,
    aten.log_normal.default,
    aten.normal.Tensor_Tensor,
    aten.normal.Tensor_float,
    aten.normal.float_Tensor,
    aten.normal_functional.default,
    aten.poisson.default,
    aten.random.default,
    getattr(aten.random, "from"),
    aten.random.to,
    aten.uniform.default,
)


def _scale(p, train):
    if train is False:
        return 1.0
    return 0.0 if p == 1 else 1 / (1 - p)
