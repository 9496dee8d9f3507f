"""A differentiated graph that runs: which forward to take, which backward to answer with.

The first backward of a call site tells which cotangents arrive. If the forward can save less for that mask, a trimmed
variant takes over; should another mask arrive after all, the call is answered rightly at once, by running the full
forward again from the inputs (random numbers replayed), and the program grows more patient before it trims again.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.backends.select import WATCHED
from tapeless.differentiate.activity import active_nodes, moving_nodes
from tapeless.differentiate.forward import push_forward
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_graph
from tapeless.options import Options
from tapeless.runtime.contest import Contest
from tapeless.runtime.derivatives import DERIVATIVES
from tapeless.runtime.fused import Fused
from tapeless.runtime.signature import Mask, Signature
from tapeless.runtime.variant import Backward, Variant

T = TypeVar("T")

LIVE: weakref.WeakSet[Program] = weakref.WeakSet()

MANY = 8  # inputs with gradients: one question whether all of them are wanted is cheaper than one for each
LONG = 256  # nodes: a backward up to this size is specialised in milliseconds, at the first sight of a mask


class Recent(OrderedDict[Any, T]):
    """At most `most` entries; the least recently used goes. Reading needs no lock, building holds it."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.lock = most, threading.RLock()

    def find(self, key: Any, build: Callable[[], T]) -> T:
        try:
            found = self[key]
        except KeyError:
            return self._add(key, build)
        self._touch(key)
        return found

    def _add(self, key: Any, build: Callable[[], T]) -> T:
        with self.lock:
            if key not in self:
                self[key] = build()
                while len(self) > self.most:
                    self.popitem(last=False)
            return self[key]

    def _touch(self, key: Any) -> None:
        with self.lock:
            if key in self:
                self.move_to_end(key)


@dataclass
class Profile:
    """Which cotangents arrived, what was made of it. Plain counters: a lost update costs a guess, never a gradient."""

    mask: Mask | None = None
    streak: int = 0
    patience: int = 1
    seen: set[Mask] = field(default_factory=set)
    mispredictions: int = 0
    specialized: int = 0

    def record(self, mask: Mask) -> None:
        """These cotangents arrived, of outputs that are really returned; nothing is learnt where none did."""
        if mask == self.mask:
            self.streak += 1
        elif any(mask):
            self.mask, self.streak = mask, 1

    def mispredicted(self) -> None:
        self.mispredictions += 1
        self.patience = min(4 * self.patience, 1024)


