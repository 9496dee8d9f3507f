"""What is known about each ATen operator: how it carries gradients, tangents and structural zeros.

A rule is ordinary PyTorch. Its parameters are the operator's schema names, plus `g` (cotangent of the output, a tuple
if there are several outputs) and `out` (the result); what it names is what is saved for the backward, and a last
`**how` takes the operator's remaining settings (arguments that are no tensors). Run on tensors it computes, run on
the fake tensors of an `Emitter` it writes graph nodes.

Say the strongest true thing, once:

    linear(op)      reverse, forward and zero propagation follow (zero if every linear argument is)
    bilinear(op)    the same for a product (zero if either factor is)
    pointwise(op)   elementwise: the derivative gives reverse and forward
    zero(op)        there is a gradient, and it is zero (rounding)
    vjp(op)         anything else, with jvp(op) where forward mode deserves its own formula
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch._ops import OpOverload

Function = Callable[..., Any]
Names = tuple[str, ...]
Values = dict[str, Any]
Tangent = Callable[[Values, Values], Any]  # (arguments and `out`, tangents) by name → tangent of the result


@dataclass(frozen=True)
class Formula:
    """A rule's function and the values it names."""

    function: Function
    wrt: Names
    reads: Names

    def __call__(self, values: Values) -> Any:
        return self.function(**{name: values[name] for name in self.reads})


@dataclass
class Rule:
    """Everything declared about one operator."""

    op: OpOverload
    form: str = ""
    vjps: dict[str, Formula] = field(default_factory=dict)  # argument → the formula that yields its gradient
    jvp: Tangent | None = None
    zero_groups: tuple[Names, ...] = ()  # the result is zero if all arguments of one group are
    constants: set[str] = field(default_factory=set)  # arguments that carry no derivative, as eager decides
    constant_results: set[int] = field(default_factory=set)  # results that carry none

    def formula(self, argument: str) -> Formula | None:
        return self.vjps.get(argument)

    def is_constant_in(self, argument: str) -> bool:
        """Is there no derivative in this argument, or a zero?"""
        formula = self.vjps.get(argument)
        return argument in self.constants or (formula is not None and formula.function is _zero_gradient)


RULES: dict[OpOverload, Rule] = {}
NONDIFFERENTIABLE: set[OpOverload] = set()


def rule_of(op: OpOverload) -> Rule | None:
    """The written rule of an operator, if there is one."""
    return RULES.get(op)


def is_nondifferentiable(op: OpOverload) -> bool:
    return op in NONDIFFERENTIABLE


def declared() -> tuple[Any, ...]:
    """All that is declared now, to be compared with what was declared before."""
    rules = (
        (r.op, r.form, *r.vjps.items(), r.jvp, r.zero_groups, frozenset(r.constants), frozenset(r.constant_results))
        for r in RULES.values()
    )
    return *rules, frozenset(NONDIFFERENTIABLE)


# -- declaring -----------------------------------------------------------------------------------------------------


def vjp(
    *ops: OpOverload, wrt: str | Names | None = None, linear_in: str | Names | tuple[Names, ...] = ()
) -> Callable[[Function], Function]:
    """`@vjp(op)`: how cotangents of the result become gradients of the arguments `wrt` (default: every tensor).

    `linear_in` names arguments the operator is linear in, without making a rule of that: a backward kernel is linear in
    its `grad_output`, and that is enough for structural zeros to pass through it. Several groups may be named: a
    convolution is jointly linear in (input, bias) and in (weight, bias).
    """
    groups = _groups(linear_in)

    def declare(function: Function) -> Function:
        for op in ops:
            rule = _rule(op, "vjp")
            _add_formula(rule, function, _names(wrt) or tensor_arguments(op))
            rule.zero_groups = (*rule.zero_groups, *(group for group in groups if group))
        return function

    return declare


def linear(*ops: OpOverload, wrt: str | Names | None = None) -> Callable[[Function], Function]:
    """`@linear(op)`: it is jointly linear in `wrt` (default: every tensor argument); the function is its transpose."""

    def declare(function: Function) -> Function:
        for op in ops:
            rule = _rule(op, "linear")
            names = _names(wrt) or tensor_arguments(op)
            _add_formula(rule, function, names)
            rule.zero_groups = (*rule.zero_groups, names)
            rule.jvp = rule.jvp or _linear_jvp(op, names)
        return function

    return declare


