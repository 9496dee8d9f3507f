"""What random programs are made of: lines of Python, by family of rules.

`{a}`, `{b}`, `{c}` stand for values that may carry a gradient, `{i}` for integers, `{m}` for a mask, `{d}` and `{e}`
for dims of `{a}` (negative ones too), `{n}` for a number from 1 to 3. What does not fit its operands is left out.
"""

from __future__ import annotations

_LINES = {
    "activation": """
        {a}.relu()
        F.gelu({a})
        F.gelu({a}, approximate='tanh')
        F.silu({a})
        F.elu({a}, 0.7)
        F.glu({a}, {d})
        F.leaky_relu({a}, 0.2)
        F.softplus({a}, {n})
        F.hardtanh({a}, -0.5, 0.5)
        F.prelu({a}, {b}.reshape(-1)[:1])
        F.hardswish({a})
        F.mish({a})
        F.softshrink({a}, 0.2)
        F.logsigmoid({a})
        F.threshold({a}, 0.1, 0.3)
    """,
    "attention": """
        F.scaled_dot_product_attention({a}, {b}, {c})
        F.scaled_dot_product_attention({a}, {a}, {a}, is_causal=True)
        F.scaled_dot_product_attention({a}[None], {b}[None], {b}[None], scale=0.3)
    """,
    "bilinear": """
        {a} * {b}
        {a} @ {b}
        {a} @ {b}.transpose(0, -1)
        torch.addmm({a}, {b}, {c}, beta=0.5)
        torch.outer({a}, {b})
        torch.dot({a}, {b})
        torch.baddbmm({a}, {b}, {c}, alpha=2)
        F.linear({a}, {b}, {c})
        torch.vdot({a}, {b})
        torch.einsum('ij,kj->ik', {a}, {b})
        torch.linalg.cross({a}, {b}, dim={d})
        torch.kron({a}, {b})
    """,
    "convolution": """
        F.conv1d({a}, {b}.reshape(-1)[:3 * {a}.shape[0]].reshape(3, {a}.shape[0], 1))
        F.conv1d({a}[None], {b}.reshape(-1)[:2 * {a}.shape[0]].reshape(1, {a}.shape[0], 2), padding=1, stride={n})
        F.conv2d({a}[None, None], {b}.reshape(-1)[:4].reshape(1, 1, 2, 2), {c}.reshape(-1)[:1], padding=1)
        F.conv_transpose1d({a}, {b}.reshape(-1)[:{a}.shape[0] * 2].reshape({a}.shape[0], 1, 2), stride={n})
    """,
    "distance": """
        torch.cdist({a}, {b})
        torch.cdist({a}, {b}, p=1.5)
        F.pdist(torch.cat([{a}, {a}.new_ones(1, {a}.shape[-1])]))
        F.cosine_similarity({a}, {b}, {d})
        F.pairwise_distance({a}, {b})
        torch.dist({a}, {b}, 3)
    """,
    "embedding": """
        F.embedding({i}, {a})
        F.embedding({i}, {a}, padding_idx=0)
        F.embedding_bag({i}.reshape(1, -1), {a}, mode='mean')
        F.embedding_bag({i}.reshape(1, -1), {a}, mode='sum')
        F.embedding_bag({i}.reshape(-1, 1), {a}, mode='max')
    """,
    "factorize": """
        torch.linalg.cholesky({a} @ {a}.mH + 2 * torch.eye({a}.shape[-2], dtype={a}.dtype))
        torch.linalg.qr({a})
        torch.linalg.svdvals({a})
        torch.linalg.eigvalsh({a} @ {a}.mH)
        torch.linalg.lu_factor({a})[0]
    """,
    "linalg": """
        torch.linalg.inv({a} + 4 * torch.eye({a}.shape[-1], dtype={a}.dtype))
        torch.linalg.det({a})
        torch.linalg.slogdet({a})
        torch.linalg.solve({a} + 4 * torch.eye({a}.shape[-1], dtype={a}.dtype), {b})
        torch.linalg.matrix_exp({a} / 4)
        torch.linalg.vector_norm({a}, {n}, {d})
        {a}.norm()
        {a}.norm(dim={d})
        torch.linalg.matrix_norm({a})
        torch.linalg.solve_triangular({a} + 4 * torch.eye({a}.shape[-1]), {b}, upper=True)
    """,
    "linear": """
        {a} + {b}
        {a} - 2 * {b}
        -{a}
        {a} / 3
        {a}.transpose({d}, {e})
        {a}.reshape(-1)
        {a}.unsqueeze({d})
        {a}.squeeze()
        {a}.flip({d})
        {a}.roll({n}, {d})
        {a}.sum({d})
        {a}.mean({d}, keepdim=True)
        {a}.sum()
        {a}.cumsum({d})
        {a}.expand(2, *{a}.shape)
        {a}.repeat({n}, *{a}.shape)
        {a}.tril()
        {a}.diagonal()
        {a}.trace()
        torch.cat([{a}, {b}], {d})
        torch.stack([{a}, {b}, {a}], {d})
        {a}.chunk(2, {d})
        {a}.split({n}, {d})
        {a}[:3].unbind(0)
        {a}.movedim({d}, {e})
        {a}.diag_embed()
        {a}.real
        torch.view_as_real({a})
        {a}.conj()
        {a}.to(torch.float32)
        {a}.to(torch.complex128)
        {a}.double()
        torch.lerp({a}, {b}, 0.3)
        {a}.unfold({d}, 2, 1)
        torch.complex({a}, {b})
        {a}.clone()
        {a}.T
        {a}.detach()
        torch.atleast_2d({a})
        {a}.tile(2, 1)
        torch.trapezoid({a}, dim={d})
        torch.block_diag({a}, {b})
        {a}.swapaxes({d}, {e}).contiguous()
        torch.hstack([{a}, {b}])
        {a}.imag
        {a}.mT
    """,
    "loss": """
        F.mse_loss({a}, {b})
        F.l1_loss({a}, {b}, reduction='none')
        F.smooth_l1_loss({a}, {b}, beta=0.5)
        F.huber_loss({a}, {b}, reduction='sum')
        F.cross_entropy({a}, {i})
        F.cross_entropy({a}, {b}.softmax(-1))
        F.nll_loss({a}.log_softmax(-1), {i})
        F.binary_cross_entropy_with_logits({a}, {b}.sigmoid())
        F.soft_margin_loss({a}, {b}.sign())
        F.binary_cross_entropy({a}.sigmoid(), {b}.sigmoid())
        F.kl_div({a}.log_softmax(-1), {b}.softmax(-1), reduction='sum')
        F.poisson_nll_loss({a}, {b}.square())
        F.hinge_embedding_loss({a}, {b}.sign())
        F.multi_margin_loss({a}, {i})
        F.gaussian_nll_loss({a}, {b}, {c}.square() + 1)
        F.cross_entropy({a}, {i}, label_smoothing=0.1)
    """,
    "nondifferentiable": """
        {a}.argmax({d})
        {a} > {b}
        {a}.isfinite()
        {i} + 1
        {i} * 2 - 1
        torch.arange({n})
        torch.zeros_like({a})
        {i} % 2 == 0
        torch.ones({n}, 4, dtype=torch.float64)
        {m} & ~{m}
        {a}.argsort({d})
        {a}.long()
        {i}.clamp(0, 1)
        {m}.logical_not()
    """,
    "normalize": """
        F.layer_norm({a}, {a}.shape[-1:])
        F.layer_norm({a}, {a}.shape[-1:], {b}, {c})
        F.batch_norm({a}, None, None, training=True)
        F.group_norm({a}[None], {n}, {b}.reshape(-1)[:{a}.shape[0]])
        F.rms_norm({a}, {a}.shape[-1:])
        F.normalize({a}, dim={d})
        F.instance_norm({a}[None])
        torch.var_mean({a}, {d}, keepdim=True)
        {a}.std({d}, correction=0)
        {a}.var()
        torch.std_mean({a}, {d})
        F.batch_norm({a}, {a}.detach().mean(0), {a}.detach().var(0) + 1, {b}.reshape(-1)[:{a}.shape[1]])
    """,
    "pointwise": """
        {a}.sin()
        {a}.tanh()
        {a}.exp()
        {a}.sigmoid()
        {a}.square()
        {a}.abs()
        {a}.sqrt()
        {a}.log()
        {a}.pow({n})
        {a} ** {b}
        {a} / (2 + {b}.square())
        torch.maximum({a}, {b})
        torch.minimum({a}, 0 * {b})
        {a}.clamp(-0.5, 0.5)
        {a}.clamp(min={b})
        torch.where({m}, {a}, {b})
        {a}.masked_fill({m}, 0.5)
        torch.atan2({a}, {b})
        {a}.reciprocal()
        {a}.rsqrt()
        torch.fmod({a}, 0.7)
        torch.addcmul({a}, {b}, {c}, value=2)
        torch.addcdiv({a}, {b}, {c}.square() + 1)
        torch.lerp({a}, {b}, {c})
        {a}.sign()
        {a}.round()
        torch.hypot({a}, {b})
        {a}.cos() * {i}
        {a} + {m}
        {a}.sinh()
        {a}.angle()
        {a} - {i}
        torch.logaddexp({a}, {b})
        torch.nan_to_num({a})
        torch.where({a} > 0, {a}, 0.0)
        2 ** {a}
        {a}.fmax({b})
        torch.copysign({a}, {b})
        {a}.atan()
        {a}.frac()
        {a}.remainder({b})
    """,
    "pooling": """
        F.max_pool1d({a}, 2, 1)
        F.avg_pool1d({a}, 2, 1, 1)
        F.adaptive_avg_pool1d({a}, {n})
        F.adaptive_max_pool1d({a}, {n})
        F.max_pool2d({a}[None], {n}, 1)
        F.avg_pool2d({a}[None], 2, 1, 1, count_include_pad=False)
        F.lp_pool1d({a}, 2, 2)
    """,
    "quantize": """
        torch.fake_quantize_per_tensor_affine({a}, 0.3, {n}, -4, 4)
    """,
    "random": """
        F.dropout({a}, 0.4)
        torch.bernoulli({a}.sigmoid()) * {b}
        {a} * torch.rand_like({a}.real)
        {a} + torch.randn({n}, 1)
    """,
    "reduce": """
        {a}.prod({d})
        {a}.amax({d})
        {a}.amin(({d}, {e}), keepdim=True)
        {a}.max({d})
        {a}.min()
        {a}.median({d})
        {a}.logsumexp({d})
        {a}.cumprod({d})
        {a}.logcumsumexp({d})
        {a}.sort({d})
        {a}.topk({n}, {d})
        {a}.kthvalue({n}, {d})
        torch.aminmax({a}, dim={d})
        {a}.cummax({d})
        {a}.nansum({d})
        {a}.prod()
        {a}.mode({d})
        {a}.nanmean()
        {a}.count_nonzero({d})
        torch.maximum({a}.max(), {b})
    """,
    "resize": """
        F.interpolate({a}[None], scale_factor=2)
        F.interpolate({a}[None], size=3, mode='linear', align_corners=True)
        F.pad({a}, (1, 2))
        F.interpolate({a}[None, None], size=(3, 2), mode='bilinear')
        F.pad({a}, (1, -1), value=0.5)
        F.pad({a}, (1, 1), mode='reflect')
        F.pad({a}[None], (1, 0), mode='replicate')
        F.pad({a}[None], (1, 1), mode='circular')
        F.fold(F.unfold({a}[None, None], 2), {a}.shape, 2)
        F.grid_sample({a}[None, None], {b}.tanh().reshape(-1)[:8].reshape(1, 2, 2, 2), align_corners=False)
    """,
    "rnn": """
        torch.rnn_tanh_cell({a}, {b}, {c}, {c})
        torch.gru_cell({a}[:, :1], {b}[:, :1], {c}[:3, :1], {c}[:3, :1])
    """,
    "select": """
        {a}[0]
        {a}[..., 1:]
        {a}[..., ::2]
        {a}[[0, -1, 0]]
        {a}[{i}]
        {a}.select({d}, -1)
        {a}.narrow({d}, 0, 1)
        {a}.index_select({d}, {i})
        {a}.gather({d}, {i})
        {a}.scatter({d}, {i}, {b})
        {a}.scatter_add({d}, {i}, {b})
        {a}.index_add({d}, {i}, {b})
        {a}.take({i})
        torch.take_along_dim({a}, {i}, {d})
        {a}.index_put(({i},), {b}, accumulate=True)
        {a}.index_fill({d}, {i}, 0.3)
        {a}.masked_scatter({m}, {b})
        {a}.select_scatter({b}.select({d}, 0), {d}, -1)
        {a}.diagonal_scatter({b}.diagonal())
        {a}.slice_scatter({b}, {d})
        {a}.scatter_reduce({d}, {i}, {b}, 'amax')
        {a}.scatter_reduce({d}, {i}, {b}, 'prod')
        {a}.index_copy({d}, {i}, {b})
        {a}.scatter({d}, {i}, 0.5)
        {a}.index_reduce({d}, {i}, {b}, 'mean')
    """,
    "softmax": """
        {a}.softmax({d})
        {a}.log_softmax({d})
        F.softmin({a}, {d})
        {a}.softmax({d}, dtype=torch.float64)
    """,
    "special": """
        {a}.erf()
        torch.special.i0({a})
        {a}.lgamma()
        torch.special.ndtr({a})
        {a}.digamma()
        torch.xlogy({a}, {b}.square() + 0.1)
        torch.sinc({a})
        torch.special.entr({a}.square())
        {a}.expm1()
    """,
    "spectral": """
        torch.fft.fft({a}, dim={d})
        torch.fft.rfft({a})
        torch.fft.irfft({a}, {n})
        torch.fft.ifft2({a}, norm='ortho')
        torch.fft.fftshift({a})
        torch.fft.hfft({a})
    """,
    "in place": """
        {a}.mul_({b})
        {a}.add_({b}, alpha=2)
        {a}.clone().copy_({b})
        {a}.zero_()
        {a}.relu_()
        {a}.clamp_(-0.5, 0.5)
        {a}.sigmoid_()
        {a}.fill_(0.5)
        {a}[0].mul_({b}[0])
        {a}[..., 0].copy_({b}[..., 0])
        {a}.view(-1)[1:].sin_()
        {a}.t_()
        {a}.index_add_({d}, {i}, {b})
        {a}.masked_fill_({m}, 0.2)
        {a}.unbind({d})[0].add_(1)
        {a}.diagonal().exp_()
        {a}.index_put_(({i},), {b})
        {a}.scatter_({d}, {i}, {b})
        {a}.transpose({d}, {e}).mul_(2)
        {a}.div_(2 + {b}.square())
        {a}.squeeze_()
        {a}.lerp_({b}, 0.5)
        {a}.sub_({b}).add_({a})
    """,
}

OPERATIONS = {family: tuple(line.strip() for line in text.strip().splitlines()) for family, text in _LINES.items()}