class Program:
    """A graph that runs, and that autograd can differentiate in the inputs `signature.wrt`, to any order."""

    def __init__(self, graph: fx.Graph, signature: Signature, options: Options | None = None) -> None:
        self.signature = signature
        self.options = options or Options()
        variants = self.options.variants
        parts = DERIVATIVES.of(graph, signature, self.options.memory, self.options.cache)
        self.whole = Variant(parts, signature, None, self.options.first_backend, self.options.cache)
        self.tensor_inputs = [ir.is_tensor(node) for node in ir.inputs(graph)]
        self.unwrapped = self._unwrapped()
        self.probe = torch.empty(0, requires_grad=True) if sum(signature.wrt) >= MANY else None
        self.probe_node = None if self.probe is None else torch_internals.accumulator(self.probe)
        self.random = any(is_random(node) for node in ir.calls(graph))
        # A copy of an overwritten input has no history: a forward run again from it cannot be differentiated twice.
        self._overwrites_history = any(signature.wrt[i] for i in signature.mutated)
        self.profile = Profile()
        self._trimmed: Recent[Variant | None] = Recent(variants)
        self._backwards: Recent[Backward] = Recent(4 * variants)
        self._latest_backward: tuple[Any, Backward | None] = (None, None)
        self._latest_choice: tuple[Mask | None, Variant | Fused | None] = (None, None)  # where it is final
        self._tangents: Recent[Program] = Recent(4 * variants)
        self._unmoved: Recent[list[int]] = Recent(4 * variants)
        self._derivatives: Recent[tuple[Backward, Program | None]] = Recent(4 * variants)
        self._contests: Recent[Contest] | None = Recent(variants) if self.options.in_background else None
        LIVE.add(self)

    def _unwrapped(self) -> list[int] | None:
        """The tensor inputs that may be left over from a transform of `torch.func`: no parameter is; None: unknown."""
        if not self.signature.parameters:
            return None
        flags = zip(self.tensor_inputs, self.signature.parameters, strict=True)
        return [i for i, (is_tensor, is_parameter) in enumerate(flags) if is_tensor and not is_parameter]

    def tangent(self, given: Mask, requires_grad: Mask) -> Program:
        """The program (inputs, tangents of the inputs `given`) → tangents of everything the whole forward returns."""

        def build() -> Program:
            graph = copy_graph(self.whole.parts.forward)
            push_forward(graph, [node for node, has in zip(ir.inputs(graph), given, strict=True) if has])
            active = active_nodes(graph, [n for n, r in zip(ir.inputs(graph), requires_grad, strict=True) if r])
            flags = tuple(output in active for output in ir.outputs(graph))
            return Program(graph, Signature(requires_grad, flags), self.options)

        return self._tangents.find((given, requires_grad), build)

    def unmoved(self, given: Mask) -> list[int]:
        """The outputs that have no tangent if only the inputs `given` have one."""

        def find() -> list[int]:
            graph = self.whole.parts.forward
            moving = moving_nodes(graph, [node for node, has in zip(ir.inputs(graph), given, strict=True) if has])
            outputs = ir.outputs(graph)[: self.whole.parts.real_outputs]
            return [i for i, node in enumerate(outputs) if node not in moving]

        return self._unmoved.find(given, find)

    def choose(self, args: Sequence[Any]) -> Variant | Fused:
        """The forward to run now: trimmed to the mask that keeps arriving, if that saves anything; perhaps compiled."""
        mask, profile = self.profile.mask, self.profile
        if mask is None or profile.streak < profile.patience or self._overwrites_history:
            return self.whole
        latest, chosen = self._latest_choice
        if mask is latest and chosen is not None:
            return chosen
        plain = self.whole if all(mask) else self._trimmed.find(mask, lambda: self.whole.trimmed(mask)) or self.whole
        if self._contests is None:
            self._latest_choice = (mask, plain)
            return plain
        contest = self._contests.find(mask, lambda: Contest(plain, mask))
        self._latest_choice = (mask, contest.winner)
        return contest.winner or contest.choose(args)

    @property
    def backends(self) -> list[str]:
        """How far compilation in the background is, for each mask that recurred."""
        return [contest.state for contest in list((self._contests or {}).values())]

    def give_up_compiling(self) -> None:
        """The program is used in ways that compiled code does not serve."""
        self._contests = None
        self._latest_choice = (None, None)

    def _compile_apart(self) -> None:
        """Backwards are differentiated in their turn, which needs all values between forward and backward: the two are
        not cut anew together, each graph is compiled by itself."""
        if self.options.in_background and self.whole.backend != WATCHED:
            self.give_up_compiling()
            self.whole.use(WATCHED)
            for made_before in (self._trimmed, self._backwards):
                made_before.clear()
            self._latest_backward = (None, None)

    def backward(self, variant: Variant | Fused, mask: Mask, wanted: Mask) -> Backward:
        """The backward for this mask; where specialising would take long, the generic one until the mask recurs."""
        if isinstance(variant, Fused):
            return variant.backward
        key = (variant, mask, wanted)
        latest, found = self._latest_backward  # comparing is cheaper than hashing where there are many inputs
        if key != latest or found is None:
            found = self._find_backward(key)
            self._latest_backward = (key, found) if key in self._backwards else (None, None)
        if self._contests is not None:
            self._tell_contest(self._contests, key, found)
        return found

    def _find_backward(self, key: tuple[Variant, Mask, Mask]) -> Backward:
        variant, mask, wanted = key
        if key not in self._backwards and self._is_worth_waiting(variant, wanted) and self._is_new(mask):
            generic = variant.generic
            if generic is not None:
                return generic
        return self._backwards.find(key, lambda: self._specialized(variant, mask, wanted))

    def _tell_contest(self, contests: Recent[Contest], key: tuple[Variant, Mask, Mask], backward: Backward) -> None:
        variant, mask, _ = key
        contest = contests.get(mask[: variant.parts.real_outputs])
        if contest is not None and contest.winner is None and contest.plain is variant and key in self._backwards:
            contest.saw(backward)

    def _is_worth_waiting(self, variant: Variant, wanted: Mask) -> bool:
        return variant is self.whole and len(variant.parts.backward.nodes) > LONG and wanted == self.signature.wrt

    def _is_new(self, mask: Mask) -> bool:
        """A mask with holes that is met for the first time, of outputs that are really returned."""
        if all(mask[: self.whole.parts.real_outputs]) or any(mask[self.whole.parts.real_outputs :]):
            return False
        new = mask not in self.profile.seen
        self.profile.seen.add(mask)
        return new

    def _specialized(self, variant: Variant, mask: Mask, wanted: Mask) -> Backward:
        self.profile.specialized += 1
        return variant.specialized(mask, wanted)

    def specialized_backwards(self) -> list[tuple[tuple[Variant, Mask, Mask], Backward]]:
        """The backwards made so far, by forward, mask of cotangents and mask of wanted gradients."""
        with self._backwards.lock:
            return list(self._backwards.items())

    def derivative(
        self, variant: Variant, mask: Mask, wanted: Mask, requires_grad: Mask
    ) -> tuple[Backward, Program | None]:
        """The backward as a program of its own, differentiable in those of its inputs that require a gradient.

        None if it has no inputs: its results are constants.
        """

        def build() -> tuple[Backward, Program | None]:
            self._compile_apart()
            backward = variant.specialized(mask, wanted)
            if not backward.arguments:
                return backward, None
            wrt = tuple(requires_grad[i] for i in backward.arguments)
            flags = tuple(ir.is_tensor(output) for output in ir.outputs(backward.graph))
            temporaries = tuple(k for k, i in enumerate(backward.arguments) if variant.is_temporary(i))
            return backward, Program(backward.graph, Signature(wrt, flags, temporaries=temporaries), self.options)

        return self._derivatives.find((variant, mask, wanted, requires_grad), build)


def is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
