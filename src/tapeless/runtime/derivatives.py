"""Derivatives that are known already: thawing a layer changes what is asked of a graph, not the graph.

A graph is differentiated by everything that may ever want a gradient: its inputs that require one and its parameters
that do not at the moment. What a call asks for is cut out of that by specialization. Should the same graph come again
with other parameters frozen (Dynamo traces anew, its guards say so), its derivative is found here by its text.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import torch
from torch import fx

from tapeless.differentiate.reverse import reverse
from tapeless.errors import TapelessError
from tapeless.ir import graph as ir
from tapeless.ir import text
from tapeless.ir.control import Control
from tapeless.ir.copying import copy_graph
from tapeless.ir.custom import CustomFunction
from tapeless.partition.plan import Memory, partition
from tapeless.partition.split import Split
from tapeless.partition.trim import restrict
from tapeless.rules.decompositions import changes
from tapeless.runtime.signature import Signature

MOST = 64  # derivatives kept


@dataclass
class Derivatives:
    """Differentiated graphs by their text, the least recently used forgotten; and how often that helped."""

    known: OrderedDict[str, Split] = field(default_factory=OrderedDict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    differentiated: int = 0
    reused: int = 0

    def of(self, graph: fx.Graph, signature: Signature, memory: Memory = "fast") -> Split:
        """The derivative of `graph` by `signature.wrt`, within `memory`."""
        if memory != "fast":  # what is saved is chosen for what is asked, no more
            return self._find(graph, signature, memory)
        wider = signature.with_parameters()
        if wider == signature and not _is_plain(graph):
            return self._differentiate(graph, signature)
        try:
            return restrict(self._find(graph, wider), signature.wrt)
        except TapelessError:
            return self._differentiate(graph, signature)  # a frozen parameter stands where no rule reaches

    def _find(self, graph: fx.Graph, signature: Signature, memory: Memory = "fast") -> Split:
        if not _is_plain(graph):
            return self._differentiate(graph, signature, memory)
        asked = f"{text.function(graph, 'f')}{signature}{changes()}{memory}"
        key = hashlib.sha256(asked.encode()).hexdigest()
        with self.lock:
            if key in self.known:
                self.reused += 1
            else:
                self.known[key] = self._differentiate(graph, signature, memory)
            self.known.move_to_end(key)
            while len(self.known) > MOST:
                self.known.popitem(last=False)
            return self.known[key]

    def _differentiate(self, graph: fx.Graph, signature: Signature, memory: Memory = "fast") -> Split:
        self.differentiated += 1
        return differentiate_graph(graph, signature, memory)


DERIVATIVES = Derivatives()


def differentiate_graph(graph: fx.Graph, signature: Signature, memory: Memory = "fast") -> Split:
    """A copy of `graph`, differentiated and cut into forward and backward, within `memory`."""
    graph = copy_graph(graph)
    wrt = [node for node, wanted in zip(ir.inputs(graph), signature.wrt, strict=True) if wanted]
    return partition(reverse(graph, wrt, signature.differentiable), signature.mutated, memory)


def _is_plain(graph: fx.Graph) -> bool:
    """Does the text say all there is to know? Not with symbolic sizes, constants, or functions of the user's own."""
    return not any(
        node.op == "get_attr" or isinstance(node.target, (CustomFunction, Control)) or _is_symbolic(node)
        for node in graph.nodes
    )


def _is_symbolic(node: fx.Node) -> bool:
    val = ir.value(node)
    if isinstance(val, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*val.shape, *val.stride()))
    return isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool))
