"""Which backend makes a graph run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from tapeless.backends import auto, inductor, python
from tapeless.ir.reuse import ANY, Terms

WATCHED = "auto, watched"
IN_BACKGROUND = {"auto": auto.compile_graph, WATCHED: auto.compile_watched}
BACKENDS = {
    "python": python.compile_graph,
    "inductor": inductor.compile_graph,
}


def compile_graph(
    graph: fx.Graph,
    name: str = "forward",
    backend: str = "python",
    cache: bool | str = False,
    terms: Terms = ANY,
) -> Callable[[list[Any]], list[Any]]:
    """A function of one list (which it empties) to a list. `cache` is for what is compiled in the background.

    Generated Python makes use of the `terms` on which it is run.
    """
    if backend in IN_BACKGROUND:
        return IN_BACKGROUND[backend](graph, name, cache)
    if backend == "python":
        return python.compile_graph(graph, name, terms)
    return BACKENDS[backend](graph, name)
