"""Which backend makes a graph run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from tapeless.backends import auto, inductor, python

WATCHED = "auto, watched"
BACKENDS = {
    "auto": auto.compile_graph,
    WATCHED: auto.compile_watched,
    "python": python.compile_graph,
    "inductor": inductor.compile_graph,
}


def compile_graph(graph: fx.Graph, name: str = "forward", backend: str = "python") -> Callable[[list[Any]], list[Any]]:
    """A function of one list (which it empties) to a list."""
    return BACKENDS[backend](graph, name)
