"""Pieces of a value, by exact index maps.

`split`, `unbind`, `select`, `slice`, `squeeze`, `unsqueeze` and `permute` all give a box of some value: an interval in
each of its dimensions, and an order in which these become the dimensions of the piece. Where boxes lie side by side,
putting them together is again a box; nothing is ever guessed about axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare.calls import arguments, operator_name
from tapeless.prepare.views import TRANSPOSES, axes, permuted


@dataclass(frozen=True)
class Box:
    """Part of `source`: per dimension of it where the part begins and how long it is, then how it is laid out."""

    source: fx.Node
    begin: tuple[int, ...]
    size: tuple[int, ...]
    axes: tuple[int | None, ...]  # per dimension of the piece: which of the source, or a new one of size 1
    through: tuple[fx.Node, ...] = ()  # the calls that made it

    def build(self, source: torch.Tensor) -> torch.Tensor:
        """The piece, made of at most one slice per dimension, a permutation and a reshape."""
        for dim, (begin, size) in enumerate(zip(self.begin, self.size, strict=True)):
            if size != source.shape[dim]:
                source = source.narrow(dim, begin, size)
        kept = [axis for axis in self.axes if axis is not None]
        gone = [dim for dim in range(source.dim()) if dim not in kept]
        moved = permuted(source, kept + gone)
        shape = [1 if axis is None else self.size[axis] for axis in self.axes]
        return moved if list(moved.shape) == shape else moved.reshape(shape)


def box_of(node: fx.Node) -> Box:
    """The largest chain of piece-taking calls that ends in `node`, as one box."""
    inner = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(inner, fx.Node):
        return _whole(node)
    name = operator_name(node)
    if name == "getitem":
        return _element(node, inner)
    taken = _TAKE.get(name)
    outer = taken(box_of(inner), node, arguments(node)) if taken is not None else None
    return _whole(node) if outer is None else replace(outer, through=(*outer.through, node))


def _whole(node: fx.Node) -> Box:
    sizes = tuple(ir.value(node).shape)
    return Box(node, (0,) * len(sizes), sizes, tuple(range(len(sizes))))


def _element(node: fx.Node, call: fx.Node) -> Box:
    """One result of a `split` or an `unbind`."""
    index: Any = node.args[1]
    name, given = operator_name(call), arguments(call)
    if name not in ("split", "split_with_sizes", "unbind") or not isinstance(given["self"], fx.Node):
        return _whole(node)
    box = box_of(given["self"])
    dim = given["dim"] % len(box.axes)
    sizes = [part.shape[dim] for part in ir.value(call)] if name != "unbind" else None
    if sizes is None:
        found = _select(box, dim, index)
    else:
        found = _interval(box, dim, sum(sizes[:index]), sizes[index])
    return _whole(node) if found is None else replace(found, through=(*found.through, call, node))


def _interval(box: Box, dim: int, begin: int, size: int) -> Box | None:
    axis = box.axes[dim]
    if axis is None:
        return box if size == 1 else None
    return replace(
        box,
        begin=_with(box.begin, axis, box.begin[axis] + begin),
        size=_with(box.size, axis, size),
    )


def _select(box: Box, dim: int, index: int) -> Box | None:
    part = _interval(box, dim, index, 1)
    return None if part is None else replace(part, axes=(*box.axes[:dim], *box.axes[dim + 1 :]))


def _take_slice(box: Box, node: fx.Node, given: dict[str, Any]) -> Box | None:
    rank = len(box.axes)
    dim = given["dim"] % rank
    before = ir.value(given["self"]).shape[dim]
    if given["step"] != 1:
        return None
    begin, end, _ = slice(given["start"], given["end"]).indices(before)
    return _interval(box, dim, begin, max(end - begin, 0))


def _take_select(box: Box, node: fx.Node, given: dict[str, Any]) -> Box | None:
    dim = given["dim"] % len(box.axes)
    return _select(box, dim, given["index"] % ir.value(given["self"]).shape[dim])


def _take_squeeze(box: Box, node: fx.Node, given: dict[str, Any]) -> Box:
    sizes = ir.value(given["self"]).shape
    dims = given.get("dim", range(len(sizes)))
    asked = {d % len(sizes) for d in (dims if not isinstance(dims, int) else [dims])} if len(sizes) else set()
    kept = [axis for d, axis in enumerate(box.axes) if d not in asked or sizes[d] != 1]
    return replace(box, axes=tuple(kept))


def _take_unsqueeze(box: Box, node: fx.Node, given: dict[str, Any]) -> Box:
    dim = given["dim"] % (len(box.axes) + 1)
    return replace(box, axes=(*box.axes[:dim], None, *box.axes[dim:]))


def _take_permuted(box: Box, node: fx.Node, given: dict[str, Any]) -> Box:
    return replace(box, axes=tuple(box.axes[i] for i in axes(node)))


_TAKE: dict[str, Any] = {
    "slice": _take_slice,
    "select": _take_select,
    "squeeze": _take_squeeze,
    "unsqueeze": _take_unsqueeze,
    **dict.fromkeys(TRANSPOSES, _take_permuted),
}


@dataclass(frozen=True)
class Joined:
    """Boxes put side by side: a box, of which two dimensions may become one."""

    box: Box
    flatten: int | None = None

    def build(self, source: torch.Tensor) -> torch.Tensor:
        whole = self.box.build(source)
        return whole if self.flatten is None else whole.flatten(self.flatten, self.flatten + 1)


def join(boxes: Sequence[Box], dim: int) -> Joined | None:
    """What `cat(boxes, dim)` is, if that is again a piece of their source."""
    first = boxes[0]
    if any((box.source, box.axes) != (first.source, first.axes) for box in boxes):
        return None
    apart = [k for k in range(len(first.begin)) if len({(box.begin[k], box.size[k]) for box in boxes}) > 1]
    if len(apart) != 1 or not _consecutive([(box.begin[apart[0]], box.size[apart[0]]) for box in boxes]):
        return None
    axis = apart[0]
    through = tuple(dict.fromkeys(node for box in boxes for node in box.through))
    whole = replace(first, size=_with(first.size, axis, sum(box.size[axis] for box in boxes)), through=through)
    if first.axes[dim] == axis:
        return Joined(whole)
    if first.axes[dim] is None:  # the dimension that was taken away, or left at size 1, comes back here
        rest = tuple(None if a == axis else a for a in first.axes)
        return Joined(replace(whole, axes=_with(rest, dim, axis))) if _single(boxes, axis) else None
    if axis in first.axes:
        return None
    return Joined(replace(whole, axes=(*first.axes[:dim], axis, *first.axes[dim:])), flatten=dim)


def _single(boxes: Sequence[Box], axis: int) -> bool:
    return all(box.size[axis] == 1 for box in boxes)


def _consecutive(intervals: Sequence[tuple[int, int]]) -> bool:
    return all(a + n == b for (a, n), (b, _) in zip(intervals, intervals[1:]))


def _with(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])
