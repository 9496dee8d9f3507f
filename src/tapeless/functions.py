"""A Python function as a graph: traced once per signature, guarded, with the tensors it closes over read live.

Dynamo traces, guards and gathers; its graph is captured, and in place of results the caller gets `Result`s that say
which graph it was and with which tensors it was to be called. Nothing runs but what a transform makes of the graph.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

from tapeless import torch_internals
from tapeless.backends.python import compile_graph
from tapeless.capture.program import Captured
from tapeless.errors import TapelessError, Unsupported
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_nodes
from tapeless.options import Options
from tapeless.pipeline import captured_and_prepared
from tapeless.runtime import units
from tapeless.runtime.functional import functional_module, naming_control_flow
from tapeless.runtime.program import Recent
from tapeless.runtime.signature import Signature
from tapeless.runtime.stages import runnable_program
from tapeless.runtime.variant import runnable

SIGNATURES = 64  # graphs kept per function
FUNCTIONS = 256  # functions remembered


@dataclass(frozen=True)
class Slot:
    """In a tree of arguments or results: the input or the output of the graph that stands here."""

    position: int


@dataclass(eq=False)
class Traced:
    """A function at one signature: its graph, and where its tensors come from and go."""

    graph: fx.Graph
    args: Any  # (positional, keywords): a Slot of an input for each tensor, None for anything else
    out: Any  # a Slot of an output for each tensor, anything else as it is
    live: tuple[int, ...]  # the inputs that are no arguments: parameters and closed-over tensors
    mutated: tuple[tuple[int, int], ...] = ()  # (output, input): to be written back after a run
    _derived: Recent[Any] = field(default_factory=lambda: Recent(16))

    def derived(self, key: Any, build: Callable[[Traced], Any]) -> Any:
        """What `build` makes of this, remembered by `key`."""
        with torch_internals.outside_functorch():
            return self._derived.find(key, lambda: build(self))

    def input_value(self, slot: Slot) -> torch.Tensor:
        return ir.value(ir.inputs(self.graph)[slot.position])

    def output_value(self, slot: Slot) -> torch.Tensor:
        return ir.value(ir.outputs(self.graph)[slot.position])

    @cached_property
    def runner(self) -> Runner:
        return Runner(self.graph, tuple(position for _, position in self.mutated))

    @cached_property
    def _places(self) -> list[Slot | None]:
        return tree_leaves(self.args)

    def inputs(self, args: Any, live: Sequence[torch.Tensor]) -> list[Any]:
        """The graph's inputs for arguments of this signature."""
        found: list[Any] = [None] * (len(self.live) + sum(slot is not None for slot in self._places))
        for slot, leaf in zip(self._places, tree_leaves(args), strict=True):
            if slot is not None:
                found[slot.position] = leaf
        for position, tensor in zip(self.live, live, strict=True):
            found[position] = tensor
        return found

    def ready(self, inputs: Sequence[Any]) -> list[Any]:
        """Inputs as the graph was written for: arguments contiguous, live tensors as they are."""
        return [x if i in self.live else x.contiguous() for i, x in enumerate(inputs)]

    def run(self, args: Any, live: Sequence[torch.Tensor]) -> Any:
        """Call the graph with the user's arguments; the result in the user's structure."""
        inputs = self.inputs(args, live)
        outs = self.runner(self.ready(inputs))
        self.write_back(inputs, outs)
        return filled(self.out, outs)

    def write_back(self, inputs: Sequence[Any], outs: Sequence[Any]) -> None:
        """Give mutated inputs their new contents."""
        for output, position in self.mutated:
            with torch.no_grad():
                inputs[position].copy_(outs[output])

    def returning(self, out: Any) -> Traced:
        """The same with the tree of results `out`; outputs that nobody asks for any more are dropped."""
        kept = [*(output for output, _ in self.mutated), *(slot.position for slot in slots(out))]
        new = {old: position for position, old in enumerate(dict.fromkeys(kept))}
        results = ir.outputs(self.graph)
        graph = copy_nodes(ir.calls(self.graph), ir.inputs(self.graph), [results[old] for old in new])
        out = tree_map_only(Slot, lambda slot: Slot(new[slot.position]), out)
        return Traced(graph, self.args, out, self.live, tuple((new[o], i) for o, i in self.mutated))


def slots(tree: Any) -> list[Slot]:
    """The slots of a tree in order, each once."""
    return list(dict.fromkeys(leaf for leaf in tree_leaves(tree) if isinstance(leaf, Slot)))


def filled(tree: Any, values: Sequence[Any]) -> Any:
    """The tree with each slot's value in its place."""
    return tree_map_only(Slot, lambda slot: values[slot.position], tree)


# -- running ---------------------------------------------------------------------------------------------------------


