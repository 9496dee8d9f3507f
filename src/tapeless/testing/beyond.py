"""Forward mode where eager has none: tangents against finite differences, which rely on nobody's formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_map_only

from tapeless.testing import derivatives
from tapeless.testing.derivatives import Call, Values
from tapeless.testing.direct import Direct
from tapeless.testing.forward_samples import Sample

STEP = 1e-6
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}  # a finite difference has about eight digits


@dataclass(frozen=True)
class Outcome:
    """What became of one sample."""

    operator: str
    eager_has_it: bool
    problem: str = ""


def check(sample: Sample) -> Outcome:
    """Compare the tangents of one call."""
    eager_has_it = has_forward_mode(sample.call)
    try:
        actual = derivatives.forward(sample.call.by(Direct(sample.call.function, *sample.call.fresh())))
        compare(expected_tangents(sample), actual)
    except Exception as problem:
        return Outcome(str(sample.op), eager_has_it, f"{type(problem).__name__}: {problem}")
    return Outcome(str(sample.op), eager_has_it)


def has_forward_mode(call: Call) -> bool:
    """Does eager give any output of the call a tangent?"""
    try:
        return any(tangent is not None for tangent in derivatives.forward(call))
    except NotImplementedError:
        return False


def compare(expected: Values, actual: Values) -> None:
    """Raise unless the tangents are equal and some is not zero."""
    assert any(want is not None and want.any() for want in expected), "a tangent of zero says nothing"
    for want, have in zip(expected, actual, strict=True):
        if want is not None:
            have = torch.zeros_like(want) if have is None else have
            derivatives.close(want.to(have.dtype), have, TOLERANCE.get(have.dtype))


def expected_tangents(sample: Sample) -> Values:
    """The derivative of the outputs in the direction that `derivatives.forward` takes."""
    if not sample.is_slope:
        return by_rows(sample.call)
    if sample.reference is None:
        return finite_difference(sample.call)
    return finite_difference(Call(sample.reference, sample.call.args, sample.call.kwargs))


def finite_difference(call: Call) -> Values:
    """(f(x + εv) − f(x − εv)) / 2ε in double precision, of the outputs that have a derivative in eager."""
    low, high = (_moved(call, step) for step in (-STEP, STEP))
    results = zip(low, high, call.run(*call.fresh()), strict=True)
    return [(b - a) / (2 * STEP) if out.requires_grad else None for a, b, out in results]


def by_rows(call: Call) -> Values:
    """The product of eager's Jacobian, a row for each element of the outputs, with the direction."""
    args = call.fresh()
    inputs = derivatives.requiring_grad(args)
    outputs, directions = call.run(*args), derivatives.directions(inputs)
    return [_product(out, inputs, directions) if out.requires_grad else None for out in outputs]


def _moved(call: Call, step: float) -> list[torch.Tensor]:
    args = call.fresh()
    directions = iter(derivatives.directions(derivatives.requiring_grad(args)))

    def move(t: torch.Tensor) -> torch.Tensor:
        return t.double() + step * next(directions).double() if t.requires_grad else t

    with torch.no_grad():
        return call.run(*tree_map_only(torch.Tensor, move, args))


def _product(out: torch.Tensor, inputs: Sequence[torch.Tensor], directions: Sequence[torch.Tensor]) -> torch.Tensor:
    rows = [
        torch.autograd.grad(element, inputs, retain_graph=True, materialize_grads=True) for element in out.flatten()
    ]
    products = [torch.stack([(g * v).sum() for g, v in zip(row, directions, strict=True)]).sum() for row in rows]
    return torch.stack(products).view_as(out)
