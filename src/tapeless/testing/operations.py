"""What random programs are made of: lines of Python, by family of rules.

`{a}`, `{b}`, `{c}` stand for values that may carry a gradient, `{i}` for integers, `{m}` for a mask, `{d}` and `{e}`
for dims of `{a}` (negative ones too), `{n}` for a number from 1 to 3. What does not fit its operands is left out. Short
ones share a line. What is factorized has full rank: elsewhere factors have no derivative.
"""

from __future__ import annotations

_LINES = {
    "activation": """
        {a}.relu(); F.gelu({a}); F.gelu({a}, approximate='tanh'); F.silu({a}); F.elu({a}, 0.7); F.glu({a}, {d})
        F.leaky_relu({a}, 0.2); F.softplus({a}, {n}); F.hardtanh({a}, -0.5, 0.5); F.prelu({a}, {b}.reshape(-1)[:1])
        F.hardswish({a}); F.mish({a}); F.softshrink({a}, 0.2); F.logsigmoid({a}); F.threshold({a}, 0.1, 0.3)
        F.selu({a}); F.celu({a}, 0.6); F.relu6({a}); F.hardsigmoid({a}); F.softsign({a}); F.tanhshrink({a})
        F.hardshrink({a}, 0.3); F.rrelu({a}, 0.2, 0.2)
    """,
    "attention": """
        F.scaled_dot_product_attention({a}, {b}, {c})
        F.scaled_dot_product_attention({a}, {a}, {a}, is_causal=True)
        F.scaled_dot_product_attention({a}[None], {b}[None], {b}[None], scale=0.3)
        F.scaled_dot_product_attention({a}, {a}, {b}, attn_mask={m})
        F.scaled_dot_product_attention({a}, {b}, {b}, attn_mask={c})
        F.scaled_dot_product_attention({a}[None], {b}[None], {b}[None], dropout_p=0.3)
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
        torch.tensordot({a}, {b}, {n}); torch.mv({a}, {b}[0]); torch.bmm({a}, {b}); torch.inner({a}, {b})
        torch.addr({a}, {b}, {c}); torch.einsum('...i,...i->...', {a}, {b}); torch.einsum('bij,bkj->bik', {a}, {b})
        torch.einsum('ij,j,ik->k', {a}, {b}[0], {c})
        F.bilinear({a}, {b}, {c}[None, :{a}.shape[-1], :1].expand(2, -1, {b}.shape[-1]))
        torch.linalg.multi_dot([{a}, {b}, {c}]); torch.addbmm({a}[0], {b}, {c}, alpha=0.5)
        torch.linalg.vecdot({a}, {b})
    """,
    "convolution": """
        F.conv1d({a}, {b}.reshape(-1)[:3 * {a}.shape[0]].reshape(3, {a}.shape[0], 1))
        F.conv1d({a}[None], {b}.reshape(-1)[:2 * {a}.shape[0]].reshape(1, {a}.shape[0], 2), padding=1, stride={n})
        F.conv2d({a}[None, None], {b}.reshape(-1)[:4].reshape(1, 1, 2, 2), {c}.reshape(-1)[:1], padding=1)
        F.conv_transpose1d({a}, {b}.reshape(-1)[:{a}.shape[0] * 2].reshape({a}.shape[0], 1, 2), stride={n})
        F.conv2d({a}[None], {b}.reshape(-1)[:2 * {a}.shape[0]].reshape(2, {a}.shape[0], 1, 1), stride={n})
        F.conv1d({a}, {b}.reshape(-1)[:2 * {a}.shape[0]].reshape({a}.shape[0], 1, 2), groups={a}.shape[0], dilation=2)
        F.conv_transpose2d({a}[None, None], {b}.reshape(-1)[:4].reshape(1, 1, 2, 2), stride={n}, output_padding={n} - 1)
        F.conv3d({a}[None], {b}.reshape(-1)[:8].reshape(1, 1, 2, 2, 2), padding=1)
        F.conv1d({a}, {b}.reshape(-1)[:3 * {a}.shape[0]].reshape(1, {a}.shape[0], 3), padding='same')
    """,
    "distance": """
        torch.cdist({a}, {b})
        torch.cdist({a}, {b}, p=1.5)
        F.pdist(torch.cat([{a}, torch.eye(2, {a}.shape[-1], dtype={a}.dtype)]))
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
        F.embedding_bag({i}[None, :2], {a}, mode='sum', per_sample_weights={b}.reshape(1, -1)[:, :2])
    """,
    "factorize": """
        torch.linalg.cholesky({a} @ {a}.mH + 2 * torch.eye({a}.shape[-2], dtype={a}.dtype))
        torch.cholesky_solve({b}, torch.linalg.cholesky({a} @ {a}.mH + 2 * torch.eye({a}.shape[-2], dtype={a}.dtype)))
        torch.linalg.qr({a} + 3 * torch.eye(*{a}.shape[-2:], dtype={a}.dtype))
        torch.linalg.qr({a} + 3 * torch.eye(*{a}.shape[-2:], dtype={a}.dtype), mode='r')[1]
        torch.linalg.svdvals({a} + 3 * torch.eye(*{a}.shape[-2:], dtype={a}.dtype))
        torch.linalg.svd({a} + 3 * torch.eye(*{a}.shape[-2:], dtype={a}.dtype), full_matrices=False)[1].log1p()
        torch.linalg.matrix_norm({a} + 3 * torch.eye(*{a}.shape[-2:], dtype={a}.dtype), 'nuc')
        torch.linalg.eigvalsh({a} @ {a}.mH); torch.linalg.eigh({a} @ {a}.mH)[0]
        torch.linalg.pinv({a} + 3 * torch.eye(*{a}.shape[-2:], dtype={a}.dtype))
        torch.linalg.cond({a} + 3 * torch.eye(*{a}.shape[-2:], dtype={a}.dtype))
        torch.linalg.lu_factor({a} + 3 * torch.eye(*{a}.shape[-2:], dtype={a}.dtype))[0]
        torch.linalg.lu({a} + 3 * torch.eye(*{a}.shape[-2:], dtype={a}.dtype))[1:]
    """,
    "linalg": """
        torch.linalg.inv({a} + 4 * torch.eye({a}.shape[-1], dtype={a}.dtype))
        torch.linalg.matrix_exp({a} / 4)
        torch.linalg.vector_norm({a}, {n}, {d})
        {a}.norm()
        {a}.norm(dim={d})
        torch.linalg.matrix_norm({a})
        torch.linalg.solve_triangular({a} + 4 * torch.eye({a}.shape[-1]), {b}, upper=True)
        torch.linalg.matrix_power({a}, {n}); torch.linalg.lstsq({a}, {b})[0]
        torch.linalg.vector_norm({a}, float('inf'), {d}); torch.linalg.vander({a}, N={n}); {a}.norm(1.5, {d})
        torch.renorm({a}, 2, 0, 1.0); torch.linalg.matrix_norm({a}, 1)
    """,
    "systems": """
        torch.linalg.det({a} + 3 * torch.eye({a}.shape[-1], dtype={a}.dtype))
        torch.linalg.slogdet({a} + 3 * torch.eye({a}.shape[-1], dtype={a}.dtype))
        torch.logdet({a} @ {a}.mT + 2 * torch.eye({a}.shape[-2], dtype={a}.dtype))
        torch.linalg.solve({a} + 4 * torch.eye({a}.shape[-1], dtype={a}.dtype), {b})
    """,
    "linear": """
        {a} + {b}; {a} - 2 * {b}; -{a}; {a} / 3; {a}.transpose({d}, {e}); {a}.reshape(-1); {a}.unsqueeze({d})
        {a}.squeeze(); {a}.flip({d}); {a}.roll({n}, {d}); {a}.sum({d}); {a}.mean({d}, keepdim=True); {a}.sum()
        {a}.cumsum({d}); {a}.expand(2, *{a}.shape); {a}.repeat({n}, *{a}.shape); {a}.tril(); {a}.diagonal(); {a}.trace()
        torch.cat([{a}, {b}], {d}); torch.stack([{a}, {b}, {a}], {d}); {a}.chunk(2, {d}); {a}.split({n}, {d})
        {a}[:3].unbind(0); {a}.movedim({d}, {e}); {a}.diag_embed(); {a}.real; torch.view_as_real({a}); {a}.conj()
        {a}.to(torch.float32); {a}.to(torch.complex128); {a}.double(); torch.lerp({a}, {b}, 0.3); {a}.unfold({d}, 2, 1)
        torch.complex({a}, {b}); {a}.clone(); {a}.T; {a}.detach(); torch.atleast_2d({a}); {a}.tile(2, 1)
        torch.trapezoid({a}, dim={d}); torch.block_diag({a}, {b}); {a}.swapaxes({d}, {e}).contiguous()
        torch.hstack([{a}, {b}]); {a}.imag; {a}.mT; {a}.permute(*reversed(range({a}.dim()))); {a}.flatten(); {a}.triu(1)
        {a}.rot90(); {a}.diff(dim={d}); {a}.ravel(); {a}.unflatten(0, (-1, 1)); {a}.tensor_split(2, {d})
        {a}.repeat_interleave({n}, {d}); {a}.as_strided((2,), (1,)); {a}.broadcast_to({b}.shape); {a}.expand_as({b})
        {a}.reshape({b}.shape); {a}.type_as({b}); {a}.bfloat16(); {a}.float(); torch.cumulative_trapezoid({a}, dim={d})
        torch.vstack([{a}, {b}]); torch.dstack([{a}, {b}]); torch.meshgrid({a}, {b}); {a}.sum(({d}, {e})); {a}.mean()
        {a}.sum({d}, dtype=torch.float64); {a}.mH; {a}.squeeze({d}); {a}.view({a}.shape + (1,)); torch.polar({a}, {b})
        torch.stack([{a}, {b}], -1).movedim(-1, 0); torch.column_stack([{a}, {b}]); torch.diag({a})
        torch.rsub({a}, {b}, alpha=2); torch.gradient({a})[0]; {a}.narrow_copy({d}, 0, 1)
        torch.view_as_complex({a}[..., :2])
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
        F.cross_entropy({a}, {i}, ignore_index=1)
        F.cross_entropy({a}, {i}, {b}.detach().exp().reshape(-1)[:{a}.shape[-1]], reduction='sum')
        F.cross_entropy({a}, {i}, reduction='none'); F.nll_loss({a}, {i}, ignore_index=0, reduction='sum')
        F.margin_ranking_loss({a}, {b}, {c}.sign()); F.triplet_margin_loss({a}, {b}, {c})
        F.multilabel_margin_loss({a}, {i}); F.cosine_embedding_loss({a}, {b}, {i} * 2 - 1)
        F.multilabel_soft_margin_loss({a}, {b}.sigmoid())
        F.binary_cross_entropy_with_logits({a}, {b}.sigmoid(), pos_weight={c}.exp())
        F.mse_loss({a}, {b}, reduction='none')
        F.kl_div({a}.log_softmax(-1), {b}.log_softmax(-1), log_target=True, reduction='batchmean')
        F.ctc_loss({a}.log_softmax(-1), {i}[None, :1] % ({a}.shape[-1] - 1) + 1, [{a}.shape[0]], [1])
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
        torch.searchsorted({a}.detach().sort()[0], {b}.detach()); {a}.detach().floor(); {a}.ne(0); {i}.cumsum(0)
        {a}.sgn().detach(); torch.full_like({a}, 0.3); torch.eye({n}, dtype=torch.float64); {a}.isnan() | {m}
        {i}.bool(); torch.tril_indices({n}, 2)
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
        F.group_norm({a}, {n}, {b}.reshape(-1)[:{a}.shape[1]], {c}.reshape(-1)[:{a}.shape[1]])
        F.batch_norm({a}, None, None, {b}.reshape(-1)[:{a}.shape[1]], {c}.reshape(-1)[:{a}.shape[1]], training=True)
        F.rms_norm({a}, {a}.shape[-1:], {b}); F.layer_norm({a}, {a}.shape, eps=0.1); F.local_response_norm({a}, 2)
        torch.var_mean({a}, ({d}, {e}), correction=0); F.normalize({a}, p=1.0, dim={d}, eps=0.1); {a}.std()
    """,
    "pointwise": """
        {a}.sin(); {a}.tanh(); {a}.exp(); {a}.sigmoid(); {a}.square(); {a}.abs(); {a}.sqrt(); {a}.log(); {a}.pow({n})
        {a} ** {b}; {a} / (2 + {b}.square()); torch.maximum({a}, {b}); torch.minimum({a}, 0 * {b}); {a}.clamp(-0.5, 0.5)
        {a}.clamp(min={b}); torch.where({m}, {a}, {b}); {a}.masked_fill({m}, 0.5); torch.atan2({a}, {b})
        {a}.reciprocal(); {a}.rsqrt(); torch.fmod({a}, 0.7); torch.addcmul({a}, {b}, {c}, value=2)
        torch.addcdiv({a}, {b}, {c}.square() + 1); torch.lerp({a}, {b}, {c}); {a}.sign(); {a}.round()
        torch.hypot({a}, {b}); {a}.cos() * {i}; {a} + {m}; {a}.sinh(); {a}.angle(); {a} - {i}; torch.logaddexp({a}, {b})
        torch.nan_to_num({a}); torch.where({a} > 0, {a}, 0.0); 2 ** {a}; {a}.fmax({b}); torch.copysign({a}, {b})
        {a}.atan(); {a}.frac(); {a}.remainder({b}); {a}.tan(); {a}.asin(); {a}.acos(); {a}.asinh(); {a}.acosh()
        {a}.atanh(); {a}.cosh(); {a}.log1p(); {a}.log2(); {a}.log10(); {a}.exp2(); {a}.trunc(); {a}.floor(); {a}.ceil()
        {a}.sgn(); {a}.neg().abs(); {a}.cos(); {a}.deg2rad(); {a}.float_power(1.5); {a}.logit(0.1)
        torch.ldexp({a}, {i}); torch.heaviside({a}.detach(), {b}); {a}.clip({b}, {c}); {a}.pow(0); {a}.pow(-1)
        {a} / {b}; {a} // 0.7 + {a}; {a}.fmin({b}); {a}.div({b}, rounding_mode='trunc') + {a}
        torch.where({m}, {a}, {b} / {b}); torch.where({a} > 0, {a}.log(), {b}); {a}.masked_fill({a} < 0, 0).sqrt()
        {a}.logaddexp2({b}); {a}.clamp_max({b}); {a} * 2.5 + 1; 1 - {a}; {a} * {a}; {a} ** 2; {a} ** 0.5; 3 / {a}
        {a} % 0.8; {a}.pow({i}); {a}.xlogy(2.0)
    """,
    "pooling": """
        F.max_pool1d({a}, 2, 1)
        F.avg_pool1d({a}, 2, 1, 1)
        F.adaptive_avg_pool1d({a}, {n})
        F.adaptive_max_pool1d({a}, {n})
        F.max_pool2d({a}[None], {n}, 1)
        F.avg_pool2d({a}[None], 2, 1, 1, count_include_pad=False)
        F.lp_pool1d({a}, 2, 2)
        F.max_pool2d({a}[None], 2, 1, 1, return_indices=True); F.max_pool1d({a}, 2, 1, dilation=2)
        F.avg_pool2d({a}[None], 2, {n}); F.adaptive_avg_pool2d({a}[None], ({n}, 2))
        F.adaptive_max_pool2d({a}[None], {n}); F.max_pool3d({a}[None], {n}, 1)
        F.max_unpool1d(*F.max_pool1d({a}, 2, 1, return_indices=True), 2, 1); F.avg_pool3d({a}[None], {n}, 1)
    """,
    "quantize": """
        torch.fake_quantize_per_tensor_affine({a}, 0.3, {n}, -4, 4)
        torch.fake_quantize_per_channel_affine({a}, torch.ones({a}.shape[0]), torch.zeros({a}.shape[0]), 0, -4, 4)
    """,
    "random": """
        F.dropout({a}, 0.4)
        torch.bernoulli({a}.sigmoid()) * {b}
        {a} * torch.rand_like({a}.real)
        {a} + torch.randn({n}, 1)
        F.alpha_dropout({a}.contiguous(), 0.3, training=True); F.dropout1d({a}, 0.4); F.gumbel_softmax({a}, dim={d})
        torch.normal({a}.detach().real, 0.5) * {b}; F.rrelu({a}, training=True); {a}.clone().uniform_()
        {a}.new_empty({a}.shape).normal_() * {a}; torch.rand({n}); torch.randint(2, (3,)); F.dropout2d({a}, 0.3)
    """,
    "reduce": """
        {a}.prod({d}); {a}.amax({d}); {a}.amin(({d}, {e}), keepdim=True); {a}.max({d}); {a}.min(); {a}.median({d})
        {a}.logsumexp({d}); {a}.cumprod({d}); {a}.logcumsumexp({d}); {a}.sort({d}); {a}.topk({n}, {d})
        {a}.kthvalue({n}, {d}); torch.aminmax({a}, dim={d}); {a}.cummax({d}); {a}.nansum({d}); {a}.prod(); {a}.mode({d})
        {a}.nanmean(); {a}.count_nonzero({d}); torch.maximum({a}.max(), {b}); {a}.max(); {a}.amax()
        {a}.quantile(0.4, {d}); {a}.nanmedian({d}); {a}.cummin({d}); {a}.sort(stable=True, dim={d}, descending=True)
        {a}.all({d}); {a}.any(); {a}.min({d}, keepdim=True); {a}.topk({n}, {d}, largest=False); {a}.median()
        {a}.logsumexp(({d}, {e})); {a}.amin(); torch.aminmax({a}); {a}.msort(); {a}.cov(); {a}.nanquantile(0.3)
        {a}.argmin()
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
        F.interpolate({a}[None], scale_factor=1.7, mode='linear')
        F.interpolate({a}[None, None], size=(4, 5), mode='bicubic')
        F.interpolate({a}[None], size=(2, 5), mode='nearest-exact')
        F.interpolate({a}[None, None], size=(2, 2, 3), mode='trilinear')
        F.interpolate({a}[None, None], size=(2, 2), mode='bilinear', antialias=True)
        F.pixel_shuffle({a}[None, :1].expand(4, -1, -1), 2); F.pad({a}[None], (1, 1, 1, 1), mode='reflect')
        F.unfold({a}[None, None], 2, padding=1, stride={n}); F.channel_shuffle({a}[None], 1)
        F.grid_sample({a}[None, None], {b}.tanh().reshape(-1)[:8].reshape(1, 2, 2, 2), 'nearest', 'border', True)
        F.affine_grid({a}.reshape(-1)[:6].reshape(1, 2, 3), (1, 1, 2, 2), align_corners=False)
    """,
    "rnn": """
        torch.rnn_tanh_cell({a}, {b}, {c}, {c})
        torch.gru_cell({a}.flatten(1)[:, :1], {b}.flatten(1)[:, :1], *[{c}.flatten(1)[:3, :1]] * 2)
        torch.rnn_relu_cell({a}, {b}, {c}, {c})
        torch.lstm_cell({a}.flatten(1)[:, :1], [{b}.flatten(1)[:, :1]] * 2, *[{c}.flatten(1)[:4, :1]] * 2)
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
        {a}[:, None]; {a}[..., None, 0]; {a}[-1:]; {a}[{i}, {i}]; {a}[:, {i}]; {a}[{m}]; {a}[1:, ::2]; {a}[None, {i}]
        {a}.split([1, 2], {d}); {a}.put({i}, {b}.reshape(-1)[:{i}.numel()].reshape({i}.shape)); {a}.masked_select({m})
        {a}.masked_fill({m}, {b}.sum()); {a}.scatter_reduce({d}, {i}, {b}, 'sum', include_self=False)
        {a}.scatter_reduce({d}, {i}, {b}, 'mean'); {a}.take_along_dim({i}, {d}); {a}.index_reduce({d}, {i}, {b}, 'amin')
        {a}.index_put(({i}, {i}), {b}[..., 0], accumulate=True); {a}.index_fill({d}, {i}, {b}.sum())
        {a}.as_strided((2, 2), (1, 1), 1); {a}.where({m}, 0.5); {a}.swapdims({d}, {e})[..., :2]
        {a}.slice_scatter({b}[..., :1], -1, 1, 2)
    """,
    "softmax": """
        {a}.softmax({d})
        {a}.log_softmax({d})
        F.softmin({a}, {d})
        {a}.softmax({d}, dtype=torch.float64)
        torch.special.log_softmax({a}, {d}); F.softmax({a}.masked_fill({m}, float('-inf')), -1).nan_to_num()
        {a}.softmax({d}).log().nan_to_num()
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
        torch.special.i0e({a}); torch.special.i1({a}); torch.special.erfcx({a}); {a}.tanh().erfinv(); {a}.erfc()
        {a}.mvlgamma(1); torch.polygamma({n}, {a}.abs() + 1); torch.special.xlog1py({a}, {b}.square())
        torch.special.zeta({a}.detach().abs() + 2, {b}.abs() + 1); torch.special.log_ndtr({a})
        torch.igamma({a}.detach().abs() + 1, {b}.abs() + 1); torch.special.ndtri({a}.sigmoid())
    """,
    "spectral": """
        torch.fft.fft({a}, dim={d})
        torch.fft.rfft({a})
        torch.fft.irfft({a}, {n})
        torch.fft.ifft2({a}, norm='ortho')
        torch.fft.fftshift({a})
        torch.fft.hfft({a})
        torch.fft.rfft2({a}); torch.fft.irfft2({a}); torch.fft.ifft({a}, 5, {d}); torch.fft.fftn({a}, norm='forward')
        torch.fft.ihfft({a}); torch.fft.irfft({a}, dim={d}); torch.fft.rfft({a}, dim={d}, norm='ortho')
        torch.fft.ifftshift({a}, {d})
    """,
    "in place": """
        {a}.mul_({b}); {a}.add_({b}, alpha=2); {a}.clone().copy_({b}); {a}.zero_(); {a}.relu_(); {a}.clamp_(-0.5, 0.5)
        {a}.sigmoid_(); {a}.fill_(0.5); {a}[0].mul_({b}[0]); {a}[..., 0].copy_({b}[..., 0]); {a}.view(-1)[1:].sin_()
        {a}.t_(); {a}.index_add_({d}, {i}, {b}); {a}.masked_fill_({m}, 0.2); {a}.unbind({d})[0].add_(1)
        {a}.diagonal().exp_(); {a}.index_put_(({i},), {b}); {a}.scatter_({d}, {i}, {b}); {a}.transpose({d}, {e}).mul_(2)
        {a}.div_(2 + {b}.square()); {a}.squeeze_(); {a}.lerp_({b}, 0.5); {a}.sub_({b}).add_({a}); {a}.addcmul_({b}, {c})
        {a}.exp_(); {a}.masked_scatter_({m}, {b}.clone()); {a}.sin_().mul_({a}); {a}.pow_(2)
        {a}.index_fill_({d}, {i}, 0.1); {a}[..., 1:].copy_({b}[..., :-1].clone()); {a}[:, 0].zero_(); {a}[{i}].add_(1)
        {a}.select({d}, 0).tanh_(); {a}.real.mul_(2); {a}.imag.add_({b}.real); {a}.t().add_({b})
        {a}.reshape(-1)[0].mul_(3); {a}.unsqueeze({d}).sub_(1); {a}.narrow({d}, 0, 1).fill_(0.3); {a}.neg_()
        {a}.conj().mul_({b}); {a}.clamp_(min=0); {a}.tril_()
        {a}.put_({i}, {b}.reshape(-1)[:{i}.numel()].reshape({i}.shape)); {a}.copy_({b}.mT.clone())
        {a}.expand(2, *{a}.shape)[0].mul_(2); {a}.index_copy_({d}, {i}, {b}); {a}.addmm_({b}.clone(), {c}.clone())
        {a}.chunk(2, {d})[0].exp_(); {a}.cumsum_({d}); F.dropout({a}.contiguous(), 0.3, inplace=True)
        F.relu({a}, inplace=True)
        {a}.contiguous().bernoulli_(0.5); {a}.scatter_add_({d}, {i}, {b})
    """,
}

OPERATIONS = {
    family: tuple(operation for line in text.strip().splitlines() for operation in line.strip().split("; "))
    for family, text in _LINES.items()
}
