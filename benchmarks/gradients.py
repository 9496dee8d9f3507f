"""How far gradients are from eager's, in numbers and in which of them are None."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

Gradients = dict[str, Tensor | None]

NEGLIGIBLE = 1e-5


@dataclass(frozen=True)
class Difference:
    """The worst relative error and where it is; how many gradients exist on one side only."""

    error: float
    worst: str
    zero_for_none: int
    none_for_tensor: int
    parameters: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a results file."""
        return asdict(self)

    @property
    def nones_differ(self) -> int:
        """Gradients that are None on one side only."""
        return self.zero_for_none + self.none_for_tensor


def compare(expected: Gradients, actual: Gradients) -> Difference:
    """Compare gradients tensor by tensor, each relative to the largest entry that eager has in it.

    Some gradients are zero in exact arithmetic (the key bias of an attention) and hold rounding noise only:
    negligible tensors are measured against the largest gradient of all.
    """
    errors = _errors(expected, actual)
    worst = max(errors, key=lambda name: _order(errors[name]), default="")
    return Difference(
        error=errors.get(worst, 0.0),
        worst=worst,
        zero_for_none=sum(expected[name] is None and actual[name] is not None for name in expected),
        none_for_tensor=sum(expected[name] is not None and actual[name] is None for name in expected),
        parameters=len(expected),
    )


def _errors(expected: Gradients, actual: Gradients) -> dict[str, float]:
    sizes = {name: _largest(gradient) for name, gradient in expected.items() if gradient is not None}
    overall = max(sizes.values(), default=0.0) or 1.0
    scales = {name: size if size >= NEGLIGIBLE * overall else overall for name, size in sizes.items()}
    return {name: _distance(expected[name], actual[name]) / scale for name, scale in scales.items()}


def _distance(expected: Tensor | None, actual: Tensor | None) -> float:
    if expected is None or actual is None:
        return 0.0  # counted among the Nones
    return _largest(expected.double() - actual.double())


def _largest(value: Tensor) -> float:
    return value.abs().max().item() if value.numel() else 0.0


def _order(error: float) -> float:
    """NaN is the worst error there is."""
    return float("inf") if error != error else error
