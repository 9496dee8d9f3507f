"""Why an OpInfo entry differs from eager, for every one that does."""

from __future__ import annotations

_FORWARD = "eager: its tangents are not the transpose of its own gradients, ours are"

EXPLAINED: dict[str, str] = {
    "as_strided_scatter": "eager: the gradient of what is overwritten should be 0, see [limitations](limitations.md)",
    "logcumsumexp": _FORWARD,
    "nn.functional.linear_cross_entropy.chunked": f"{_FORWARD}; a tangent is lost silently",
    "nn.functional.linear_cross_entropy.chunked_none": f"{_FORWARD}; a tangent is lost silently",
    "scatter_reduce.prod": _FORWARD,
}
