"""The compiler on one page."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import fx

from tapeless import prepare, torch_internals
from tapeless.backends.select import compile_graph
from tapeless.background.compiler import COMPILER
from tapeless.cache import Place
from tapeless.capture.frames import tell
from tapeless.capture.kept import digest_of, place_of
from tapeless.capture.program import Captured, capture
from tapeless.errors import MissingRule, Unsupported
from tapeless.gradient import Gradient
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_nodes
from tapeless.ir.custom import inlined
from tapeless.ir.kernels import written_out
from tapeless.options import Options
from tapeless.prepare.report import Preparation
from tapeless.runtime.derivatives import differentiate_graph
from tapeless.runtime.kept import Kept
from tapeless.runtime.signature import Signature
from tapeless.runtime.stages import runnable_program


@torch_internals.every_number_drawn()
def build(module: fx.GraphModule, inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """A Dynamo graph → a function with eager's results, aliases, mutations and gradients."""
    try:
        return runnable(captured_and_prepared(module, inputs, options), options)
    except (MissingRule, Unsupported) as problem:
        if options.fallback == "raise":
            raise
        warnings.warn(f"running this graph in eager: {problem}", stacklevel=2)
        return module


def runnable(captured: Captured, options: Options) -> Callable[..., Any]:
    """A captured and prepared graph → the function that Dynamo calls."""
    run = differentiated(captured, options) if captured.needs_gradient else undifferentiated(captured, options)
    wrapped = captured.convention.wrap(run)
    return torch_internals.keeping_versions(lambda *args: wrapped(list(args)), captured.versionless)


@torch_internals.every_number_drawn()
def rebuilt(digest: str, inputs: Sequence[Any], options: Options) -> Callable[..., Any] | None:
    """What `build` makes of the Dynamo graph with this digest, if a process before this one has kept it."""
    kept = _place(digest, inputs, options)
    with torch_internals.as_while_compiling():
        captured = _kept(kept, inputs) if kept else None
        return runnable(captured, options) if captured else None


def captured_and_prepared(module: fx.GraphModule, inputs: Sequence[Any], options: Options) -> Captured:
    """A Dynamo graph → the graph to be differentiated, found by this process or by one before it."""
    digest = digest_of(module)
    kept = _place(digest, inputs, options)
    captured = _kept(kept, inputs) if kept else None
    if captured is None:
        if options.in_background and not torch.are_deterministic_algorithms_enabled():
            COMPILER.expect()  # not for a program that was met before, and perhaps compiled then
        assumed = torch_internals.assumptions()
        captured = prepared(capture(module, inputs), options)
        if torch_internals.assumptions() != assumed:  # Dynamo is to be told by capture, each time
            kept = None
        if kept:
            kept.write((captured.graph, captured.convention.without_compilers(), captured.versionless))
    tell(module, inputs, digest if kept else None)
    return captured


def _kept(kept: Place, inputs: Sequence[Any]) -> Captured | None:
    """What a process before this one captured and prepared."""
    found = kept.read(torch_internals.tracing_fake_mode(inputs))
    if found is None:
        return None
    graph, convention, versionless = found
    return Captured(graph, convention, inputs, versionless)


def _place(digest: str | None, inputs: Sequence[Any], options: Options) -> Place | None:
    """Where the captured and prepared graph is kept; nowhere if passes of the user's, or checks, are to run."""
    settings = None if options.check else prepare.REGISTRY.settings(options.passes)
    weights = [isinstance(x, torch.Tensor) and torch_internals.is_static(x) for x in inputs] if options.keep else []
    return None if settings is None else place_of(digest, inputs, f"{settings} {weights}", options.cache)


def prepared(captured: Captured, options: Options) -> Captured:
    """The captured graph after the passes before differentiation."""
    return replace(captured, graph=preparation(captured, options)[0])


def preparation(captured: Captured, options: Options) -> tuple[fx.Graph, Preparation]:
    """The prepared graph, and what was done to it."""
    examples = [captured.example(node) for node in ir.inputs(captured.graph)]
    wrt = [wanted and captured.needs_gradient for wanted in captured.wrt]  # weights require one under `no_grad` too
    fixed = weights(captured, options)
    return prepare.run(captured.graph, wrt, prepare.REGISTRY, options.passes, options.check, examples, fixed)


