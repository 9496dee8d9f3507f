"""What is asked of the compiler in the background, and what it answers. Plain data: it travels between processes.

A program travels as its text, which is all there is to know of it, beside the types of its inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tapeless.torch_internals import Artifact


@dataclass(frozen=True)
class TensorType:
    """A tensor input. Sizes that vary are written in the names of `Order.sizes`."""

    shape: tuple[int | str, ...]
    stride: tuple[int | str, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Order:
    """A forward to compile, with its backward if it has one.

    The backward's arguments are positions among [a cotangent for each output of the forward, captures], as in
    `runtime.variant.Backward`; captures are inputs of the forward first, then outputs of it.
    """

    forward: str
    inputs: tuple[TensorType | str, ...]  # a string: the size of that name
    real_outputs: int
    sizes: dict[str, int]  # the sizes that vary, as they were when the program was traced
    threads: int
    precision: str  # of float32 matrix products
    backward: str | None = None
    cotangents: tuple[int, ...] = ()  # the outputs that get one
    formats: tuple[Any, ...] = ()  # the memory format of each of these
    outputs: int = 0  # of the forward, with those that are only saved
    captured_inputs: tuple[int, ...] = ()
    captured_outputs: tuple[int, ...] = ()
    arguments: tuple[int, ...] = ()
    parameters: tuple[int, ...] = ()  # inputs that live longer than a step
    mutated: tuple[int, ...] = ()  # inputs that are overwritten after the forward


@dataclass(frozen=True)
class Answer:
    """What was compiled. The forward returns [real outputs, what is saved]; the rest as in `Order`."""

    forward: Artifact
    guards: str | None  # what has to hold of the sizes that vary
    backward: Artifact | None = None
    outputs: int = 0
    captured_inputs: tuple[int, ...] = ()
    captured_outputs: tuple[int, ...] = ()
    arguments: tuple[int, ...] = ()
    donated: tuple[int, ...] = ()  # arguments of the backward that it may write to


@dataclass(frozen=True)
class Failure:
    """Why nothing was compiled."""

    reason: str
    is_expected: bool = False  # nothing went wrong: there are programs that are not compiled
