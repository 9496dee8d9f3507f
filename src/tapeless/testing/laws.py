"""The laws every written rule obeys, over recorded calls of its operator.

1. Its gradients equal autograd's.
2. Forward and reverse are adjoint: ⟨J ẋ, ȳ⟩ = ⟨ẋ, Jᵀ ȳ⟩.
3. For every subset of outputs, an undefined cotangent gives what a zero one gives.
4. The tangent equals a finite difference in a random direction: the one law that relies on nobody's formula.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from tapeless.rules.fit import fit
from tapeless.rules.registry import Rule, argument_names, call_by_name, gradients, named_arguments, rule_of
from tapeless.testing.samples import Call


def differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def gradients_equal_autograd(call: Call, rtol: float = 1e-7, atol: float = 1e-7) -> bool:
    """Law 1. False if autograd itself has nothing to compare with."""
    rule = rule_of(call.op)
    assert rule is not None, f"no written rule for {call.op}"
    args, kwargs = _leaves_requiring_grad(call, rule)
    try:
        with torch.enable_grad():
            out = call.op(*args, **kwargs)
    except RuntimeError:
        return False
    outs = out if isinstance(out, (tuple, list)) else (out,)
    live = [o for o in outs if differentiable(o) and o.requires_grad]
    if not live:
        return False
    cotangents = _cotangents(outs)
    expected = _autograd(call, args, kwargs, outs, cotangents)
    if expected is None:
        return False
    actual = _rule_gradients(rule, args, kwargs, out, cotangents)
    for name, tensors in expected.items():
        found = actual.get(name)
        for want, have in zip(tensors, found if isinstance(found, (list, tuple)) else [found], strict=True):
            if want is not None:
                have = torch.zeros_like(want) if have is None else have
                close(f"{call} {name}", have, want, rtol, atol)
    return True


def close(what: str, actual: Any, expected: Any, rtol: float, atol: float) -> None:
    torch.testing.assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda message: f"{what}: {message}"
    )


def _leaves_requiring_grad(call: Call, rule: Rule) -> tuple[Any, Any]:
    """Copies of the arguments; those that the rule has a gradient for require grad."""
    names = argument_names(call.op)

    def leaves(tree: Any, name: str) -> Any:
        active = name in rule.vjps
        return tree_map_only(
            torch.Tensor, lambda t: t.detach().clone().requires_grad_(active and differentiable(t)), tree
        )

    by_name = {a.name: name for a, name in zip(call.op._schema.arguments, names, strict=True)}
    args = tuple(leaves(value, name) for value, name in zip(call.args, names, strict=False))
    return args, {key: leaves(value, by_name[key]) for key, value in call.kwargs.items()}


def _cotangents(outs: Any) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(o.shape, dtype=o.dtype, generator=generator) if differentiable(o) and o.requires_grad else None
        for o in outs
    ]


def _autograd(call: Call, args: Any, kwargs: Any, outs: Any, cotangents: Any) -> dict[str, list[Any]] | None:
    """Autograd's gradient of every differentiable argument, as a list per schema name."""
    named = named_arguments(call.op, args, kwargs)
    leaves = [t for value in named.values() for t in tree_leaves(value) if differentiable(t) and t.requires_grad]
    pairs = [(o, c) for o, c in zip(outs, cotangents, strict=True) if c is not None]
    try:
        outputs, gs = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, leaves, gs, allow_unused=True))
    except (RuntimeError, NotImplementedError):
        return None
    result = {
        name: [next(found) if differentiable(t) and t.requires_grad else None for t in tree_leaves(value)]
        for name, value in named.items()
    }
    return {name: grads for name, grads in result.items() if any(g is not None for g in grads)}


def _rule_gradients(rule: Rule, args: Any, kwargs: Any, out: Any, cotangents: Any) -> dict[str, Any]:
    out = _detach(out)
    outs = out if isinstance(out, (tuple, list)) else (out,)
    filled = tuple(
        torch.zeros_like(o) if c is None and differentiable(o) else c for o, c in zip(outs, cotangents, strict=True)
    )
    named = named_arguments(rule.op, _detach(args), _detach(kwargs))
    values = {**named, "out": out, "g": filled if isinstance(out, (tuple, list)) else filled[0]}
    wanted = [name for name, value in named.items() if any(differentiable(t) for t in tree_leaves(value))]
    with torch.no_grad():
        found = gradients(rule, [w for w in wanted if w not in rule.constants], values)
        return {name: fit(grad, named[name]) for name, grad in found.items()}


def _detach(tree: Any) -> Any:
    return tree_map_only(torch.Tensor, torch.Tensor.detach, tree)


# -- law 4 ---------------------------------------------------------------------------------------------------------


