"""Forward, backward and update in one graph. A gradient is used and freed as soon as its parameter is read no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx
from torch.utils._pytree import tree_map_only

from tapeless import torch_internals
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_graph
from tapeless.ir.cost import likely_bytes
from tapeless.ir.custom import inline_custom
from tapeless.ir.sums import gather_sums
from tapeless.partition.rederive import is_view
from tapeless.partition.split import Split
from tapeless.specialize.rewrite import specialize
from tapeless.training.optimizers import Group, Kind

aten = torch.ops.aten

CHUNK = 4 * 2**20  # bytes of gradients that are updated in one call


@dataclass
class Whole:
    """A forward with its backward behind it."""

    graph: fx.Graph
    gradients: dict[int, fx.Node]  # by input
    seed: fx.Node  # the gradient of the loss


def join(parts: Split, loss: int) -> Whole:
    """Both graphs of `parts` as one, which starts the backward with a gradient of 1 at the output `loss`."""
    forward, graph = _as_it_runs(parts.forward), fx.Graph()
    copies: dict[Any, Any] = {}
    for node in forward.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    results = [copies[o] if isinstance(o, fx.Node) else o for o in ir.outputs(forward)]
    seed = graph.create_node("call_function", aten.ones_like.default, (results[loss],), name=f"g_{results[loss].name}")
    ir.set_value(seed, ir.value(results[loss]))
    backward = _backward_of(parts, loss)
    cotangents = [seed if output == loss else None for output in parts.cotangent_outputs]
    captured = [ir.inputs(graph)[i] for i in parts.captured_inputs] + [results[i] for i in parts.captured_outputs]
    copies = dict(zip(ir.inputs(backward), [*cotangents, *captured], strict=True))
    for node in ir.calls(backward):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    found = zip(parts.gradient_inputs, ir.outputs(backward), strict=True)
    returned = results[: parts.real_outputs]
    held = {_memory(node) for node in [*ir.inputs(graph), *returned] if isinstance(node, fx.Node)}
    gradients = {i: _apart(copies[gradient], held) for i, gradient in found if gradient is not None}
    graph.output(returned)
    return Whole(graph, gradients, seed)


def _apart(gradient: fx.Node, held: set[fx.Node]) -> fx.Node:
    """The gradient, or its copy if it lies in memory that others hold.

    The backward of a custom function may return what it saved, a parameter: its update would change the gradient, and
    who scales gradients in place would change the parameter.
    """
    if _memory(gradient) not in held:
        return gradient
    copied = gradient.graph.create_node("call_function", aten.clone.default, (gradient,), name=f"own_{gradient.name}")
    ir.set_value(copied, ir.value(gradient))
    return copied


def _memory(node: fx.Node) -> fx.Node:
    """The value whose memory this one is a part of."""
    return _memory(node.args[0]) if is_view(node) else node  # type: ignore[arg-type]


def _backward_of(parts: Split, loss: int) -> fx.Graph:
    undefined = [k for k, output in enumerate(parts.cotangent_outputs) if output != loss]
    return _as_it_runs(specialize(parts.backward, len(parts.cotangent_outputs), undefined))


def _as_it_runs(graph: fx.Graph) -> fx.Graph:
    return gather_sums(inline_custom(copy_graph(graph)))


def returning_gradients(whole: Whole) -> fx.Graph:
    """The same without effects, for a backend that orders calls itself: gradients are outputs behind the others.

    The gradient of the loss is an input behind the others. A compiler that knew it to be 1 might return a parameter for
    the gradient of its factor, and the update would change it before it is read.
    """
    graph, seed = whole.graph, whole.seed
    with graph.inserting_after(ir.inputs(graph)[-1]):
        given = _placeholder(graph, f"given_{seed.name}", ir.value(seed))
    seed.replace_all_uses_with(given)
    graph.erase_node(seed)
    gradients = [given if gradient is seed else gradient for gradient in whole.gradients.values()]
    graph.output_node().args = ([*ir.outputs(graph), *gradients],)
    return graph


def taking_gradients(whole: Whole) -> Whole:
    """An empty graph with the inputs of `whole` and, behind them, its gradients: what an update is written into."""
    graph = fx.Graph()
    for node in ir.inputs(whole.graph):
        _placeholder(graph, node.name, ir.value(node))
    gradients = {i: _placeholder(graph, f"g_{g.name}", ir.value(g)) for i, g in whole.gradients.items()}
    graph.output([])
    return Whole(graph, gradients, whole.seed)


def add_inputs(whole: Whole, tensors: Sequence[torch.Tensor]) -> None:
    """Further inputs of these types, which nothing reads yet."""
    graph = whole.graph
    fake_mode = torch_internals.fake_mode_of([ir.value(node) for node in ir.inputs(graph)])
    for k, tensor in enumerate(tensors):
        kind = (tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.dtype, tensor.device)
        with torch_internals.without_modes(), graph.inserting_after(ir.inputs(graph)[-1]):
            _placeholder(graph, f"waiting_{k}", torch_internals.new_fake(fake_mode, *kind))


def _placeholder(graph: fx.Graph, name: str, val: Any) -> fx.Node:
    node = graph.placeholder(name)
    ir.set_value(node, val)
    return node


@dataclass
class Update:
    """What is done with the gradients."""

    kind: Kind | None  # None: they are returned
    groups: Sequence[Group]
    group_of: dict[int, int]  # input → group of the optimizer
    clip: float | None = None  # largest norm of all gradients together
    buffers: bool = False  # are there gradients of earlier calls to be added?
    waiting: Sequence[int] = ()  # inputs that have a gradient of earlier calls, whether they get one now or not
    shared: Sequence[int] = ()  # inputs whose memory others are read through
    last: bool = True  # is this the step that updates?


@dataclass(frozen=True)
class Further:
    """An input that the program takes beside those of the traced graph."""

    what: Literal["state", "sum", "number"]
    of: int  # a parameter, by its position among the inputs, or a parameter group
    name: str = ""


class Writer:
    """Writes the update into the graph of a step."""

    def __init__(self, whole: Whole, update: Update) -> None:
        self.graph, self.gradients, self.update = whole.graph, whole.gradients, update
        self.further: list[Further] = []
        self.parameters = ir.inputs(self.graph)
        self._last_input = self.parameters[-1]
        self._place: fx.Node = self.graph.output_node().prev
        self._numbers: dict[int, dict[str, fx.Node]] = {}

    def write(self) -> None:
        ready = self._ready()
        if self.update.buffers:
            for i in self.gradients:
                self._add_to_buffer(i, ready[i])
            self.gradients |= {i: self._buffer(i) for i in self.update.waiting if i not in self.gradients}
            ready = self._ready()
        if not self.update.last or self.update.kind is None:
            return
        if self.update.clip is not None:
            self._place = self.graph.output_node().prev
            self._clip(self.update.clip)
            self._update_all(list(self.gradients))
            return
        chunk: list[int] = []
        for i in sorted(self.gradients, key=lambda i: self._order[ready[i]]):
            chunk.append(i)
            if sum(likely_bytes(ir.value(self.gradients[k])) for k in chunk) >= CHUNK:
                self._place = self._behind(ready[i])
                self._update_all(chunk)
                chunk = []
        self._place = self.graph.output_node().prev
        self._update_all(chunk)

    def _ready(self) -> dict[int, fx.Node]:
        """For each parameter the call after which it may change: its gradient is there, nobody reads it any more."""
        self._order = {node: k for k, node in enumerate(self.graph.nodes)}
        found, end = {}, self.graph.output_node().prev
        for i, gradient in self.gradients.items():
            alone = i not in self.update.shared
            readers = [n for n in _readers(self.parameters[i]) if n.op != "output"] if alone else [end]
            found[i] = max([gradient, self._last_input, *readers], key=self._order.__getitem__)
        return found

    def _behind(self, node: fx.Node) -> fx.Node:
        """Where calls can stand that follow `node`: behind all inputs, of which there may be more by now."""
        return self._last_input if node.op == "placeholder" else node

    def _add_to_buffer(self, i: int, place: fx.Node) -> None:
        self._place = self._behind(place)
        self.gradients[i] = self._emit(aten.add_.Tensor, self._buffer(i), self.gradients[i])

    def _buffer(self, i: int) -> fx.Node:
        return self._input(Further("sum", i), f"sum_{self.parameters[i].name}", ir.value(self.parameters[i]))

    def _clip(self, most: float) -> None:
        """Scale all gradients by one factor, as `torch.nn.utils.clip_grad_norm_` does."""
        gradients = list(self.gradients.values())
        norms = [self._emit(aten.linalg_vector_norm.default, g) for g in gradients]
        total = self._emit(aten.linalg_vector_norm.default, self._emit(aten.stack.default, norms))
        inverse = self._emit(aten.reciprocal.default, self._emit(aten.add.Tensor, total, 1e-6))
        factor = self._emit(aten.clamp.default, self._emit(aten.mul.Tensor, inverse, most), None, 1.0)
        for i, gradient in self.gradients.items():
            self.gradients[i] = self._scaled(gradient, factor)

    def _scaled(self, gradient: fx.Node, factor: fx.Node) -> fx.Node:
        """In the type of the gradient: a lone number would take that of the factor, the widest of all."""
        scaled, dtype = self._emit(aten.mul.Tensor, gradient, factor), ir.value(gradient).dtype
        return scaled if ir.value(scaled).dtype == dtype else self._emit(aten._to_copy.default, scaled, dtype=dtype)

    def _update_all(self, chosen: list[int]) -> None:
        kind, groups = self.update.kind, self.update.groups
        assert kind is not None
        for k, group in enumerate(groups):
            mine = [i for i in chosen if self.update.group_of[i] == k]
            if mine:
                gradients = [self._laid_out(i) for i in mine]
                numbers = self._numbers_of(k)
                kind.update(
                    self._emit, [self.parameters[i] for i in mine], gradients, self._state(mine, group), numbers, group
                )

    def _state(self, chosen: list[int], group: Group) -> dict[str, list[fx.Node]]:
        assert self.update.kind is not None
        found: dict[str, list[fx.Node]] = {}
        for i in chosen:
            for name, tensor in self.update.kind.state(group, ir.value(self.parameters[i])).items():
                node = self._input(Further("state", i, name), f"{name}_{self.parameters[i].name}", tensor)
                found.setdefault(name, []).append(node)
        return found

    def _numbers_of(self, group: int) -> dict[str, fx.Node]:
        assert self.update.kind is not None
        if group not in self._numbers:
            names = list(self.update.kind.numbers(self.update.groups[group]))
            suffix = f"_{group}" if len(self.update.groups) > 1 else ""
            self._numbers[group] = {
                name: self._input(Further("number", group, name), f"{name}{suffix}", 0.0) for name in names
            }
        return self._numbers[group]

    def _laid_out(self, i: int) -> fx.Node:
        """The gradient in the layout of its parameter, which fused kernels rely on."""
        gradient, val = self.gradients[i], ir.value(self.parameters[i])
        if val.is_contiguous():
            return self._emit(aten.contiguous.default, gradient)
        empty = self._emit(aten.new_empty_strided.default, gradient, list(val.shape), list(val.stride()))
        return self._emit(aten.copy_.default, empty, gradient)

    def _emit(self, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        with self.graph.inserting_after(self._place):
            node = self.graph.create_node("call_function", op, args, kwargs, name=op.overloadpacket.__name__.strip("_"))
        if op._schema.returns:
            given = tree_map_only(fx.Node, ir.value, (args, kwargs))
            with torch_internals.without_modes(), torch.no_grad():
                ir.set_value(node, op(*given[0], **given[1]))
        self._place = node
        return node

    def _input(self, further: Further, name: str, val: Any) -> fx.Node:
        self.further.append(further)
        with self.graph.inserting_after(self._last_input):
            node = _placeholder(self.graph, name, val)
        self._place = node if self._place is self._last_input else self._place
        self._last_input = node
        return node


def read_elsewhere(args: Sequence[Any], trained: Sequence[int]) -> tuple[int, ...]:
    """The trained among these inputs whose memory another input sees too; not of a model updated in one piece."""
    if sum(args[i].nbytes for i in trained) < CHUNK:
        return ()
    memory = {i: arg.untyped_storage().data_ptr() for i, arg in enumerate(args) if isinstance(arg, torch.Tensor)}
    times = Counter(memory.values())
    return tuple(i for i in trained if times[memory[i]] > 1)


def _readers(parameter: fx.Node) -> list[fx.Node]:
    """All calls that read the memory of `parameter`, directly or through views."""
    found, stack = [], [parameter]
    while stack:
        for user in stack.pop().users:
            found.append(user)
            if is_view(user):
                stack.append(user)
    return found