def bilinear(*ops: OpOverload, wrt: Names | None = None) -> Callable[[Function], Function]:
    """`@bilinear(op)`: a product of the two arguments `wrt` (default: the tensor arguments)."""

    def declare(function: Function) -> Function:
        for op in ops:
            rule = _rule(op, "bilinear")
            left, right = _names(wrt) or tensor_arguments(op)
            _add_formula(rule, function, (left, right))
            rule.zero_groups = (*rule.zero_groups, (left,), (right,))
            rule.jvp = rule.jvp or _bilinear_jvp(op, left, right)
        return function

    return declare


def pointwise(
    op: OpOverload, derivative: Function | None = None, /, *, linear_in: str | Names = (), **partials: Function
) -> None:
    """`pointwise(op, lambda out: …)`: elementwise; the derivative by the first tensor argument, or one per name.

    The gradient is g ⊙ conj(derivative); the tangent is the sum of derivative ⊙ tangent. A function that names `g` is
    that product itself: `lambda g, self: …`, for a fused kernel, a quotient, or a choice between g and 0. `linear_in`
    as in `vjp`.
    """
    if derivative is not None:
        partials = {tensor_arguments(op)[0]: derivative}
    rule = _rule(op, "pointwise")
    for name, partial in partials.items():
        reads = _parameters(op, partial)
        product = Formula(partial, (name,), reads) if "g" in reads else _times_conjugate(partial, name, reads)
        rule.vjps[name] = product
    if linear_in:
        rule.zero_groups = (*rule.zero_groups, _names(linear_in))
    rule.jvp = _pointwise_jvp(op, tuple(partials))


def jvp(*ops: OpOverload) -> Callable[[Function], Function]:
    """`@jvp(op)`: the tangent of the result; `x_t` is the tangent of argument `x`."""

    def declare(function: Function) -> Function:
        for op in ops:
            _rule(op, "vjp").jvp = _written_jvp(op, function)
        return function

    return declare


def zero(*ops: OpOverload, arguments: str | Names = ()) -> None:
    """The derivative in `arguments` (default: every tensor argument) is zero: there is a gradient, and it is known."""
    for op in ops:
        rule = _rule(op, "zero")
        for name in _names(arguments) or tensor_arguments(op):
            _add_formula(rule, _zero_gradient, (name,))
        if not arguments:
            rule.jvp = _zero_jvp


def nondifferentiable(*ops: OpOverload, arguments: str | Names = (), results: Sequence[int] = ()) -> None:
    """It has no derivative; or none in `arguments` (its other arguments account for them), or none of `results`."""
    if not arguments and not results:
        NONDIFFERENTIABLE.update(ops)
        return
    for op in ops:
        _check_names(op, _names(arguments))
        rule = _rule(op, "vjp")
        rule.constants.update(_names(arguments))
        rule.constant_results.update(results)


# -- reading -------------------------------------------------------------------------------------------------------


def tensor_arguments(op: OpOverload) -> Names:
    """Names of the schema arguments that hold tensors: Tensor, Tensor?, Tensor[], Tensor?[]."""
    return tuple(n for n, a in zip(argument_names(op), op._schema.arguments, strict=True) if "Tensor" in str(a.type))


def argument_names(op: OpOverload) -> Names:
    """Names of the schema arguments; one that the schema calls `g` or `out` is `g_` or `out_` here."""
    return tuple(f"{a.name}_" if a.name in ("g", "out") else a.name for a in op._schema.arguments)


def named_arguments(op: OpOverload, args: Sequence[Any], kwargs: Values) -> Values:
    """Every argument of a call by its schema name, defaults filled in."""
    names, schema = argument_names(op), op._schema.arguments
    values = {name: a.default_value for name, a in zip(names, schema, strict=True) if a.has_default_value()}
    values.update(zip(names, args, strict=False))
    values.update({name: kwargs[a.name] for name, a in zip(names, schema, strict=True) if a.name in kwargs})
    return values


def gradients(rule: Rule, wanted: Iterable[str], values: Values) -> Values:
    """Gradients of the arguments `wanted`, by name. `values` holds `g`, `out` and the named arguments."""
    result: Values = {}
    for name in wanted:
        formula = rule.vjps.get(name)
        if name in result or formula is None:
            continue
        found = formula(values)
        result.update(zip(formula.wrt, (found,) if len(formula.wrt) == 1 else found, strict=True))
    return result


# -- deriving ------------------------------------------------------------------------------------------------------


