"""Normalization: layer, group, batch, root-mean-square and weight norms.

All but the last are y = w ⊙ x̂ + b with x̂ = (x − μ) ρ, where μ and ρ = 1/√(σ² + ε) are statistics of x. Written once, in
`Normal`, are the Jacobian of x̂ (it is symmetric) and the derivatives of that; the operators differ in dimensions only.
The fused backward kernels are given the saved μ and ρ; their derivative by x includes what flows through these.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from tapeless.rules.helpers import is_empty
from tapeless.rules.registry import jvp, nondifferentiable, vjp

aten = torch.ops.aten


class Normal(NamedTuple):
    """x̂, ρ and w, shaped to broadcast with x; the dimensions of the statistics, and what kind these are."""

    hat: torch.Tensor
    rstd: torch.Tensor
    weight: torch.Tensor | None
    dims: list[int]
    centered: bool = True  # μ is the mean, else 0
    fixed: bool = False  # the statistics are constants

    def mean(self, x):
        """⟨x⟩, over the dimensions of the statistics."""
        return x.mean(self.dims, keepdim=True)

    def project(self, x):
        """J x = ρ (x − ⟨x⟩ − x̂ ⟨x ⊙ x̂⟩): the Jacobian of x ↦ x̂, equal to its transpose."""
        if self.fixed:
            return self.rstd * x
        rest = x - self.hat * self.mean(x * self.hat)
        return self.rstd * (rest - self.mean(x) if self.centered else rest)

    def scale(self, x):
        return x if self.weight is None else x * self.weight

    def tangent(self, x_t, weight_t, bias_t):
        """ẏ = w ⊙ J ẋ + ẇ ⊙ x̂ + ḃ."""
        return _total(self.scale(self.project(x_t)), _times(weight_t, self.hat), bias_t)

    def from_rstd(self, by_rstd):
        """The gradient of x by a cotangent of ρ: −ρ² x̂ ρ̄ / n."""
        return -(self.hat * (self.rstd * self.rstd * by_rstd)) / self.averaged

    def from_statistics(self, by_mean, by_rstd):
        """The gradient of x by cotangents of μ and ρ: (μ̄ − ρ² x̂ ρ̄)/n."""
        return by_mean / self.averaged + self.from_rstd(by_rstd)

    def statistics_tangent(self, x_t):
        """μ̇ = ⟨ẋ⟩, ρ̇ = −ρ² ⟨x̂ ⊙ ẋ⟩."""
        return self.mean(x_t), -(self.rstd * self.rstd * self.mean(self.hat * x_t))

    @property
    def averaged(self):
        """How many elements share a mean: n in the formulas."""
        return math.prod(self.hat.shape[dim] for dim in self.dims)

    def second(self, grad, by_x, by_weight, by_bias):
        """Of x̄ = J (w ⊙ ȳ), w̄ = Σ ȳ ⊙ x̂, b̄ = Σ ȳ with cotangents u, v, c: the gradients of ȳ, x and (not yet summed) w.

        by ȳ: w ⊙ J u + v ⊙ x̂ + c        by w: ȳ ⊙ J u
        by x: J [v ⊙ ȳ − ρ (u ⟨wȳ ⊙ x̂⟩ + wȳ ⟨u ⊙ x̂⟩)] − ρ x̂ ⟨u ⊙ J wȳ⟩
        """
        from_weight = _times(by_weight, grad)
        if by_x is None:
            return _total(_times(by_weight, self.hat), by_bias), _map(self.project, from_weight), None
        pushed = self.project(by_x)
        by_grad = _total(self.scale(pushed), _times(by_weight, self.hat), by_bias)
        if self.fixed:
            return by_grad, _map(self.project, from_weight), grad * pushed
        scaled = self.scale(grad)
        turn = self.rstd * (by_x * self.mean(scaled * self.hat) + scaled * self.mean(by_x * self.hat))
        shrink = self.rstd * self.hat * self.mean(by_x * self.project(scaled))
        return by_grad, self.project(_total(-turn, from_weight)) - shrink, grad * pushed

    def second_tangent(self, grad, grad_t, x_t, weight_t):
        """Tangents of x̄ = J (w ⊙ ȳ), and of ȳ ⊙ x̂, whose sum is w̄."""
        scaled, scaled_t = self.scale(grad), _total(self.scale(grad_t), _times(weight_t, grad))
        hat_t, by_x_t = self.project(x_t), self.project(scaled_t)
        if not self.fixed:
            shrink = self.rstd * self.mean(self.hat * x_t) * self.project(scaled)
            turn = self.rstd * (hat_t * self.mean(scaled * self.hat) + self.hat * self.mean(scaled * hat_t))
            by_x_t = by_x_t - shrink - turn
        return by_x_t, grad_t * self.hat + grad * hat_t


# -- layer norm ----------------------------------------------------------------------------------------------------


@vjp(aten.native_layer_norm.default)
def layer_norm(g, input, normalized_shape, weight, bias, out):
    """x̄ = J (w ⊙ ȳ) + (μ̄ − ρ² x̂ ρ̄)/n, w̄ = Σ ȳ ⊙ x̂, b̄ = Σ ȳ."""
    wanted = [True, weight is not None, bias is not None]
    by_input, *rest = aten.native_layer_norm_backward(
        g[0], input, normalized_shape, out[1], out[2], weight, bias, wanted
    )
    return by_input + _layer(input, normalized_shape, out[1], out[2], weight).from_statistics(g[1], g[2]), *rest


@jvp(aten.native_layer_norm.default)
def layer_norm_jvp(input, input_t, normalized_shape, weight, weight_t, bias_t, out):
    """ẏ = w ⊙ J ẋ + ẇ ⊙ x̂ + ḃ, μ̇ = ⟨ẋ⟩, ρ̇ = −ρ² ⟨x̂ ⊙ ẋ⟩."""
    normal = _layer(input, normalized_shape, out[1], out[2], weight)
    return normal.tangent(input_t, weight_t, bias_t), *normal.statistics_tangent(input_t)


@vjp(aten.native_layer_norm_backward.default, wrt=("grad_out", "input", "weight"), linear_in="grad_out")
def layer_norm_backward(g, grad_out, input, normalized_shape, mean, rstd, weight, output_mask):
    """See `Normal.second`."""
    return _layer(input, normalized_shape, mean, rstd, weight).second(grad_out, *_wanted(g, output_mask))


@jvp(aten.native_layer_norm_backward.default)
def layer_norm_backward_jvp(
    grad_out, grad_out_t, input, input_t, normalized_shape, mean, rstd, weight, weight_t, output_mask
):
    """See `Normal.second_tangent`."""
    normal = _layer(input, normalized_shape, mean, rstd, weight)
    by_input_t, by_weight_t = normal.second_tangent(grad_out, grad_out_t, input_t, weight_t)
    outer = range(input.dim() - len(normalized_shape))
    return _wanted((by_input_t, _sum(by_weight_t, outer), _sum(grad_out_t, outer)), output_mask)


nondifferentiable(aten.native_layer_norm_backward.default, arguments=("mean", "rstd", "bias"))


def _layer(input, normalized_shape, mean, rstd, weight):
    return Normal((input - mean) * rstd, rstd, weight, list(range(-len(normalized_shape), 0)))


# -- root-mean-square norm -----------------------------------------------------------------------------------------


@vjp(aten._fused_rms_norm.default)
def rms_norm(g, input, normalized_shape, weight, out):
    """x̄ = J (w ⊙ ȳ) − ρ² x̂ ρ̄/n, w̄ = Σ ȳ ⊙ x̂; here x̂ = ρ x, without a mean. Not every device has a backward kernel."""
    normal = _rms(input, normalized_shape, out[1], weight)
    return normal.project(normal.scale(g[0])) + normal.from_rstd(g[1]), None if weight is None else g[0] * normal.hat


@jvp(aten._fused_rms_norm.default)
def rms_norm_jvp(input, input_t, normalized_shape, weight, weight_t, out):
    """ẏ = w ⊙ J ẋ + ẇ ⊙ x̂, ρ̇ = −ρ² ⟨x̂ ⊙ ẋ⟩."""
    normal = _rms(input, normalized_shape, out[1], weight)
    return normal.tangent(input_t, weight_t, None), -(out[1] * out[1] * normal.mean(normal.hat * input_t))


def _rms(input, normalized_shape, rstd, weight):
    return Normal(input * rstd, rstd, weight, list(range(-len(normalized_shape), 0)), centered=False)


# -- group norm ----------------------------------------------------------------------------------------------------


@vjp(aten.native_group_norm.default)
def group_norm(g, input, weight, bias, out, N, C, HxW, group):
    """x̄ = J (w ⊙ ȳ) + (μ̄ − ρ² x̂ ρ̄)/n, w̄ = Σ ȳ ⊙ x̂, b̄ = Σ ȳ."""
    if is_empty(input):  # torch's own meta function divides by the number of its entries
        return [None if t is None else torch.zeros_like(t) for t in (input, weight, bias)]
    wanted, layout = [True, weight is not None, bias is not None], _memory_format(input)
    by_input, by_weight, by_bias = aten.native_group_norm_backward(
        g[0].contiguous(memory_format=layout), input.contiguous(memory_format=layout),
        out[1], out[2], weight, N, C, HxW, group, wanted,
    )  # fmt: skip
    normal = _group(input, out[1], out[2], None)
    by_statistics = normal.from_statistics(_grouped(g[1]), _grouped(g[2]))
    return by_input + by_statistics.expand(normal.hat.shape).reshape(input.shape), by_weight, by_bias


@jvp(aten.native_group_norm.default)
def group_norm_jvp(input, input_t, weight, weight_t, bias_t, out):
    """ẏ = w ⊙ J ẋ + ẇ ⊙ x̂ + ḃ, μ̇ = ⟨ẋ⟩, ρ̇ = −ρ² ⟨x̂ ⊙ ẋ⟩."""
    normal = _group(input, out[1], out[2], weight)
    shape, tangent = normal.hat.shape, input_t.reshape(normal.hat.shape)
    out_t = normal.tangent(tangent, _by_channel(weight_t, shape), _by_channel(bias_t, shape))
    mean_t, rstd_t = normal.statistics_tangent(tangent)
    return out_t.view(input.shape), mean_t.view(out[1].shape), rstd_t.view(out[2].shape)


@vjp(aten.native_group_norm_backward.default, wrt=("grad_out", "input", "weight"), linear_in="grad_out")
def group_norm_backward(g, grad_out, input, mean, rstd, weight, output_mask):
    """See `Normal.second`."""
    normal = _group(input, mean, rstd, weight)
    shape, (by_input, by_weight, by_bias) = normal.hat.shape, _wanted(g, output_mask)
    by_grad, by_input, by_weight = normal.second(
        grad_out.reshape(shape),
        _map(lambda t: t.reshape(shape), by_input),
        _by_channel(by_weight, shape),
        _by_channel(by_bias, shape),
    )
    restored = [_map(lambda t: t.expand(shape).reshape(input.shape), t) for t in (by_grad, by_input)]
    return *restored, _map(lambda t: t.sum([0, 3]).view(-1), by_weight)


@jvp(aten.native_group_norm_backward.default)
def group_norm_backward_jvp(grad_out, grad_out_t, input, input_t, mean, rstd, weight, weight_t, output_mask):
    """See `Normal.second_tangent`."""
    normal = _group(input, mean, rstd, weight)
    shape = normal.hat.shape
    grad, grad_t, tangent = grad_out.reshape(shape), grad_out_t.reshape(shape), input_t.reshape(shape)
    by_input_t, by_weight_t = normal.second_tangent(grad, grad_t, tangent, _by_channel(weight_t, shape))
    sums = [t.sum([0, 3]).view(-1) for t in (by_weight_t, grad_t)]
    return _wanted((by_input_t.view(input.shape), *sums), output_mask)


nondifferentiable(aten.native_group_norm_backward.default, arguments=("mean", "rstd"))


def _group(input, mean, rstd, weight):
    """As [N, groups, C / groups, H·W]."""
    split = input.reshape(*mean.shape, input.shape[1] // mean.shape[1], math.prod(input.shape[2:]))
    rstd = _grouped(rstd)
    return Normal((split - _grouped(mean)) * rstd, rstd, _by_channel(weight, split.shape), [2, 3])


def _grouped(statistic):
    return statistic[:, :, None, None]


def _by_channel(parameter, shape):
    return None if parameter is None else parameter.reshape(shape[1], shape[2], 1)


# -- batch norm ----------------------------------------------------------------------------------------------------


def _batch_norm(g, input, weight, bias, running_mean, running_var, out, training, eps):
    wanted = [True, weight is not None, bias is not None]
    running = (None, None) if training else (running_mean, running_var)
    by_input, *rest = aten.native_batch_norm_backward(
        g[0], input, weight, *running, out[1], out[2], training, eps, wanted
    )
    if training:
        normal = _batch(input, weight, None, None, out[1], out[2], True, eps)
        by_input = by_input + normal.from_statistics(_channel(g[1], input), _channel(g[2], input))
    return by_input, *rest


@vjp(
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit_functional.default,
    wrt=("input", "weight", "bias"),
)
def batch_norm(g, input, weight, bias, running_mean, running_var, out, training, eps):
    """x̄ = J (w ⊙ ȳ) + (μ̄ − ρ² x̂ ρ̄)/n, w̄ = Σ ȳ ⊙ x̂, b̄ = Σ ȳ; in evaluation the statistics are constants and J = ρ."""
    return _batch_norm(g, input, weight, bias, running_mean, running_var, out, training, eps)


@vjp(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(g, input, weight, bias, out, training, eps):
    """As `batch_norm`, of the batch's own statistics."""
    return _batch_norm(g, input, weight, bias, None, None, out, training, eps)


