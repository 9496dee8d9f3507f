"""Backend `auto` for a graph that stands alone: generated Python at once, Inductor if it turns out to be faster.

A graph with a backward is compiled together with it, see `runtime.contest`.
"""

from __future__ import annotations

import math
import operator
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless import torch_internals
from tapeless.backends import python
from tapeless.backends.inductor import without_gradients
from tapeless.background.compiler import COMPILER
from tapeless.background.order import Answer, Failure, Order, TensorType
from tapeless.background.race import Race, Stopwatch, warn_once
from tapeless.ir import graph as ir
from tapeless.ir import text

Boxed = Callable[[list[Any]], list[Any]]

LIVE: weakref.WeakSet[Auto] = weakref.WeakSet()

CHECKS = (torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg)  # Inductor keeps them

RECURRENCES = 2  # calls, or steps with the same gradients, before anything is compiled
SECONDS = 0.5  # and for how long a program is in use by then: most programs of a test or a notebook never are


class Age:
    """For how long something has been in use."""

    def __init__(self) -> None:
        self._end = time.monotonic() + SECONDS

    @property
    def is_over(self) -> bool:
        """Is it old enough to be compiled?"""
        return time.monotonic() > self._end


def compile_graph(graph: fx.Graph, name: str = "forward", cache: bool | str = False) -> Boxed:
    """A function of one list (which it empties) to a list. `cache`: where what is compiled is kept."""
    plain = python.compile_graph(graph, name)
    return Auto(graph, plain, cache) if can_be_ordered(graph) else plain


def compile_watched(graph: fx.Graph, name: str = "forward", cache: bool | str = False) -> Boxed:
    """The same for a graph whose inputs nobody guards: those laid out otherwise than before go to generated Python."""
    compiled = compile_graph(graph, name, cache)
    if isinstance(compiled, Auto):
        compiled.watches_strides = True
    return compiled


def can_be_ordered(graph: fx.Graph) -> bool:
    """Is everything in it known to another process: torch's own operators on the CPU, no tensor that it closes over?"""
    known = all(map(_is_known, ir.calls(graph))) and all(map(_is_on_cpu, graph.nodes))
    return known and not any(map(_is_lazy, ir.inputs(graph)))


def _is_known(node: fx.Node) -> bool:
    if not node.users and node.target not in CHECKS:
        return False  # it draws numbers for nobody, and would not if forward and backward were cut anew
    if isinstance(node.target, OpOverload):
        return node.target.namespace in ("aten", "prims") and not node.target._schema.is_mutable
    return getattr(node.target, "__module__", "") in (operator.__name__, "_operator", math.__name__)


def _is_on_cpu(node: fx.Node) -> bool:
    val = ir.value(node)
    return not isinstance(val, torch.Tensor) or val.device.type == "cpu"


def _is_lazy(node: fx.Node) -> bool:
    """Is it conjugated or negated only as it is read? The type of an input does not say so."""
    val = ir.value(node)
    return isinstance(val, torch.Tensor) and (val.is_conj() or val.is_neg())


class Auto:
    """A graph that runs as generated Python until something faster is known."""

    def __init__(self, graph: fx.Graph, plain: Boxed, cache: bool | str = False) -> None:
        self.graph, self._cache = graph, cache
        self.state = "python"  # see `runtime.contest.Contest.state`
        self._run = self._watched
        self._plain = plain
        self._calls = 0
        self._age = Age()
        self._answer: Boxed | Failure | None = None
        self._before: Stopwatch | None = None  # how fast generated Python is, while the other one is compiled
        self.watches_strides = False
        self._strides: list[tuple[int, ...]] = []  # of what it is being compiled for
        LIVE.add(self)

    def __call__(self, args: list[Any]) -> list[Any]:
        return self._run(args)

    def _watched(self, args: list[Any]) -> list[Any]:
        self._calls += 1
        if self.state == "python" and self._calls >= RECURRENCES and self._age.is_over:
            self._order(args)
        if isinstance(self._answer, Failure):
            warn_once(self._answer)
            self._settle(self._plain)
        elif self._answer is not None:
            self._run, self.state = self._racing(self._answer), "racing"
        return (self._before or self._plain)(args)

    def _racing(self, compiled: Boxed) -> Boxed:
        """Both in turns, until it is known which is faster."""
        ours, theirs = Stopwatch(self._plain), Stopwatch(compiled)
        race = Race([ours], [theirs], [self._before] if self._before else [])

        def run(args: list[Any]) -> list[Any]:
            if race.is_over:
                self._settle(compiled if race.compiled_wins else self._plain)
            return theirs(args) if race.is_turn_of_compiled() else ours(args)

        return run

    def _for_known_strides(self, compiled: Boxed) -> Boxed:
        plain, known = self._plain, self._strides

        def run(args: list[Any]) -> list[Any]:
            fits = all(arg.stride() == strides for arg, strides in zip(args, known, strict=True))
            return compiled(args) if fits else plain(args)

        return run

    def _settle(self, run: Boxed) -> None:
        self._run, self.state = run, "python stays" if run is self._plain else "inductor stays"

    def _order(self, args: Sequence[Any]) -> None:
        types = types_of(self.graph, args)
        if torch.are_deterministic_algorithms_enabled() or not all(isinstance(t, TensorType) for t in types):
            self._settle(self._plain)
            return
        self.state = "compiling"
        self._before = Stopwatch(self._plain)
        self._strides = [arg.stride() for arg in args]
        settings = torch.get_num_threads(), torch.get_float32_matmul_precision()  # of this thread
        COMPILER.submit(partial(_order_of, self.graph, types, *settings), self, self._cache)

    def ready(self, answer: Answer | Failure) -> None:
        """In another thread: what was compiled is loaded."""
        if isinstance(answer, Failure):
            self._answer = answer
            return
        try:
            compiled = without_gradients(answer.forward.load())
            self._answer = self._for_known_strides(compiled) if self.watches_strides else compiled
        except Exception as problem:
            self._answer = Failure(f"{type(problem).__name__}: {problem}")


def _order_of(graph: fx.Graph, types: tuple[TensorType | str, ...], threads: int, precision: str) -> Order:
    return Order(
        forward=text.functional_program(graph, "forward"),
        inputs=types,
        real_outputs=len(ir.outputs(graph)),
        sizes={},
        threads=threads,
        precision=precision,
    )


def types_of(graph: fx.Graph, args: Sequence[Any]) -> tuple[TensorType | str, ...]:
    """What the graph was called with: tensors, and sizes by name."""
    return tuple(_type(ir.value(node), arg) for node, arg in zip(ir.inputs(graph), args, strict=True))


def _type(val: Any, arg: Any) -> TensorType | str:
    if not isinstance(val, torch.Tensor):
        return str(val)
    like = torch_internals.restrided(val, arg)
    return TensorType(tuple(map(_size, like.shape)), tuple(map(_size, like.stride())), val.dtype)


def _size(size: Any) -> int | str:
    return str(size) if isinstance(size, torch.SymInt) else int(size)