def _written_jvp(op: OpOverload, function: Function) -> Tangent:
    reads = _reads(op, function)
    _check_names(op, tuple(name.removesuffix("_t") for name in reads if name != "out"))

    def tangent(values: Values, tangents: Values) -> Any:
        named = {f"{name}_t": _tangent_or_zero(values, tangents, name) for name in values if f"{name}_t" in reads}
        return function(**{name: named[name] if name in named else values[name] for name in reads})

    return tangent


def _linear_jvp(op: OpOverload, names: Names) -> Tangent:
    def tangent(values: Values, tangents: Values) -> Any:
        return call_by_name(op, {**values, **{name: _tangent_or_zero(values, tangents, name) for name in names}})

    return tangent


def _bilinear_jvp(op: OpOverload, left: str, right: str) -> Tangent:
    def tangent(values: Values, tangents: Values) -> Any:
        terms = [call_by_name(op, {**values, name: tangents[name]}) for name in (left, right) if name in tangents]
        return sum(terms[1:], terms[0])

    return tangent


def _zero_gradient(g: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(g)


def _zero_jvp(values: Values, tangents: Values) -> torch.Tensor:
    return torch.zeros_like(values["out"])


def _pointwise_jvp(op: OpOverload, names: Names) -> Tangent:
    """The Jacobian is diagonal, so the gradient formula serves: ẏ = conj(formula(g = conj(ẋ)))."""

    def tangent(values: Values, tangents: Values) -> Any:
        formulas = RULES[op].vjps
        terms = [formulas[n]({**values, "g": tangents[n].conj()}).conj() for n in names if n in tangents]
        return sum(terms[1:], terms[0]) if terms else torch.zeros_like(values["out"])

    return tangent


def _tangent_or_zero(values: Values, tangents: Values, name: str) -> Any:
    """The tangent of an argument; of one that has none, a zero of its kind (of a number: 0)."""
    if name in tangents:
        return tangents[name]
    value = values[name]
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, (list, tuple)):
        return [None if v is None else torch.zeros_like(v) for v in value]
    return None if value is None else 0


def call_by_name(op: OpOverload, values: Values) -> Any:
    """Call `op` with the arguments in `values` (other keys are ignored)."""
    named = list(zip(argument_names(op), op._schema.arguments, strict=True))
    args = [values[name] for name, a in named if not a.kwarg_only]
    kwargs = {a.name: values[name] for name, a in named if a.kwarg_only}
    return op(*args, **kwargs)


def _times_conjugate(partial: Function, name: str, reads: Names) -> Formula:
    def gradient(g: torch.Tensor, **values: Any) -> torch.Tensor:
        slope = partial(**values)
        return g * (slope.conj() if isinstance(slope, torch.Tensor) else slope)

    return Formula(gradient, (name,), ("g", *reads))


# -- checking declarations -----------------------------------------------------------------------------------------


def _rule(op: OpOverload, form: str) -> Rule:
    rule = RULES.setdefault(op, Rule(op))
    rule.form = rule.form or form
    return rule


def declared_formula(op: OpOverload, function: Function) -> Formula:
    """A function of arguments of `op`, checked against its schema."""
    names = _reads(op, function)
    _check_names(op, names)
    return Formula(function, (), names)


def _add_formula(rule: Rule, function: Function, wrt: Names) -> None:
    _check_names(rule.op, wrt)
    formula = Formula(function, wrt, _parameters(rule.op, function))
    rule.vjps.update(dict.fromkeys(wrt, formula))


def _parameters(op: OpOverload, function: Function) -> Names:
    names = _reads(op, function)
    _check_names(op, tuple(name for name in names if name not in ("g", "out")))
    return names


def _reads(op: OpOverload, function: Function) -> Names:
    """Names of the values a rule asks for; `**how` stands for all further arguments that are no tensors."""
    parameters = inspect.signature(function).parameters.values()
    names = tuple(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
    if len(names) == len(parameters):
        return names
    how = (n for n in argument_names(op) if n not in names and n not in tensor_arguments(op))
    return (*names, *how)


def _check_names(op: OpOverload, names: Names) -> None:
    if unknown := set(names) - set(argument_names(op)):
        raise TypeError(f"rule of {op} names {sorted(unknown)}; its schema is {op._schema}")


def _groups(names: str | Names | tuple[Names, ...]) -> tuple[Names, ...]:
    """One group of names or several, as several."""
    several = tuple(group for group in names if isinstance(group, tuple))
    return several or (_names(cast(str | Names, names)),)


def _names(names: str | Names | None) -> Names:
    return (names,) if isinstance(names, str) else tuple(names or ())
