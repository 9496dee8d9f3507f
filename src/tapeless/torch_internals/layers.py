"""The layers of `torch.func`'s transforms, one at a time.

Relies on the stack of interpreters (`peek_interpreter_stack`, `temporarily_pop_interpreter_stack`), on wrapping and
unwrapping tensors at a level, and on `_SingleLevelFunction`: an `autograd.Function` that one layer records. It is what
`torch.autograd.Function` does under transforms, without its walks over trees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import _tensor_str
from torch._functorch import pyfunctorch
from torch._functorch.utils import enable_single_level_autograd_function, unwrap_dead_wrappers
from torch.autograd import forward_ad
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction
from torch.utils._python_dispatch import _disable_current_modes

functorch: Any = torch._C._functorch  # type: ignore[attr-defined]

SingleLevelFunction: Any = _SingleLevelFunction
without_dead_wrappers = unwrap_dead_wrappers


def is_wrapped(tensor: Any) -> bool:
    """Is this a value of a transform of `torch.func`, with another tensor inside?"""
    return isinstance(tensor, torch.Tensor) and functorch.is_functorch_wrapped_tensor(tensor)


def requires_grad_anywhere(tensor: torch.Tensor) -> bool:
    """Does the tensor, or one inside it, require a gradient? Each layer of transforms wraps it once more."""
    while functorch.is_functorch_wrapped_tensor(tensor) and not tensor.requires_grad:
        tensor = functorch.get_unwrapped(tensor)
    return tensor.requires_grad


def innermost_layer() -> Layer | None:
    """The transform that the next operator meets first."""
    return None if functorch.peek_interpreter_stack() is None else Layer(_interpreter())


def _interpreter() -> Any:
    return pyfunctorch.retrieve_current_functorch_interpreter()


@dataclass(frozen=True)
class Layer:
    """One transform that is active: `vmap`, or differentiation in one of the modes."""

    interpreter: Any

    @cached_property
    def level(self) -> int:
        return self.interpreter.level()

    @property
    def is_batch(self) -> bool:
        return self.interpreter.key() == functorch.TransformType.Vmap

    @property
    def is_reverse(self) -> bool:
        return self.interpreter.key() == functorch.TransformType.Grad

    def batch_size(self) -> int:
        return self.interpreter.batch_size()

    @contextlib.contextmanager
    def below(self) -> Iterator[None]:
        """As if this layer were not there."""
        with torch.enable_grad(), _set_fwd_grad_enabled(True), self.interpreter.lower():
            yield

    def apply(self, function: Any, *inputs: Any) -> Any:
        """Call a `SingleLevelFunction`, recorded by this layer; tensors from outside are constants to it."""
        lift = self.interpreter._cptr.lift
        lifted = [lift(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        with enable_single_level_autograd_function():
            return function.apply(*lifted)

    def without(self, tensors: Sequence[Any]) -> list[Any]:
        """What is inside, for this layer of differentiation."""
        return [functorch._unwrap_for_grad(x, self.level) for x in tensors]

    def within(self, tensors: Sequence[Any]) -> list[Any]:
        return [functorch._wrap_for_grad(x, self.level) if isinstance(x, torch.Tensor) else x for x in tensors]

    def whole(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int | None]:
        """The whole batch and its dimension; None for what is the same for all."""
        if functorch.is_batchedtensor(tensor) and functorch.maybe_get_level(tensor) == self.level:
            return functorch.get_unwrapped(tensor), functorch.maybe_get_bdim(tensor)
        return tensor, None

    def one(self, tensor: Any) -> Any:
        """One of the batch, which is the first dimension of `tensor`."""
        return functorch._add_batch_dim(tensor, 0, self.level) if isinstance(tensor, torch.Tensor) else tensor


def _printed(tensor: torch.Tensor, *, tensor_contents: Any = None) -> str:
    """A tensor as text, in torch's words.

    Torch's own fails below autograd while a `dual_level` is open, and some kernels for fake tensors print their
    arguments, whether there is something to complain about or not. It also keeps transforms away with a local variable:
    after a failure its frame lives on in the traceback, and whenever that is collected, the variable restores the
    dispatch keys of long ago; derivatives are silently missing from whatever runs by then. Relies on
    `_tensor_str._str_intern`, and on `forward_ad._current_level`, by which that knows of the dual level.
    """
    with torch.no_grad(), _disable_current_modes(), torch._C._DisableFuncTorch():
        try:
            return _tensor_str._str_intern(tensor, tensor_contents=tensor_contents)
        except RuntimeError:
            level, forward_ad._current_level = forward_ad._current_level, -1
            try:
                return _tensor_str._str_intern(tensor, tensor_contents=tensor_contents)
            finally:
                forward_ad._current_level = level


_tensor_str._str = _printed