@vjp(
    aten._native_batch_norm_legit_no_training.default,
    aten._batch_norm_no_update.default,
    wrt=("input", "weight", "bias"),
)
def batch_norm_evaluation(g, input, weight, bias, running_mean, running_var, out, eps):
    """As `batch_norm`, of running statistics."""
    return _batch_norm(g, input, weight, bias, running_mean, running_var, out, False, eps)


@vjp(
    aten._batch_norm_with_update.default,
    aten._batch_norm_with_update_functional.default,
    wrt=("input", "weight", "bias"),
)
def batch_norm_training(g, input, weight, bias, out, eps):
    """As `batch_norm`, of the batch's own statistics."""
    return _batch_norm(g, input, weight, bias, None, None, out, True, eps)


# The running statistics are brought up to date behind autograd's back.
nondifferentiable(aten._native_batch_norm_legit_functional.default, results=(3, 4))
nondifferentiable(aten._batch_norm_with_update_functional.default, results=(4, 5))


@jvp(
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit_functional.default,
)
def batch_norm_jvp(input, input_t, weight, weight_t, bias_t, running_mean, running_var, out, training, eps):
    """ẏ = w ⊙ J ẋ + ẇ ⊙ x̂ + ḃ."""
    normal = _batch(input, weight, running_mean, running_var, out[1], out[2], training, eps)
    return _batch_tangents(normal, input, input_t, weight_t, bias_t, out)


