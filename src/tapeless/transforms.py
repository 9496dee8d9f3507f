"""Function transforms: `torch.func`'s conventions, our graphs.

A transformed function is an object that gives its own graph for given arguments, so transforms of transforms
differentiate graphs; Python is traced once per signature of the innermost function. Inside a function that is being
compiled they are `torch.func`'s own, which Dynamo captures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from tapeless import derive, functions, torch_internals
from tapeless.arguments import (
    Argnums,
    check_alike,
    checked_argnums,
    chosen,
    dense,
    described,
    floating,
    placed,
    vectors_for,
    with_aux,
)
from tapeless.backends.python import Code
from tapeless.derive import Halves, differentiable, renumbered
from tapeless.errors import BadOption, NotATensor, ProgramFailed
from tapeless.functions import Slot, Traced, filled, slots
from tapeless.runtime.variant import runnable


class Transformed:
    """A function that a transform made: callable, and open to further transforms."""

    def __init__(self, function: Callable[..., Any], transform: Transform) -> None:
        self.function, self.transform = function, transform
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or (found := _trace(self, (args, kwargs))) is None:
            return self.transform.torch(self.function)(*args, **kwargs)
        traced, live = found
        return traced.run((args, kwargs), live)

    def trace(self, args: Any) -> tuple[Traced, list[torch.Tensor]]:
        """The graph at arguments like these, and the tensors it reads beside them."""
        inner, live = trace(self.function, self.transform.arguments(args))
        return inner.derived(self.transform, self.transform.derive), live

    def program(self, *args: Any, **kwargs: Any) -> Code:
        """The program that runs for arguments like these, to be printed."""
        return Code(runnable(self.trace((args, kwargs))[0].graph), "program")


def trace(function: Callable[..., Any], args: Any) -> tuple[Traced, list[torch.Tensor]]:
    """Any function at these arguments, a pair (positional, keywords), as a graph."""
    return function.trace(args) if isinstance(function, Transformed) else functions.trace(function, args)


def _trace(function: Callable[..., Any], args: Any) -> tuple[Traced, list[torch.Tensor]] | None:
    """None inside a transform of torch's own if the function closes over its values, which Dynamo cannot trace."""
    try:
        return trace(function, args)
    except ProgramFailed:
        if torch_internals.in_functorch():
            return None
        raise


class Transform:
    """What a transform does to a graph, to arguments, and what torch's own for it is."""

    def derive(self, traced: Traced) -> Traced:
        raise NotImplementedError

    def torch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        raise NotImplementedError

    def arguments(self, args: Any) -> Any:
        """The arguments of the inner function."""
        return args


# -- reverse -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grad(Transform):
    """value → gradients"""

    argnums: Argnums
    has_aux: bool
    with_value: bool

    def derive(self, traced: Traced) -> Traced:
        value, aux = with_aux(traced.out, self.has_aux)
        if not isinstance(value, Slot):
            raise NotATensor("what the function returns", described(traced, value))
        selected = chosen(traced, self.argnums)
        found, gradients = derive.gradient(traced, value, slots(selected))
        grads = renumbered(selected, slots(selected), gradients)
        out = (value, aux) if self.has_aux else value
        return found.returning((out, grads) if self.with_value else (grads, aux) if self.has_aux else grads)

    def torch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not self.with_value:
            return torch.func.grad(function, self.argnums, self.has_aux)

        def value_and_grad(*args: Any, **kwargs: Any) -> Any:
            gradients, value = torch.func.grad_and_value(function, self.argnums, self.has_aux)(*args, **kwargs)
            return value, gradients

        return value_and_grad


