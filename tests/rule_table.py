"""What the laws cannot find by themselves: calls that no OpInfo sample makes, and operators a law does not bind."""

import torch
from torch._ops import OpOverload

from rule_table_fused import FUSED
from tapeless.testing.samples import Call

aten = torch.ops.aten


def x(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def z(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed))


def positive(*shape: int, seed: int = 0) -> torch.Tensor:
    return x(*shape, seed=seed).abs() + 0.5


def call(op: OpOverload, *args, **kwargs) -> Call:
    return Call(op, args, kwargs, "the table")


NOISE = torch.full((3, 4), 0.2, dtype=torch.float64)
ROWS = torch.tensor([2, 0, 2])

SCALE, LEVEL, ENABLED = torch.tensor([0.3]), torch.tensor([1], dtype=torch.int32), torch.tensor([1])
SCALES, LEVELS = torch.tensor([0.3, 0.2, 0.4]), torch.tensor([1, 0, -1], dtype=torch.int32)

CALLS = [
    # views and copies as functionalization spells them
    call(aten._conj_copy.default, z(3)),
    call(aten._neg_view.default, x(3)),
    call(aten._neg_view_copy.default, x(3)),
    call(aten._reshape_alias.default, x(3, 4), [4, 3], [3, 1]),
    call(aten._reshape_copy.default, x(3, 4), [4, 3]),
    call(aten.copy.default, x(3, 4), x(4)),
    call(aten._lazy_clone.default, x(3)),
    call(aten.lift.default, x(3)),
    call(aten.lift_fresh_copy.default, x(3)),
    call(aten.select_copy.int, x(3, 4), 1, 2),
    call(aten.slice_copy.Tensor, x(5, 4), 0, 1, 5, 2),
    call(aten.split_copy.Tensor, x(5, 4), 2),
    call(aten.squeeze_copy.dims, x(1, 4, 1), [0, 2]),
    call(aten.unsafe_split_with_sizes.default, x(5, 4), [2, 3]),
    call(aten.view_as_complex_copy.default, x(3, 2)),
    call(aten.view_as_real_copy.default, z(3)),
    call(aten.unbind_copy.int, x(3, 4), 1),
    call(aten.zero.default, x(3)),
    # rounding that is differentiated as if it were none
    call(aten.fake_quantize_per_tensor_affine_cachemask.default, x(3, 4), 0.3, 1, -4, 4),
    call(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default, x(3, 4), SCALE, LEVEL, ENABLED, -4, 4),
    call(aten.fake_quantize_per_channel_affine_cachemask.default, x(3, 4), SCALES, LEVELS, 0, -4, 4),
    # elementwise, with numbers
    call(aten.clamp.default, x(3, 4), -0.5, 0.5),
    call(aten.clamp.default, x(3, 4), None, 0.5),
    call(aten.clamp.default, x(3, 4), -0.5),
    call(aten.clamp_max.default, x(3, 4), 0.3),
    call(aten.copysign.Scalar, x(3, 4), -1.5),
    call(aten.div.Scalar_mode, x(3, 4), 2.0, rounding_mode="floor"),
    call(aten.fmod.Scalar, x(3, 4), 0.7),
    call(aten.remainder.Scalar, x(3, 4), 0.7),
    call(aten.lerp.Tensor, x(3, 4), x(4, seed=1), x(3, 1, seed=2)),
    call(aten.mul.Tensor, x(3, 4), 2.5),
    call(aten.square.default, x(3, 4)),
    call(aten.square.default, z(3)),
    call(aten.xlogy.Scalar_Self, 2.0, positive(3)),
    call(aten.xlogy.Scalar_Other, x(3), 2.0),
    call(aten.special_xlog1py.self_scalar, 2.0, positive(3)),
    call(aten.special_xlog1py.other_scalar, x(3), 2.0),
    call(aten.heaviside.default, x(3, 4), x(4, seed=1)),
    call(aten.rrelu_with_noise.default, x(3, 4), NOISE, 0.1, 0.3, False),
    call(aten.rrelu_with_noise_functional.default, x(3, 4), NOISE, 0.1, 0.3, False),
    call(aten.rrelu_with_noise_backward.default, x(3, 4), x(3, 4, seed=1), NOISE, 0.1, 0.3, True, False),
    # special functions
    call(aten.igamma.default, positive(3), positive(3, seed=1)),
    call(aten.igammac.default, positive(3), positive(3, seed=1)),
    call(aten.special_zeta.default, positive(3) + 1, positive(3, seed=1)),
    call(aten.special_zeta.self_scalar, 2.5, positive(3)),
    call(aten.special_bessel_j0.default, x(4)),
    call(aten.special_bessel_j1.default, x(4)),
    call(aten.special_bessel_y0.default, positive(4)),
    call(aten.special_bessel_y1.default, positive(4)),
    call(aten.special_modified_bessel_i0.default, x(4)),
    call(aten.special_modified_bessel_i1.default, x(4)),
    call(aten.special_modified_bessel_k0.default, positive(4)),
    call(aten.special_modified_bessel_k1.default, positive(4)),
    call(aten.special_spherical_bessel_j0.default, x(4)),
    # reductions
    call(aten.norm.Scalar, x(3, 4), 3),
    call(aten.norm.ScalarOpt_dtype, x(3, 4), 2, dtype=torch.float64),
    call(aten.norm.ScalarOpt_dim_dtype, x(3, 4), 2, [1], False, dtype=torch.float64),
    # indexing
    call(aten._unsafe_index.Tensor, x(3, 4), [ROWS]),
    call(aten._unsafe_index_put.default, x(3, 4), [ROWS[:2]], x(2, 4, seed=1)),
    call(aten.fill.Tensor, x(3, 4), x()),
    call(aten.scatter_add.default, x(3, 4), 0, torch.tensor([[0, 1], [2, 0]]), x(3, 3, seed=1)),
    call(aten.embedding_dense_backward.default, x(3, 4), ROWS, 3, -1, True),
    *FUSED,
]

