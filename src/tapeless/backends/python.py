"""Backend `python`: the generated source, compiled. It exists milliseconds after capture, and is what gets printed."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import fx

from tapeless.ir import text
from tapeless.ir.reuse import ANY, Terms, overwritten_inputs

Boxed = Callable[[list[Any]], list[Any]]

_COUNTER = itertools.count()
GENERATED = f"{Path(__file__).parent}/generated"  # where tracebacks say the functions are; there are no such files


class Code:
    """A graph as a Python function: call it, or print it. What is printed is what runs."""

    def __init__(self, graph: fx.Graph, name: str, note: str = "") -> None:
        self.graph, self.name, self.note = graph, name, note
        self.run = compile_graph(graph, name)

    def __call__(self, *args: Any) -> list[Any]:
        return self.run(list(args))

    def __str__(self) -> str:
        return text.program(self.graph, self.name, self.note)


class Given(list[Any]):
    """Arguments handed over for good: a program may write to those that were said to be donated when it was made."""


class Overwriting:
    """A graph as two Python functions: one leaves its arguments as they are, one writes to some of what is `Given`."""

    def __init__(self, graph: fx.Graph, name: str, terms: Terms) -> None:
        self.graph, self.name, self.terms = graph, name, terms

    def __call__(self, args: list[Any]) -> list[Any]:
        if not isinstance(args, Given):
            return self._preserving(args)
        for k in self.terms.donated:
            args[k] = args[k].detach()  # it may become a result, which has no history
        return self._overwriting(args)

    @cached_property
    def _preserving(self) -> Boxed:
        return _compiled(self.graph, self.name, replace(self.terms, donated=()))

    @cached_property
    def _overwriting(self) -> Boxed:
        return _compiled(self.graph, self.name, self.terms)


def compile_graph(graph: fx.Graph, name: str = "forward", terms: Terms = ANY) -> Boxed:
    """A function of one list (which it empties) to a list. What is donated is written to only if it is `Given`."""
    kept = replace(terms, donated=overwritten_inputs(graph, terms))
    return Overwriting(graph, name, kept) if kept.donated else _compiled(graph, name, kept)


def _compiled(graph: fx.Graph, name: str, terms: Terms) -> Boxed:
    """The text as a function. Tracebacks show the generated lines."""
    source = text.program(graph, name, terms=terms)
    filename = f"{GENERATED}/{name}_{next(_COUNTER)}.py"
    namespace: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), namespace)
    namespace.update(text.constants(graph))  # the tensors themselves: nobody may have changed them since
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    weakref.finalize(namespace[name], linecache.cache.pop, filename, None)
    return namespace[name]
