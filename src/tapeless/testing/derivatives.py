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
    return [*results, *_grad(roots, inputs, _random(roots, 0))]


def second(call: Call, used: Mask = ()) -> Values:
    """Gradients, by inputs and cotangents, of the gradients: all entries of the Hessian-vector product."""
    args = call.fresh()
    inputs, roots = requiring_grad(args), _roots(call.run(*args), used)
    cotangents = [g.requires_grad_() for g in _random(roots, 0)]
    gradients = [g for g in _grad(roots, inputs, cotangents, create_graph=True) if g is not None]
    again = [(g, v) for g, v in zip(gradients, _random(gradients, 1), strict=True) if g.requires_grad]
    return _grad([g for g, _ in again], [*inputs, *cotangents], [v for _, v in again])


def forward(call: Call) -> Values:
    """Tangents of the outputs, for random tangents of every input that requires a gradient."""
    args = call.fresh()
    tangents = iter(directions(requiring_grad(args)))
    with forward_ad.dual_level():
        duals = tree_map_only(torch.Tensor, lambda t: _dual(t, tangents), args)
        return [forward_ad.unpack_dual(t).tangent for t in call.run(*duals)]


def directions(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tangents of the inputs that `forward` takes."""
    return _random(inputs, 2)


def pairing(call: Call, found: Sequence[torch.Tensor | None], gradients: Values) -> tuple[Any, Any]:
    """⟨ȳ, ẏ⟩ of the tangents `found` and ⟨x̄, ẋ⟩ of the gradients: equal, for each map is the other's transpose."""
    inputs, results = requiring_grad(call.fresh()), call.run(*call.fresh())
    cotangents = iter(_random(requiring_grad(results), 0))
    by_output = [(next(cotangents), t) for t, result in zip(found, results, strict=True) if result.requires_grad]
    by_input = zip(gradients, directions(inputs), strict=True)
    return _inner(by_output), _inner(by_input)


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
    return requiring_grad([t for i, t in enumerate(results) if not used or used[i]])


def _random(like: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in like]


def _grad(roots: Any, inputs: Any, cotangents: Any, create_graph: bool = False) -> Values:
    if not roots:
        return [None] * len(inputs)
    return list(torch.autograd.grad(roots, inputs, cotangents, allow_unused=True, create_graph=create_graph))


def _inner(pairs: Any) -> torch.Tensor:
    terms = [(a.conj() * b).sum() for a, b in pairs if a is not None and b is not None]
    return torch.stack(
        [t.real.to(torch.float64) if t.is_complex() else t.double() for t in terms] or [torch.zeros(())]
    ).sum()
