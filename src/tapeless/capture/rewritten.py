"""Calls that torch differentiates wrongly, where the program itself transforms them: written as others while traced.

A transform of `torch.func` inside the program is torch's own, and its derivatives are part of what is captured. Of a
few operators they are wrong from some order on. What stands here instead is made of operators of which they are right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from tapeless.capture.facts import graph_modules

LAYERS = ("_grad_increment_nesting", "_jvp_increment_nesting", "_vmap_increment_nesting")


@contextlib.contextmanager
def rightly_differentiated(module: fx.GraphModule) -> Iterator[None]:
    """Meanwhile a Dynamo graph with tangents, batches or several transforms calls what torch differentiates right."""
    nodes = [node for part in graph_modules(module) for node in part.graph.nodes] if _is_layered(module) else []
    calls = {node: (node.op, node.target) for node in nodes if _called(node) in INSTEAD}
    for node in calls:
        node.op, node.target = "call_function", INSTEAD[_called(node)]
    try:
        yield
    finally:
        for node, (op, target) in calls.items():
            node.op, node.target = op, target


def _called(node: fx.Node) -> Any:
    """The function that a node calls, also as a method."""
    return getattr(torch.Tensor, str(node.target), None) if node.op == "call_method" else node.target


def _is_layered(module: fx.GraphModule) -> bool:
    names = [getattr(node.target, "__name__", "") for part in graph_modules(module) for node in part.graph.nodes]
    layers = [name for name in names if name in LAYERS]
    return layers not in ([], [LAYERS[0]])


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    """Torch takes the statistics for constants, in a batch of gradients and from the third derivative on."""
    dims = list(range(-len(normalized_shape), 0))
    return _affine(_normalized(input, dims, eps), weight, bias).to(input.dtype)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """The same with the statistics of the batch. Torch keeps the running ones."""
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if running_mean is not None:
        F.batch_norm(input.detach(), running_mean, running_var, None, None, training, momentum, eps)
    columns = [w if w is None else w.reshape(-1, *[1] * (input.dim() - 2)) for w in (weight, bias)]
    return _affine(_normalized(input, [0, *range(2, input.dim())], eps), *columns).to(input.dtype)


def _normalized(x: Tensor, dims: list[int], eps: float) -> Tensor:
    x = x.float() if x.dtype in (torch.half, torch.bfloat16) else x
    centred = x - x.mean(dims, keepdim=True)
    return centred * (centred.square().mean(dims, keepdim=True) + eps).rsqrt()


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """Torch's tangents are wrong, and read both triangles."""
    factor = input.triu() if upper else input.tril()
    identity = torch.eye(input.shape[-1], dtype=input.dtype, device=input.device).expand(input.shape)
    return torch.cholesky_solve(identity, factor, upper)


INSTEAD: dict[Any, Callable[..., Any]] = {
    F.layer_norm: _layer_norm,
    torch.layer_norm: _layer_norm,
    F.batch_norm: _batch_norm,
    torch.cholesky_inverse: _cholesky_inverse,
    torch.Tensor.cholesky_inverse: _cholesky_inverse,
}
