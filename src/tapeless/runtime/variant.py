"""One way to run a program: a forward, what it saves, and its backwards by pattern of undefined cotangents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless.backends.select import compile_graph
from tapeless.differentiate.reverse import memory_format
from tapeless.ir import graph as ir
from tapeless.ir.convolutions import split_convolutions
from tapeless.ir.copying import copy_graph, prune_inputs
from tapeless.ir.custom import inline_custom, inlined
from tapeless.ir.narrow import narrow
from tapeless.ir.reuse import Terms, own_results
from tapeless.ir.sums import gather_sums
from tapeless.partition.schedule import with_lower_peak
from tapeless.partition.split import Split
from tapeless.partition.trim import trim
from tapeless.runtime.apart import positions_to_copy
from tapeless.runtime.derivatives import differentiate_graph
from tapeless.runtime.functional import functional_module
from tapeless.runtime.noughts import is_filled_zero, nought
from tapeless.runtime.signature import ZERO, Mask, Signature
from tapeless.specialize.lower import lower_grad_of
from tapeless.specialize.rewrite import specialize

Boxed = Callable[[list[Any]], list[Any]]


@dataclass
class Backward:
    """A backward program and how it is called."""

    graph: fx.Graph
    arguments: tuple[int, ...]  # positions among [one cotangent per output of the forward, captures]
    gradient_inputs: tuple[int, ...]  # for each result, the input it is the gradient of
    inputs: int
    backend: str = "python"
    cache: bool | str = False  # see `compile_graph`
    noughts: tuple[tuple[int, torch.Tensor], ...] = ()  # inputs whose gradients are sent as noughts, and their types
    temporaries: tuple[int, ...] = ()  # those of its arguments that go once it has read them
    donated: tuple[int, ...] = ()  # those of them that share memory with nothing else
    _copied: tuple[int, ...] | None = None  # results that show the memory of others: it is the program's, not a call's

    @cached_property
    def run(self) -> Boxed:
        graph, terms = self.runnable, Terms(unrecorded=True, donated=self.donated, views=True)
        if self.backend == "python" and not any(map(ir.guard, graph.nodes)):
            graph = with_lower_peak(split_convolutions(copy_graph(graph)), self.temporaries, terms)
        return compile_graph(graph, "backward", self.backend, self.cache, terms)

    @cached_property
    def runnable(self) -> fx.Graph:
        """The graph as it runs, and, if it recurs, as it is ordered: it is kept, so that nothing is made twice."""
        graph = inlined(self.graph)
        is_general = any(map(ir.guard, graph.nodes))  # it tests what has arrived: nothing may move out of its test
        return graph if is_general else gather_sums(copy_graph(graph))

    @cached_property
    def functional(self) -> fx.GraphModule:
        """The same as calls that leave every operand alone: torch's own transforms can go through, and autograd too."""
        return functional_module(self.graph)

    def select(self, available: list[Any]) -> list[Any]:
        return [available[i] for i in self.arguments]

    def gradients(self, args: list[Any]) -> list[Any]:
        """What autograd expects, which may keep each of them and add to it in place."""
        found = self.run(args)
        copied = self._copied
        if copied is None:
            copied = positions_to_copy(found)
            self._copied = None if self._varies else copied
        if not copied:
            return self.spread(found)
        return self.spread([found[k].clone() if k in copied else found[k] for k in range(len(found))])

    @cached_property
    def _varies(self) -> bool:
        """Is it seen at each call anew which results there are, and where they lie?"""
        return not all(isinstance(node.target, OpOverload | BuiltinFunctionType) for node in ir.calls(self.graph))

    def spread(self, found: Sequence[Any]) -> list[Any]:
        """What autograd expects: a gradient or None for each input."""
        gradients: list[Any] = [None] * self.inputs
        for i, gradient in zip(self.gradient_inputs, found, strict=True):
            gradients[i] = gradient
        for i, like in self.noughts:
            gradients[i] = nought(like)
        return gradients