def grad(function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that returns the gradient of `function` by the arguments `argnums`; with `has_aux`, (gradient, aux).

    `function` returns one real number (with `has_aux`, a pair of it and anything else). As `torch.func.grad`.
    """
    return _transformed(function, Grad(checked_argnums(argnums), has_aux, with_value=False))


def value_and_grad(function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that returns (value, gradient); with `has_aux`, ((value, aux), gradient)."""
    return _transformed(function, Grad(checked_argnums(argnums), has_aux, with_value=True))


def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """(out, pullback) or, with `has_aux`, (out, pullback, aux). As `torch.func.vjp`.

    The pullback takes a cotangent shaped like `out` and returns a tuple with one gradient per primal. It runs the
    backward program alone, as often as it is called.
    """
    if torch.compiler.is_compiling() or (found := _trace(function, (primals, {}))) is None:
        return torch.func.vjp(function, *primals, has_aux=has_aux)
    traced, live = found
    halves = traced.derived(("vjp", has_aux), lambda t: _pullback(t, has_aux))
    out, results, captures = _evaluated(halves, (primals, {}), live)
    value, aux = with_aux(traced.out, has_aux)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        vectors = vectors_for(halves, value, cotangents, traced.output_value, "cotangent")
        gradients = dense(halves.apply(vectors, captures), halves.results, traced.input_value)
        return placed(traced.args[0], halves.results, gradients)

    return (filled(value, results), pullback, filled(aux, results)) if has_aux else (out, pullback)


def _pullback(traced: Traced, has_aux: bool) -> Halves:
    value, _ = with_aux(traced.out, has_aux)
    return derive.pullback(traced, differentiable(traced, value), floating(traced, traced.args[0]))


# -- forward -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Jvp(Transform):
    """primals, tangents → value, its tangents"""

    has_aux: bool

    def arguments(self, args: Any) -> Any:
        primals, tangents = args[0]
        check_alike("tangents", primals, tangents)
        return tuple(primals), {}

    def derive(self, traced: Traced) -> Traced:
        value, aux = with_aux(traced.out, self.has_aux)
        wrt = floating(traced, traced.args[0])
        found, inputs, outputs = derive.tangents(traced, wrt, slots(value))
        tangents = placed(traced.args[0], wrt, inputs)
        found.args = ((traced.args[0], tangents), {})
        moved = renumbered(value, slots(value), outputs)
        return found.returning((value, moved, aux) if self.has_aux else (value, moved))

    def torch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda primals, tangents: torch.func.jvp(function, primals, tangents, has_aux=self.has_aux)


def jvp(function: Callable[..., Any], primals: Any, tangents: Any, *, has_aux: bool = False) -> tuple[Any, ...]:
    """(out, tangent of out) or, with `has_aux`, (out, tangent of out, aux). As `torch.func.jvp`."""
    return _transformed(function, Jvp(has_aux))(tuple(primals), tuple(tangents))


def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(out, pushforward). As `torch.func.linearize`.

    The pushforward takes one tangent per primal and returns the tangent of `out`; the function is evaluated once, here.
    """
    if torch.compiler.is_compiling() or (found := _trace(function, (primals, {}))) is None:
        return function(*primals), lambda *tangents: torch.func.jvp(function, primals, tangents)[1]
    traced, live = found
    halves = traced.derived("linearize", _pushforward)
    out, _, captures = _evaluated(halves, (primals, {}), live)

    def pushforward(*tangents: Any) -> Any:
        vectors = vectors_for(halves, traced.args[0], tangents, traced.input_value, "tangent")
        moved = dense(halves.apply(vectors, captures), halves.results, traced.output_value)
        return placed(traced.out, halves.results, moved)

    return out, pushforward


def _pushforward(traced: Traced) -> Halves:
    return derive.pushforward(traced, floating(traced, traced.args[0]), slots(traced.out))


# -- second order, whole matrices --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hvp(Transform):
    """primals, tangents → value, Hessian · tangents"""

    arity: int

    def arguments(self, args: Any) -> Any:
        return Jvp(False).arguments(args)

    def derive(self, traced: Traced) -> Traced:
        both = Jvp(False).derive(Grad(tuple(range(self.arity)), False, with_value=True).derive(traced))
        (value, _), (_, product) = both.out
        return both.returning((value, product))

    def torch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(_torch_hvp, function)


def _torch_hvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    both = torch.func.grad_and_value(function, tuple(range(len(primals))))
    moved: Any = torch.func.jvp(both, primals, tangents)
    (_, value), (product, _) = moved
    return value, product


def hvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, tuple[Any, ...]]:
    """(value, Hessian · tangents): a tuple with one product per primal. Forward over reverse, in one program."""
    return _transformed(function, Hvp(len(primals)))(tuple(primals), tuple(tangents))


@dataclass(frozen=True)
class Jacobian(Transform):
    """value → all its derivatives"""

    argnums: Argnums
    has_aux: bool
    mode: str

    def derive(self, traced: Traced) -> Traced:
        value, aux = with_aux(traced.out, self.has_aux)
        selected = chosen(traced, self.argnums)
        of, wrt = slots(value), slots(selected)
        found, blocks = derive.jacobian(traced, of, wrt, self._is_forward(traced, of, wrt))
        rows = {slot: blocks[i * len(wrt) : (i + 1) * len(wrt)] for i, slot in enumerate(of)}
        matrix = tree_map_only(Slot, lambda slot: renumbered(selected, wrt, rows[slot]), value)
        return found.returning((matrix, aux) if self.has_aux else matrix)

    def _is_forward(self, traced: Traced, of: Sequence[Slot], wrt: Sequence[Slot]) -> bool:
        if self.mode != "auto":
            return self.mode == "forward"
        return sum(traced.input_value(s).numel() for s in wrt) <= sum(traced.output_value(s).numel() for s in of)

    def torch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        torchs = torch.func.jacfwd if self.mode == "forward" else torch.func.jacrev
        return torchs(function, self.argnums, has_aux=self.has_aux)


def jacobian(
    function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, mode: str = "auto"
) -> Callable[..., Any]:
    """The function that returns the Jacobian of `function` by the arguments `argnums`. As `torch.func.jacrev`.

    `mode` is "forward" (a pushforward per element of the arguments), "reverse" (a pullback per element of the results),
    or "auto": whichever are fewer. All of them are computed at once, in one batched program.
    """
    if mode not in ("auto", "forward", "reverse"):
        raise BadOption(f'mode must be "auto", "forward" or "reverse", got {mode!r}')
    return _transformed(function, Jacobian(checked_argnums(argnums), has_aux, mode))


def hessian(function: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The function that returns the Hessian of `function` by the arguments `argnums`. As `torch.func.hessian`."""
    return jacobian(jacobian(function, argnums), argnums)


# -- running -----------------------------------------------------------------------------------------------------------


def _transformed(function: Callable[..., Any], transform: Transform) -> Any:
    return transform.torch(function) if torch.compiler.is_compiling() else Transformed(function, transform)


def _evaluated(halves: Halves, args: Any, live: Sequence[torch.Tensor]) -> tuple[Any, list[Any], list[Any]]:
    """Run the forward half: the user's result, the flat outputs, and what the linear half needs."""
    inputs = halves.traced.inputs(args, live)
    ready = halves.traced.ready(inputs)
    outs = halves.forward(ready)
    captures = halves.captures(ready, outs)
    halves.traced.write_back(inputs, outs)
    return filled(halves.traced.out, outs), outs, captures
