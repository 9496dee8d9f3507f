"""Python objects by their content: functions by their code, classes by all their methods.

Dynamo guards functions, classes and modules by identity, and takes what stands in a class for granted. Both end with
the process. What stands here tells two processes whether they hold the same: `exact` texts are equal only if Dynamo
would trace both objects alike, given that what it guards besides (attributes, elements, contents of closures) is
compared too.
"""

from __future__ import annotations

import abc
import collections
import enum
import functools
import hashlib
import marshal
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from tapeless.ir.content import PLAIN, TORCH, Indescribable

SEQUENCES = (tuple, list, torch.Size)
SETS = (set, frozenset)
DICTIONARIES = (dict, collections.OrderedDict, types.MappingProxyType)
NAMED = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType,
)  # fmt: skip
OWN = frozenset({"torch", *sys.stdlib_module_names})  # what changes with the versions of Python and torch alone
BESIDE_THE_CODE = frozenset({
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__abstractmethods__", "_abc_impl",
    "__slotnames__", "__orig_bases__", "__parameters__", "__firstlineno__", "__static_attributes__",
})  # fmt: skip


_get_dump: Any = abc._get_dump  # type: ignore[attr-defined]  # what `ABCMeta._dump_registry` prints
ADDRESS = "_torchdynamo_wrapper_id"  # of a function that is not to be traced: where its wrapper stands in memory
Otherwise = Callable[[Any], str]  # what is said of objects that text cannot say


