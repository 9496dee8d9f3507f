"""The order of images in memory, where no derivative is asked.

Kernels of convolutions have an order of their own and bring images into it and back at every call. With the channels of
a pixel side by side they need not. What the program returns keeps the order that eager gives it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from tapeless.ir import cost
from tapeless.ir import graph as ir
from tapeless.prepare import facts
from tapeless.prepare.calls import arguments, operator_name
from tapeless.prepare.editor import Editor
from tapeless.prepare.layout import relaid
from tapeless.prepare.passes import Pass, Phase, Safety, sweep

Tensor = torch.Tensor

OUTWEIGH = 1.5  # bytes of images for one of weights, which are reordered too: docs/decisions/0020-inference.md


@sweep(phase=Phase.ALGEBRA, safety=Safety.INFERENCE, always=True, relayout=True)
def convolve_channels_last(editor: Editor) -> None:
    """Convolutions read and write images with their channels last, where those outweigh the weights."""
    found = [node for node in ir.calls(editor.graph) if operator_name(node) == "convolution"]
    if not all(map(_suits, found)) or all(map(_reads_channels_last, found)):
        return
    if not editor.forced and not _images_outweigh(found):
        return
    return_in_order(editor, found)
    for node in found:
        if not node._erased and not _reads_channels_last(node):
            _convert_input(editor, node)


def return_in_order(editor: Editor, convolutions: Sequence[fx.Node]) -> None:
    """What the program returns of images behind `convolutions` is copied, so that these may be in any order."""
    for node in list(_returned_images(convolutions)) if convolutions else ():
        _return_a_copy(editor, node)


def _suits(node: fx.Node) -> bool:
    """A kernel of oneDNN will take it."""
    given = arguments(node)
    val, weight = ir.value(given["input"]), ir.value(given["weight"])
    plain = val.dtype is weight.dtype is torch.float32 and val.device.type == "cpu" and val.dim() == 4
    return plain and not given["transposed"] and torch.backends.mkldnn.is_available()


def _images_outweigh(convolutions: Sequence[fx.Node]) -> bool:
    images = sum(cost.likely_bytes(ir.value(node)) for node in convolutions)
    weights = sum(cost.likely_bytes(ir.value(arguments(node)["weight"])) for node in convolutions)
    return images >= OUTWEIGH * weights


def _reads_channels_last(node: fx.Node) -> bool:
    return ir.value(arguments(node)["input"]).is_contiguous(memory_format=torch.channels_last)


def _returned_images(convolutions: Sequence[fx.Node]) -> Iterator[fx.Node]:
    """Values behind a convolution that the program returns as they are."""
    seen = set(convolutions)
    for node in ir.calls(convolutions[0].graph):
        if node in seen or any(a in seen for a in node.all_input_nodes):
            seen.add(node)
            if any(user.op == "output" for user in node.users) and _is_made_here(node):
                yield node


def _is_made_here(node: fx.Node) -> bool:
    return ir.is_tensor(node) and not facts.is_view(node) and operator_name(node) not in ("clone", "")


def _return_a_copy(editor: Editor, node: fx.Node) -> None:
    """The returned value is written out in the order it had; a copy that nothing needed is dropped again later."""

    def build() -> Tensor | None:
        args, kwargs = editor.value(node.args), editor.value(node.kwargs)
        plain = ir.value(node).dim() == 4 and ir.value(node).is_contiguous()
        return node.target(*args, **kwargs).clone(memory_format=torch.contiguous_format) if plain else None  # type: ignore[operator]

    editor.replace(node, [node], build)


def _convert_input(editor: Editor, node: fx.Node) -> None:
    def build() -> Tensor | None:
        given: dict[str, Any] = {**arguments(node)}
        image = editor.value(given.pop("input")).contiguous(memory_format=torch.channels_last)
        made = torch.ops.aten.convolution(image, *map(editor.value, given.values()))
        return None if relaid({node: made}) is None else made

    editor.replace(node, [node], build)


CHANNELS: tuple[Pass, ...] = (convolve_channels_last,)
