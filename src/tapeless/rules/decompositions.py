"""Decompositions: an operator without a derivative rule, written in operators that have one.

    @decomposition(torch.ops.mylib.cube.default)
    def cube(x):
        return x * x * x

The walks ask the installed provider where an operator has no rule for what they are doing, and differentiate what the
decomposition computes. The operator itself still computes its value: numbers do not change with the way they are
differentiated. A decomposition serves the use it was registered for and no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, get_args

from torch._ops import OpOverload

from tapeless.errors import BadOption, NoDecomposition
from tapeless.rules.registry import Formula, Function, declared_formula, named_arguments

Use = Literal["forward", "second order", "everything"]
"""Forward mode; differentiating a backward again; these two and the first derivative."""

Asked = Literal["forward", "second order", "first order"]
"""What a walk is about to do."""


class Provider(Protocol):
    """Knows decompositions. `set_provider` installs one."""

    def has_decomposition(self, op: OpOverload, use: Asked) -> bool:
        """Can `op` be decomposed for this use?"""
        ...

    def run_decomposition(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], use: Asked) -> Any:
        """What `op(*args, **kwargs)` gives, by other operators."""
        ...


class Decompositions:
    """The provider that is installed to begin with: a table, filled by `decomposition`. Safe between threads."""

    def __init__(self) -> None:
        self._formulas: dict[tuple[OpOverload, str], Formula] = {}
        self._lock = threading.Lock()

    def register(self, op: OpOverload, function: Function, use: Use = "everything") -> None:
        """Decompose `op` by `function`, whose parameters are arguments of `op`, for `use` alone."""
        if not isinstance(op, OpOverload):
            raise BadOption(f"a decomposition belongs to one overload, such as `{op}.default`, not to {op!r}")
        if use not in get_args(Use):
            raise BadOption(f"the use of a decomposition is one of {', '.join(get_args(Use))}, not {use!r}")
        formula = declared_formula(op, function)
        with self._lock:
            if (op, use) in self._formulas:
                raise BadOption(f"{op} has a decomposition for {use!r} already; `forget` it first")
            self._formulas[op, use] = formula
        _count_change()

    def forget(self, op: OpOverload, use: Use = "everything") -> None:
        """Remove the decomposition of `op` for `use`, if there is one."""
        with self._lock:
            self._formulas.pop((op, use), None)
        _count_change()

    def entries(self) -> tuple[Any, ...]:
        """Everything that is registered."""
        with self._lock:
            return tuple(self._formulas.items())

    def has_decomposition(self, op: OpOverload, use: Asked) -> bool:
        return self._find(op, use) is not None

    def run_decomposition(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], use: Asked) -> Any:
        formula = self._find(op, use)
        if formula is None:
            raise NoDecomposition(str(op), f"none is registered for {use}")
        return formula(named_arguments(op, args, kwargs))

    def _find(self, op: OpOverload, use: str) -> Formula | None:
        return self._formulas.get((op, use)) or self._formulas.get((op, "everything"))


_lock = threading.Lock()
_changes = 0  # of the provider and of its table: derivatives that are kept from before may be others now
_provider: Provider | None = Decompositions()


def changes() -> int:
    """How often what can be decomposed has changed."""
    return _changes


def _count_change() -> None:
    global _changes
    with _lock:
        _changes += 1


def get_provider() -> Provider | None:
    """The installed provider, if there is one."""
    return _provider


def installed() -> tuple[Any, ...]:
    """The provider and what its table holds now, to be compared with what was there before."""
    return _provider, *(_provider.entries() if isinstance(_provider, Decompositions) else ())


def set_provider(provider: Provider | None) -> Provider | None:
    """Install a provider, or none; returns the one that was installed. What is compiled already does not change."""
    global _provider
    with _lock:
        previous, _provider = _provider, provider
    _count_change()
    return previous


def decomposition(*ops: OpOverload, use: Use = "everything") -> Callable[[Function], Function]:
    """`@decomposition(op)`: what `op` computes, by operators that have derivative rules.

    `use` is "forward" (forward mode), "second order" (where `op` stands in a backward) or "everything".
    """

    def declare(function: Function) -> Function:
        provider = get_provider()
        if not isinstance(provider, Decompositions):
            raise BadOption(f"the installed provider, {provider!r}, is not a table that takes decompositions")
        for op in ops:
            provider.register(op, function, use)
        return function

    return declare


def has_decomposition(op: OpOverload, use: Asked = "first order") -> bool:
    """Does the installed provider decompose `op` for this use?"""
    provider = get_provider()
    return provider is not None and provider.has_decomposition(op, use)


def run_decomposition(
    op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any] | None = None, use: Asked = "first order"
) -> Any:
    """`op(*args, **kwargs)` by its decomposition."""
    provider = get_provider()
    if provider is None:
        raise NoDecomposition(str(op), "no provider of decompositions is installed")
    if not provider.has_decomposition(op, use):
        raise NoDecomposition(str(op), f"the installed provider has none for {use}")
    return provider.run_decomposition(op, args, kwargs or {}, use)
