"""Activations: a kernel each way, and the derivative of the backward kernel for second order."""

from __future__ import annotations

import math

import torch
from torch._ops import OpOverload

from tapeless.rules.registry import Function, jvp, nondifferentiable, pointwise, tensor_arguments, vjp, zero

aten = torch.ops.aten
where = torch.where


def activation(op: OpOverload, backward: OpOverload, first: Function, second: Function | None = None) -> None:
    """y = f(x) whose gradient is `first`, a call of the kernel `backward`; `second` is that kernel's own gradient in x.

    Without `second` the activation is made of straight lines.
    """
    cotangent, x = tensor_arguments(backward)
    pointwise(op, first)
    pointwise(backward, linear_in=cotangent, **{cotangent: first}, **({x: second} if second else {}))
    if second is None:
        zero(backward, arguments=x)


# -- made of straight lines ----------------------------------------------------------------------------------------

activation(
    aten.threshold.default,
    aten.threshold_backward.default,
    lambda g, self, threshold: aten.threshold_backward(g, self, threshold),
)
activation(
    aten.hardsigmoid.default,
    aten.hardsigmoid_backward.default,
    lambda g, self: aten.hardsigmoid_backward(g, self),
)
activation(
    aten.hardtanh.default,
    aten.hardtanh_backward.default,
    lambda g, self, min_val, max_val: aten.hardtanh_backward(g, self, min_val, max_val),
)
activation(
    aten.leaky_relu.default,
    aten.leaky_relu_backward.default,
    lambda g, self, negative_slope: aten.leaky_relu_backward(g, self, negative_slope, False),
)

# The slope can be told from the result as well, which whatever comes behind reads anyway: saves y only.


def leaky_relu(g, self, out, negative_slope):
    """Unless a falling line maps both sides to the same."""
    return aten.leaky_relu_backward(g, out if negative_slope >= 0 else self, negative_slope, False)


pointwise(aten.hardtanh.default, lambda g, out, min_val, max_val: aten.hardtanh_backward(g, out, min_val, max_val))
pointwise(aten.leaky_relu.default, leaky_relu)
pointwise(aten.relu.default, lambda g, out: aten.threshold_backward(g, out, 0))


def outside(g, self, lambd):
    """The kernels for this know no symbolic sizes."""
    return where(self.abs() <= lambd, 0, g)


activation(aten.hardshrink.default, aten.hardshrink_backward.default, outside)
activation(aten.softshrink.default, aten.softshrink_backward.default, outside)

# -- smooth --------------------------------------------------------------------------------------------------------


def hardswish_second(g, grad_output, self):
    return where((self > -3) & (self < 3), g * grad_output / 3, 0)


def gelu_second(g, grad_output, self, approximate):
    """φ(x)(2 − x²); with u = √(2/π)(x + κx³), T = tanh u, T′ = 1 − T²: T′(u′ + x/2 (u″ − 2T u′²))."""
    square = self * self
    if approximate == "none":
        return g * grad_output * (square * -0.5).exp() * ((2 - square) / math.sqrt(2 * math.pi))
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    T = (scale * (self + cubic * square * self)).tanh()
    slope = scale * (1 + 3 * cubic * square)
    return g * grad_output * (1 - T * T) * (slope + 3 * scale * cubic * square - self * T * slope * slope)


def silu_second(g, grad_output, self):
    """σ(1 − σ)(2 + x(1 − 2σ))."""
    s = self.sigmoid()
    return g * grad_output * s * (1 - s) * (2 + self * (1 - 2 * s))


def mish_second(g, grad_output, self):
    """With T = tanh(softplus x): (1 − T²) σ (2 + x(1 − σ − 2Tσ))."""
    s, T = self.sigmoid(), torch.nn.functional.softplus(self).tanh()
    return g * grad_output * (1 - T * T) * s * (2 + self * (1 - s - 2 * T * s))


def softplus_second(g, grad_output, self, beta, threshold):
    """β σ(βx)(1 − σ(βx)) up to the threshold, 0 beyond."""
    s = (self * beta).sigmoid()
    return where(self * beta > threshold, 0, g * grad_output * s * (1 - s) * beta)


