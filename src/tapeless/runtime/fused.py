"""A forward with its backward, compiled together for one pattern of cotangents by Inductor.

They are cut where compiled kernels save least, so they save other values than the generated Python does. What they were
not compiled for (other cotangents, other gradients, higher order) is answered as any misprediction is: by running the
full forward again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tapeless import torch_internals
from tapeless.background.order import Answer, Order, TensorType
from tapeless.errors import TapelessError
from tapeless.ir import graph as ir
from tapeless.ir import text
from tapeless.runtime.signature import Mask, Signature
from tapeless.runtime.variant import Backward, Variant, captured, memory_of


class NotServed(TapelessError):
    """What was compiled cannot take these inputs. Never seen by users: the program runs as generated Python instead."""


@dataclass(frozen=True)
class Parts:
    """How forward and backward are connected, as in `partition.split.Split`."""

    real_outputs: int
    captured_inputs: tuple[int, ...]
    captured_outputs: tuple[int, ...]


class Fused:
    """The two, with what the bridge asks of a `Variant`."""

    def __init__(self, answer: Answer, plain: Variant, backward: Backward, mask: Mask) -> None:
        assert answer.backward is not None
        self.plain, self.mask, self.signature = plain, mask, plain.signature
        real = plain.parts.real_outputs
        self.parts = Parts(real, answer.captured_inputs, answer.captured_outputs)
        self.forward = answer.forward.load()
        self.backward = Backward(backward.graph, answer.arguments, backward.gradient_inputs, backward.inputs)
        self.backward.run = answer.backward.load()
        self.donated = answer.donated
        self.formats = [*plain.formats[:real], *[None] * (answer.outputs - real)]
        self.constant_outputs = [*(i for i in plain.constant_outputs if i < real), *range(real, answer.outputs)]
        self.sizes = [k for k, node in enumerate(ir.inputs(plain.parts.forward)) if not ir.is_tensor(node)]
        self.saves_numbers = bool(self.sizes)
        self._holds = torch_internals.holds(answer.guards)
        self.is_checked = False
        self.is_proven = False  # has its backward taken what the forward saved, as it is, and cotangents?
        self._wanted: Mask | None = None  # gradients that were found to be among those it gives

    def takes(self, args: Sequence[Any]) -> bool:
        """Was it compiled for sizes like these?"""
        return not self.sizes or self._holds([args[k] for k in self.sizes])

    def serves(self, mask: Mask, wanted: Mask, recording: bool) -> bool:
        """Is this what it was compiled for? Gradients that nobody wants are dropped by autograd."""
        real = self.parts.real_outputs
        if recording or mask[:real] != self.mask or any(mask[real:]):
            return False
        if wanted != self._wanted:
            given = set(self.backward.gradient_inputs)
            if not all(k in given for k, w in enumerate(wanted) if w):
                return False
            self._wanted = wanted
        return True

    def captured(self, args: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """What is kept for the backward."""
        if not self.is_checked:
            self._check(args, outs)
        return captured(self.parts, args, outs)

    def _check(self, args: Sequence[Any], outs: Sequence[Any]) -> None:
        """Nothing that is saved may share memory with what the caller can change, for autograd would not notice, nor,
        if the backward writes to it, with what else is saved."""
        real = self.parts.real_outputs
        visible = {memory_of(value) for value in (*args, *outs[:real])} - {None}
        saved = [memory for value in outs[real:] if (memory := memory_of(value)) is not None]
        if visible & set(saved) or (self.donated and len(set(saved)) < len(saved)):
            raise NotServed
        self.is_checked = True


def order_of(
    variant: Variant, backward: Backward, mask: Mask, types: Sequence[TensorType | str], threads: int, precision: str
) -> Order:
    """The forward and backward of a variant as an order."""
    parts, signature = variant.parts, variant.signature
    cotangents = tuple(i for i in parts.cotangent_outputs if mask[i])
    return Order(
        forward=text.functional_program(variant.runnable, "forward"),
        inputs=tuple(types),
        real_outputs=parts.real_outputs,
        sizes=sizes_in(variant),
        threads=threads,
        precision=precision,
        backward=text.functional_program(backward.runnable, "backward"),
        cotangents=cotangents,
        formats=tuple(variant.formats[i] for i in cotangents),
        outputs=variant.outputs,
        captured_inputs=parts.captured_inputs,
        captured_outputs=parts.captured_outputs,
        arguments=backward.arguments,
        parameters=_lasting(signature),
        mutated=signature.mutated,
    )


def _lasting(signature: Signature) -> tuple[int, ...]:
    return tuple(k for k, is_parameter in enumerate(signature.parameters) if is_parameter)


def sizes_in(variant: Variant) -> dict[str, int]:
    """The sizes that vary, by name, each an input of the program."""
    values = [ir.value(node) for node in ir.inputs(variant.parts.forward)]
    return {str(v): int(v.node.hint) for v in values if isinstance(v, torch.SymInt)}