@jvp(
    aten._native_batch_norm_legit.no_stats,
    aten._batch_norm_with_update.default,
    aten._batch_norm_with_update_functional.default,
)
def batch_norm_training_jvp(input, input_t, weight, weight_t, bias_t, out, eps):
    """ẏ = w ⊙ J ẋ + ẇ ⊙ x̂ + ḃ."""
    normal = _batch(input, weight, None, None, out[1], out[2], True, eps)
    return _batch_tangents(normal, input, input_t, weight_t, bias_t, out)


@jvp(aten._native_batch_norm_legit_no_training.default, aten._batch_norm_no_update.default)
def batch_norm_evaluation_jvp(input, input_t, weight, weight_t, bias_t, running_mean, running_var, out, eps):
    """ẏ = w ⊙ ρ ẋ + ẇ ⊙ x̂ + ḃ."""
    normal = _batch(input, weight, running_mean, running_var, None, None, False, eps)
    return _batch_tangents(normal, input, input_t, weight_t, bias_t, out)


@vjp(aten.native_batch_norm_backward.default, wrt=("grad_out", "input", "weight"), linear_in="grad_out")
def batch_norm_backward(
    g, grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask
):
    """See `Normal.second`."""
    normal = _batch(input, weight, running_mean, running_var, save_mean, save_invstd, train, eps)
    by_input, by_weight, by_bias = _wanted(g, output_mask)
    by_grad, by_input, by_weight = normal.second(
        grad_out, by_input, _channel(by_weight, input), _channel(by_bias, input)
    )
    return by_grad, by_input, _map(lambda t: _sum(t, normal.dims), by_weight)


