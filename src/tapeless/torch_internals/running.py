"""What is active while a program runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._dynamo import compiled_autograd
from torch._functorch import pyfunctorch
from torch.autograd import forward_ad
from torch.fx._symbolic_trace import is_fx_symbolic_tracing
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks


def in_forward_mode() -> bool:
    """Is a `torch.autograd.forward_ad.dual_level` active?"""
    return forward_ad._current_level >= 0


def is_batch(tensor: torch.Tensor) -> bool:
    """Is this a batch that `torch.autograd.grad(…, is_grads_batched=True)` sends? Relies on its having no storage."""
    return not torch._C._has_storage(tensor)


def keeps_graph() -> bool:
    """May the backward that runs now run once more (`retain_graph=True`)?"""
    return torch._C._autograd._get_current_graph_task_keep_graph()  # type: ignore[attr-defined]


def has_saving_hooks() -> bool:
    """Is what autograd saves now handed to hooks (`torch.autograd.graph.saved_tensors_hooks`)?"""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None  # type: ignore[attr-defined]


def in_fx_trace() -> bool:
    """Is a function being traced by `torch.fx`, as `torch.func.linearize` does? Dynamo refuses to work inside."""
    return is_fx_symbolic_tracing()


def in_functorch() -> bool:
    """Is a transform of `torch.func` active?"""
    return torch._C._functorch.get_dynamic_layer_stack_depth() > 0  # type: ignore[attr-defined]


def unwrap_if_dead(value: Any) -> Any:
    """The tensor inside one that outlived its transform of `torch.func`; any other tensor as it is."""
    return torch._C._functorch.unwrap_if_dead(value)  # type: ignore[attr-defined]


def direct_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` for calls outside `torch.func` whose arguments are no left-overs of it.

    Relies on `Function.apply` doing no more, without `setup_context`, than to unwrap such arguments one by one, which
    takes longer than all the rest.
    """
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


class Boxed(type(torch.autograd.Function)):
    """The class of an autograd function whose cotangents arrive in one list, so that each is freed once it is read.

    Relies on `boxed_grads_call`, which the engine asks of the function at each backward, and compiled autograd refuses.
    """

    @property
    def boxed_grads_call(cls) -> bool:
        return not compiled_autograd.compiled_autograd_enabled


@contextlib.contextmanager
def outside_functorch() -> Iterator[None]:
    """As if no transform of `torch.func` were active."""
    if not in_functorch():
        yield
        return
    with pyfunctorch.temporarily_clear_interpreter_stack():
        yield


def keeping_versions(function: Callable[..., Any], positions: Sequence[int]) -> Callable[..., Any]:
    """`function`, with the `_version` of the arguments at `positions` what it was before, as after writes to `.data`.

    Relies on `torch.autograd._unsafe_preserve_version_counter`.
    """

    def call(*args: Any) -> Any:
        with torch.autograd._unsafe_preserve_version_counter(tuple(args[i] for i in positions)):
            return function(*args)

    return call if positions else function


def in_grad_mode(function: Callable[[list[Any]], Any], enabled: bool) -> Callable[[list[Any]], Any]:
    """`function`, called in grad mode or outside it, whatever the mode of its caller."""

    def call(args: list[Any]) -> Any:
        if torch.is_grad_enabled() is enabled:
            return function(args)
        with torch.set_grad_enabled(enabled):
            return function(args)

    return call


def autocast_enabled() -> bool:
    return torch._C._is_any_autocast_enabled()


without_autocast = torch._C._DisableAutocast


def engine_wants(node: Any) -> bool:
    """Inside a backward: will the autograd engine use what is sent along the edge to `node`?

    Relies on `_will_engine_execute_node`, which refuses to answer for a leaf that `autograd.grad` was asked for: a yes.
    """
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:
        return True


def accumulator(leaf: torch.Tensor) -> Any:
    """The node of the autograd graph that adds to the gradient of `leaf`."""
    return torch.autograd.graph.get_gradient_edge(leaf).node


def has_step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Is somebody to be told about steps of this optimizer, or of all? Relies on the names of the tables of hooks."""
    own = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return bool(own or _global_optimizer_pre_hooks or _global_optimizer_post_hooks)


def has_gradient_hooks(parameter: torch.Tensor) -> bool:
    """Is somebody to be handed the gradient of this leaf? Relies on the names of its tables of hooks."""
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def give_gradient(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    """Set `grad`, as the engine does at a leaf: past its hooks. Relies on the names of its tables of hooks."""
    for hook in list((parameter._backward_hooks or {}).values()):
        replaced = hook(gradient)
        gradient = gradient if replaced is None else replaced
    parameter.grad = gradient
    for hook in list((parameter._post_accumulate_grad_hooks or {}).values()):
        hook(parameter)


def mark_stepped(optimizer: torch.optim.Optimizer) -> None:
    """What learning rate schedules look at to see that the optimizer was used before them."""
    optimizer._opt_called = True  # type: ignore[attr-defined]
