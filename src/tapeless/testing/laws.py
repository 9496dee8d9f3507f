"""The laws every written rule obeys, over recorded calls of its operator.

1. Its gradients equal autograd's.
2. Forward and reverse are adjoint: ⟨J ẋ, ȳ⟩ = ⟨ẋ, Jᵀ ȳ⟩.
3. For every subset of outputs, an undefined cotangent gives what a zero one gives.
4. The tangent equals a finite difference in a random direction: the one law that relies on nobody's formula.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from tapeless.rules.fit import fit
from tapeless.rules.registry import Rule, argument_names, gradients, named_arguments, rule_of
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
                torch.testing.assert_close(have, want, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{call} {name}: {m}")
    return True


def _leaves_requiring_grad(call: Call, rule: Rule) -> tuple[Any, Any]:
    """Copies of the arguments; those that carry a derivative require grad."""
    names = argument_names(call.op)

    def leaves(tree: Any, name: str) -> Any:
        active = name not in rule.constants
        return tree_map_only(torch.Tensor, lambda t: t.detach().clone().requires_grad_(active and differentiable(t)), tree)

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
    filled = tuple(torch.zeros_like(o) if c is None and differentiable(o) else c for o, c in zip(outs, cotangents, strict=True))
    named = named_arguments(rule.op, _detach(args), _detach(kwargs))
    values = {**named, "out": out, "g": filled if isinstance(out, (tuple, list)) else filled[0]}
    wanted = [name for name, value in named.items() if any(differentiable(t) for t in tree_leaves(value))]
    with torch.no_grad():
        found = gradients(rule, [w for w in wanted if w not in rule.constants], values)
        return {name: fit(grad, named[name]) for name, grad in found.items()}


def _detach(tree: Any) -> Any:
    return tree_map_only(torch.Tensor, torch.Tensor.detach, tree)