class Runner:
    """A graph that runs under whatever is active: nothing, autograd, or transforms of torch's own."""

    def __init__(self, graph: fx.Graph, mutated: tuple[int, ...] = ()) -> None:
        self.graph, self.mutated = graph, mutated
        self._programs: Recent[Callable[[list[Any]], list[Any]]] = Recent(8)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        with torch_internals.without_autocast():  # the graph says which dtypes it wants
            if torch_internals.in_functorch():
                outs = self.layered(inputs)
                return self._left_to_torch(inputs) if outs is None else outs
            recording = torch.is_grad_enabled()
            requires_grad = tuple(recording and isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
            if any(requires_grad) or torch_internals.in_forward_mode():
                return self._program(requires_grad)(list(inputs))
            return self._plain(list(inputs))

    def layered(self, inputs: Sequence[Any]) -> list[Any] | None:
        """What it answers to transforms of torch's own by further graphs; None if only torch itself can."""
        if self._unit is None:
            return None
        unit, constants = self._unit
        try:
            return units.apply(unit, [*inputs, *constants])
        except TapelessError:  # an operator without a rule
            return None

    def _left_to_torch(self, inputs: Sequence[Any]) -> list[Any]:
        with naming_control_flow(self.graph):
            return list(self.functional(*inputs))

    @cached_property
    def _unit(self) -> tuple[units.Unit, list[Any]] | None:
        with torch_internals.outside_functorch():
            return units.lifted(self.graph)

    @cached_property
    def _plain(self) -> Callable[[list[Any]], list[Any]]:
        return compile_graph(runnable(self.graph), "forward")

    @cached_property
    def functional(self) -> fx.GraphModule:
        """The graph as calls that leave every operand alone, so that torch's own transforms can go through."""
        return functional_module(self.graph)

    def _program(self, requires_grad: tuple[bool, ...]) -> Callable[[list[Any]], list[Any]]:
        flags = tuple(ir.is_differentiable_type(ir.value(output)) for output in ir.outputs(self.graph))
        signature = Signature(requires_grad, flags, mutated=self.mutated)
        return self._programs.find(requires_grad, lambda: runnable_program(self.graph, signature, Options()))


# -- tracing ---------------------------------------------------------------------------------------------------------


class Entry:
    """One graph that Dynamo captured, and what it was called in each structure of arguments and results."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.traced: Recent[Traced] = Recent(SIGNATURES)


@dataclass(frozen=True)
class Result:
    """What the traced function returns in place of a tensor: the output `index` of `entry`'s graph on `inputs`."""

    entry: Entry
    inputs: tuple[Any, ...]
    index: int


def _record(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., list[Result]]:
    """The Dynamo backend that captures and runs nothing."""
    entry, outputs = Entry(captured_and_prepared(module, inputs, Options())), len(ir.outputs(module.graph))
    return lambda *args: [Result(entry, args, i) for i in range(outputs)]


def _caller() -> Callable[..., Any]:
    """A function that calls another, with code and globals of its own: Dynamo keeps graphs and names there."""

    def call(function: Any, args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return types.FunctionType(call.__code__.replace(), {"__name__": __name__, "__builtins__": builtins}, "call")


_CALLERS: Recent[Callable[..., Any]] = Recent(FUNCTIONS)


def _caller_of(function: Any) -> Callable[..., Any]:
    """By code: functions that differ only in what they close over share graphs, guarded by Dynamo."""
    function = getattr(function, "__func__", function)
    key = getattr(function, "__code__", None) or type(function)
    return _CALLERS.find(key, lambda: torch_internals.compile_whole(_caller(), _record, SIGNATURES))


def trace(function: Callable[..., Any], args: Any) -> tuple[Traced, list[torch.Tensor]]:
    """`function` at `args`, a pair (positional, keywords), and the tensors that it reads beside them, as of now."""
    leaves, spec = tree_flatten(args)
    examples = [example(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    with torch.enable_grad(), torch_internals.outside_functorch():
        out = _called(function, examples, spec)
    results, out_spec = tree_flatten(out)
    found = next((r for r in results if isinstance(r, Result)), None)
    if found is None:
        raise Unsupported(f"the function returns no tensor that it computed: {_described(out)}")
    lived = _lived(found.inputs, examples, results)
    key = (spec, tuple(map(_signature, examples)), out_spec, tuple(map(_constant, results)))
    traced = found.entry.traced.find(
        key, lambda: _named(_traced(found, examples, spec, results, out_spec, lived), function)
    )
    return traced, lived


def _called(function: Callable[..., Any], examples: Sequence[Any], spec: Any) -> Any:
    """What Dynamo's code returns. It takes `x.T` off an argument by itself: then every result is asked of the graph."""
    out = _caller_of(function)(function, *tree_unflatten(examples, spec))
    returned = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
    if not any(_is_part(tensor, examples) for tensor in returned):
        return out

    def viewing(*args: Any, **kwargs: Any) -> Any:
        return tree_map_only(torch.Tensor, lambda tensor: tensor.view_as(tensor), function(*args, **kwargs))

    return _caller_of(viewing)(viewing, *tree_unflatten(examples, spec))


def _is_part(tensor: torch.Tensor, examples: Sequence[Any]) -> bool:
    """Is it a view of an argument, and not an argument itself?"""
    given = [example for example in examples if isinstance(example, torch.Tensor)]
    memory = {example.untyped_storage().data_ptr() for example in given}
    return tensor.untyped_storage().data_ptr() in memory and not any(tensor is example for example in given)


def example(leaf: torch.Tensor) -> torch.Tensor:
    """A tensor of the same type, to trace with: contiguous, a leaf, requiring a gradient where it can."""
    if not torch_internals.in_functorch() and not torch_internals.in_forward_mode():
        return leaf.detach().contiguous().requires_grad_(ir.is_differentiable_type(leaf))
    shape, dtype, device, requires_grad = leaf.shape, leaf.dtype, leaf.device, ir.is_differentiable_type(leaf)
    with torch_internals.outside_functorch():
        return torch.empty(shape, dtype=dtype, device=device, requires_grad=requires_grad)


def _lived(inputs: Sequence[Any], examples: Sequence[Any], results: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors that are no arguments: those the graph reads, then those that are returned as they are."""
    arguments = {id(example) for example in examples}
    tensors = [*inputs, *(r for r in results if isinstance(r, torch.Tensor))]
    return list({id(t): t for t in tensors if id(t) not in arguments}.values())


def _traced(found: Result, examples: Any, spec: Any, results: Any, out_spec: Any, lived: Any) -> Traced:
    """The captured graph with inputs [tensor arguments, live tensors] and outputs [mutated inputs, tensor results]."""
    captured, convention = found.entry.captured, found.entry.captured.convention
    nodes = ir.inputs(captured.graph)
    if [convention.argument_of(node) for node in nodes] != list(range(len(found.inputs))):
        raise Unsupported("the function overwrites one of several tensors that share memory; write to a copy")
    known = {id(tensor): node for tensor, node in zip(found.inputs, nodes, strict=True)}
    tensors = [*(e for e in examples if isinstance(e, torch.Tensor)), *lived]
    order = [known.get(id(tensor)) or _placeholder(captured, tensor) for tensor in tensors]
    by_tensor = {id(tensor): node for tensor, node in zip(tensors, order, strict=True)}
    position = {id(tensor): i for i, tensor in enumerate(tensors)}
    outputs = ir.outputs(captured.graph)
    pairs = convention.write_backs()
    returned = [r for r in results if isinstance(r, (Result, torch.Tensor))]
    values = [
        outputs[convention.first_output + r.index] if isinstance(r, Result) else by_tensor[id(r)] for r in returned
    ]
    graph = copy_nodes(ir.calls(captured.graph), order, [*(outputs[o] for o, _ in pairs), *values])
    numbers = iter(range(len(pairs), len(pairs) + len(values)))
    out = [Slot(next(numbers)) if isinstance(r, (Result, torch.Tensor)) else r for r in results]
    args = [Slot(position[id(e)]) if isinstance(e, torch.Tensor) else None for e in examples]
    mutated = tuple((k, position[id(found.inputs[i])]) for k, (_, i) in enumerate(pairs))
    live = tuple(range(len(tensors) - len(lived), len(tensors)))
    return Traced(graph, tree_unflatten(args, spec), tree_unflatten(out, out_spec), live, mutated)


def _named(traced: Traced, function: Callable[..., Any]) -> Traced:
    """Call the inputs what the function calls its arguments, if that can be known."""
    positional, keywords = traced.args
    with contextlib.suppress(TypeError, ValueError):
        called = function.forward if isinstance(function, torch.nn.Module) else function
        bound = inspect.signature(called).bind(*positional, **keywords).arguments
        for name, tree in bound.items():
            found = slots(tree)
            for k, slot in enumerate(found):
                ir.rename(ir.inputs(traced.graph)[slot.position], name if len(found) == 1 else f"{name}_{k}")
    return traced


def _placeholder(captured: Captured, tensor: torch.Tensor) -> fx.Node:
    """An argument that the program never reads is an input of its graph all the same."""
    fake_mode = torch_internals.fake_mode_of([ir.value(node) for node in captured.graph.nodes])
    node = fx.Graph().placeholder("unused")
    ir.set_value(node, fake_mode.from_tensor(tensor, static_shapes=True))
    return node


def _signature(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.dtype, leaf.device
    return type(leaf)


def _constant(leaf: Any) -> Any:
    """What tells one result from another: the output that it is, or the value itself."""
    if isinstance(leaf, Result):
        return Result, leaf.index
    return (type(leaf), leaf) if type(leaf) in (int, float, bool, str, type(None)) else id(leaf)


def _described(out: Any) -> str:
    return str(tree_map(lambda leaf: type(leaf).__name__, out))
