"""A program differentiated here and in eager: outputs, gradients of first and second order, tangents and every None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tapeless.testing import derivatives, judge
from tapeless.testing.derivatives import Call, Mask
from tapeless.testing.direct import Direct

KINDS = ("gradients", "second gradients", "tangents")
REFUSED = "refused by torch"  # eager runs it, Dynamo cannot trace it on fake tensors, whatever the backend
NOTES = (f"({judge.DEFECT})", f"({REFUSED})")  # how kinds end that somebody might want to look at


class Difference(AssertionError):
    """A program whose derivatives are not eager's; `kind` says which."""

    def __init__(self, kind: str, mask: Mask, problem: Exception) -> None:
        of = f" of outputs {mask}" if mask else ""
        super().__init__(f"{kind}{of}: {type(problem).__name__}: {problem}")
        self.kind = kind


def compare(
    program: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    masks: Sequence[Mask] = ((),),
    kinds: Sequence[str] = KINDS,
    compiled: Callable[..., Any] | None = None,
) -> list[str]:
    """Raise a `Difference` where `program` and eager differ by a mistake of ours; else the kinds of derivatives met.

    Kinds that eager does not have of the program are not among them. Those that differ for a reason other than a
    mistake of ours name it: "tangents (eager's defect)". `compiled` is the program as we run it (default: captured
    without Dynamo, where that can be).
    """
    call = Call(program, tuple(inputs), {})
    if _attempt(derivatives.first, call) is None:
        return []
    return _compare_all(call, call.by(compiled or _captured(call)), masks, kinds)


def _compare_all(eager: Call, mine: Call, masks: Sequence[Mask], kinds: Sequence[str]) -> list[str]:
    met = {"gradients": None}
    for mask in masks if "gradients" in kinds else ():
        met[_same("gradients", lambda c, mask=mask: derivatives.first(c, mask), eager, mine, mask)] = None
    for name, kind in (("second gradients", derivatives.second), ("tangents", derivatives.forward)):
        if name in kinds and _attempt(kind, eager) is not None:
            met[_same(name, kind, eager, mine)] = None
    return list(met)


def _same(name: str, kind: Any, eager: Call, mine: Call, mask: Mask = ()) -> str:
    """The name of what agrees, with the reason if it does not and that is no mistake of ours."""
    expected = kind(eager)
    try:
        actual = kind(mine)
    except Exception as problem:
        if _torch_refuses(kind, eager):
            return f"{name} ({REFUSED})"
        raise Difference(name, mask, problem) from problem
    if name == "second gradients" and not _is_finite(derivatives.first(eager)):
        expected, actual = judge.where_both_are_finite(expected, actual)  # of a gradient that does not exist
    try:
        derivatives.same(expected, actual, name != "gradients", judge.tolerance(eager))
    except AssertionError as problem:
        reason = judge.excuse(name, kind, eager, mine, expected, actual, mask) or _wide(name, kind, eager, actual, mask)
        if not reason:
            raise Difference(name, mask, problem) from problem
        return f"{name} ({reason})"
    return name


def _wide(name: str, kind: Any, eager: Call, actual: derivatives.Values, mask: Mask) -> str:
    """Is it eager's defect in double precision, where finite differences judge, and ours the same but for rounding?"""
    if not judge.is_narrow(eager):
        return ""
    wide = judge.widened(eager)
    try:
        mine = wide.by(_captured(wide))
        expected, exact = kind(wide), kind(mine)
        narrow = [t if t is None or e is None else t.to(e.dtype) for t, e in zip(actual, exact, strict=True)]
        derivatives.same(exact, narrow, name != "gradients", judge.tolerance(eager))
    except Exception:
        return ""
    reason = judge.excuse(name, kind, wide, mine, expected, exact, mask)
    return reason if reason == judge.DEFECT else ""


def _is_finite(values: derivatives.Values) -> bool:
    return all(bool(t.isfinite().all()) for t in values if t is not None)


def _captured(call: Call) -> Callable[..., Any]:
    """Without Dynamo; a program that asks for values of tensors needs it, for its graph is broken there."""
    try:
        return Direct(call.function, *call.fresh())
    except Exception:  # one of ours comes again
        return torch.compile(call.function, backend="tapeless")


def _torch_refuses(kind: Any, eager: Call) -> bool:
    """Does Dynamo fail on the program by itself?"""
    try:
        kind(eager.by(torch.compile(eager.function, backend="eager")))
    except Exception:
        return True
    return False


def _attempt(kind: Any, call: Call) -> derivatives.Values | None:
    try:
        return kind(call)
    except (RuntimeError, NotImplementedError, IndexError):
        return None