def gradients_equal_finite_difference(call: Call, rtol: float = 1e-4, atol: float = 1e-5) -> bool:
    """Law 4 of a gradient: ⟨ȳ, ẏ⟩ = ⟨x̄, ẋ⟩, where ẏ is a finite difference in a random direction ẋ. False at a kink."""
    rule = rule_of(call.op)
    assert rule is not None, f"no written rule for {call.op}"
    found = _difference(call, rule)
    if found is None:
        return False
    named, direction, out, tangents = found
    generator = torch.Generator().manual_seed(1)
    outs = _outputs(out)
    cotangents = [None if t is None else _random_like(o, generator) for o, t in zip(outs, tangents, strict=True)]
    g = tuple(
        torch.zeros_like(o) if c is None and differentiable(o) else c for c, o in zip(cotangents, outs, strict=True)
    )
    with torch.no_grad():
        found = gradients(rule, direction, {**named, "out": out, "g": g if isinstance(out, (tuple, list)) else g[0]})
    expected = sum(_inner(c, t) for c, t in zip(cotangents, tangents, strict=True) if c is not None)
    actual = sum(
        _inner_of(fit(gradient, named[name]), direction[name]) for name, gradient in found.items() if name in direction
    )
    close(str(call), actual, expected, rtol, atol)
    return True


def tangents_equal_finite_difference(call: Call, rtol: float = 1e-4, atol: float = 1e-5) -> bool:
    """Law 4 of a tangent: it is the finite difference in a random direction. False at a kink."""
    rule = rule_of(call.op)
    assert rule is not None and rule.jvp is not None, f"no tangent for {call.op}"
    found = _difference(call, rule)
    if found is None:
        return False
    named, direction, out, expected = found
    with torch.no_grad():
        actual = rule.jvp({**named, "out": out}, direction)
    for have, want, o in zip(_outputs(actual), expected, _outputs(out), strict=True):
        if want is not None and have is not None:
            close(str(call), fit(have, o), want, rtol, atol)
    return True


def _difference(call: Call, rule: Rule, step: float = 1e-6) -> Any:
    """Arguments, a random direction, the result and its derivative in that direction; None at a kink."""
    args, kwargs = _leaves_requiring_grad(call, rule)
    try:
        with torch.enable_grad():
            live = [differentiable(o) and o.requires_grad for o in _outputs(call.op(*args, **kwargs))]
    except RuntimeError:
        return None
    named = named_arguments(call.op, _detach(args), _detach(kwargs))
    generator = torch.Generator().manual_seed(0)
    active = [name for name in rule.vjps if name not in rule.constants and _movable(named[name])]
    direction = {name: tree_map(lambda t: _random_like(t, generator), named[name]) for name in active}
    if not direction or not any(live):
        return None
    below, out, above = (_at(call, named, direction, t) for t in (-step, 0.0, step))
    tangents = []
    for alive, low, here, high in zip(live, _outputs(below), _outputs(out), _outputs(above), strict=True):
        if alive and not _smooth(low, here, high, step):
            return None
        tangents.append((high - low) / (2 * step) if alive else None)
    return named, direction, out, tangents


def _at(call: Call, named: dict[str, Any], direction: dict[str, Any], step: float) -> Any:
    def moved(x: Any, v: Any) -> Any:
        return x + step * v if differentiable(x) else x

    with torch.no_grad():
        return call_by_name(call.op, {**named, **{n: tree_map(moved, named[n], v) for n, v in direction.items()}})


def _smooth(low: torch.Tensor, here: torch.Tensor, high: torch.Tensor, step: float) -> bool:
    """Whether the differences on both sides agree, are finite and not those of a jump."""
    if low.shape != high.shape or here.dtype not in (torch.float64, torch.complex128):
        return False
    left, right = (here - low) / step, (high - here) / step
    steep = left.numel() > 0 and not bool(left.abs().max() < 1e5)
    return not steep and torch.allclose(left, right, rtol=1e-2, atol=1e-2)


def _movable(value: Any) -> bool:
    """Whether a step of 1e-6 is seen: some double precision, nothing huge."""
    tensors = [t for t in tree_leaves(value) if differentiable(t)]
    double = all(t.dtype in (torch.float64, torch.complex128) for t in tensors)
    return bool(tensors) and double and all(t.numel() == 0 or bool(t.abs().max() < 1e3) for t in tensors)


def _random_like(value: Any, generator: torch.Generator) -> Any:
    return torch.randn(value.shape, dtype=value.dtype, generator=generator) if differentiable(value) else value


def _inner_of(gradient: Any, direction: Any) -> Any:
    if gradient is None:
        return 0
    pairs = zip(tree_leaves(gradient), tree_leaves(direction), strict=True)
    return sum(_inner(g, v) for g, v in pairs if differentiable(g))


def _inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    product = (a.conj() * b).sum()
    return product.real if product.is_complex() else product


def _outputs(out: Any) -> tuple[Any, ...]:
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)