class Variant:
    """A forward and what it saves. `parts`: its derivative at first order; `full`: cotangents of temporaries too."""

    def __init__(
        self,
        parts: Split,
        signature: Signature,
        expected: Mask | None = None,
        backend: str = "python",
        cache: bool | str = False,
    ) -> None:
        self.parts, self.signature, self.cache = parts, signature, cache
        self.expected = expected or (True,) * parts.real_outputs  # the cotangents that this variant can take
        self.use(backend)
        results = ir.outputs(parts.forward)
        self.formats = [memory_format(ir.value(o)) if ir.is_tensor(o) else None for o in results]
        self.outputs = len(results)
        self.constant_outputs = self._constant_outputs()
        self.saves_numbers = not all(ir.is_tensor(node) for node in parts.captures)
        self._checked = False
        self._lone_views: list[int] | None = None

    def use(self, backend: str) -> None:
        """From now on the forward, and backwards that are not made yet, run on another backend."""
        self.backend = backend
        self.forward = compile_graph(self.runnable, "forward", backend, self.cache, Terms(unrecorded=True))
        # Temporaries in memory of their own; what another backend makes of a graph may share it.
        own = own_results(self.runnable) if backend == "python" else frozenset()
        self.own = frozenset(i for i in own if i >= self.parts.real_outputs)

    @cached_property
    def runnable(self) -> fx.Graph:
        """The forward as it runs; kept as `Backward.runnable` is."""
        return runnable(self.parts.forward)

    def cut_views(self, args: Sequence[Any], outs: list[Any]) -> None:
        """Make results that are views, of what nobody else gets, tensors in their own right.

        Autograd lets nobody write to a view that comes out of a function. What it is a view of may be saved: a detached
        tensor counts its versions together with that. Which results they are is seen at the first call, as in `_check`.
        """
        if self._lone_views is None:
            self._lone_views = self._find_lone_views(args, outs[: self.parts.real_outputs])
        for i in self._lone_views:
            outs[i] = outs[i].detach()

    def _find_lone_views(self, args: Sequence[Any], outs: Sequence[Any]) -> list[int]:
        views = [i for i, out in enumerate(outs) if isinstance(out, torch.Tensor) and out._is_view()]
        if not views:
            return []
        held = Counter(map(memory_of, (*args, *outs)))
        return [i for i in views if i not in self.signature.hidden and held[memory_of(outs[i])] == 1]

    def captured(self, args: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """What is kept for the backward."""
        if not self._checked:
            self._check(args, outs)
        return captured(self.parts, args, outs)

    def _check(self, args: Sequence[Any], outs: Sequence[Any]) -> None:
        """Do kernels hand out the memory that they are thought to? Seen at the first call: it is theirs, not sizes'."""
        held = Counter(memory for value in (*args, *outs) if (memory := memory_of(value)) is not None)
        if any((memory := memory_of(outs[i])) is not None and held[memory] > 1 for i in self.own):
            self.own = frozenset()
        self._checked = True

    def _constant_outputs(self) -> list[int]:
        """Outputs that no gradient will ever reach."""
        real = self.parts.real_outputs
        active = (*self.signature.differentiable, *self.parts.active_outputs[real:])
        return [i for i, a in enumerate(active) if not a and i not in self.signature.hidden]

    def is_temporary(self, argument: int) -> bool:
        """Is this argument of a backward (see `Backward`) a value that is saved for the backward alone?"""
        if argument < self.outputs:
            return False
        kind, index = self.parts.capture_keys[argument - self.outputs]
        return kind == "output" and index >= self.parts.real_outputs

    @cached_property
    def full(self) -> Split:
        """The derivative of the forward with everything it returns, temporaries included."""
        real = tuple(d and e for d, e in zip(self.signature.differentiable, self.expected, strict=True))
        flags = (*real, *self.parts.active_outputs[self.parts.real_outputs :])
        signature = Signature(self.signature.wrt, flags, (), self.signature.mutated)
        return differentiate_graph(self.parts.forward, signature)

    def serves(self, mask: Mask, wanted: Mask, recording: bool) -> bool:
        """Does what this variant saves suffice for these cotangents? For any gradients, and of any order."""
        return all(e or not m for e, m in zip(self.expected, mask, strict=False))

    def specialized(self, mask: Mask, wanted: Mask | None = None) -> Backward:
        """The backward for cotangents defined as in `mask` (per forward output), giving the gradients `wanted`."""
        parts = self.parts if not any(mask[self.parts.real_outputs :]) else self.full
        undefined = [k for k, i in enumerate(parts.cotangent_outputs) if not mask[i]]
        zero = [k for k, i in enumerate(parts.cotangent_outputs) if mask[i] == ZERO]
        unwanted = [] if wanted is None else [k for k, i in enumerate(parts.gradient_inputs) if not wanted[i]]
        graph = specialize(parts.backward, len(parts.cotangent_outputs), undefined, unwanted, zero)
        return self._backward(parts, graph, self._take_noughts(parts, graph))

    @cached_property
    def generic(self) -> Backward | None:
        """One backward for every pattern of cotangents of real outputs; None if sizes are symbolic."""
        if any(isinstance(n, torch.SymInt) for node in self.parts.backward.nodes for n in _shape(node)):
            return None
        lowered = lower_grad_of(inlined(self.parts.backward), len(self.parts.cotangent_outputs))
        return self._backward(self.parts, lowered)

    def _backward(self, parts: Split, graph: fx.Graph, noughts: tuple[tuple[int, torch.Tensor], ...] = ()) -> Backward:
        saved = {key: self.outputs + k for k, key in enumerate(self.parts.capture_keys)}
        keys = [*parts.cotangent_outputs, *parts.capture_keys]
        kept = [keys[k] for k in prune_inputs(graph)]  # of `full`, what only undefined cotangents need is not saved
        arguments = tuple(key if isinstance(key, int) else saved[key] for key in kept)
        alone = {saved[key]: key[1] for key in saved if key[0] == "output" and key[1] >= self.parts.real_outputs}
        return Backward(
            graph=graph,
            arguments=arguments,
            gradient_inputs=parts.gradient_inputs,
            inputs=len(self.signature.wrt),
            backend=self.backend,
            cache=self.cache,
            noughts=noughts,
            temporaries=tuple(
                k for k, argument in enumerate(arguments) if argument < self.outputs or argument in alone
            ),
            donated=tuple(k for k, argument in enumerate(arguments) if alone.get(argument) in self.own),
        )

    def _take_noughts(self, parts: Split, graph: fx.Graph) -> tuple[tuple[int, torch.Tensor], ...]:
        """Gradients of another program's temporaries that are zero: the graph need not make tensors of them."""
        results = ir.outputs(graph)
        found = {
            k: (i, ir.value(results[k]))
            for k, i in enumerate(parts.gradient_inputs)
            if i in self.signature.temporaries and is_filled_zero(results[k])
        }
        graph.output_node().args = ([None if k in found else result for k, result in enumerate(results)],)
        graph.eliminate_dead_code()
        return tuple(found.values())

    def trimmed(self, mask: Mask) -> Variant | None:
        """The variant that saves only what this mask needs; None if that is everything."""
        parts = trim(self.parts, mask)
        return None if parts is None else Variant(parts, self.signature, mask, self.backend, self.cache)


def captured(parts: Any, args: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """The inputs and outputs of a forward that `parts` says are kept for its backward."""
    found = [args[i] for i in parts.captured_inputs]
    found += [outs[i] for i in parts.captured_outputs]
    return found


def memory_of(value: Any) -> int | None:
    """The memory that a tensor lies in."""
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) and value.numel() else None


def runnable(forward: fx.Graph) -> fx.Graph:
    """The forward as it runs: custom functions inlined, no tensor returned twice (autograd gives each one history)."""
    graph = gather_sums(narrow(inline_custom(copy_graph(forward))))
    seen: set[fx.Node] = set()
    results = []
    for result in ir.outputs(graph):
        if isinstance(result, fx.Node) and result in seen and ir.is_tensor(result):
            with graph.inserting_before(graph.output_node()):
                result = graph.call_function(torch.ops.aten.alias.default, (result,))
        seen.add(result)
        results.append(result)
    graph.output_node().args = (results,)
    return graph


def _shape(node: fx.Node) -> Sequence[Any]:
    val = ir.value(node)
    return val.shape if isinstance(val, torch.Tensor) else ()
