"""ATen operators with a derivative in torch, and how each is differentiated here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch._ops import OpOverload

from tapeless.rules.registry import rule_of
from tapeless.rules.support import support
from tapeless.torch_internals import has_kernel

_FORMULA = re.compile(r"^ +\b(?!output_differentiability|dispatch)([\w, ]+): *(\S.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Support:
    """How one operator is differentiated."""

    reverse: str  # the form of its rule, or "traced", "nondifferentiable", "none"
    forward: str  # "written", "derived" (from the form of the rule) or "transposed" (the vjp of its vjp)


def differentiable_operators() -> dict[str, Support]:
    """Every operator for which torch has a derivative formula, and how it is differentiated here."""
    found = {str(op): Support(support(op), tangent(op)) for op in _formulas()}
    return dict(sorted(found.items()))


def without_forward_mode() -> list[str]:
    """Operators with a kernel for plain tensors on the CPU, of which torch has a gradient and no tangent."""
    found = [op for op, formulas in _formulas().items() if _has_kernel(op) and not _has_tangent(op, formulas)]
    return sorted(str(op) for op in found)


def tangent(op: OpOverload) -> str:
    """Where the tangent of an operator comes from."""
    rule = rule_of(op)
    if rule is None or rule.jvp is None:
        return "transposed"
    return "written" if rule.form == "vjp" else "derived"


def _formulas() -> dict[OpOverload, dict[str, str]]:
    """The formulas of torchgen's `derivatives.yaml`, by the arguments or results they belong to.

    Operators that mutate are never captured; those that refuse every derivative have none.
    """
    import torchgen.packaged.autograd as autograd

    table = (Path(autograd.__path__[0]) / "derivatives.yaml").read_text(encoding="utf-8")
    found = {}
    for entry in table.split("\n- name: ")[1:]:
        name = entry.partition("(")[0]
        formulas = dict(
            re.findall(r"^ +\b(?!output_differentiability|dispatch)([\w, ]+): *(\S.*)$", entry, re.MULTILINE)
        )
        of_arguments = [formula for key, formula in formulas.items() if not key.startswith("result")]
        op = _overload(name)
        mutates = name.partition(".")[0].endswith("_")
        if op is not None and not mutates and any(not _is_refusal(formula) for formula in of_arguments):
            found[op] = formulas
    return found


def _has_tangent(op: OpOverload, formulas: dict[str, str]) -> bool:
    results = {result.name for result in op._schema.returns}
    keys = {name for key in formulas for name in key.replace(" ", "").split(",")}
    return bool(keys & results) or any(key.startswith("result") for key in keys)


def _has_kernel(op: OpOverload) -> bool:
    """Not one that decomposes before autograd sees it, nor one for other tensors or devices."""
    if has_kernel(op, "CompositeImplicitAutograd"):
        return False
    keys = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    return any(has_kernel(op, key) for key in keys)


def _is_refusal(formula: str) -> bool:
    return formula.startswith(("not_implemented", "non_differentiable", "not_differentiable"))


def _overload(name: str) -> OpOverload | None:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
