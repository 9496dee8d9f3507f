"""Gradient: a program's forward and backward, and the lists that connect them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from tapeless.backends.python import Code
from tapeless.errors import BadOption
from tapeless.ir import graph as ir
from tapeless.ir import text
from tapeless.ir.custom import inline_custom
from tapeless.ir.sums import gather_sums
from tapeless.partition.split import Split
from tapeless.partition.trim import trim
from tapeless.runtime.variant import runnable
from tapeless.specialize.rewrite import specialize
from tapeless.specialize.savings import Savings, savings


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
    savings: Savings  # what specialization to the undefined cotangents removed

    @classmethod
    def of(cls, split: Split, undefined: tuple[int, ...] = ()) -> Gradient:
        if unknown := [i for i in undefined if not 0 <= i < split.real_outputs]:
            raise BadOption(f"undefined={unknown}: the program has {split.real_outputs} outputs, counted from 0")
        trimmed = (
            trim(split, tuple(i not in undefined for i in range(split.real_outputs))) if undefined else None
        ) or split
        missing = [k for k, output in enumerate(split.cotangent_outputs) if output in undefined]
        specialized = specialize(trimmed.backward, len(split.cotangent_outputs), missing)
        saved = savings(split.backward, specialized, [ir.inputs(split.backward)[k] for k in missing], split.temporaries)
        backward = Code(gather_sums(inline_custom(specialized)), "backward", saved.details() if missing else "")
        return cls(trimmed, Code(runnable(trimmed.forward), "forward"), backward, saved)

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
        graphs = {code.name: code.graph for code in (self.forward, self.backward)}
        return text.programs(graphs, {self.backward.name: self.backward.note})
