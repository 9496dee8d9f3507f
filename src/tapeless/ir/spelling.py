"""How an ATen call is written: `torch.mm(a, b)` where that is the very same call, else `aten.mm.default(a, b)`.

Torch's own Python bindings parse arguments two to three times faster than a call through `torch.ops`, and they are
what people read and write. But `torch.f(…)` chooses an overload by looking at its arguments, so the short spelling is
used only after it was tried on the node's fake tensors and seen to arrive at exactly this overload with exactly these
arguments.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from tapeless.torch_internals import without_modes

_SPELLINGS: dict[Any, str | None] = {}


def spelling(node: fx.Node, op: OpOverload) -> str | None:
    """`torch.f` or `.f` (a method of the first argument) if it means exactly this call of `op`; else None."""
    if op.namespace != "aten":
        return None
    key = (op, tuple(map(_kinds, node.args)), tuple((name, _kinds(value)) for name, value in node.kwargs.items()))
    if key not in _SPELLINGS:
        _SPELLINGS[key] = _find(node, op)
    return _SPELLINGS[key]


def _find(node: fx.Node, op: OpOverload) -> str | None:
    name = op.overloadpacket.__name__
    args, kwargs = tree_map_only(fx.Node, lambda n: n.meta.get("val"), (node.args, node.kwargs))
    function, method = getattr(torch, name, None), getattr(torch.Tensor, name, None)
    builtin = isinstance(function, types.BuiltinFunctionType | types.BuiltinMethodType)
    if builtin and _is_same(function, op, args, kwargs):
        return f"torch.{name}"
    if isinstance(method, types.MethodDescriptorType) and node.args and _is_same(method, op, args, kwargs):
        return f".{name}"
    return None


def _is_same(function: Any, op: OpOverload, args: Any, kwargs: Any) -> bool:
    """Does `function(*args, **kwargs)` reach `op` with these arguments?"""
    try:
        with without_modes(), torch.no_grad(), _Witness():
            function(*args, **kwargs)
    except _Reached as reached:
        return reached.op is op and _named(op, reached.args, reached.kwargs) == _named(op, args, kwargs)
    except Exception:
        return False
    return False


class _Reached(Exception):
    def __init__(self, op: Any, args: Any, kwargs: Any) -> None:
        self.op, self.args, self.kwargs = op, args, kwargs


class _Witness(TorchDispatchMode):
    """Stops at the first operator that is reached, and tells which."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _Reached(func, args, kwargs or {})


def _named(op: OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments by name, defaults filled in, comparable: tensors by identity, lists as tuples."""
    schema = op._schema.arguments
    values = {a.name: a.default_value for a in schema if a.has_default_value()}
    values |= {a.name: value for a, value in zip(schema, args, strict=False)}
    return {name: _comparable(value) for name, value in (values | kwargs).items()}


def _comparable(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return id(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(_comparable, value))
    return str(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else value


def _kinds(value: Any) -> Any:
    """What argument parsing looks at: the kinds of the arguments, not their values; of a list, the kinds it holds."""
    if isinstance(value, fx.Node):
        return type(value.meta.get("val"))
    if isinstance(value, (list, tuple)):
        return (type(value), frozenset(map(_kinds, value)))
    return value if isinstance(value, str) else type(value)
