"""Dynamo's guards as data: what each looks at and asks, and the same guards made again for what a process holds."""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch._C._dynamo.guards import GlobalStateGuard
from torch._dynamo.guards import CheckFunctionManager, GuardBuilder, _get_closure_vars
from torch._dynamo.output_graph import OutputGraphCommon, OutputGraphGuardsState, get_builtins_dict
from torch._dynamo.source import GlobalSource
from torch._functorch._aot_autograd.utils import top_saved_tensors_hooks
from torch._guards import Guard, GuardsSet, Source
from torch.nn.modules.module import _has_any_global_hook
from torch.utils import _device
from torch.utils._ordered_set import OrderedSet

from tapeless.torch_internals.pickles import Pickler
from tapeless.torch_internals.settings import settings_of


class Unrepeatable(Exception):
    """What Dynamo made of a frame holds something that means nothing in another process."""


@dataclass(frozen=True)
class Guarded:
    """One guard: where it finds its value, what kind it is, and its arguments (a name, a key, another source)."""

    source: Source
    kind: str
    arguments: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, guard: Guard) -> Guarded:
        """Relies on `create_fn`, a method of `GuardBuilder` or a partial call of one."""
        create = guard.create_fn
        partial = isinstance(create, functools.partial)
        kind = guard.create_fn_name()
        if (partial and create.args) or (kind not in ASPECTS and kind not in GUARDS_ON_STATE):
            raise Unrepeatable(f"a guard {kind}")
        given = create.keywords if partial else {}
        return cls(guard.originating_source, kind, tuple((k, v) for k, v in given.items() if k in ARGUMENTS[kind]))

    @classmethod
    def left_out(cls, source: Source) -> Guarded:
        """What Dynamo looks at without a guard, because it does not change in a process."""
        return cls(source, LEFT_OUT)

    def guard(self) -> Guard:
        create = getattr(GuardBuilder, self.kind)
        return Guard(self.source, functools.partial(create, **dict(self.arguments)) if self.arguments else create)