def weights(captured: Captured, options: Options) -> list[bool]:
    """Per graph input: does it stay the same from call to call, so that what is made of it alone may be kept?"""
    if captured.needs_gradient or not options.keep:
        return []
    written = set(captured.convention.mutated_inputs())
    indices = map(captured.convention.argument_of, ir.inputs(captured.graph))
    examples = map(captured.example, ir.inputs(captured.graph))
    return [
        example is not None and index not in written and torch_internals.is_static(example) and example.is_cpu
        for index, example in zip(indices, examples, strict=True)
    ]


def differentiated(captured: Captured, options: Options) -> Callable[[list[Any]], list[Any]]:
    """The captured graph with its derivative, callable under autograd."""
    return runnable_program(captured.graph, signature(captured), options)


def undifferentiated(captured: Captured, options: Options) -> Callable[[list[Any]], list[Any]]:
    """The captured graph alone; should an input carry a tangent after all, the same with its derivative."""
    graph, asked, recording = captured.graph, signature(captured), torch.is_grad_enabled()  # not the example inputs
    run = _keeping(inlined(graph), weights(captured, options), options)

    @cache
    def pushing_forward() -> Callable[[list[Any]], list[Any]]:
        return runnable_program(written_out(graph), asked, options)

    def call(args: list[Any]) -> list[Any]:
        if not args or not torch_internals.in_forward_mode():
            return run(args)
        with torch.set_grad_enabled(recording):  # a tangent may require a gradient where no input does
            return pushing_forward()(args)

    return call


def _keeping(graph: fx.Graph, fixed: Sequence[bool], options: Options) -> Callable[[list[Any]], list[Any]]:
    """The graph as a function that keeps what is made of weights alone."""

    def compiled(graph: fx.Graph) -> Callable[[list[Any]], list[Any]]:
        return compile_graph(graph, "forward", options.lone_backend, options.cache)

    parts = prepare.split(graph, fixed)
    if parts is None:
        return compiled(graph)
    made, rest = compile_graph(parts.made, "weights"), compiled(parts.rest)
    return Kept(parts.weights, made, rest, lambda: compiled(written_out(graph)))


def signature(captured: Captured) -> Signature:
    """What autograd may ask of the captured graph."""
    convention = captured.convention
    return Signature(
        wrt=tuple(captured.wrt),
        differentiable=tuple(captured.differentiable),
        hidden=tuple(convention.hidden_outputs()),
        mutated=tuple(convention.mutated_inputs()),
        parameters=tuple(isinstance(captured.example(node), torch.nn.Parameter) for node in ir.inputs(captured.graph)),
    )


def trace(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Captured:
    """A plain function at example inputs → its captured graph."""
    traced = torch_internals.trace_function(function, args, kwargs)
    if traced is None:
        raise Unsupported("the function performs no tensor operation: there is nothing to differentiate")
    with traced.context(), torch_internals.every_number_drawn():
        return capture(traced.module, traced.inputs)


def differentiate_captured(
    captured: Captured,
    arguments: Sequence[tuple[str, torch.Tensor]],
    undefined: Sequence[int] = (),
    memory: str | int | float = "fast",
) -> Gradient:
    """A captured graph → its forward and backward as programs; their first inputs are `arguments`, in order."""
    asked = signature(captured)
    flags = dict(zip(ir.inputs(captured.graph), asked.wrt, strict=True))
    known = {id(captured.example(node)): node for node in ir.inputs(captured.graph)}
    first = [known.get(id(tensor)) or _unused_input(captured.graph, name, tensor) for name, tensor in arguments]
    order = [*first, *(node for node in known.values() if node not in first)]
    graph = copy_nodes(ir.calls(captured.graph), order, ir.outputs(captured.graph))
    asked = replace(asked, wrt=tuple(flags.get(node, False) for node in order), hidden=(), mutated=())
    offset = len(captured.convention.mutated_inputs())
    return Gradient.of(differentiate_graph(graph, asked, memory), tuple(offset + i for i in undefined))


def _unused_input(graph: fx.Graph, name: str, tensor: torch.Tensor) -> fx.Node:
    """An argument that the program never reads is an input of its forward all the same."""
    with graph.inserting_before(next(iter(graph.nodes))):
        node = graph.placeholder(name)
    ir.set_value(node, tensor)
    return node
