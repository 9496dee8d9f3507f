"""Custom `autograd.Function`s keep their own backward.

Dynamo hands one over as a call of `autograd_function_apply` with two graphs. Tracing its forward to ATen would lose the
backward, so the call is replaced by one that also leaves a marker operator, and after tracing the marker becomes a
`CustomFunction` node.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.capture.facts import calls_in, standing_in
from tapeless.errors import Unsupported
from tapeless.ir import graph as ir
from tapeless.ir.custom import CustomFunction

_KEYS = itertools.count()
_CALLS: dict[int, CustomCall | _Identity] = {}


@torch.library.custom_op("tapeless::custom_function", mutates_args=())
def marker(
    outputs: list[torch.Tensor], arguments: list[torch.Tensor], saved: list[torch.Tensor], key: int
) -> list[torch.Tensor]:
    """Passes `outputs` on; says that their derivative by `arguments` is that of the call `key`."""
    return [output.clone() for output in outputs]


@marker.register_fake
def _(outputs: Any, arguments: Any, saved: Any, key: int) -> list[torch.Tensor]:
    return [torch.empty_like(output) for output in outputs]


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    outputs, arguments, saved, ctx.key = inputs
    ctx.counts = len(outputs), len(arguments), len(saved)
    ctx.save_for_backward(*saved, *output)


def _users_backward(ctx: Any, cotangents: list[torch.Tensor]) -> tuple[Any, ...]:
    """For `torch.autograd.grad` inside the program, which meets the marker while the program is traced."""
    outputs, arguments, saved = ctx.counts
    custom = _CALLS[ctx.key].function
    assert custom is not None
    # Called, not interpreted: its lines were read under `no_grad`, the gradient that is taken here is not.
    tensors, results = ctx.saved_tensors[:saved], ctx.saved_tensors[saved:]
    found = custom.backward(*custom.cotangents(cotangents), *custom.saved(tensors, results))
    gradients = [g for g, keep in zip(found, custom.tensor_arguments, strict=True) if keep]
    assert arguments == len(gradients)
    return [None] * outputs, gradients, [None] * saved, None


marker.register_autograd(_users_backward, setup_context=_save)


class CustomCall:
    """Takes the place of `autograd_function_apply` in a Dynamo graph."""

    __name__ = "autograd_function_apply"  # fx names it so when the call fails

    def __init__(self) -> None:
        self.key = next(_KEYS)
        self.function: CustomFunction | None = None

    def __call__(self, forward: fx.GraphModule, backward: fx.GraphModule, *args: Any, **options: Any) -> Any:
        if options.get("dirty_idx"):
            raise Unsupported("a custom autograd.Function that marks inputs dirty: return a new tensor instead")
        forward, backward = _with_attributes_in_backward(forward, backward)
        outputs, saved = fx.Interpreter(forward).run(*args)
        plain = set(options["non_differentiable_idx"])
        single = _is_tensor(outputs)
        results = [outputs] if single else list(outputs)
        passed = [i for i, o in enumerate(results) if i not in plain and ir.is_differentiable_type(o)]
        constants, tensors = tuple(None if _is_tensor(s) else (s,) for s in saved), list(filter(_is_tensor, saved))
        own = tuple(next((k for k, i in enumerate(passed) if results[i] is s), None) for s in tensors)
        flags = tuple(map(_is_tensor, args))
        self.function = CustomFunction(backward, constants, len(results), tuple(passed), flags, own=own)
        marked = marker([results[i] for i in passed], list(filter(_is_tensor, args)), tensors, self.key)
        for i, result in zip(passed, marked, strict=True):
            results[i] = result
        return results[0] if single else tuple(results)


def _with_attributes_in_backward(
    forward: fx.GraphModule, backward: fx.GraphModule
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Dynamo reads `z.mT` of a saved `z` in the forward. It belongs to the backward: if `z` is a result, its derivative
    is that of a result."""
    if not any(map(_is_attribute, _saved(forward.graph))):
        return forward, backward
    forward, backward = _copy(forward), _copy(backward)
    saved = _saved(forward.graph)
    taken = backward.graph.find_nodes(op="placeholder")[-len(saved) :]
    for read, source in zip(saved, taken, strict=True):
        if _is_attribute(read):
            with backward.graph.inserting_after(taken[-1]):
                again = backward.graph.call_function(getattr, (source, read.args[1]))
            source.replace_all_uses_with(again, lambda user, again=again: user is not again)
    output = forward.graph.output_node()
    kept = tuple(s.args[0] if _is_attribute(s) else s for s in saved)
    output.args = ((output.args[0][0], kept),)  # type: ignore[index]
    forward.recompile()
    backward.recompile()
    return forward, backward


def _saved(forward: fx.Graph) -> Any:
    return forward.output_node().args[0][1]  # type: ignore[index]


def _is_attribute(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.target is getattr


def _copy(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return fx.GraphModule(module, graph)


class _Identity:
    """Passes a value on; its derivative goes to another one."""

    def __init__(self, keeps_tangent: bool) -> None:
        graph = fx.Graph()
        graph.output([graph.placeholder("g")])
        backward = fx.GraphModule({}, graph)
        self.function = CustomFunction(backward, (), 1, (0,), (True,), True, keeps_tangent, "keep_history")
        self.key = next(_KEYS)
        _CALLS[self.key] = self


_WRITTEN, _WRITTEN_APART = _Identity(keeps_tangent=False), _Identity(keeps_tangent=True)


def keep_history(before: torch.Tensor, tensor: torch.Tensor, hidden: bool, apart: bool) -> None:
    """Give `tensor`, overwritten where autograd does not look, the derivative of its copy `before`.

    `hidden` says that even its version did not change, as with `.data`; `apart` that the write went through a detached
    alias, so that its tangent stayed what it was as well.
    """
    key = (_WRITTEN_APART if apart else _WRITTEN).key
    with torch.no_grad():
        (tensor.data if hidden else tensor).copy_(marker([tensor], [before], [], key)[0])


def marked_custom_functions(module: fx.GraphModule) -> contextlib.AbstractContextManager[None]:
    """While it lasts, every custom function in a Dynamo graph leaves a marker when it is traced."""
    return standing_in(module, torch_internals.autograd_function_apply, CustomCall, _CALLS)


def resolve_markers(module: fx.GraphModule) -> None:
    """Markers in the traced graph, and in the bodies that it calls, become `CustomFunction` nodes."""
    for node in calls_in(module, torch.ops.tapeless.custom_function.default):
        key: Any = node.args[3]
        call = _CALLS[key]
        assert call.function is not None
        node.target = call.function
        node.args = node.args[:3]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
