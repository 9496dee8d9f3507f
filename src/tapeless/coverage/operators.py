"""ATen operators with a derivative in torch, and how each is differentiated here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch._ops import OpOverload

from tapeless.rules.registry import rule_of
from tapeless.rules.support import support


@dataclass(frozen=True)
class Support:
    """How one operator is differentiated."""

    reverse: str  # the form of its rule, or "traced", "nondifferentiable", "none"
    forward: str  # "written", "derived" (from the form of the rule) or "transposed" (the vjp of its vjp)


def differentiable_operators() -> dict[str, Support]:
    """Every operator for which torch has a derivative formula, and how it is differentiated here."""
    found = {str(op): Support(support(op), tangent(op)) for op in map(_overload, _formulas()) if op is not None}
    return dict(sorted(found.items()))


def tangent(op: OpOverload) -> str:
    """Where the tangent of an operator comes from."""
    rule = rule_of(op)
    if rule is None or rule.jvp is None:
        return "transposed"
    return "written" if rule.form == "vjp" else "derived"


def _formulas() -> list[str]:
    """Names with a formula in torchgen's `derivatives.yaml`: `add.Tensor`. Mutating ones are never captured."""
    import torchgen.packaged.autograd as autograd

    table = (Path(autograd.__path__[0]) / "derivatives.yaml").read_text(encoding="utf-8")
    names = []
    for entry in table.split("\n- name: ")[1:]:
        name = entry.partition("(")[0]
        formulas = re.findall(
            r"^ +\b(?!output_differentiability|result|dispatch)[\w, ]+: *(\S.*)$", entry, re.MULTILINE
        )
        if not name.partition(".")[0].endswith("_") and any(not _is_refusal(formula) for formula in formulas):
            names.append(name)
    return names


def _is_refusal(formula: str) -> bool:
    return formula.startswith(("not_implemented", "non_differentiable", "not_differentiable"))


def _overload(name: str) -> OpOverload | None:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
