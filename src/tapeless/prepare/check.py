"""The numeric check: two graphs run on copies of the same inputs, outputs and gradients compared.

Gradients are eager's own, of the ATen calls as they stand: independent of our derivative rules, and each graph has
inputs of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map_only

from tapeless import torch_internals
from tapeless.ir import graph as ir

TOLERANCE = {torch.float32: 1e-4, torch.complex64: 1e-4, torch.bfloat16: 5e-2, torch.float16: 5e-3}
EXACT = 1e-9
SEED = 7


@dataclass(frozen=True)
class Observed:
    """What a run of a graph gave."""

    outputs: list[Any]
    gradients: list[Any]


def difference(before: fx.Graph, after: fx.Graph, wrt: Sequence[bool], examples: Sequence[Any] = ()) -> str:
    """How the two graphs differ on inputs like `examples`; "" if they do not."""
    with torch_internals.running():
        inputs = [_made(node, *given) for node, given in _aligned(ir.inputs(before), examples)]
        expected, actual = observe(before, inputs, wrt), observe(after, inputs, wrt)
    pairs = [
        *((f"output {i}", a, b) for i, (a, b) in enumerate(zip(expected.outputs, actual.outputs, strict=True))),
        *((f"the gradient of {n.name}", a, b) for n, a, b in zip(
            ir.inputs(before), expected.gradients, actual.gradients, strict=True)),
    ]  # fmt: skip
    bound = coarsest(before)
    return "; ".join(filter(None, (_told(*pair, bound) for pair in pairs)))


def coarsest(graph: fx.Graph) -> float:
    """How far results may lie apart: a value of few digits anywhere in a program shows in all that it leads to."""
    tensors = [val for val in tree_leaves(list(map(ir.value, graph.nodes))) if isinstance(val, torch.Tensor)]
    return max((TOLERANCE.get(val.dtype, EXACT) for val in tensors), default=EXACT)


def observe(graph: fx.Graph, inputs: Sequence[Any], wrt: Sequence[bool]) -> Observed:
    """Outputs, and the gradients of the inputs that carry derivatives from fixed random cotangents."""
    own = [_own(x, wanted) for x, wanted in zip(inputs, wrt, strict=True)]
    torch.manual_seed(SEED)
    outputs = evaluate(graph, own)
    roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    torch.manual_seed(SEED)
    cotangents = [torch.randn_like(o) for o in roots]
    leaves = [x for x in own if isinstance(x, torch.Tensor) and x.requires_grad]
    found = iter(torch.autograd.grad(roots, leaves, cotangents, allow_unused=True) if roots and leaves else [])
    gradients = [next(found, None) if isinstance(x, torch.Tensor) and x.requires_grad else None for x in own]
    return Observed(outputs, gradients)


def evaluate(graph: fx.Graph, inputs: Sequence[Any]) -> list[Any]:
    """Run a graph call by call under eager's autograd; what the user cut off stays cut off."""
    values: dict[fx.Node, Any] = dict(zip(ir.inputs(graph), inputs, strict=True))
    for node in ir.calls(graph):
        cut = (node.meta.get("custom") or {}).get("no_grad")
        with torch.no_grad() if cut else torch.enable_grad():
            values[node] = _call(node, values)
    return [values[o] if isinstance(o, fx.Node) else o for o in ir.outputs(graph)]


def _call(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    if node.op == "get_attr":
        return ir.constant(node)
    args, kwargs = tree_map_only(fx.Node, values.__getitem__, (node.args, node.kwargs))
    if node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
        return args[0].reshape(*args[1:])  # as the text has it
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _aligned(nodes: list[fx.Node], examples: Sequence[Any]) -> list[tuple[fx.Node, tuple[Any, ...]]]:
    return [(node, (example,)) for node, example in itertools.zip_longest(nodes, examples[: len(nodes)])]


def _made(node: fx.Node, example: Any) -> Any:
    """The example itself, or a value of the input's type."""
    val = ir.value(node)
    if isinstance(example, torch.Tensor) and not torch_internals.is_fake(example):
        return example.detach()
    if not isinstance(val, torch.Tensor):
        return val.node.hint if isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)) else val
    sizes = [n.node.hint if isinstance(n, torch.SymInt) else n for n in val.shape]
    torch.manual_seed(SEED)
    if ir.is_differentiable_type(val):
        return torch.randn(sizes, dtype=val.dtype)
    return torch.zeros(sizes, dtype=val.dtype)


def _own(x: Any, wanted: bool) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    return x.detach().clone().requires_grad_(wanted and ir.is_differentiable_type(x))


def _told(what: str, a: Any, b: Any, bound: float) -> str:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        same = a is b or (type(a) is type(b) and a == b)
        return "" if same else f"{what} was {_short(a)}, is {_short(b)}"
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{what} was {a.dtype} {tuple(a.shape)}, is {b.dtype} {tuple(b.shape)}"
    if a.is_quantized:
        a, b = a.int_repr(), b.int_repr()
    bound = bound if ir.is_differentiable_type(a) else 0
    if torch.allclose(a, b, rtol=bound, atol=bound, equal_nan=True):
        return ""
    return f"{what} differs by {_distance(a, b):.3g}"


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.detach().to(torch.complex128) - b.detach().to(torch.complex128)).abs().max().item()


def _short(value: Any) -> str:
    return f"a tensor {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
