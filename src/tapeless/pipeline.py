"""The compiler on one page."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from tapeless.backends.python import compile_graph
from tapeless.capture.program import Captured, capture
from tapeless.errors import MissingRule
from tapeless.options import Options
from tapeless.runtime.bridge import Program, Signature


def build(module: fx.GraphModule, inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """A Dynamo graph → a function with eager's results, aliases, mutations and gradients."""
    captured = capture(module, inputs)
    try:
        run = differentiated(captured) if captured.needs_gradient else compile_graph(captured.graph)
    except MissingRule as missing:
        if options.fallback == "raise":
            raise
        warnings.warn(f"running this graph in eager: {missing}", stacklevel=2)
        return module
    wrapped = captured.convention.wrap(run)
    return lambda *args: wrapped(list(args))


def differentiated(captured: Captured) -> Program:
    """The captured graph with its derivative, callable under autograd."""
    convention = captured.convention
    return Program(
        captured.graph,
        Signature(
            wrt=tuple(captured.wrt),
            differentiable=tuple(captured.differentiable),
            hidden=tuple(convention.hidden_outputs()),
            mutated=tuple(convention.mutated_inputs()),
        ),
    )
