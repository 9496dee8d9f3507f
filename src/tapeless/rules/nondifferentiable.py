"""Operators without a derivative, sorted: results that are integers or booleans, factories, sizes, checks.

An operator whose gradient exists and is zero (`round`, `bernoulli`) is not here: it is declared `zero`.
"""

from __future__ import annotations

import torch

from tapeless.rules.registry import nondifferentiable

aten = torch.ops.aten

ANSWERS = (  # booleans, integers, indices
    aten._is_all_true,
    aten._is_any_true,
    aten._unique,
    aten._unique2,
    aten.all,
    aten.allclose,
    aten.any,
    aten.argmax,
    aten.argmin,
    aten.argsort,
    aten.bincount,
    aten.bitwise_and,
    aten.bitwise_left_shift,
    aten.bitwise_not,
    aten.bitwise_or,
    aten.bitwise_right_shift,
    aten.bitwise_xor,
    aten.bucketize,
    aten.count_nonzero,
    aten.eq,
    aten.equal,
    aten.gcd,
    aten.ge,
    aten.gt,
    aten.hash_tensor,
    aten.histc,
    aten.isclose,
    aten.isfinite,
    aten.isin,
    aten.isinf,
    aten.isnan,
    aten.isneginf,
    aten.isposinf,
    aten.isreal,
    aten.lcm,
    aten.le,
    aten.logical_and,
    aten.logical_not,
    aten.logical_or,
    aten.logical_xor,
    aten.lt,
    aten.multinomial,
    aten.ne,
    aten.nonzero,
    aten.nonzero_static,
    aten.one_hot,
    aten.searchsorted,
    aten.signbit,
)

FACTORIES = (
    aten._efficientzerotensor,
    aten.arange,
    aten.bartlett_window,
    aten.blackman_window,
    aten.empty,
    aten.empty_like,
    aten.empty_permuted,
    aten.empty_strided,
    aten.eye,
    aten.full,
    aten.full_like,
    aten.hamming_window,
    aten.hann_window,
    aten.kaiser_window,
    aten.linspace,
    aten.logspace,
    aten.new_empty,
    aten.new_empty_strided,
    aten.new_full,
    aten.new_ones,
    aten.new_zeros,
    aten.ones,
    aten.ones_like,
    aten.rand,
    aten.rand_like,
    aten.randint,
    aten.randint_like,
    aten.randn,
    aten.randn_like,
    aten.randperm,
    aten.scalar_tensor,
    aten.tril_indices,
    aten.triu_indices,
    aten.zeros,
    aten.zeros_like,
)

SIZES_AND_CHECKS = (
    aten._assert_async,
    aten._assert_scalar,
    aten._assert_tensor_metadata,
    aten._linalg_check_errors,
    aten._local_scalar_dense,
    aten.dim,
    aten.is_same_size,
    aten.item,
    aten.numel,
    aten.size,
    aten.stride,
    aten.sym_constrain_range,
    aten.sym_constrain_range_for_size,
    aten.sym_numel,
    aten.sym_size,
    aten.sym_storage_offset,
    aten.sym_stride,
)

for packet in (*ANSWERS, *FACTORIES, *SIZES_AND_CHECKS):
    nondifferentiable(*(getattr(packet, overload) for overload in packet.overloads()))

nondifferentiable(aten.normal.float_float, aten.repeat_interleave.Tensor, aten.view.dtype)
