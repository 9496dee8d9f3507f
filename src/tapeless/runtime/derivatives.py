"""Derivatives that are known already: thawing a layer changes what is asked of a graph, not the graph.

A graph is differentiated by everything that may ever want a gradient: its inputs that require one and its parameters
that do not at the moment. What a call asks for is cut out of that by specialization. Should the same graph come again
with other parameters frozen (Dynamo traces anew, its guards say so), its derivative is found here by its content; if
it was found in another process, on disk.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from torch import fx

from tapeless.cache import place
from tapeless.differentiate.reverse import reverse
from tapeless.errors import TapelessError
from tapeless.ir import graph as ir
from tapeless.ir.content import Indescribable, content, is_torchs_own
from tapeless.ir.copying import copy_graph
from tapeless.partition.plan import Memory, partition
from tapeless.partition.split import Split
from tapeless.partition.trim import restrict
from tapeless.rules import are_as_shipped
from tapeless.rules.decompositions import changes
from tapeless.runtime.signature import Signature
from tapeless.torch_internals import fake_mode_of

MOST = 64  # derivatives kept


@dataclass
class Derivatives:
    """Differentiated graphs by their content, the least recently used forgotten; and how often that helped."""

    known: OrderedDict[str, Split] = field(default_factory=OrderedDict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    differentiated: int = 0
    reused: int = 0

    def of(self, graph: fx.Graph, signature: Signature, memory: Memory = "fast", cached: bool | str = True) -> Split:
        """The derivative of `graph` by `signature.wrt`; `memory` and `cached` are the options of that name."""
        try:
            described = content(graph)
        except Indescribable:
            find = partial(self._differentiate, graph, memory=memory)
        else:
            kept = cached if memory == "fast" else False  # a bound that cannot be kept is told in each process
            find = partial(self._find, graph, memory=memory, described=described, cached=kept)
        # Under a bound, what is saved is chosen for what is asked, no more.
        return self._by_parameters(signature, find) if memory == "fast" else find(signature)

    def _by_parameters(self, signature: Signature, find: Callable[[Signature], Split]) -> Split:
        """The derivative by everything that may be thawed one day, as far as it is asked for now."""
        try:
            return restrict(find(signature.with_parameters()), signature.wrt)
        except TapelessError:
            return find(signature)  # a frozen parameter stands where no rule reaches

    def _find(self, graph: fx.Graph, signature: Signature, memory: Memory, described: str, cached: bool | str) -> Split:
        asked = f"{described}\n{signature}\n{memory!r}"
        key = hashlib.sha256(f"{asked}{changes()}".encode()).hexdigest()
        with self.lock:
            if key in self.known:
                self.reused += 1
            else:
                self.known[key] = self._from_disk(graph, signature, memory, asked, cached)
            self.known.move_to_end(key)
            while len(self.known) > MOST:
                self.known.popitem(last=False)
            return self.known[key]

    def _from_disk(
        self, graph: fx.Graph, signature: Signature, memory: Memory, asked: str, cached: bool | str
    ) -> Split:
        """The derivative as another process found it, or else by differentiation."""
        kept = place(cached, lambda: f"derivative\n{asked}") if are_as_shipped() and is_torchs_own(graph) else None
        found = kept.read(fake_mode_of([ir.value(node) for node in ir.inputs(graph)])) if kept else None
        if found is not None:
            return found.with_captures()
        made = self._differentiate(graph, signature, memory)
        if kept:
            kept.write(replace(made, captures=()))
        return made

    def _differentiate(self, graph: fx.Graph, signature: Signature, memory: Memory) -> Split:
        self.differentiated += 1
        return differentiate_graph(graph, signature, memory)


DERIVATIVES = Derivatives()


def differentiate_graph(graph: fx.Graph, signature: Signature, memory: Memory = "fast") -> Split:
    """A copy of `graph`, differentiated and cut into forward and backward, within `memory`."""
    graph = copy_graph(graph)
    wrt = [node for node, wanted in zip(ir.inputs(graph), signature.wrt, strict=True) if wanted]
    return partition(reverse(graph, wrt, signature.differentiable), signature.mutated, memory)
