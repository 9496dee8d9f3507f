"""Weights packed once, in the order that kernels read them, where no derivative is asked and they are kept.

See docs/decisions/0022-kept-weights.md for what it gains. Kernels with the activation built in are not used: their
relu makes 0 of NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir import kernels
from tapeless.prepare.calls import arguments, operator_name
from tapeless.prepare.channels import return_in_order
from tapeless.prepare.editor import Editor
from tapeless.prepare.passes import Pass, Phase, Safety, sweep
from tapeless.torch_internals import can_pack

Tensor = torch.Tensor

# Of one product: see docs/decisions/0022-kept-weights.md.
LARGE = 150_000  # weights, which packed kernels read faster even for a few rows
SOME = 500_000  # multiplications with so many weights that take longer than the longer call of a packed kernel
MANY = 4_000_000  # multiplications with fewer that do
WIDE = 3  # outputs for one input, from which on one row is multiplied faster with the weights of an input side by side


@sweep(phase=Phase.KERNEL, safety=Safety.INFERENCE, always=True, relayout=True)
def pack_convolutions(editor: Editor) -> None:
    """Convolutions read weights that were packed beforehand."""
    found = [node for node in ir.calls(editor.graph) if operator_name(node) == "convolution" and _suits(editor, node)]
    return_in_order(editor, found)
    for node in found:
        if not node._erased:
            editor.replace(node, [node], lambda node=node: _convolved(editor, arguments(node)))


def _suits(editor: Editor, node: fx.Node) -> bool:
    given = arguments(node)
    image, weight = ir.value(given["input"]), ir.value(given["weight"])
    plain = image.dim() == 4 and not given["transposed"] and 0 not in (*image.shape, *weight.shape)
    return plain and can_pack(image) and can_pack(weight) and editor.is_fixed(given["weight"], given["bias"])


def _convolved(editor: Editor, given: dict[str, Any]) -> Tensor:
    x, weight, bias = (editor.value(given[name]) for name in ("input", "weight", "bias"))
    window = [given[name] for name in ("stride", "padding", "dilation", "groups")]
    packed = kernels.ops.pack_filters(weight, *window, list(x.shape))
    return kernels.ops.convolve_packed(x, packed, _packed(bias), *window)


def _packed(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else kernels.ops.pack_bias(bias)


@sweep(phase=Phase.KERNEL, safety=Safety.INFERENCE, always=True)
def pack_linears(editor: Editor) -> None:
    """Products with a weight matrix read one that was packed, or transposed for one row, where that is faster."""
    for node in ir.calls(editor.graph):
        given = _linear(node)
        if given is None or not editor.is_fixed(*given[1:]):
            continue
        x, matrix = map(ir.value, given[:2])
        if _is_wide(x, matrix):
            editor.replace(node, [node], lambda given=given: _multiplied_by_rows(*map(editor.value, given)))
        elif editor.forced or _pays(x, matrix):
            editor.replace(node, [node], lambda given=given: _multiplied(*map(editor.value, given)))


def _linear(node: fx.Node) -> tuple[Any, Any, Any] | None:
    """The rows, the matrix and the bias of a product that a packed kernel can take."""
    name, given = operator_name(node), arguments(node)
    if name == "mm":
        found = given["self"], given["mat2"], None
    elif name == "addmm" and (given["beta"], given["alpha"]) == (1, 1):
        found = given["mat1"], given["mat2"], given["self"]
    else:
        return None
    x, matrix = ir.value(found[0]), ir.value(found[1])
    bias = None if found[2] is None else ir.value(found[2])
    fits = bias is None or (bias.shape == matrix.shape[1:] and can_pack(bias))
    return found if fits and can_pack(x) and can_pack(matrix) and 0 not in (*x.shape, *matrix.shape) else None


def _is_wide(x: Tensor, matrix: Tensor) -> bool:
    inputs, outputs = matrix.shape
    return x.shape[0] == 1 and outputs >= WIDE * inputs and matrix.numel() >= LARGE


def _multiplied_by_rows(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor | None:
    if matrix.is_contiguous():
        return None
    rows = matrix.clone(memory_format=torch.contiguous_format)
    return torch.mm(x, rows) if bias is None else torch.addmm(bias, x, rows)


def _pays(x: Tensor, matrix: Tensor) -> bool:
    rows, weights = x.shape[0], matrix.numel()
    return rows > 1 and rows * weights >= (SOME if weights >= LARGE else MANY)


def _multiplied(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    return kernels.ops.multiply_packed(x, kernels.ops.pack_matrix(matrix.t(), x.shape[0]), _packed(bias))


PACKING: Sequence[Pass] = (pack_convolutions, pack_linears)
