"""The place of a captured program in the cache: what Dynamo handed over, described as far as capture looks at it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.cache import Place, place
from tapeless.ir.content import Indescribable, content, describe, is_torchs_own, tensor_type

KINDS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, torch_internals.FakeTensor)


def digest_of(module: fx.GraphModule) -> str | None:
    """All that a Dynamo graph says, in short; None if text cannot say it."""
    try:
        return hashlib.sha256(content(module.graph).encode()).hexdigest() if is_torchs_own(module.graph) else None
    except Indescribable:
        return None


def place_of(digest: str | None, inputs: Sequence[Any], settings: str, option: bool | str) -> Place | None:
    """Where the program of such a graph is kept, `settings` being those of the passes after capture."""

    def described() -> str | None:
        if digest is None or torch_internals.in_functorch() or torch_internals.in_forward_mode():
            return None
        return "\n".join([settings, torch_internals.circumstances(), *_inputs(inputs), digest])

    return place(option, described)


def _inputs(inputs: Sequence[Any]) -> list[str]:
    """Every input, and which of them share memory."""
    memory: dict[int, int] = {}
    return [_tensor(value, memory) if isinstance(value, torch.Tensor) else describe(value) for value in inputs]


def _tensor(tensor: torch.Tensor, memory: dict[int, int]) -> str:
    if type(tensor) not in KINDS:
        raise Indescribable(f"a {type(tensor).__name__}")
    parameter = isinstance(tensor, torch.nn.Parameter)
    flags = (tensor.requires_grad, tensor.is_leaf, tensor._is_view(), tensor.is_inference(), parameter)
    kind = tensor_type(tensor)  # refuses tensors without strides, which may have no memory either
    try:
        storage = tensor.untyped_storage()._cdata
    except NotImplementedError as problem:
        raise Indescribable("a tensor left over from a transform") from problem
    return f"{kind} {flags} in {memory.setdefault(storage, len(memory))}"
