"""The compiler on one page."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import fx

from tapeless import torch_internals
from tapeless.backends.python import compile_graph
from tapeless.capture.program import Captured, capture
from tapeless.errors import MissingRule, Unsupported
from tapeless.gradient import Gradient
from tapeless.options import Options
from tapeless.runtime import bridge
from tapeless.runtime.program import Program
from tapeless.runtime.variant import Signature, differentiate_graph


def build(module: fx.GraphModule, inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """A Dynamo graph → a function with eager's results, aliases, mutations and gradients."""
    try:
        captured = capture(module, inputs)
        run = differentiated(captured, options) if captured.needs_gradient else compile_graph(captured.graph)
    except (MissingRule, Unsupported) as problem:
        if options.fallback == "raise":
            raise
        warnings.warn(f"running this graph in eager: {problem}", stacklevel=2)
        return module
    wrapped = captured.convention.wrap(run)
    return lambda *args: wrapped(list(args))


def differentiated(captured: Captured, options: Options) -> Callable[[list[Any]], list[Any]]:
    """The captured graph with its derivative, callable under autograd."""
    return partial(bridge.run, Program(captured.graph, signature(captured), options.variants))


def signature(captured: Captured) -> Signature:
    """What autograd may ask of the captured graph."""
    convention = captured.convention
    return Signature(
        wrt=tuple(captured.wrt),
        differentiable=tuple(captured.differentiable),
        hidden=tuple(convention.hidden_outputs()),
        mutated=tuple(convention.mutated_inputs()),
    )


def trace(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Captured:
    """A plain function at example inputs → its captured graph."""
    traced = torch_internals.trace_function(function, args, kwargs)
    if traced is None:
        raise Unsupported("the function performs no tensor operation: there is nothing to differentiate")
    with traced.context():
        return capture(traced.module, traced.inputs)


def differentiate_captured(captured: Captured, undefined: tuple[int, ...] = ()) -> Gradient:
    """A captured graph → its forward and backward as programs."""
    return Gradient.of(differentiate_graph(captured.graph, signature(captured)), undefined)
