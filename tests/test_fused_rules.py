"""Backward kernels that are given statistics or results of the forward: their rules account for these.

OpInfo's calls hold the statistics fixed, so here they follow the input, and law 4 is checked on the whole.
"""

import itertools
import math

import pytest
import torch

import tapeless.rules  # noqa: F401
from tapeless.rules.fit import fit
from tapeless.rules.registry import call_by_name, gradients, rule_of

aten = torch.ops.aten
attention = aten._scaled_dot_product_flash_attention_for_cpu
MASKS = [mask for mask in itertools.product((True, False), repeat=3) if any(mask)]
STEP = 1e-6


def x(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def directional(op, arguments, point):
    """By finite difference: the derivative of `op` at `point`, where `arguments` makes all of its arguments."""
    direction = {name: x(*value.shape, seed=7 + i) for i, (name, value) in enumerate(point.items())}
    low, high = (
        outputs(call_by_name(op, arguments(**{n: v + t * direction[n] for n, v in point.items()})))
        for t in (-STEP, STEP)
    )
    return direction, [None if h is None else (h - l) / (2 * STEP) for l, h in zip(low, high, strict=True)]


def outputs(out):
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)


def check(op, arguments, **point):
    """Law 4 of the rule's tangent and gradient."""
    rule, values = rule_of(op), arguments(**point)
    direction, expected = directional(op, arguments, point)
    values["out"] = call_by_name(op, values)
    for have, want in zip(outputs(rule.jvp(values, direction)), expected, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)

    g = tuple(None if want is None else x(*want.shape, seed=20 + i) for i, want in enumerate(expected))
    values["g"] = g if isinstance(values["out"], (tuple, list)) else g[0]
    found = gradients(rule, point, values)
    actual = sum((fit(found[n], point[n]) * direction[n]).sum() for n in point if found[n] is not None)
    torch.testing.assert_close(
        actual, sum((a * b).sum() for a, b in zip(g, expected, strict=True) if b is not None), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_backward(mask, affine):
    def arguments(grad_out, input, weight=None):
        _, mean, rstd = aten.native_layer_norm(input, [3, 4], None, None, 1e-5)
        rest = {"normalized_shape": [3, 4], "mean": mean, "rstd": rstd, "bias": weight, "output_mask": list(mask)}
        return {"grad_out": grad_out, "input": input, "weight": weight, **rest}

    skip_unless(affine or not any(mask[1:]))
    weight = {"weight": x(3, 4, seed=2)} if affine else {}
    check(aten.native_layer_norm_backward.default, arguments, grad_out=x(2, 3, 4), input=x(2, 3, 4, seed=1), **weight)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm_backward(mask, affine):
    def arguments(grad_out, input, weight=None):
        _, mean, rstd = aten.native_group_norm(input, None, None, 2, 6, 5, 3, 1e-5)
        sizes = {"N": 2, "C": 6, "HxW": 5, "group": 3, "output_mask": list(mask)}
        return {"grad_out": grad_out, "input": input, "mean": mean, "rstd": rstd, "weight": weight, **sizes}

    skip_unless(affine or not any(mask[1:]))
    weight = {"weight": x(6, seed=2)} if affine else {}
    check(aten.native_group_norm_backward.default, arguments, grad_out=x(2, 6, 5), input=x(2, 6, 5, seed=1), **weight)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_backward(mask, affine, train):
    running = {"running_mean": x(6, seed=3), "running_var": x(6, seed=4).abs() + 0.5}

    def arguments(grad_out, input, weight=None):
        _, mean, rstd = aten._native_batch_norm_legit(input, None, None, True, 0.1, 1e-3)
        rest = {"save_mean": mean, "save_invstd": rstd, "train": train, "eps": 1e-3, "output_mask": list(mask)}
        return {"grad_out": grad_out, "input": input, "weight": weight, **running, **rest}

    skip_unless(affine or not any(mask[1:]))
    weight = {"weight": x(6, seed=2)} if affine else {}
    check(aten.native_batch_norm_backward.default, arguments, grad_out=x(2, 6, 5), input=x(2, 6, 5, seed=1), **weight)


@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm_backward(dim):
    def arguments(grad_w, saved_v, saved_g):
        norms = aten._weight_norm_interface(saved_v, saved_g, dim)[1]
        return {"grad_w": grad_w, "saved_v": saved_v, "saved_g": saved_g, "saved_norms": norms, "dim": dim}

    gains = x(*[4 if d == dim else 1 for d in range(3)], seed=2)
    point = {"grad_w": x(4, 2, 4), "saved_v": x(4, 2, 4, seed=1), "saved_g": gains}
    check(aten._weight_norm_interface_backward.default, arguments, **point)


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", [None, "additive", "a row without keys"])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_attention_backward(heads, causal, mask, scale):
    skip_unless(mask is None or not causal)
    masks = {None: None, "additive": x(5, 6), "a row without keys": x(5, 6).index_fill(0, torch.tensor(2), -math.inf)}
    how = {"attn_mask": masks[mask], "scale": scale}

    def arguments(grad_out, query, key, value):
        out, logsumexp = attention(query, key, value, 0.0, causal, **how)
        rest = {"out_": out, "logsumexp": logsumexp, "dropout_p": 0.0, "is_causal": causal, **how}
        return {"grad_out": grad_out, "query": query, "key": key, "value": value, **rest}

    point = {"grad_out": x(2, 4, 5, 8), "query": x(2, 4, 5, 8, seed=1)}
    point |= {"key": x(2, heads, 6, 8, seed=2), "value": x(2, heads, 6, 8, seed=3)}
    check(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, arguments, **point)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_distances_backward(p):
    def between(grad, x1, x2):
        return {"grad": grad, "x1": x1, "x2": x2, "p": p, "cdist": aten._cdist_forward(x1, x2, p, None)}

    def within(grad, self):
        return {"grad": grad, "self": self, "p": p, "pdist": aten._pdist_forward(self, p)}

    check(aten._cdist_backward.default, between, grad=x(2, 3, 5), x1=x(2, 3, 4, seed=1), x2=x(2, 5, 4, seed=2))
    check(aten._pdist_backward.default, within, grad=x(10), self=x(5, 4, seed=1))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("transposed", [True, False])
def test_convolution_backward(mask, transposed):
    how = {"stride": [2], "padding": [1], "dilation": [1], "transposed": transposed, "groups": 2}
    how |= {"output_padding": [int(transposed)], "bias_sizes": [6], "output_mask": list(mask)}
    weight = x(4, 3, 3, seed=2) if transposed else x(6, 2, 3, seed=2)
    out = aten.convolution(x(2, 4, 7), weight, None, [2], [1], [1], transposed, [int(transposed)], 2)
    point = {"grad_output": x(*out.shape), "input": x(2, 4, 7, seed=1), "weight": weight}
    check(aten.convolution_backward.default, lambda **point: {**point, **how}, **point)


def skip_unless(possible):
    if not possible:
        pytest.skip("no such combination")
