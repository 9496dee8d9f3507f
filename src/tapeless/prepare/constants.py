"""What depends on nothing is computed now."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare.calls import arguments, number, operator_name
from tapeless.prepare.editor import Editor
from tapeless.prepare.passes import Pass, Phase, sweep
from tapeless.torch_internals import without_modes

ELEMENTWISE = frozenset([
    "add", "sub", "mul", "div", "neg", "pow", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh",
    "sigmoid", "relu", "clamp", "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or",
    "bitwise_and", "bitwise_or", "bitwise_not", "maximum", "minimum",
])  # fmt: skip


@sweep(phase=Phase.SIMPLIFY)
def fold_constants(editor: Editor) -> None:
    """An elementwise call on values that are one known number throughout: a value filled with the result."""
    for node in ir.calls(editor.graph):
        if not node._erased and operator_name(node) in ELEMENTWISE and _is_constant(node):
            editor.replace(node, [node], lambda node=node: _filled(node))


@sweep(phase=Phase.NORMALIZE, symbolic=True, always=True)
def fill_constants(editor: Editor) -> None:
    """A tensor that the program makes of one number written in it: a value filled with that."""
    for node in ir.calls(editor.graph):
        if not node._erased and operator_name(node) == "lift_fresh_copy":
            editor.replace(node, [node], lambda node=node: _filled_as(node))


def _filled_as(node: fx.Node) -> torch.Tensor | None:
    """The same for one element; more of them stay as they are written."""
    out, constant = ir.value(node), ir.constant(node.all_input_nodes[0])
    if constant is None or constant.numel() != 1 or out.is_complex():
        return None
    with without_modes():
        value = constant.item()
    return torch.full(out.shape, value, dtype=out.dtype, device=out.device)


def _is_constant(node: fx.Node) -> bool:
    """A tensor all of whose operands are filled, none of them from the program's inputs."""
    operands = node.all_input_nodes
    return bool(operands) and ir.is_tensor(node) and all(number(a) is not None for a in operands)


def _filled(node: fx.Node) -> torch.Tensor | None:
    """The result for one element, computed by the operator itself in the operands' types."""
    out = ir.value(node)
    with without_modes():
        given = {name: _element(value) for name, value in arguments(node).items()}
        one: Any = node.target(**given)  # type: ignore[operator]
        value = one.item()
    exact = one.dtype == out.dtype and one.dim() == 0
    return torch.full(out.shape, value, dtype=out.dtype, device=out.device) if exact else None


def _element(value: Any) -> Any:
    if not isinstance(value, fx.Node):
        return value
    val = ir.value(value)
    return torch.full((), number(value), dtype=val.dtype)  # type: ignore[arg-type]


CONSTANTS: tuple[Pass, ...] = (fill_constants, fold_constants)