@jvp(aten.native_batch_norm_backward.default)
def batch_norm_backward_jvp(
    grad_out, grad_out_t, input, input_t, weight, weight_t,
    running_mean, running_var, save_mean, save_invstd, train, eps, output_mask,
):  # fmt: skip
    """See `Normal.second_tangent`."""
    normal = _batch(input, weight, running_mean, running_var, save_mean, save_invstd, train, eps)
    by_input_t, by_weight_t = normal.second_tangent(grad_out, grad_out_t, input_t, _channel(weight_t, input))
    return _wanted((by_input_t, _sum(by_weight_t, normal.dims), _sum(grad_out_t, normal.dims)), output_mask)


nondifferentiable(aten.native_batch_norm_backward.default, arguments=("save_mean", "save_invstd"))


def _batch(input, weight, running_mean, running_var, save_mean, save_invstd, training, eps):
    dims = [dim for dim in range(input.dim()) if dim != 1]
    mean, rstd = (save_mean, save_invstd) if training else (running_mean, torch.rsqrt(running_var + eps))
    hat = (input - _channel(mean, input)) * _channel(rstd, input)
    return Normal(hat, _channel(rstd, input), _channel(weight, input), dims, fixed=not training)


def _batch_tangents(normal, input, input_t, weight_t, bias_t, out):
    out_t = normal.tangent(input_t, _channel(weight_t, input), _channel(bias_t, input))
    if normal.fixed:
        return out_t, *[None] * (len(out) - 1)
    statistics = [statistic.view(-1) for statistic in normal.statistics_tangent(input_t)]
    return out_t, *statistics, *[None] * (len(out) - 3)  # what runs along is no function of this input alone