def logit_second(g, grad_output, self, eps):
    """(2x − 1) / (x(1 − x))² where logit was not clamped."""
    product = g * grad_output * (2 * self - 1) / (self * (1 - self)).square()
    return product if eps is None else where((self >= eps) & (self <= 1 - eps), product, 0)


activation(
    aten.hardswish.default,
    aten.hardswish_backward.default,
    lambda g, self: aten.hardswish_backward(g, self),
    hardswish_second,
)
activation(
    aten.gelu.default,
    aten.gelu_backward.default,
    lambda g, self, approximate: aten.gelu_backward(g, self, approximate=approximate),
    gelu_second,
)
activation(
    aten.silu.default,
    aten.silu_backward.default,
    lambda g, self: aten.silu_backward(g, self),
    silu_second,
)
activation(
    aten.mish.default,
    aten.mish_backward.default,
    lambda g, self: aten.mish_backward(g, self),
    mish_second,
)
activation(
    aten.softplus.default,
    aten.softplus_backward.default,
    lambda g, self, beta, threshold: aten.softplus_backward(g, self, beta, threshold),
    softplus_second,
)
activation(
    aten.logit.default,
    aten.logit_backward.default,
    lambda g, self, eps: aten.logit_backward(g, self, eps),
    logit_second,
)

# -- exponential below zero ----------------------------------------------------------------------------------------


def elu_first(g, alpha, scale, input_scale, is_result, self_or_result):
    return aten.elu_backward(g, alpha, scale, input_scale, is_result, self_or_result)


def elu_second(g, grad_output, alpha, scale, input_scale, is_result, self_or_result):
    """Below 0 the slope is c(y + αs) in the result y, and cαs exp(cx) in x, for the input scale c."""
    product = g * grad_output * input_scale
    if not is_result:
        product = product * (self_or_result * input_scale).exp() * (alpha * scale * input_scale)
    return where(self_or_result < 0, product, 0)


pointwise(
    aten.elu.default,
    lambda g, self, alpha, scale, input_scale: aten.elu_backward(g, alpha, scale, input_scale, False, self),
)
pointwise(aten.celu.default, lambda g, self, alpha: aten.elu_backward(g, alpha, 1, 1 / alpha, False, self))
pointwise(aten.elu_backward.default, linear_in="grad_output", grad_output=elu_first, self_or_result=elu_second)

# -- sigmoid and tanh: complex too, and saved as results ---------------------------------------------------------------

pointwise(aten.sigmoid.default, lambda g, out: aten.sigmoid_backward(g, out))
pointwise(aten.tanh.default, lambda g, out: aten.tanh_backward(g, out))
pointwise(
    aten.sigmoid_backward.default,
    linear_in="grad_output",
    grad_output=lambda g, output: aten.sigmoid_backward(g, output.conj()),
    output=lambda g, grad_output, output: g.conj() * grad_output * (1 - 2 * output.conj()),
)
pointwise(
    aten.tanh_backward.default,
    linear_in="grad_output",
    grad_output=lambda g, output: aten.tanh_backward(g, output.conj()),
    output=lambda g, grad_output, output: g.conj() * (-2 * output.conj() * grad_output),
)


@jvp(aten.sigmoid_backward.default)
def sigmoid_backward_jvp(grad_output, grad_output_t, output, output_t):
    """The kernel multiplies by a function of conj(output), hence the conjugate of its tangent."""
    return aten.sigmoid_backward(grad_output_t, output) + output_t.conj() * grad_output * (1 - 2 * output.conj())


@jvp(aten.tanh_backward.default)
def tanh_backward_jvp(grad_output, grad_output_t, output, output_t):
    return aten.tanh_backward(grad_output_t, output) - output_t.conj() * (2 * output.conj() * grad_output)


@vjp(aten.log_sigmoid_forward.default)
def log_sigmoid(g, self, out):
    return aten.log_sigmoid_backward(g[0], self, out[1])


@jvp(aten.log_sigmoid_forward.default)
def log_sigmoid_jvp(self, self_t, out):
    return aten.log_sigmoid_backward(self_t, self, out[1]), None


