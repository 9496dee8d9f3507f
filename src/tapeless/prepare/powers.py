"""Powers by the operator that computes them in one step, and whose derivative is one product."""

from __future__ import annotations

from typing import Any

import torch

from tapeless.prepare.editor import Site
from tapeless.prepare.passes import Pass, rewrite
from tapeless.prepare.pattern import op, tensors

(x,) = tensors("x")

Tensor = torch.Tensor


@rewrite(op.mul(x, x), always=True, symbolic=True)
def square(x: Tensor, site: Site) -> Any:
    """x · x = x²: its backward has one term instead of two."""
    return x.pow(2) if _is_real(x) and site.carries_derivative else None


@rewrite(op.mul(op.pow(x, 2), x), symbolic=True)
def cube(x: Tensor, site: Site) -> Any:
    """x² · x = x³, which is computed just so."""
    return x.pow(3) if _is_real(x) and x.element_size() > 2 and site.carries_derivative else None


@rewrite(op.pow(x, 0.5), op.pow(x, -0.5), op.pow(x, -1), always=True, symbolic=True)
def power_to_root(x: Tensor, site: Site) -> Any:
    """x^½ = √x, x^−½ = 1/√x, x⁻¹ = 1/x. Their derivatives read the result, which is there anyway."""
    if not _is_real(x):
        return None
    exponent: Any = site.node.args[1]
    return x.sqrt() if exponent == 0.5 else x.rsqrt() if exponent == -0.5 else x.reciprocal()


def _is_real(x: Tensor) -> bool:
    return x.is_floating_point()


POWERS: tuple[Pass, ...] = (square, cube, power_to_root)