class Objects:
    """Texts of objects. Each object is looked at once, so that one of these serves for one comparison only."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], str] = {}
        self._alive: list[Any] = []  # or else an id could become another object's

    def exact(self, value: Any) -> str:
        """The text of `value`. Raises `Indescribable` where text does not say all."""
        return self._text(value, self._refused)

    def rough(self, value: Any) -> str:
        """As much as text can say of `value`."""
        return self._text(value, self._kind)

    def _text(self, value: Any, otherwise: Otherwise) -> str:
        kind = type(value)
        if kind in PLAIN or kind in TORCH:
            return repr(value)
        if kind in SEQUENCES:
            return f"{kind.__name__}({', '.join(self._text(item, otherwise) for item in value)})"
        if kind in SETS:
            return f"{kind.__name__}({', '.join(sorted(self._text(item, otherwise) for item in value))})"
        if isinstance(value, enum.Enum):
            return f"{_name(kind)}.{value.name}={self.rough(value.value)}"
        text = next((text for kinds, text in self._kinds.items() if isinstance(value, kinds)), None)
        return self._once(value, text, otherwise) if text else otherwise(value)

    def _once(self, value: Any, text: Callable[[Objects, Any, Otherwise], str], otherwise: Otherwise) -> str:
        """Objects may hold each other: whoever is met again on the way is a number there."""
        key = id(value), otherwise.__name__
        if key not in self._known:
            self._known[key] = f"#{len(self._known)}"
            self._alive.append(value)
            self._known[key] = hashlib.sha256(text(self, value, otherwise).encode()).hexdigest()
        return self._known[key]

    def _mapping(self, value: Any, otherwise: Otherwise) -> str:
        return (
            self._items(type(value).__name__, value.items(), otherwise)
            if type(value) in DICTIONARIES
            else otherwise(value)
        )

    def _items(self, name: str, items: Iterable[tuple[Any, Any]], otherwise: Otherwise) -> str:
        parts = (f"{self._text(k, otherwise)}: {self._text(v, otherwise)}" for k, v in items)
        return f"{name}{{{', '.join(parts)}}}"

    def _class(self, cls: type, _: Otherwise) -> str:
        """Every class it inherits from, each with what it defines."""
        return "\n".join(
            self._once(vars(base), lambda *_, base=base: self._defined(base), self._kind) for base in cls.__mro__
        )

    def _defined(self, cls: type) -> str:
        kept = ((name, value) for name, value in sorted(vars(cls).items()) if name not in BESIDE_THE_CODE)
        made_by = "" if type(cls) is type else self.rough(type(cls))
        return self._items(f"{_name(cls)} {made_by} {_registered(cls)}", kept, self._kind)

    def _function(self, function: types.FunctionType, _: Otherwise) -> str:
        if function.__dict__.get("_dynamo_marked_constant"):
            raise Indescribable(f"{function.__qualname__}, whose result is taken for constant")
        marks = {name: value for name, value in vars(function).items() if name != ADDRESS}
        beside = (function.__defaults__, function.__kwdefaults__, marks)
        cells = [self._cell(cell) for cell in function.__closure__ or ()]
        return f"{_name(function)} {self.exact(function.__code__)} {self.rough(beside)} {cells}"

    def _cell(self, cell: types.CellType) -> str:
        try:
            return self.rough(cell.cell_contents)
        except ValueError:
            return "empty"

    def _code(self, code: types.CodeType, _: Otherwise) -> str:
        try:
            return marshal.dumps(code, 2).hex()  # later versions of the format tell how often an object is referred to
        except ValueError as problem:
            raise Indescribable(repr(code)) from problem

    def _module(self, module: types.ModuleType, _: Otherwise) -> str:
        return f"module {module.__name__} {getattr(module, '__file__', None)}"

    def _named(self, value: Any, otherwise: Otherwise) -> str:
        owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
        place = owner.__name__ if isinstance(owner, types.ModuleType) else None
        place = place or (_name(owner) if isinstance(owner, type) else getattr(value, "__module__", None))
        if not place or place.partition(".")[0] not in OWN:
            return otherwise(value)
        return f"{type(value).__name__} {place}.{value.__name__}"

    def _operator(self, op: Any, otherwise: Otherwise) -> str:
        return f"operator {op}" if str(op).partition(".")[0] in ("aten", "prims") else otherwise(op)

    def _wrapper(self, value: Any, otherwise: Otherwise) -> str:
        return f"{type(value).__name__} {self._text(value.__func__, otherwise)}"

    def _property(self, value: property, otherwise: Otherwise) -> str:
        return f"property {self._text((value.fget, value.fset, value.fdel), otherwise)}"

    def _partial(self, value: Any, otherwise: Otherwise) -> str:
        return f"partial {self._text((value.func, value.args, value.keywords), otherwise)}"

    def _cached(self, value: Any, otherwise: Otherwise) -> str:
        return f"{type(value).__name__} {self._text(value.__wrapped__, otherwise)}"

    _kinds: dict[Any, Callable[[Objects, Any, Otherwise], str]] = {
        DICTIONARIES: _mapping,
        type: _class,
        types.FunctionType: _function,
        types.CodeType: _code,
        types.ModuleType: _module,
        (OpOverload, OpOverloadPacket): _operator,
        NAMED: _named,
        (staticmethod, classmethod): _wrapper,
        property: _property,
        functools.partial: _partial,
        functools._lru_cache_wrapper: _cached,
    }

    def _refused(self, value: Any) -> str:
        raise Indescribable(f"an object of type {type(value)}")

    def _kind(self, value: Any) -> str:
        """Of an object that text cannot say: its class by name; of a method or descriptor, the functions it holds."""
        if isinstance(value, types.MethodType):
            return f"method {self.rough(value.__func__)}"
        holds = hasattr(type(value), "__get__") and hasattr(value, "__dict__")
        return f"{_name(type(value))} {self.rough(vars(value)) if holds else ''}"


def _registered(cls: type) -> list[str]:
    """The classes that were registered with an abstract one; those of Python's library come and go with its modules."""
    if not isinstance(cls, abc.ABCMeta):
        return []
    found = filter(None, (reference() for reference in _get_dump(cls)[0]))
    return sorted(_name(c) for c in found if c.__module__.partition(".")[0] not in sys.stdlib_module_names)


def _name(of: Any) -> str:
    return f"{of.__module__}.{of.__qualname__}"
