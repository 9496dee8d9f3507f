"""Two implementations differ: is that a mistake of ours? Who is right is decided by numbers, never by names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from tapeless.testing import derivatives
from tapeless.testing.derivatives import Call, Mask, Values

STEP = 1e-6  # of finite differences
CLOSE = 1e-5  # to finite differences is right …
FAR = 1e-4  # … and this far from them is wrong
EXACT = {torch.float32, torch.bfloat16, torch.float16, torch.complex64}  # dtypes that a wider one can judge

DEFECT = "eager's defect"
Kind = Callable[[Call], Values]


def excuse(name: str, kind: Kind, eager: Call, mine: Call, expected: Values, actual: Values, mask: Mask) -> str:
    """Why a difference is no mistake of ours; empty if it is one.

    "ill-conditioned": eager itself gives something else if its inputs change in the last digits. "rounding": in wider
    floats eager gives what is as near to ours as to its own. "eager's defect": finite differences, or eager's own
    derivative of the other mode, agree with ours and not with eager's.
    """
    if _is_shaky(kind, eager, expected):
        return "ill-conditioned"
    if _is_rounding(kind, eager, expected, actual):
        return "rounding"
    if name == "tangents" and not _transposes(eager, expected) and _transposes(eager, actual):
        return DEFECT
    return DEFECT if _differences_agree(name, eager, mine, expected, actual, mask) else ""


def tolerance(call: Call) -> float:
    """That of the least precise dtype that the call computes in."""
    met = _Dtypes()
    with met:
        call.run(*call.fresh())
    return max(derivatives.TOLERANCE.get(dtype, 0.0) for dtype in {torch.float64, *met.dtypes})


class _Dtypes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.dtypes |= {leaf.dtype for leaf in tree_leaves((args, result)) if isinstance(leaf, torch.Tensor)}
        return result


def where_both_are_finite(expected: Values, actual: Values) -> tuple[Values, Values]:
    """Both, with zeros where either is infinite or no number."""
    pairs = list(zip(expected, actual, strict=True))
    kept = [None if e is None or a is None or e.shape != a.shape else e.isfinite() & a.isfinite() for e, a in pairs]

    def finite(values: Values) -> Values:
        return [t if k is None or t is None else torch.where(k, t, 0.0) for t, k in zip(values, kept, strict=True)]

    return finite(expected), finite(actual)


# -- the last digits -------------------------------------------------------------------------------------------------


def _is_shaky(kind: Kind, eager: Call, expected: Values) -> bool:
    """Does it move if all inputs are scaled alike (ties stay ties), or if each entry moves by itself?"""
    allowed = tolerance(eager) / 10
    for scale in (torch.ones_like, torch.randn_like):
        moved = Call(eager.function, tuple(_nudged(t, scale) for t in eager.args), eager.kwargs)
        try:
            derivatives.same(expected, kind(moved), tolerance=allowed)
        except AssertionError:
            return True
    return False


def _nudged(t: torch.Tensor, scale: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    if not t.is_floating_point() and not t.is_complex():
        return t
    few = 16 if t.dtype in (torch.float64, torch.complex128) else 2
    moved = t.detach() * (1 + few * torch.finfo(t.dtype).eps * scale(t.detach().real))
    return moved.requires_grad_(t.requires_grad)


def _is_rounding(kind: Kind, eager: Call, expected: Values, actual: Values) -> bool:
    """Is ours about as near as eager's to what eager gives in wider floats?"""
    if not is_narrow(eager):
        return False
    try:
        exact = kind(widened(eager))
        pairs = list(zip(exact, expected, actual, strict=True))
    except (RuntimeError, ValueError):
        return False
    return all(_is_as_near(*three) for three in pairs)


def _is_as_near(exact: Any, theirs: Any, ours: Any) -> bool:
    if exact is None or theirs is None or ours is None:
        return exact is theirs is ours
    if exact.shape != ours.shape or theirs.dtype != ours.dtype:
        return False
    if not ours.numel():
        return True
    largest = exact.detach().abs().max().clamp(min=0.1)  # what cancels was larger
    errors = [(t.detach().to(exact.dtype) - exact.detach()).abs().max() for t in (theirs, ours)]
    return bool(errors[1] <= 4 * errors[0] + derivatives.TOLERANCE.get(ours.dtype, 0.0) * largest)


