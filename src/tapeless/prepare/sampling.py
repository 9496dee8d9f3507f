"""Random choice and quantization: where no derivative passes."""

from __future__ import annotations

from typing import Any

import torch

from tapeless.prepare.editor import Site
from tapeless.prepare.passes import Pass, Phase, Safety, rewrite
from tapeless.prepare.pattern import anything, op, tensors

x, noise, like = tensors("x noise like")
dim, axis, keep, shape, scale, zero, dtype, low, high = anything("dim axis keep shape scale zero dtype low high")

Tensor = torch.Tensor


@rewrite(
    op.argmax(op.div(op._softmax(x, axis, False), noise), dim, keep), phase=Phase.ALGEBRA, safety=Safety.INFERENCE,
    default=False, always=True,
)  # fmt: skip
def gumbel_max(x: Tensor, noise: Tensor, axis: int, dim: Any, keep: bool, site: Site) -> Any:
    """argmax softmax(x)/e = argmax (x − log e) for positive e. Entries that tie but for rounding may change places."""
    drawn = site.through[1].args[1]
    positive = str(getattr(drawn, "target", "")).startswith("aten.exponential")
    if dim is None or dim % x.dim() != axis % x.dim() or not positive or noise.shape != x.shape:
        return None  # the normalizer is one number only along the axis of the softmax
    return torch.argmax(x - noise.log(), dim, keep)


VIEWS = (op.view(x, shape), op.permute(x, shape), op.transpose(x, shape, axis), op.t(x), op.unsqueeze(x, shape))


@rewrite(
    *(op.quantize_per_tensor(view, scale, zero, low, high, dtype) for view in VIEWS),
    phase=Phase.ALGEBRA, safety=Safety.INFERENCE, default=False,
)  # fmt: skip
def quantize_before_view(x: Tensor, scale: Any, zero: Any, low: Any, high: Any, dtype: Any, site: Site) -> Any:
    """A view of quantized numbers is quantized numbers viewed: the view is of fewer bytes, and patterns meet."""
    if isinstance(scale, Tensor) or isinstance(zero, Tensor):
        return None
    quantize: Any = site.node.target
    view: Any = site.through[1]
    return view.target(quantize(x, scale, zero, low, high, dtype), *view.args[1:])


SAMPLING: tuple[Pass, ...] = (gumbel_max, quantize_before_view)
