"""Gradient: a program's forward and backward, and the lists that connect them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from tapeless.backends.python import Code
from tapeless.errors import BadOption
from tapeless.ir import graph as ir
from tapeless.ir import text
from tapeless.ir.custom import inline_custom
from tapeless.partition.split import Split
from tapeless.runtime.variant import runnable
from tapeless.specialize.rewrite import specialize


@dataclass(frozen=True)
class Gradient:
    """What `differentiate` returns.

    forward:   inputs → `real_outputs` outputs, then the temporaries saved for the backward
    backward:  cotangents of the outputs `cotangent_outputs`, captures → gradients of the inputs `gradient_inputs`

    Captures are inputs of the forward (`captured_inputs`), then outputs of it (`captured_outputs`).
    """

    split: Split
    forward: Code
    backward: Code

    @classmethod
    def of(cls, split: Split, undefined: tuple[int, ...] = ()) -> Gradient:
        cotangents = split.cotangent_outputs
        if unknown := [i for i in undefined if not 0 <= i < split.real_outputs]:
            raise BadOption(f"undefined={unknown}: the program has {split.real_outputs} outputs, counted from 0")
        missing = [k for k, output in enumerate(cotangents) if output in undefined]
        backward = inline_custom(specialize(split.backward, len(cotangents), missing))
        return cls(split, Code(runnable(split.forward), "forward"), Code(backward, "backward"))

    @property
    def real_outputs(self) -> int:
        return self.split.real_outputs

    @property
    def cotangent_outputs(self) -> tuple[int, ...]:
        return self.split.cotangent_outputs

    @property
    def captured_inputs(self) -> tuple[int, ...]:
        return self.split.captured_inputs

    @property
    def captured_outputs(self) -> tuple[int, ...]:
        return self.split.captured_outputs

    @property
    def gradient_inputs(self) -> tuple[int, ...]:
        return self.split.gradient_inputs

    @property
    def captures(self) -> list[fx.Node]:
        """The forward values that the backward reads."""
        return ir.inputs(self.backward.graph)[len(self.cotangent_outputs) :]

    def __str__(self) -> str:
        return text.programs({"forward": self.forward.graph, "backward": self.backward.graph})