def is_narrow(call: Call) -> bool:
    """Is there a wider dtype for some of the inputs?"""
    return any(isinstance(t, torch.Tensor) and t.dtype in EXACT for t in call.args)


def widened(call: Call) -> Call:
    """The same call in double precision."""
    return Call(call.function, tree_map_only(torch.Tensor, _widened, call.args), call.kwargs)


def _widened(t: torch.Tensor) -> torch.Tensor:
    if t.dtype not in EXACT:
        return t
    wide = torch.complex128 if t.is_complex() else torch.float64
    return t.detach().to(wide).requires_grad_(t.requires_grad)


# -- eager's own defects ---------------------------------------------------------------------------------------------


def _transposes(eager: Call, tangents: Values) -> bool:
    """Are the tangents the transpose of eager's gradients?"""
    values = derivatives.first(eager)
    by_output, by_input = derivatives.pairing(eager, tangents, values[len(tangents) :])
    return _near(by_output, by_input, CLOSE)


def _differences_agree(name: str, eager: Call, mine: Call, expected: Values, actual: Values, mask: Mask) -> bool:
    """Do finite differences say that ours is right and eager's is wrong?"""
    try:
        want, theirs, ours = _by_differences(name, eager, mine, expected, actual, mask)
    except (RuntimeError, AssertionError, ValueError):
        return False
    return _near(want, ours, CLOSE) and not _near(want, theirs, FAR)


def _by_differences(
    name: str, eager: Call, mine: Call, expected: Values, actual: Values, mask: Mask
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One number three ways: by finite differences, and by what both found."""
    if name == "second gradients":
        moved = derivatives.directions([*(inputs := derivatives.requiring_grad(eager.args)), *_cotangents(eager)])
        slopes = [_gradients_along(mine, sign * STEP, moved[: len(inputs)], moved[len(inputs) :]) for sign in (1, -1)]
        want = (slopes[0] - slopes[1]) / (2 * STEP)
        return want, derivatives.inner(expected, moved), derivatives.inner(actual, moved)
    tangents = _tangents(eager)
    if name == "tangents":
        weights = derivatives.directions([t for t in tangents if t is not None])
        return tuple(derivatives.inner(values, weights) for values in (tangents, expected, actual))  # type: ignore[return-value]
    results = len(tangents)
    pairs = [derivatives.pairing(eager, tangents, values[results:], mask) for values in (expected, actual)]
    return pairs[0][0], pairs[0][1], pairs[1][1]


def _tangents(call: Call) -> Values:
    """Of the outputs, in the direction that `derivatives.forward` takes, by central differences."""
    moved = derivatives.directions(derivatives.requiring_grad(call.args))
    there, back = (derivatives.outputs(_moved(call, sign * STEP, moved)) for sign in (1, -1))
    return [(a.detach() - b.detach()) / (2 * STEP) for a, b in zip(there, back, strict=True)]  # type: ignore[union-attr]


def _moved(call: Call, step: float, directions: Sequence[torch.Tensor]) -> Call:
    along = iter(directions)

    def moved(t: torch.Tensor) -> torch.Tensor:
        return (t.detach() + step * next(along)).requires_grad_() if t.requires_grad else t

    args, kwargs = tree_map_only(torch.Tensor, moved, (call.args, call.kwargs))
    return Call(call.function, args, kwargs)


def _cotangents(call: Call) -> list[torch.Tensor]:
    return derivatives.cotangents(derivatives.requiring_grad(call.run(*call.fresh())))


def _gradients_along(call: Call, step: float, moved: Any, turned: Any) -> torch.Tensor:
    """⟨gradients, weights⟩ where the inputs have gone `step` along `moved` and the cotangents along `turned`."""
    args = _moved(call, step, moved).fresh()
    roots = derivatives.requiring_grad(call.run(*args))
    sent = [g + step * t for g, t in zip(derivatives.cotangents(roots), turned, strict=True)]
    inputs = derivatives.requiring_grad(args)
    found = [g for g in torch.autograd.grad(roots, inputs, sent, allow_unused=True) if g is not None]
    return derivatives.inner(found, derivatives.weights(found))


def _near(want: torch.Tensor, have: torch.Tensor, tolerance: float) -> bool:
    return bool((want - have).abs() <= tolerance * (1 + want.abs()))
