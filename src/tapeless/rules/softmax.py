"""Softmax and log-softmax. Both save their result only."""

from __future__ import annotations

import torch

from tapeless.rules.registry import jvp, vjp

aten = torch.ops.aten


@vjp(aten._softmax.default)
def softmax(g, out, dim, self):
    """x̄ = y ⊙ (ȳ − ⟨ȳ, y⟩). Saves y only."""
    return aten._softmax_backward_data(g, out, dim, self.dtype)


@vjp(aten._safe_softmax.default)
def safe_softmax(g, out, dim):
    """x̄ = y ⊙ (ȳ − ⟨ȳ, y⟩); a row that is masked altogether has y = 0, and so x̄ = 0."""
    return aten._softmax_backward_data(g, out, dim, out.dtype)


@jvp(aten._softmax.default, aten._safe_softmax.default)
def softmax_jvp(self_t, out, dim):
    """ẏ = y ⊙ (ẋ − ⟨ẋ, y⟩): softmax has a symmetric Jacobian."""
    self_t = self_t.to(out.dtype)
    return out * (self_t - _dot(self_t, out, dim))


@vjp(aten._softmax_backward_data.default, wrt=("grad_output", "output"), linear_in="grad_output")
def softmax_backward(g, grad_output, output, dim):
    """Of y ⊙ (ȳ − ⟨ȳ, y⟩) with cotangent ḡ: by ȳ the same map again, by y: ḡ ⊙ (ȳ − ⟨ȳ, y⟩) − ȳ ⟨ḡ, y⟩."""
    g = g.to(output.dtype)
    by_output = g * (grad_output - _dot(grad_output, output, dim)) - grad_output * _dot(g, output, dim)
    return aten._softmax_backward_data(g, output, dim, output.dtype), by_output


@jvp(aten._softmax_backward_data.default)
def softmax_backward_jvp(grad_output, output, grad_output_t, output_t, dim, input_dtype):
    """d[y ⊙ (ȳ − ⟨ȳ, y⟩)]: linear in ȳ, product rule in y."""
    by_output = output_t * (grad_output - _dot(grad_output, output, dim)) - output * _dot(grad_output, output_t, dim)
    by_grad_output = output * (grad_output_t - _dot(grad_output_t, output, dim))
    return (by_output + by_grad_output).to(input_dtype)


@vjp(aten._log_softmax.default)
def log_softmax(g, out, dim, self):
    """x̄ = ȳ − eʸ ⟨ȳ, 1⟩. Saves y only."""
    return aten._log_softmax_backward_data(g, out, dim, self.dtype)


@jvp(aten._log_softmax.default)
def log_softmax_jvp(self_t, out, dim):
    """ẏ = ẋ − ⟨eʸ, ẋ⟩."""
    self_t = self_t.to(out.dtype)
    return self_t - _dot(out.exp(), self_t, dim)


@vjp(aten._log_softmax_backward_data.default, wrt=("grad_output", "output"), linear_in="grad_output")
def log_softmax_backward(g, grad_output, output, dim):
    """Of ȳ − eʸ ⟨ȳ, 1⟩ with cotangent ḡ: by ȳ: ḡ − ⟨ḡ, eʸ⟩, by y: −ḡ ⊙ eʸ ⟨ȳ, 1⟩."""
    g, probability = g.to(output.dtype), output.exp()
    return g - _dot(g, probability, dim), -(g * probability * grad_output.sum(dim, keepdim=True))


@jvp(aten._log_softmax_backward_data.default)
def log_softmax_backward_jvp(grad_output, output, grad_output_t, output_t, dim, input_dtype):
    """d[ȳ − eʸ ⟨ȳ, 1⟩]."""
    total, total_t = grad_output.sum(dim, keepdim=True), grad_output_t.sum(dim, keepdim=True)
    return (grad_output_t - output.exp() * (total_t + output_t * total)).to(input_dtype)


@vjp(aten._masked_softmax.default, wrt="self")
def masked_softmax(g, out, dim):
    """x̄ = y ⊙ (ȳ − ⟨ȳ, y⟩); masked entries have y = 0."""
    return aten._softmax_backward_data(g, out, -1 if dim is None else dim, out.dtype)


@jvp(aten._masked_softmax.default)
def masked_softmax_jvp(self_t, out, dim):
    """ẏ = y ⊙ (ẋ − ⟨ẋ, y⟩)."""
    return out * (self_t - _dot(self_t, out, -1 if dim is None else dim))


def _dot(left, right, dim):
    """⟨left, right⟩ along `dim`, kept."""
    return (left * right).sum(dim, keepdim=True)