# Law 1 does not bind these.
AUTOGRAD_IS_WRONG = {
    aten.as_strided_scatter.default: "autograd's gradient of self keeps what src overwrote",
    aten.embedding_dense_backward.default: "autograd forgets the frequencies that it divided by",
}

# Law 4 does not bind these.
NOT_A_PLAIN_FUNCTION = {
    aten.fake_quantize_per_tensor_affine_cachemask.default: "its derivative is that of the identity",
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: "its derivative is that of the identity",
    aten.fake_quantize_per_channel_affine_cachemask.default: "its derivative is that of the identity",
    aten.cholesky.default: "one triangle is read of a matrix taken to be symmetric",
    aten.linalg_cholesky_ex.default: "one triangle is read of a matrix taken to be symmetric",
    aten._linalg_eigh.default: "one triangle is read of a matrix taken to be symmetric",
    aten.linalg_eig.default: "eigenvectors are defined up to a phase",
    aten._linalg_svd.default: "complex singular vectors are defined up to a phase",
    aten._ctc_loss.default: "its argument is taken to be normalized",
    aten._ctc_loss.Tensor: "its argument is taken to be normalized",
    aten.max_unpool2d.default: "where indices repeat, one value wins",
    aten.max_unpool3d.default: "where indices repeat, one value wins",
    aten.native_layer_norm_backward.default: "the statistics it is given follow the input",
    aten.native_group_norm_backward.default: "the statistics it is given follow the input",
    aten.native_batch_norm_backward.default: "the statistics it is given follow the input",
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: "the result it is given follows the arguments",
    aten._weight_norm_interface_backward.default: "the norms it is given follow the arguments",
    aten._cdist_backward.default: "the distances it is given follow the points",
    aten._pdist_backward.default: "the distances it is given follow the points",
    aten.log_sigmoid_backward.default: "the buffer it is given follows the input",
    aten.embedding.default: "the padding row gets no gradient",
}