pointwise(
    aten.log_sigmoid_backward.default,
    linear_in="grad_output",
    grad_output=lambda g, self, buffer: aten.log_sigmoid_backward(g, self, buffer),
    self=lambda g, grad_output, self: -g * grad_output * self.sigmoid() * (-self).sigmoid(),
)
nondifferentiable(aten.log_sigmoid_backward.default, arguments="buffer")  # computed from self

# -- with a slope that is learnt or drawn --------------------------------------------------------------------------


@vjp(aten._prelu_kernel.default)
def prelu(g, self, weight):
    return aten._prelu_kernel_backward(g, self, weight)


@jvp(aten._prelu_kernel.default)
def prelu_jvp(self, self_t, weight, weight_t):
    return where(self >= 0, self_t, weight * self_t + weight_t * self)


@vjp(aten._prelu_kernel_backward.default, linear_in="grad_output")
def prelu_backward(g, grad_output, self, weight):
    """Both results are bilinear where x < 0: ȳw and ȳx."""
    g_self, g_weight = g
    right = self >= 0
    return (
        where(right, g_self, g_self * weight + g_weight * self),
        where(right, 0, grad_output * g_weight),
        where(right, 0, grad_output * g_self),
    )


@jvp(aten._prelu_kernel_backward.default)
def prelu_backward_jvp(grad_output, grad_output_t, self, self_t, weight, weight_t):
    right = self >= 0
    return (
        where(right, grad_output_t, grad_output_t * weight + grad_output * weight_t),
        where(right, 0, grad_output_t * self + grad_output * self_t),
    )


def rrelu(g, self, noise, lower, upper, training):
    return aten.rrelu_with_noise_backward(g, self, noise, lower, upper, training, False)


pointwise(aten.rrelu_with_noise.default, self=rrelu)
pointwise(aten.rrelu_with_noise_backward.default, linear_in="grad_output", grad_output=rrelu)
zero(aten.rrelu_with_noise_backward.default, arguments="self")
nondifferentiable(
    aten.rrelu_with_noise.default,
    aten.rrelu_with_noise_functional.default,
    aten.rrelu_with_noise_backward.default,
    arguments="noise",
)


@vjp(aten.rrelu_with_noise_functional.default, wrt="self")
def rrelu_functional(g, self, lower, upper, training, out):
    return rrelu(g[0], self, out[1], lower, upper, training)


@jvp(aten.rrelu_with_noise_functional.default)
def rrelu_functional_jvp(self, self_t, lower, upper, training, out):
    return rrelu(self_t, self, out[1], lower, upper, training), None


# -- gated ---------------------------------------------------------------------------------------------------------


@vjp(aten.glu.default)
def glu(g, self, dim):
    return aten.glu_backward(g, self, dim)


@jvp(aten.glu.default)
def glu_jvp(self, self_t, dim):
    """y = aσ(b): ẏ = ȧσ + aσ′ḃ."""
    (a, b), (a_t, b_t) = self.chunk(2, dim), self_t.chunk(2, dim)
    s = b.sigmoid()
    return s * a_t + a * s * (1 - s) * b_t


@vjp(aten.glu_backward.default, wrt="grad_output", linear_in="grad_output")
def glu_backward(g, self, dim):
    return glu_jvp(self, g, dim)


@vjp(aten.glu_backward.default, wrt="self")
def glu_second(g, grad_output, self, dim):
    """Of ȳσ and ȳaσ′ with σ′ = σ(1 − σ), σ″ = σ′(1 − 2σ)."""
    (a, b), (g_a, g_b) = self.chunk(2, dim), g.chunk(2, dim)
    s = b.sigmoid()
    slope = grad_output * s * (1 - s)
    return torch.cat([g_b * slope, slope * (g_a + g_b * a * (1 - 2 * s))], dim)


@jvp(aten.glu_backward.default)
def glu_backward_jvp(grad_output, grad_output_t, self, self_t, dim):
    (a, b), (a_t, b_t) = self.chunk(2, dim), self_t.chunk(2, dim)
    s = b.sigmoid()
    slope = s * (1 - s)
    bend = grad_output * (slope * a_t + a * slope * (1 - 2 * s) * b_t)
    return torch.cat([grad_output_t * s + grad_output * slope * b_t, grad_output_t * a * slope + bend], dim)
