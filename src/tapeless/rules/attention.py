"""Fused attention, and the grouped product of mixture-of-experts layers."""

from __future__ import annotations

import math

import torch

from tapeless.rules.registry import bilinear, jvp, nondifferentiable, vjp

aten = torch.ops.aten

flash = aten._scaled_dot_product_flash_attention_for_cpu.default
flash_backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default


@vjp(flash, wrt=("query", "key", "value"))
def attention(g, query, key, value, out, dropout_p, is_causal, attn_mask, scale):
    """The fused kernel; like its forward it never holds the matrix of probabilities."""
    return flash_backward(
        g[0], query, key, value, out[0], out[1], dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )


@jvp(flash)
def attention_jvp(query, key, value, query_t, key_t, value_t, is_causal, attn_mask, scale):
    """With S = s q kᵀ + mask and P = softmax(S):  ȯ = Ṗ v + P v̇,  Ṗ = P ⊙ (Ṡ − ⟨P, Ṡ⟩)."""
    key, value, key_t, value_t = _heads_of(query, key, value, key_t, value_t)
    scale, probability = _probability(query, key, is_causal, attn_mask, scale)
    score_t = scale * (query_t @ key.mT + query @ key_t.mT)
    return _softmax_jvp(probability, score_t) @ value + probability @ value_t, None


@vjp(flash_backward, wrt=("grad_out", "query", "key", "value"), linear_in="grad_out")
def attention_backward(g, grad_out, query, key, value, is_causal, attn_mask, scale):
    """Differentiates  v̄ = Pᵀō,  q̄ = s S̄ k,  k̄ = s S̄ᵀq,  S̄ = P ⊙ (P̄ − ⟨P, P̄⟩),  P̄ = ō vᵀ,  P = softmax(S).

    P is recomputed from query and key, not from the saved logsumexp, so that the result can be differentiated again.
    """
    (by_query, by_key, by_value), group = g, _group(query, key)
    key, value, by_key, by_value = _heads_of(query, key, value, by_key, by_value)
    scale, probability = _probability(query, key, is_causal, attn_mask, scale)
    bar = grad_out @ value.mT  # P̄
    score_bar = _softmax_jvp(probability, bar)  # S̄
    by_score_bar = scale * (by_query @ key.mT + query @ by_key.mT)
    by_bar = _softmax_jvp(probability, by_score_bar)
    by_probability = (
        by_score_bar * (bar - _dot(probability, bar)) - bar * _dot(probability, by_score_bar) + grad_out @ by_value.mT
    )
    by_score = _softmax_jvp(probability, by_probability)
    return (
        probability @ by_value + by_bar @ value,
        scale * (score_bar @ by_key + by_score @ key),
        _sum_heads(scale * (score_bar.mT @ by_query + by_score.mT @ query), group),
        _sum_heads(by_bar.mT @ grad_out, group),
    )


@jvp(flash_backward)
def attention_backward_jvp(
    grad_out, query, key, value, grad_out_t, query_t, key_t, value_t, is_causal, attn_mask, scale
):
    """The product rule on  v̄ = Pᵀō,  q̄ = s S̄ k,  k̄ = s S̄ᵀq,  S̄ = P ⊙ (P̄ − ⟨P, P̄⟩),  P̄ = ō vᵀ."""
    group = _group(query, key)
    key, value, key_t, value_t = _heads_of(query, key, value, key_t, value_t)
    scale, probability = _probability(query, key, is_causal, attn_mask, scale)
    probability_t = _softmax_jvp(probability, scale * (query_t @ key.mT + query @ key_t.mT))
    bar, bar_t = grad_out @ value.mT, grad_out_t @ value.mT + grad_out @ value_t.mT
    score_bar = _softmax_jvp(probability, bar)
    score_bar_t = (
        _softmax_jvp(probability, bar_t)
        + probability_t * (bar - _dot(probability, bar))
        - probability * _dot(probability_t, bar)
    )
    return (
        scale * (score_bar_t @ key + score_bar @ key_t),
        _sum_heads(scale * (score_bar_t.mT @ query + score_bar.mT @ query_t), group),
        _sum_heads(probability_t.mT @ grad_out + probability.mT @ grad_out_t, group),
    )


# The saved results stand for query, key and value. A mask that needs a gradient is never given to the fused kernel.
nondifferentiable(flash_backward, arguments=("out_", "logsumexp"))


@bilinear(aten._grouped_mm.default, wrt=("self", "mat2"))
def grouped_mm(g, self, mat2, offs):
    """As of a matrix product, group by group: Ā = C̄ Bᵀ, B̄ = Aᵀ C̄."""
    g = g.contiguous()
    return aten._grouped_mm(g, mat2.mT, offs), aten._grouped_mm(self.mT, g, offs)


def _probability(query, key, is_causal, attn_mask, scale):
    """The scale s, and P = softmax(s q kᵀ + mask); a row without any allowed key is zero."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    score = scale * (query @ key.mT)
    if is_causal:
        allowed = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril()
        score = torch.where(allowed, score, -math.inf)
    if attn_mask is not None:
        score = score + attn_mask
    return scale, aten._safe_softmax(score, -1)


def _group(query, key):
    """How many heads of the query share one head of key and value."""
    return query.shape[1] // key.shape[1]


def _heads_of(query, *tensors):
    """Key, value and what has their shape, with as many heads as the query."""
    return [t if (n := _group(query, t)) == 1 else t.repeat_interleave(n, 1) for t in tensors]


def _sum_heads(gradient, group):
    """The transpose of repeating each head `group` times."""
    return gradient if group == 1 else gradient.unflatten(1, (-1, group)).sum(2)


def _softmax_jvp(probability, score_t):
    """P ⊙ (Ṡ − ⟨P, Ṡ⟩): the softmax's Jacobian, which is symmetric."""
    return probability * (score_t - _dot(probability, score_t))


def _dot(left, right):
    return (left * right).sum(-1, keepdim=True)
