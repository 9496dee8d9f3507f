"""What is asked of a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

Mask = tuple[bool, ...]
ZERO: Any = "zero"  # in a mask of cotangents: one that arrived, and that is known to be zero


@dataclass(frozen=True)
class Signature:
    """Which inputs want gradients, which outputs may send cotangents."""

    wrt: Mask
    differentiable: Mask
    hidden: tuple[int, ...] = ()  # outputs that autograd must not see: the calling convention rebuilds them
    mutated: tuple[int, ...] = ()  # inputs that are overwritten after the call
    parameters: Mask = ()  # inputs that are parameters: one that is frozen now may be thawed later
    temporaries: tuple[int, ...] = ()  # inputs that another program saved: nobody else sees their gradients

    def with_parameters(self) -> Signature:
        """The same question with every parameter wanting a gradient."""
        if not self.parameters:
            return self
        return replace(self, wrt=tuple(w or p for w, p in zip(self.wrt, self.parameters, strict=True)))