def _tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What Dynamo looks at: no mark but that of weights is made by Dynamo itself."""
    marks = sorted(name for name in vars(tensor) if name.startswith("_dynamo_") and name != STATIC)
    keys = str(torch._C._dispatch_keys(tensor))
    layout = (tensor.shape, tensor.stride()) if tensor.layout is torch.strided else tensor.shape
    return type(tensor), layout, tensor.dtype, tensor.device, tensor.requires_grad, tensor.layout, keys, marks


def _kind(value: Any) -> tuple[Any, ...]:
    """Its class, and which keys or attributes it has: that one is missing, Dynamo does not always guard."""
    if isinstance(value, dict):
        return type(value), [_key(key) for key in dict.keys(value)]
    size = len(value) if type(value) in (list, tuple, set, frozenset) else None
    return type(value), size, sorted(vars(value)) if hasattr(value, "__dict__") else None


def _key(key: Any) -> Any:
    return key if type(key) in (str, bytes, int, float, bool) or isinstance(key, type) else type(key)


def _left_out(value: Any) -> Any:
    """Functions and classes with what stands in them; of other objects, of what kind they are."""
    return value if isinstance(value, (type, types.FunctionType, types.ModuleType)) else _kind(value)


LEFT_OUT = "left out"
STATIC = "_dynamo_static_input_type"

# Per kind of guard: of the value, what decides whether the guard holds. Kinds that do not stand here are not repeated.
ASPECTS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(
        (
            "CONSTANT_MATCH", "EQUALS_MATCH", "BOOL_MATCH", "NONE_MATCH", "ID_MATCH", "CLASS_MATCH", "MODULE_MATCH",
            "FUNCTION_MATCH", "BUILTIN_MATCH", "CLOSURE_MATCH",
        ),
        lambda value: value,
    ),
    "TYPE_MATCH": _kind,
    "TENSOR_MATCH": _tensor,
    "NOT_NONE_MATCH": lambda value: value is None,
    "SEQUENCE_LENGTH": lambda value: (type(value), len(value)),
    "EMPTY_NN_MODULE_HOOKS_DICT": lambda value: len(value),
    "DICT_KEYS_MATCH": lambda value: list(dict.keys(value)),
    "MAPPING_KEYS_CHECK": lambda value: list(value.keys()),
    "HASATTR": lambda value, attr: (attr, hasattr(value, attr)),
    "NOT_PRESENT_IN_GENERIC_DICT": lambda value, attr: (attr, attr in value.__dict__),
    "DICT_CONTAINS": lambda value, key: (key, key in value),
    "DICT_NOT_CONTAINS": lambda value, key: (key, key in value),
    "SET_CONTAINS": lambda value, key: (key, key in value),
    "SET_NOT_CONTAINS": lambda value, key: (key, key in value),
    "DUPLICATE_INPUT": lambda value, source_b: value is source_b,
    LEFT_OUT: lambda value: value if type(value) in (str, bytes, int, float, bool) else _left_out(value),
}  # fmt: skip
# Guards on the state of the process; `guarded_state` says all of it, or refuses.
GUARDS_ON_STATE = (
    "GRAD_MODE", "DETERMINISTIC_ALGORITHMS", "GLOBAL_STATE", "TORCH_FUNCTION_STATE", "DEFAULT_DEVICE", "SHAPE_ENV",
    "AUTOGRAD_SAVED_TENSORS_HOOKS",
)  # fmt: skip
ARGUMENTS = {
    **dict.fromkeys((*ASPECTS, *GUARDS_ON_STATE), ()),
    **dict.fromkeys(("HASATTR", "NOT_PRESENT_IN_GENERIC_DICT"), ("attr",)),
    **dict.fromkeys(("DICT_CONTAINS", "DICT_NOT_CONTAINS", "SET_CONTAINS", "SET_NOT_CONTAINS"), ("key",)),
    "DUPLICATE_INPUT": ("source_b",),
}

BUILTINS = "__builtins_dict___tapeless"  # Dynamo counts its names; this one is nobody else's


class Scope:
    """Where the sources of guards find their values: a frame's variables, and modules under Dynamo's names for them."""

    def __init__(self, variables: dict[str, Any], globals_: dict[str, Any], imports: Mapping[str, str]) -> None:
        """Relies on `Source.get_value`, as guards do when they are made. Modules are not imported for it."""
        self.added: dict[str, Any] = {BUILTINS: get_builtins_dict(globals_)}
        for alias, name in imports.items():
            if name not in sys.modules:
                raise Unrepeatable(f"module {name} is not there")
            self.added[alias] = sys.modules[name]
        if any(name in globals_ and globals_[name] is not value for name, value in self.added.items()):
            raise Unrepeatable("a name that Dynamo needs means something else")
        self._names = {"L": variables, "G": {**globals_, **self.added}, "__builtins__": get_builtins_dict(globals_)}
        self._helpers = dict(_get_closure_vars())
        self._known: dict[Source, Any] = {}

    def value(self, source: Source) -> Any:
        return source.get_value(self._names, self._helpers, self._known)

    def aspect(self, guarded: Guarded) -> Any:
        """What decides whether this guard holds."""
        arguments = {k: self.value(v) if isinstance(v, Source) else v for k, v in guarded.arguments}
        return ASPECTS[guarded.kind](self.value(guarded.source), **arguments)


class _Pickler(Pickler):
    """Writes global variables under other names. Refuses what stands in a module of the user's: reading imports that.

    Relies on `GlobalSource`, and on sources being plain data.
    """

    def __init__(self, stream: Any, names: Mapping[str, str]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.names = names

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is GlobalSource and obj.global_name in self.names:
            return GlobalSource, (self.names[obj.global_name],)
        named = isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType))
        if named and (obj.__module__ or "").partition(".")[0] not in ("torch", "builtins", "collections", "tapeless"):
            raise Unrepeatable(f"{obj!r} in a guard")
        return NotImplemented


def portable(value: Any, names: Mapping[str, str]) -> Any:
    """Guards and sources as another process will read them, their global variables renamed."""
    stream = io.BytesIO()
    try:
        _Pickler(stream, names).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as problem:
        raise Unrepeatable(str(problem)) from problem
    return pickle.loads(stream.getvalue())


def root_of(source: Any) -> str | None:
    """The global variable that a source begins with, if it begins with one. Relies on `base` and `global_name`."""
    while hasattr(source, "base"):
        source = source.base
    return source.global_name if hasattr(source, "global_name") else None


def check_function(
    code: CodeType,
    variables: dict[str, Any],
    globals_: dict[str, Any],
    guards: tuple[Guarded, ...],
    ordered: tuple[Source, ...],
    shapes: dict[Source, Any],
) -> Any:
    """A guard manager for what the frame holds now, or None if that does not pass its own guards.

    Relies on `CheckFunctionManager`, which makes guards from live objects, and on the state that it is given: what
    torch's own loading of guards gives it, with the frame itself in place of what was saved of another one.
    """
    state = OutputGraphGuardsState(
        local_scope=variables,
        global_scope=globals_,
        torch_function_mode_stack=[],
        guard_on_key_order=set(ordered),
        input_source_to_sizes_strides=shapes,
        dual_level=torch.autograd.forward_ad._current_level,
        functorch_layers=[],
        current_device=_device.CURRENT_DEVICE,
        global_state_guard=GlobalStateGuard(),
        _guards=GuardsSet(OrderedSet(guarded.guard() for guarded in guards)),
        _aotautograd_guards=[],
        skip_guards_check=True,  # done below, without timing it
        name_of_builtins_dict_key_in_fglobals=BUILTINS,
    )
    manager = CheckFunctionManager(code, OutputGraphCommon(state)).guard_manager
    return manager if manager.check(variables) else None


def guarded_state() -> str:
    """The state of the process that Dynamo guards, as text. What has no text here is refused.

    Relies on `GlobalStateGuard`, which tells what it compares, and on the settings of Dynamo.
    """
    device = _device.CURRENT_DEVICE
    hooks = top_saved_tensors_hooks()
    if torch._C._len_torch_function_stack() or device is not None or hooks or _has_any_global_hook():
        raise Unrepeatable("a mode, a default device, or hooks on saved tensors or on all modules")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise Unrepeatable("several processes that work together")
    guarded = GlobalStateGuard().__getstate__()
    return f"{guarded} {settings_of(torch._dynamo.config)}"
