"""Derivatives of one call, of each kind, in a form that two implementations can be compared by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves, tree_map_only

Values = list[torch.Tensor | None]
Mask = tuple[bool, ...]  # which of the outputs get a cotangent; empty: all

TOLERANCE = {
    torch.float64: 1e-7,
    torch.complex128: 1e-7,
    torch.float32: 2e-3,
    torch.complex64: 2e-3,
    torch.float16: 2e-2,
    torch.bfloat16: 8e-2,
}


@dataclass(frozen=True)
class Call:
    """A function with arguments of which fresh copies are made for every call, under a fixed seed."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def by(self, function: Callable[..., Any]) -> Call:
        """The same call of another implementation."""
        return Call(function, self.args, self.kwargs)

    def fresh(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tree_map_only(torch.Tensor, _copy, (self.args, self.kwargs))

    def run(self, args: Any, kwargs: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        return [leaf for leaf in tree_leaves(self.function(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]


def outputs(call: Call) -> Values:
    return list(call.run(*call.fresh()))


def first(call: Call, used: Mask = ()) -> Values:
    """Outputs and gradients of the inputs, for random cotangents of the outputs `used` that require a gradient."""
    args = call.fresh()
    inputs, results = requiring_grad(args), call.run(*args)
    roots = _roots(results, used)
    return [*results, *_grad(roots, inputs, cotangents(roots))]


def second(call: Call, used: Mask = ()) -> Values:
    """Gradients, by inputs and cotangents, of the gradients: all entries of the Hessian-vector product."""
    args = call.fresh()
    inputs, roots = requiring_grad(args), _roots(call.run(*args), used)
    sent = [g.requires_grad_() for g in cotangents(roots)]
    gradients = [g for g in _grad(roots, inputs, sent, create_graph=True) if g is not None]
    again = [(g, v) for g, v in zip(gradients, weights(gradients), strict=True) if g.requires_grad]
    return _grad([g for g, _ in again], [*inputs, *sent], [v for _, v in again])


def forward(call: Call) -> Values:
    """Tangents of the outputs, for random tangents of every input that requires a gradient."""
    args = call.fresh()
    tangents = iter(directions(requiring_grad(args)))
    with forward_ad.dual_level():
        duals = tree_map_only(torch.Tensor, lambda t: _dual(t, tangents), args)
        return [forward_ad.unpack_dual(t).tangent for t in call.run(*duals)]


def cotangents(roots: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What is sent to the outputs."""
    return _random(roots, 0)


def weights(gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What is sent to the gradients, at second order."""
    return _random(gradients, 1)


def directions(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tangents of the inputs that `forward` takes."""
    return _random(inputs, 2)


def pairing(call: Call, found: Values, gradients: Values, used: Mask = ()) -> tuple[torch.Tensor, torch.Tensor]:
    """⟨ȳ, ẏ⟩ of the tangents `found` and ⟨x̄, ẋ⟩ of the gradients: equal, for each map is the other's transpose."""
    inputs, results = requiring_grad(call.fresh()), call.run(*call.fresh())
    sent = [t for i, (t, out) in enumerate(zip(found, results, strict=True)) if out.requires_grad and _is_used(i, used)]
    return inner(cotangents(_roots(results, used)), sent), inner(gradients, directions(inputs))


def inner(left: Sequence[torch.Tensor | None], right: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Re ⟨left, right⟩ in double precision, over all tensors; None is zero."""
    pairs = zip(left, right, strict=True)
    terms = [(a.conj() * b).sum() for a, b in pairs if a is not None and b is not None]
    return sum((t.real.to(torch.float64) for t in terms), torch.zeros((), dtype=torch.float64))


def same(expected: Values, actual: Values, none_is_zero: bool = False, tolerance: float | None = None) -> None:
    """Raise unless both hold the same values; `None`, dtype and shape included. `tolerance`: default by dtype."""
    if none_is_zero:
        expected, actual = _zeros_for_none(expected, actual), _zeros_for_none(actual, expected)
    missing = [[t is None for t in values] for values in (expected, actual)]
    if missing[0] != missing[1]:
        raise AssertionError(f"None where {_positions(missing[1])}, in eager {_positions(missing[0])}")
    for want, have in zip(expected, actual, strict=True):
        if want is not None and have is not None:
            close(want, have, tolerance)


def close(expected: torch.Tensor, actual: torch.Tensor, tolerance: float | None = None) -> None:
    """Equal up to rounding, which is measured against the largest entry."""
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        raise AssertionError(f"{_kind(actual)}, in eager {_kind(expected)}")
    tolerance = TOLERANCE.get(expected.dtype, 0.0) if tolerance is None else tolerance
    expected, actual = _dense(expected), _dense(actual)
    largest = expected[expected.isfinite()].abs().max().item() if expected.isfinite().any() else 0.0
    absolute = tolerance * max(float(largest), 1e-2)
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=tolerance, atol=absolute)


def _dense(t: torch.Tensor) -> torch.Tensor:
    return t.detach().resolve_conj() if t.layout is torch.strided else t.detach().to_dense()


def _zeros_for_none(values: Values, like: Values) -> Values:
    return [
        torch.zeros_like(other) if t is None and other is not None else t for t, other in zip(values, like, strict=True)
    ]


def _positions(missing: list[bool]) -> list[int]:
    return [i for i, is_none in enumerate(missing) if is_none]


def _kind(t: torch.Tensor) -> str:
    return f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}"


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _dual(tensor: torch.Tensor, tangents: Any) -> torch.Tensor:
    if not tensor.requires_grad:
        return tensor
    return forward_ad.make_dual(tensor.detach(), next(tangents))


def requiring_grad(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _roots(results: list[torch.Tensor], used: Mask) -> list[torch.Tensor]:
    return requiring_grad([t for i, t in enumerate(results) if _is_used(i, used)])


def _is_used(index: int, used: Mask) -> bool:
    return not used or used[index]


def _random(like: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in like]


def _grad(roots: Any, inputs: Any, cotangents: Any, create_graph: bool = False) -> Values:
    if not roots:
        return [None] * len(inputs)
    return list(torch.autograd.grad(roots, inputs, cotangents, allow_unused=True, create_graph=create_graph))
