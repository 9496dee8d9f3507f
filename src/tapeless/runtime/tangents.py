"""Tangents of the outputs of a program, as autograd wants them: an output that has none, a view, a result that is its
argument."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from tapeless.ir import graph as ir
from tapeless.runtime.fused import Fused
from tapeless.runtime.program import Program
from tapeless.runtime.signature import Mask
from tapeless.runtime.variant import Variant


def moving(args: Sequence[Any]) -> Mask:
    """Which arguments have a tangent?"""
    return tuple(isinstance(a, torch.Tensor) and forward_ad.unpack_dual(a).tangent is not None for a in args)


def tangents_alone(outs: list[Any], variant: Variant | Fused) -> list[Any]:
    """Outputs that require no gradient may carry a tangent; autograd gave them a history for its sake."""
    for i in variant.constant_outputs:
        if i < len(outs) and isinstance(outs[i], torch.Tensor) and outs[i].requires_grad:
            primal, tangent = forward_ad.unpack_dual(outs[i])
            alone = _without_history(outs[i], primal)
            outs[i] = alone if tangent is None else forward_ad.make_dual(alone, tangent)
    return outs


def as_in_eager(outs: list[Any], unmoved: Sequence[int]) -> list[Any]:
    """Autograd wants a tangent for every output; those that depend on no tangent give it back, zeros as it is."""
    for i in unmoved:
        if isinstance(outs[i], torch.Tensor):
            primal, tangent = forward_ad.unpack_dual(outs[i])
            outs[i] = outs[i] if tangent is None else primal
    return outs


def _without_history(out: torch.Tensor, primal: torch.Tensor) -> torch.Tensor:
    """The tangent of a view must be known to be a view, which `detach` would forget: one more is taken of its base."""
    base = out._base
    plain = base is not None and not base.requires_grad and (base.dtype, base.is_conj()) == (out.dtype, out.is_conj())
    if base is None or not plain:
        return primal.detach()
    return base.as_strided(out.shape, out.stride(), out.storage_offset())


def with_tangents_of_their_own(outs: list[Any], args: Sequence[Any], program: Program) -> list[Any]:
    """Results whose tangents can be what they are.

    A kernel may hand back its argument (dropout of nothing), and autograd would expect as much of the tangents. A view
    of something that is not returned would have to have a tangent that is such a view too.
    """
    given, memory = {id(a) for a in args}, {_memory(a) for a in args}
    nodes = ir.outputs(program.whole.parts.forward)
    held = Counter(map(_memory, outs[: program.whole.parts.real_outputs]))

    def is_apart(out: Any, node: Any) -> bool:
        if not isinstance(out, torch.Tensor) or node.op == "placeholder":  # the kernel may leave a result undefined
            return True
        return id(out) not in given and not (out._is_view() and held[_memory(out)] == 1 and _memory(out) not in memory)

    return [out if is_apart(out, node) else out.clone() for out, node in zip(outs, nodes, strict=True)]


def _memory(value: Any) -> int | None:
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else None


@dataclass(frozen=True)
class TangentType:
    """What autograd asks of the tangent of an output: it may take views of both, so their layouts agree."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    bits: tuple[bool, bool]  # is it to be conjugated when it is read, to be negated?

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TangentType:
        bits = (tensor.is_conj(), tensor.is_neg())
        return cls(tensor.shape, tensor.stride(), tensor.dtype, tensor.device, bits)

    def is_laid_out_as(self, tensor: torch.Tensor) -> bool:
        """The same strides, where a stride is ever taken. A copy would do but for views, whose tangents are views."""
        dims = zip(self.shape, self.stride, tensor.stride(), strict=True)
        alike = 0 in self.shape or all(n == 1 or own == other for n, own, other in dims)
        return alike and self.bits == (tensor.is_conj(), tensor.is_neg())

    def empty(self) -> torch.Tensor:
        if 0 in self.stride:
            plain = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        else:
            plain = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        plain = plain.conj() if self.bits[0] else plain
        return torch.ops.aten._neg_view(plain) if self.bits[1] else plain


def tangent(found: Any, kind: TangentType | None) -> Any:
    """None for an output that carries no tangent, a tensor for one that does."""
    if kind is None:
        return None
    if found is None:
        return kind.empty().zero_()
    return found if kind.is_laid_out_as(found) else kind.empty().copy_(found)


def type_of(out: Any, index: int, variant: Variant | Fused) -> TangentType | None:
    """The type of an output that carries tangents: autograd insists on a tensor for those."""
    carries = ir.is_differentiable_type(out) and index not in variant.signature.hidden
    return TangentType.of(out) if carries else None
