"""What is asked of a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

Mask = tuple[bool, ...]


@dataclass(frozen=True)
class Signature:
    """Which inputs want gradients, which outputs may send cotangents."""

    wrt: Mask
    differentiable: Mask
    hidden: tuple[int, ...] = ()  # outputs that autograd must not see: the calling convention rebuilds them
    mutated: tuple[int, ...] = ()  # inputs that are overwritten after the call
    parameters: Mask = ()  # inputs that are parameters: one that is frozen now may be thawed later

    def with_parameters(self) -> Signature:
        """The same question with every parameter wanting a gradient."""
        if not self.parameters:
            return self
        return replace(self, wrt=tuple(w or p for w, p in zip(self.wrt, self.parameters, strict=True)))
