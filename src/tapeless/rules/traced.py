"""The traced rule: an operator without a written rule gets the derivative that torch itself has for it.

The operator's own vjp is traced once into a small ATen graph, a `Template`, kept by signature, and inlined wherever the
operator stands. So coverage is complete from the first day, and a written rule is an improvement, not a precondition.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from tapeless import torch_internals
from tapeless.rules.registry import argument_names, call_by_name

Template = fx.GraphModule  # inputs: the tensors among (g, out, arguments); outputs: the gradients wanted, flat

_TEMPLATES: dict[Any, Template] = {}


class Untraceable(Exception):
    """Torch has no derivative for the operator, or none that can be traced."""


def traced_gradients(op: OpOverload, wanted: list[str], values: dict[str, Any]) -> dict[str, Any]:
    """Gradients of the arguments `wanted`, by the operator's own derivative."""
    if problem := why_untraceable(op):
        raise Untraceable(problem)
    arguments = {name: values[name] for name in argument_names(op)}
    given = {"g": values["g"], "out": values["out"], **arguments}
    leaves, spec = tree_flatten(given)
    key = (op, tuple(wanted), spec, tuple(_signature(leaf) for leaf in leaves))
    template = _TEMPLATES.get(key) if _cacheable(leaves) else None
    if template is None:
        template = _trace(op, wanted, leaves, spec)
        if _cacheable(leaves):
            _TEMPLATES[key] = template
    tensors = [leaf for leaf in leaves if isinstance(leaf, (torch.Tensor, torch.SymInt))]
    flat = iter(fx.Interpreter(template).run(*tensors))
    shape = {name: arguments[name] for name in wanted}
    return {name: _like(tree, flat) for name, tree in shape.items()}


def why_untraceable(op: OpOverload) -> str | None:
    """None if torch has a derivative for `op`; else a sentence saying what is wrong with it."""
    if op._schema.is_mutable:
        return "it mutates its arguments"
    if torch_internals.custom_op_without_derivative(op):
        return "it is a custom operator without `register_autograd`"
    return None


def _trace(op: OpOverload, wanted: list[str], leaves: list[Any], spec: Any) -> Template:
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, torch.SymInt))]

    def vjp(*tensors: Any) -> list[Any]:
        filled = list(leaves)
        for position, tensor in zip(positions, tensors, strict=True):
            filled[position] = tensor
        values = tree_unflatten(filled, spec)
        return _autograd(op, wanted, values)

    try:
        module = functional_graph(
            vjp, [leaves[i] for i in positions], partial(_reuse_result, op, leaves, spec, positions)
        )
    except Exception as problem:  # a derivative registered by a user may raise anything
        first = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        raise Untraceable(first) from problem
    if any(node.target is torch.ops.aten._local_scalar_dense.default for node in module.graph.nodes):
        raise Untraceable("its derivative reads numbers out of a tensor (`.item()`, `.tolist()`)")
    return module


def functional_graph(function: Any, inputs: list[Any], edit: Any = lambda module: None) -> fx.GraphModule:
    """`function` traced on the fake tensors `inputs` to ATen without mutation."""
    fakes = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in inputs]
    with torch_internals.tracing_on_fakes(), torch_internals.fake_mode_of(fakes):  # for the tensors it makes itself
        module = make_fx(function, tracing_mode="real")(*fakes)
        edit(module)
        if any(_mutates(node) for node in module.graph.nodes):
            pure = torch.func.functionalize(fx.Interpreter(module).run, remove="mutations")
            module = make_fx(pure, tracing_mode="real")(*fakes)
    module.graph.eliminate_dead_code()
    return module


def _autograd(op: OpOverload, wanted: list[str], values: dict[str, Any]) -> list[Any]:
    arguments = {k: v for k, v in values.items() if k not in ("g", "out")}
    leaves, spec = tree_flatten({name: arguments[name] for name in wanted})
    with torch.enable_grad():
        tracked = [t.detach().requires_grad_() if _floating(t) else t for t in leaves]
        out = call_by_name(op, {**arguments, **tree_unflatten(tracked, spec)})
        pairs = [(o, g) for o, g in zip(_sequence(out), _sequence(values["g"]), strict=True) if _has_grad(o, g)]
        inputs = [t for t in tracked if _floating(t)]
        found = torch.autograd.grad([o for o, _ in pairs], inputs, [g for _, g in pairs], allow_unused=True)
    by_input = iter(found)
    return [next(by_input) if _floating(t) else None for t in tracked]


def _reuse_result(op: OpOverload, leaves: Any, spec: Any, positions: list[int], module: fx.GraphModule) -> None:
    """The traced call of the operator itself is not repeated: its results are inputs of the template."""
    placeholders = dict(zip(positions, module.graph.find_nodes(op="placeholder"), strict=True))
    numbered = tree_unflatten(list(range(len(leaves))), spec)
    node = next((n for n in module.graph.nodes if n.target is op), None)
    if node is None:
        return
    results = _sequence(numbered["out"])
    if isinstance(numbered["out"], int):
        node.replace_all_uses_with(placeholders[results[0]])
        return
    for item in list(node.users):
        if (position := results[item.args[1]]) in placeholders:  # a result that was masked out is None, and not there
            item.replace_all_uses_with(placeholders[position])


def _like(tree: Any, flat: Any) -> Any:
    if isinstance(tree, (list, tuple)):
        return [next(flat) for _ in tree]
    return next(flat)


def _signature(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device)
    return (type(leaf), leaf)


def _cacheable(leaves: list[Any]) -> bool:
    """Symbolic sizes belong to one compilation; static signatures are for ever."""
    numbers = [n for leaf in leaves for n in (leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,))]
    return not any(isinstance(n, torch.SymInt) for n in numbers)


def _floating(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex())


def _has_grad(out: Any, g: Any) -> bool:
    return _floating(out) and out.requires_grad and g is not None


def _sequence(out: Any) -> Any:
    return out if isinstance(out, (list, tuple)) else (out,)


def _mutates(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable
