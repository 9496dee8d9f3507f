"""Graphs under the transforms of `torch.func`.

A graph is called as an `autograd.Function` that answers each layer of transforms with a graph: reverse mode with a
backward, forward mode with a tangent program, `vmap` with the graph of the batch. These are called the same way, so
layers may lie in any order and number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless import torch_internals
from tapeless.backends.python import compile_graph
from tapeless.differentiate.activity import is_cut, is_inert
from tapeless.differentiate.forward import push_forward
from tapeless.ir import graph as ir
from tapeless.ir.control import Control, While
from tapeless.ir.copying import copy_graph
from tapeless.rules.registry import named_arguments
from tapeless.rules.traced import functional_graph
from tapeless.runtime.derivatives import differentiate_graph
from tapeless.runtime.functional import functional_module, refuse_choices
from tapeless.runtime.program import Recent, is_random
from tapeless.runtime.signature import Mask, Signature
from tapeless.runtime.variant import Backward, Variant, runnable

aten = torch.ops.aten


def lifted(graph: fx.Graph) -> tuple[Unit, list[Any]] | None:
    """The graph to be called with its constants as further inputs, and these; None if it does not say all there is to
    know. (Traced anew for a batch, it has no constants of its own.)"""
    if not all(map(_is_plain, ir.calls(graph))):
        return None
    graph, constants = copy_graph(graph), []
    for node in graph.find_nodes(op="get_attr"):
        constants.append(ir.constant(node))
        with graph.inserting_after(ir.inputs(graph)[-1]):
            further = graph.placeholder(node.name)
        ir.set_value(further, ir.value(node))
        node.replace_all_uses_with(further)
        graph.erase_node(node)
    return Unit(graph), constants


def _is_plain(node: fx.Node) -> bool:
    """Does the operator say all there is to know? Not where the user cut or wrote a derivative, nor of random ones."""
    if isinstance(node.target, Control):
        return not is_cut(node) and _is_plain_control(node.target)
    known = isinstance(node.target, OpOverload) or node.target is operator.getitem or node.op == "get_attr"
    return known and not _ends_derivative(node) and not _draws(node) and node.target is not aten.detach.default


def _is_plain_control(control: Control) -> bool:
    """A `while_loop` returns the number of its rounds, and layers pass on tensors alone; nor are constants lifted."""
    bodies = control.bodies.values()
    inner = [node for body in bodies for node in ir.calls(body)]
    return not isinstance(control, While) and all(node.op != "get_attr" and _is_plain(node) for node in inner)


def _ends_derivative(node: fx.Node) -> bool:
    """Is it cut, and does that make a difference? Not of a value that is only written over."""
    return is_cut(node) and not all(is_inert(node, user) for user in node.users)


def _draws(node: fx.Node) -> bool:
    """Does the operator draw random numbers? Not fused attention without dropout."""
    if not is_random(node):
        return False
    return named_arguments(node.target, node.args, node.kwargs).get("dropout_p") != 0  # type: ignore[arg-type]


# -- graphs that answer ------------------------------------------------------------------------------------------------


class Unit:
    """A graph that can be called, differentiated both ways and batched.

    A `final` one is itself a derivative. It saves nothing but its inputs, since mostly nobody differentiates it.
    """

    def __init__(self, graph: fx.Graph, final: bool = False) -> None:
        self.graph, self.final = graph, final
        self._made: Recent[Any] = Recent(16)
        self.constant = [i for i, o in enumerate(ir.outputs(graph)) if not ir.is_differentiable_type(_value(o))]

    @cached_property
    def run(self) -> Callable[[list[Any]], list[Any]]:
        return compile_graph(runnable(self.graph), "forward")

    def kept(self, args: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """What has to be saved in order to pull back."""
        return list(args)

    def pull_back(self, cotangents: Sequence[Any], wanted: Mask, saved: Sequence[Any]) -> list[Any]:
        """Gradients of the `wanted` inputs. The graph runs again, for it returned nothing but its results.

        Other layers record that run, and may want gradients of inputs that are constants to this one.
        """
        saving = self.saving(tuple(map(operator.or_, wanted, _recorded(saved))))
        outs = apply(saving, saved)
        more = [None] * (len(outs) - len(cotangents))
        return saving.pull_back([*cotangents, *more], wanted, saving.kept(saved, outs))

    def saving(self, wrt: Mask) -> Saving:
        """The graph that returns, beside its results, what it takes to differentiate by the inputs `wrt`."""
        flags = tuple(i not in self.constant for i in range(len(ir.outputs(self.graph))))
        signature = Signature(wrt, flags)
        return self._find(wrt, lambda: Saving(Variant(differentiate_graph(self.graph, signature), signature)))

    def tangent(self, given: Mask) -> Unit:
        """Inputs, tangents of the inputs `given` → tangents of the results."""

        def build() -> Unit:
            graph = copy_graph(self.graph)
            push_forward(graph, [node for node, has in zip(ir.inputs(graph), given, strict=True) if has])
            return Unit(graph, final=True)

        return self._find(("tangent", given), build)

    def batched(self, batched: Mask, size: int) -> Unit:
        """The graph for a batch, which is the first dimension of the inputs `batched` and of every result."""
        return self._find(("batch", batched, size), lambda: Unit(_batch(self.graph, batched, size), self.final))

    def _find(self, key: Any, build: Callable[[], Any]) -> Any:
        with torch_internals.outside_functorch():
            return self._made.find(key, build)


class Saving(Unit):
    """The forward of a graph with its temporaries."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(variant.parts.forward, final=True)
        self.variant = variant

    def kept(self, args: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        parts = self.variant.parts
        return [*(args[i] for i in parts.captured_inputs), *(outs[i] for i in parts.captured_outputs)]

    def pull_back(self, cotangents: Sequence[Any], wanted: Mask, saved: Sequence[Any]) -> list[Any]:
        backward, unit = self._backward(tuple(g is not None for g in cotangents), wanted)
        return backward.spread(apply(unit, backward.select([*cotangents, *saved])))

    def _backward(self, mask: Mask, wanted: Mask) -> tuple[Backward, Unit]:
        def build() -> tuple[Backward, Unit]:
            assert all(wrt or not asked for wrt, asked in zip(self.variant.signature.wrt, wanted, strict=True))
            backward = self.variant.specialized(mask, wanted)
            return backward, Unit(backward.graph, final=True)

        return self._find(("backward", mask, wanted), build)


def _value(output: Any) -> Any:
    return ir.value(output) if isinstance(output, fx.Node) else None


def _batch(graph: fx.Graph, batched: Mask, size: int) -> fx.Graph:
    refuse_choices(graph, "a batch of")
    one, results = functional_module(graph), ir.outputs(graph)
    present = [i for i, result in enumerate(results) if result is not None]
    values = [ir.value(node) for node in ir.inputs(graph)]
    with torch_internals.fake_mode_of(values):
        examples = [v.new_empty((size, *v.shape)) if b else v for v, b in zip(values, batched, strict=True)]

    def each(*args: Any) -> tuple[Any, ...]:
        found = one(*args)
        return tuple(found[i] for i in present)

    in_dims = tuple(0 if b else None for b in batched)
    whole = functional_graph(lambda *args: list(torch.func.vmap(each, in_dims)(*args)), examples).graph
    found = dict(zip(present, ir.outputs(whole), strict=True))
    whole.output_node().args = ([found.get(i) for i in range(len(results))],)
    return whole


# -- the bridge --------------------------------------------------------------------------------------------------------


def apply(unit: Unit, args: Sequence[Any]) -> list[Any]:
    """Call a graph under whatever is active."""
    layer = torch_internals.innermost_layer()
    if layer is None:
        return _on_the_ground(unit, args)
    if layer.is_batch:
        return _batched(layer, unit, args)
    saving = _saving(unit, args) if layer.is_reverse else unit
    return list(layer.apply(Layered, saving, layer, *args))[: len(ir.outputs(unit.graph))]


def _saving(unit: Unit, args: Sequence[Any]) -> Unit:
    """The same graph for reverse mode; a derivative saves nothing but its inputs."""
    if unit.final:
        return unit
    return unit.saving(_recorded(args))


def _recorded(args: Sequence[Any]) -> Mask:
    """The arguments that some layer, or autograd, may differentiate by."""
    return tuple(ir.is_differentiable_type(a) and torch_internals.requires_grad_anywhere(a) for a in args)


def _on_the_ground(unit: Unit, args: Sequence[Any]) -> list[Any]:
    """No transform is left, but autograd may record, and tensors may be dual ones."""
    recorded = torch.is_grad_enabled() and any(a.requires_grad for a in args)
    if not recorded and not torch_internals.in_forward_mode():
        return _run(unit, args)
    saving = _saving(unit, args) if recorded else unit
    return list(Grounded.apply(saving, *args))[: len(ir.outputs(unit.graph))]


def _run(unit: Unit, args: Sequence[Any]) -> list[Any]:
    """A result is never an argument itself: layers and autograd tell tensors apart by identity."""
    with torch_internals.without_autocast():
        outs = unit.run(list(args))
    return [out.clone() if out is not None and any(out is a for a in args) else out for out in outs]


def _batched(layer: torch_internals.Layer, unit: Unit, args: Sequence[Any]) -> list[Any]:
    wholes = [layer.whole(a) for a in args]
    mask = tuple(dim is not None for _, dim in wholes)
    with layer.below():
        if not any(mask):
            return apply(unit, args)
        moved = [x if dim is None else x.movedim(dim, 0).contiguous() for x, dim in wholes]
        outs = apply(unit.batched(mask, layer.batch_size()), moved)
    return [layer.one(out) for out in outs]


def _set_up(ctx: Any, unit: Unit, args: Sequence[Any], outs: Sequence[Any]) -> None:
    ctx.unit = unit
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*unit.kept(args, outs))
    ctx.save_for_forward(*args)
    ctx.mark_non_differentiable(*(outs[i] for i in unit.constant if isinstance(outs[i], torch.Tensor)))


def _pull_back(ctx: Any, cotangents: Sequence[Any], wanted: Mask) -> list[Any]:
    saved = torch_internals.without_dead_wrappers(ctx.saved_tensors)
    return ctx.unit.pull_back(torch_internals.without_dead_wrappers(tuple(cotangents)), wanted, saved)


def _push_forward(ctx: Any, tangents: Sequence[Any]) -> tuple[Any, ...]:
    given = tuple(t is not None for t in tangents)
    found = apply(ctx.unit.tangent(given), [*ctx.saved_tensors, *(t for t in tangents if t is not None)])
    return tuple(_tangent(t, _value(o)) for t, o in zip(found, ir.outputs(ctx.unit.graph), strict=True))


class Layered(torch_internals.SingleLevelFunction):
    """A graph as one layer of differentiation records it."""

    @staticmethod
    def forward(ctx: Any, unit: Unit, layer: torch_internals.Layer, *args: Any) -> tuple[Any, ...]:
        plain = layer.without(args)
        with layer.below():
            found = apply(unit, plain)
        outs = layer.within(found)
        _set_up(ctx, unit, args, outs)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        return None, None, *_pull_back(ctx, cotangents, ctx.needs_input_grad[2:])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        return _push_forward(ctx, tangents[2:])


class Grounded(torch.autograd.Function):
    """A graph as autograd records it."""

    @staticmethod
    def forward(ctx: Any, unit: Unit, *args: Any) -> tuple[Any, ...]:
        outs = _run(unit, args)
        _set_up(ctx, unit, args, outs)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        return None, *_pull_back(ctx, cotangents, ctx.needs_input_grad[1:])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        return _push_forward(ctx, tangents[1:])


def _tangent(found: Any, val: Any) -> Any:
    """Autograd insists on a tensor for what can carry a tangent."""
    if found is not None or not ir.is_differentiable_type(val):
        return found
    return torch.zeros(val.shape, dtype=val.dtype, device=val.device)