def _channel(parameter, input) -> Any:
    return None if parameter is None else parameter.view(-1, *[1] * (input.dim() - 2))


# -- weight norm ---------------------------------------------------------------------------------------------------


@vjp(aten._weight_norm_interface.default)
def weight_norm(g, v, g_, out, dim):
    """w = γ u with u = v/‖v‖:  v̄ = γ (w̄ − u ⟨w̄, u⟩)/‖v‖, γ̄ = ⟨w̄, u⟩."""
    return aten._weight_norm_interface_backward(g[0].contiguous(), v, g_, out[1], dim)


@jvp(aten._weight_norm_interface.default)
def weight_norm_jvp(v, g_, v_t, g__t, dim):
    """ẇ = γ̇ u + γ (v̇ − u ⟨v̇, u⟩)/‖v‖."""
    unit, norm, dot = _unit(v, dim)
    return g__t * unit + g_ * (v_t - unit * dot(v_t, unit)) / norm, None


@vjp(aten._weight_norm_interface_backward.default, wrt=("grad_w", "saved_v", "saved_g"), linear_in="grad_w")
def weight_norm_backward(g, grad_w, saved_v, saved_g, dim):
    """Of v̄ = γ (w̄ − u ⟨w̄, u⟩)/‖v‖ and γ̄ = ⟨w̄, u⟩, whose cotangents are a and b; u depends on v by (I − uuᵀ)/‖v‖."""
    by_v, by_g = g
    unit, norm, dot = _unit(saved_v, dim)
    along, grad_along = dot(by_v, unit), dot(grad_w, unit)
    by_gain = (dot(by_v, grad_w) - along * grad_along) / norm
    by_unit = by_g * grad_w - saved_g / norm * (by_v * grad_along + grad_w * along)
    return (
        saved_g / norm * (by_v - unit * along) + by_g * unit,
        (by_unit - unit * dot(by_unit, unit) - saved_g * by_gain * unit) / norm,
        by_gain,
    )


@jvp(aten._weight_norm_interface_backward.default)
def weight_norm_backward_jvp(grad_w, saved_v, saved_g, grad_w_t, saved_v_t, saved_g_t, dim):
    """The product rule on v̄ = γ/‖v‖ (w̄ − u ⟨w̄, u⟩) and γ̄ = ⟨w̄, u⟩."""
    unit, norm, dot = _unit(saved_v, dim)
    norm_t, along = dot(unit, saved_v_t), dot(grad_w, unit)
    unit_t = (saved_v_t - unit * norm_t) / norm
    along_t = dot(grad_w_t, unit) + dot(grad_w, unit_t)
    gain, gain_t = saved_g / norm, (saved_g_t - saved_g / norm * norm_t) / norm
    rest, rest_t = grad_w - unit * along, grad_w_t - unit_t * along - unit * along_t
    return gain_t * rest + gain * rest_t, along_t


nondifferentiable(aten._weight_norm_interface_backward.default, arguments="saved_norms")


def _unit(v, dim):
    """v/‖v‖, ‖v‖ and the scalar product, over all dimensions but `dim`."""
    dims = [d for d in range(v.dim()) if d != dim % v.dim()]

    def dot(left, right):
        return (left * right).sum(dims, keepdim=True) if dims else left * right  # an empty list means all

    norm = dot(v, v).sqrt()
    return v / norm, norm, dot


# -- terms that may be absent --------------------------------------------------------------------------------------


def _wanted(results, output_mask):
    """Those results of a fused kernel that its mask asks for; the others have no cotangent."""
    return tuple(result if wanted else None for result, wanted in zip(results, output_mask, strict=True))


def _total(*terms) -> Any:
    present = [term for term in terms if term is not None]
    return sum(present[1:], present[0]) if present else None


def _times(left, right):
    return None if left is None or right is None else left * right


def _map(function, value):
    return None if value is None else function(value)


def _sum(x, dims):
    return x.sum(list(dims)) if len(dims) else x


def _memory_format(x):
    """What the kernel, which reads raw memory, expects: channels last if x is, else contiguous."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if last is None or x.is_contiguous() or not x.is_contiguous(memory_format=last):
        return torch.contiguous_format
    return last
