"""Backend `python`: the generated source, compiled. It exists milliseconds after capture, and is what gets printed."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import fx

from tapeless.ir import text

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


def compile_graph(graph: fx.Graph, name: str = "forward") -> Callable[[list[Any]], list[Any]]:
    """A function of one list (which it empties) to a list. Tracebacks show the generated lines."""
    source = text.program(graph, name)
    filename = f"{GENERATED}/{name}_{next(_COUNTER)}.py"
    namespace: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), namespace)
    namespace.update(text.constants(graph))  # the tensors themselves: nobody may have changed them since
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    weakref.finalize(namespace[name], linecache.cache.pop, filename, None)
    return namespace[name]
