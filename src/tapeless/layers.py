"""Compiled functions under the transforms of `torch.func`.

Dynamo steps aside there. So the function is traced as our own transforms trace it, and its graph answers each layer of
transforms (`runtime/units.py`). What cannot be done like this runs in eager, as if it were not compiled.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tapeless import functions, torch_internals
from tapeless.functions import Traced, filled
from tapeless.runtime.functional import naming_control_flow
from tapeless.torch_internals import is_wrapped

FAILURES = 4  # in a row, after which a function is left to eager without being traced


def transformable(function: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
    """`compiled`, which under transforms of torch answers with graphs of `function`."""
    layered = Transformable(function)
    if isinstance(compiled, torch.nn.Module):
        compiled.forward = layered.instead_of(compiled.forward)
        return compiled
    return functools.wraps(compiled)(layered.instead_of(compiled))


class Transformable:
    """A function, called by its graph."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.failures = function, 0

    def instead_of(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return compiled(*args, **kwargs)
            if torch_internals.in_fx_trace():
                return self.function(*args, **kwargs)
            if torch_internals.in_functorch():
                return self._run(args, kwargs)
            try:
                return compiled(*args, **kwargs)
            except Exception as problem:
                clearer = torch_internals.control_flow_in_transform(problem)
                if clearer is None:
                    raise
                raise clearer from problem

        return call

    def _run(self, args: Any, kwargs: Any) -> Any:
        found = self._traced(args, kwargs)
        if found is None:
            return self.function(*args, **kwargs)
        traced, inputs = found
        outs = traced.runner.layered(traced.ready(inputs))
        if outs is not None:
            return filled(traced.out, outs)
        with naming_control_flow(traced.graph):
            return self.function(*args, **kwargs)

    def _traced(self, args: Any, kwargs: Any) -> tuple[Traced, list[Any]] | None:
        """The graph at arguments like these, and its inputs; None where only eager will do."""
        if self.failures >= FAILURES:
            return None
        try:
            with _stand_ins(self.function) as stands_for:
                traced, live = functions.trace(self.function, (args, kwargs))
        except Exception:  # a function that breaks Dynamo's graph, or that closes over values of the transforms
            self.failures += 1
            return None
        self.failures = 0
        if traced.mutated:
            return None
        return traced, traced.inputs((args, kwargs), [stands_for.get(id(tensor), tensor) for tensor in live])


@contextlib.contextmanager
def _stand_ins(function: Callable[..., Any]) -> Iterator[dict[int, torch.Tensor]]:
    """A module whose parameters are values of the transforms has plain ones meanwhile; which stand for which, by id.

    So they are when somebody differentiates `torch.func.functional_call` by them.
    """
    modules = list(function.modules()) if isinstance(function, torch.nn.Module) else []
    tables: list[dict[str, Any]] = [table for module in modules for table in (module._parameters, module._buffers)]
    places = [(t, name, x) for t in tables for name, x in t.items() if is_wrapped(x)]
    examples = [functions.example(tensor) for _, _, tensor in places]
    for (table, name, _), example in zip(places, examples, strict=True):
        table[name] = example
    try:
        yield {id(example): tensor for (_, _, tensor), example in zip(places, examples, strict=True)}
    finally:
        for table, name, tensor in places:
            table[name] = tensor
