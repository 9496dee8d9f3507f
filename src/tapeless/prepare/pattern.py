"""Patterns that look like the expression they match: `op.permute(op.permute(x, p), q)`.

A pattern is matched against a call's whole schema: arguments by position or keyword, spelled or left out. What a
pattern does not mention must have its default value in the graph, so no argument is ever dropped unseen.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import fx
from torch._ops import OpOverload

from tapeless.ir import graph as ir
from tapeless.prepare.calls import arguments, number, operator_name, schema

Bindings = dict[str, Any]
Reader = Callable[[Any], Any]  # an argument as the rewrite sees it; MISSING if it is not of the kind
MISSING = object()

COMMUTATIVE = frozenset(["add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "logical_and", "logical_or"])


@dataclass(frozen=True)
class Wild:
    """Stands for any argument of its kind; the same name twice stands for the same argument."""

    name: str
    read: Reader


@dataclass(frozen=True)
class Call:
    """A call of an ATen operator, any overload."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = [*map(_shown, self.args), *(f"{k}={_shown(v)}" for k, v in self.kwargs.items())]
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class Either:
    """Stands for what fits one of several patterns."""

    patterns: tuple[Call, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.patterns))


class Operators:
    """`op.mul(x, 1)` is the pattern of such a call; `op.getitem(call, 0)` that of a result of one."""

    def __getattr__(self, name: str) -> Callable[..., Call]:
        return lambda *args, **kwargs: Call(name, args, kwargs)


op = Operators()


def tensors(names: str) -> tuple[Wild, ...]:
    """Wildcards for tensors."""
    return tuple(Wild(name, lambda value: value if ir.is_tensor(value) else MISSING) for name in names.split())


def numbers(names: str) -> tuple[Wild, ...]:
    """Wildcards for Python numbers, and for tensors all of whose elements are one known number."""
    return tuple(Wild(name, _read_number) for name in names.split())


def anything(names: str) -> tuple[Wild, ...]:
    """Wildcards for lists, optional tensors, flags: whatever stands there."""
    return tuple(Wild(name, lambda value: value) for name in names.split())


def _read_number(value: Any) -> Any:
    found = number(value)
    return MISSING if found is None else found


@dataclass
class Found:
    """Where a pattern fits: what its wildcards stand for, and the calls it goes through, the last one first."""

    bindings: Bindings
    nodes: list[fx.Node]


def match(pattern: Call, node: fx.Node) -> Found | None:
    """The first way in which `pattern` fits the value `node`."""
    return next(_calls(pattern, node, Found({}, [])), None)


def _calls(pattern: Call, node: Any, found: Found) -> Iterator[Found]:
    if operator_name(node) != pattern.name:
        return
    given = arguments(node)
    for args in _orders(pattern):
        wanted = _wanted(Call(pattern.name, args, pattern.kwargs), node)
        if wanted is not None:
            inner = Found(found.bindings, [*found.nodes, node])
            yield from _all([(wanted[name], value) for name, value in given.items() if name in wanted], inner)


def _orders(pattern: Call) -> Iterator[tuple[Any, ...]]:
    yield pattern.args
    if pattern.name in COMMUTATIVE:
        a, b, *rest = pattern.args
        yield (b, a, *rest)


def _wanted(pattern: Call, node: fx.Node) -> dict[Any, Any] | None:
    """What each argument must be, by name; None if one that the pattern leaves out is not at its default."""
    if node.target is operator.getitem:
        return dict(enumerate(pattern.args))
    assert isinstance(node.target, OpOverload)
    names, defaults = schema(node.target)
    wanted = {**dict(zip(names, pattern.args, strict=False)), **pattern.kwargs}
    if len(pattern.args) > len(names) or any(name not in names for name in pattern.kwargs):
        return None
    given = arguments(node)
    rest = (name for name in names if name not in wanted)
    if any(name not in defaults or not _same(defaults[name], given[name]) for name in rest):
        return None
    return wanted


def _all(pairs: list[tuple[Any, Any]], found: Found) -> Iterator[Found]:
    if not pairs:
        yield found
        return
    (pattern, value), *rest = pairs
    for step in _one(pattern, value, found):
        yield from _all(rest, step)


def _one(pattern: Any, value: Any, found: Found) -> Iterator[Found]:
    if isinstance(pattern, Call):
        yield from _calls(pattern, value, found)
    elif isinstance(pattern, Either):
        for each in pattern.patterns:
            yield from _calls(each, value, found)
    elif isinstance(pattern, Wild):
        known, value = found.bindings, pattern.read(value)
        if value is not MISSING and (pattern.name not in known or _same(known[pattern.name], value)):
            yield Found({**known, pattern.name: value}, found.nodes)
    elif isinstance(pattern, (list, tuple)):
        if isinstance(value, (list, tuple)) and len(value) == len(pattern):
            yield from _all(list(zip(pattern, value, strict=True)), found)
    elif _same(pattern, number(value) if isinstance(value, fx.Node) else value):
        yield found


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, fx.Node) or isinstance(b, fx.Node):
        return a is b
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    plain = (int, float, bool)
    return (type(a) is type(b) or (type(a) in plain and type(b) in plain)) and a == b


def _shown(value: Any) -> str:
    return value.name if isinstance(value, Wild) else str(value)
