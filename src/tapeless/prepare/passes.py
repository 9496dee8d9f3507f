"""What a pass is, and the two ways to write one: `@rewrite` for a local change, `@sweep` for a look at the whole."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tapeless.prepare.pattern import Call


class Safety(Enum):
    """Where a pass may act."""

    TRAINING = "train-safe"  # anywhere: values and derivatives of every order are the same
    FROZEN = "frozen-statistics"  # anywhere; its pattern is that of a normalization whose statistics do not move
    INFERENCE = "inference-only"  # where no derivative passes


class Phase(Enum):
    """Passes of one phase run together, to their common fixpoint; phases run in this order."""

    NORMALIZE = "normalize"  # one spelling for one thing: fewer patterns afterwards
    SIMPLIFY = "simplify"  # remove what does nothing
    SHARE = "share"  # compute a value once
    ALGEBRA = "algebra"  # compute it in another order
    GROUP = "group"  # compute several at once
    KERNEL = "kernel"  # call one that does the same faster


@dataclass(frozen=True, eq=False)
class Pass:
    """A named change of graphs. It says what it does and where it is right; whether it pays, the cost model says."""

    name: str
    says: str
    phase: Phase
    safety: Safety
    default: bool  # on unless switched off; one that rounds differently in extreme cases is not
    symbolic: bool  # also right where sizes are symbolic
    always: bool  # right and cheaper by construction: the cost model is not asked
    relayout: bool  # may give values that nobody sees other strides instead of copying them
    patterns: tuple[Call, ...]
    act: Callable[..., Any]
    wants: tuple[str, ...]  # the names of the arguments of `act`

    def __str__(self) -> str:
        return self.name


def rewrite(*patterns: Call, phase: Phase = Phase.SIMPLIFY, **facts: Any) -> Callable[[Callable[..., Any]], Pass]:
    """A pass that replaces each value that fits a pattern by what the function returns, written in plain torch.

    The function names the wildcards that it needs. `out` is the value to be replaced, `site` the place in the graph
    (a `Site`). It returns the new value, which must have the type of `out`, or None to decline.
    """
    return lambda function: _pass(function, phase, patterns, **facts)


def sweep(*, phase: Phase, **facts: Any) -> Callable[[Callable[..., Any]], Pass]:
    """A pass that looks at the whole graph and offers replacements to the editor it is given."""
    return lambda function: _pass(function, phase, (), **facts)


def _pass(
    function: Callable[..., Any],
    phase: Phase,
    patterns: tuple[Call, ...],
    safety: Safety = Safety.TRAINING,
    default: bool = True,
    symbolic: bool = False,
    always: bool = False,
    relayout: bool = False,
) -> Pass:
    says = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
    wants = tuple(inspect.signature(function).parameters)
    name = getattr(function, "__name__", "rewrite")
    return Pass(name, says, phase, safety, default, symbolic, always, relayout, patterns, function, wants)
