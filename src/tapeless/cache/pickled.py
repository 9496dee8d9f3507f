"""Objects that hold graphs, as bytes and back. Fake tensors travel as their types, nodes as their positions.

What is no plain data (a tensor with contents, a symbolic size, a function of the user's own) is refused.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless import torch_internals
from tapeless.ir import graph as ir
from tapeless.ir.content import FACTS, Indescribable, tensor_type

META = ("val", "desc", *FACTS)  # what the compiler reads of a node; the rest is for others
REFUSED = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, torch.nn.Module, fx.Node)


@dataclass(frozen=True)
class _Position:
    """A node, by its position in its graph."""

    index: int


def dumps(value: Any) -> bytes:
    """`value` as bytes. Raises `Indescribable`, or what pickle raises, if that cannot be."""
    stream = io.BytesIO()
    _Pickler(stream).dump(value)
    return stream.getvalue()


def loads(data: bytes, fake_mode: Any) -> Any:
    """The value again, its fake tensors in `fake_mode`."""
    with torch_internals.without_modes():
        return _Unpickler(io.BytesIO(data), fake_mode).load()


class _Pickler(torch_internals.Pickler):
    def __init__(self, stream: Any) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.fakes: list[torch.Tensor] = []  # kept alive, so that their ids stay theirs
        self.numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        if not torch_internals.is_fake(obj):
            return None
        number = self.numbers.setdefault(id(obj), len(self.numbers))
        if number == len(self.fakes):
            self.fakes.append(obj)
        return number, _FakeType.of(obj)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, fx.Graph):
            return _graph, (_records(obj),)
        if isinstance(obj, OpOverload):
            return _operator, tuple(str(obj).split("."))
        if isinstance(obj, REFUSED):
            raise Indescribable(f"a {type(obj).__name__}")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: Any, fake_mode: Any) -> None:
        super().__init__(stream)
        self.fake_mode = fake_mode
        self.fakes: dict[int, torch.Tensor] = {}

    def persistent_load(self, pid: tuple[int, _FakeType]) -> torch.Tensor:
        number, kind = pid
        if number not in self.fakes:
            self.fakes[number] = kind.make(self.fake_mode)
        return self.fakes[number]


@dataclass(frozen=True)
class _FakeType:
    """The type of a fake tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    is_parameter: bool

    @classmethod
    def of(cls, fake: torch.Tensor) -> _FakeType:
        tensor_type(fake)  # refuses symbolic sizes
        if fake.is_conj() or fake.is_neg():
            raise Indescribable("a tensor that is conjugated or negated lazily")
        return cls(
            tuple(fake.shape), fake.stride(), int(fake.storage_offset()), fake.dtype, fake.device,
            fake.requires_grad, isinstance(fake, torch.nn.Parameter),
        )  # fmt: skip

    def make(self, fake_mode: Any) -> torch.Tensor:
        layout = (self.shape, self.stride, self.offset, self.dtype, self.device)
        found = torch_internals.new_fake(fake_mode, *layout)
        if self.is_parameter:
            return torch.nn.Parameter(found, self.requires_grad)
        return found.requires_grad_() if self.requires_grad else found


def _operator(namespace: str, name: str, overload: str) -> OpOverload:
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


Record = tuple[str, str, Any, Any, Any, dict[str, Any]]


def _records(graph: fx.Graph) -> list[Record]:
    """The nodes in order, each argument that is a node replaced by its position."""
    position = {node: _Position(index) for index, node in enumerate(graph.nodes)}
    return [_record(node, position.__getitem__) for node in graph.nodes]


def _record(node: fx.Node, position: Callable[[fx.Node], Any]) -> Record:
    if node.op == "get_attr" or ir.guard(node) is not None:
        raise Indescribable(f"{node.op} {node.name}")  # a constant; a test that only lowered backwards have
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), position)
    meta = {key: node.meta[key] for key in META if key in node.meta}
    return node.op, node.name, node.target, args, kwargs, meta


def _graph(records: list[Record]) -> fx.Graph:
    graph, nodes = fx.Graph(), []
    for op, name, target, args, kwargs, meta in records:
        args, kwargs = _with_nodes(args, nodes), _with_nodes(kwargs, nodes)
        node = graph.create_node(op, target, args, kwargs, name=name)
        node._rename(name) if node.name != name else None
        node.meta = meta
        nodes.append(node)
    return graph


def _with_nodes(value: Any, nodes: list[fx.Node]) -> Any:
    if isinstance(value, _Position):
        return nodes[value.index]
    if isinstance(value, (list, tuple)):
        return type(value)(_with_nodes(item, nodes) for item in value)
    if isinstance(value, dict):
        return {key: _with_nodes(item, nodes) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(_with_nodes(n, nodes) for n in (value.start, value.stop, value.step)))
    return value
