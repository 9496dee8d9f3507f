"""How an operator is differentiated, in one word: for reports and for the coverage table."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload

from tapeless.rules.registry import is_nondifferentiable, rule_of, tensor_arguments
from tapeless.rules.traced import why_untraceable

WRITTEN = ("pointwise", "linear", "bilinear", "vjp", "zero")  # forms of a written rule


def support(op: Any) -> str:
    """The form of the written rule, or "nondifferentiable", "traced" (torch's own derivative is used) or "none"."""
    if not isinstance(op, OpOverload):
        return "custom"
    if is_nondifferentiable(op):
        return "nondifferentiable"
    rule = rule_of(op)
    if rule is not None and rule.vjps:
        return rule.form
    return "none" if why_untraceable(op) or not tensor_arguments(op) else "traced"
