"""Taking a value apart and putting it together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare.boxes import Box, Joined, box_of, join
from tapeless.prepare.calls import arguments, operator_name
from tapeless.prepare.editor import Editor, Site
from tapeless.prepare.facts import is_symbolic, same_type
from tapeless.prepare.passes import Pass, Phase, rewrite, sweep
from tapeless.prepare.pattern import anything, op, tensors

(x,) = tensors("x")
parts, dim, a = anything("parts dim a")

Tensor = torch.Tensor
SPLITS = ("split", "split_with_sizes")


@rewrite(op.cat([x], dim))
def drop_single_cat(x: Tensor, out: Tensor) -> Any:
    """cat([x]) = x."""
    return x if same_type(x, out) else None


@rewrite(op.stack([x], dim))
def stack_to_unsqueeze(x: Tensor, dim: int) -> Any:
    """stack([x], dim) = x.unsqueeze(dim)."""
    return x.unsqueeze(dim)


@rewrite(op.getitem(op.split(x, a, dim), 0), op.getitem(op.split_with_sizes(x, a, dim), 0))
def drop_single_split(x: Tensor, out: Tensor) -> Any:
    """A split into one piece is its input."""
    return x if same_type(x, out) else None


@rewrite(op.cat(parts, dim))
def merge_cats(parts: list[Tensor], dim: int, out: Tensor, site: Site) -> Any:
    """cat([cat([a, b]), c]) = cat([a, b, c]) along one dimension."""
    given: Any = site.node.args[0]
    inner = [node for node in given if operator_name(node) == "cat" and _cat_dim(node) == dim % out.dim()]
    if not inner or not all(_joins(node, out) for node in (*inner, site.node)) or not site.reach(inner):
        return None
    flat = [leaf for node in given for leaf in (node.args[0] if node in inner else [node])]
    return torch.cat(site.value(flat), dim)


@rewrite(op.cat(parts, dim), op.stack(parts, dim))
def join_pieces(parts: list[Tensor], dim: int, out: Tensor, site: Site) -> Any:
    """Pieces that lie side by side in one value, put together: that part of it, without taking it apart."""
    given: Any = site.node.args[0]
    if any(is_symbolic(node) or not same_dtype(node, out) for node in given):
        return None
    dim, stacked = dim % out.dim(), operator_name(site.node) == "stack"
    boxes = [_unsqueezed(box_of(node), dim) if stacked else box_of(node) for node in given]
    if any(len(box.axes) != out.dim() for box in boxes):
        return None
    groups = list(_groups(boxes, dim))
    if len(groups) == len(boxes) or not site.reach([n for group in groups for n in _through(group)]):
        return None
    built = [_built(group, site) for group in groups]
    return built[0] if len(built) == 1 else torch.cat(built, dim)


@rewrite(op.cat(parts, dim), op.stack(parts, dim))
def join_chunks(parts: list[Tensor], dim: int, out: Tensor, site: Site) -> Any:
    """Equal chunks side by side, perhaps each reshaped alike, put together: one reshape, the chunk axis moved."""
    given: Any = site.node.args[0]
    views = [node for node in given if operator_name(node) in ("view", "_unsafe_view")]
    items = [view.args[0] for view in views] or given
    call = _taken_apart(items)
    shapes = {tuple(ir.value(node).shape) for node in given}
    if call is None or len(views) not in (0, len(given)) or len(shapes) != 1:
        return None
    if not site.reach([*views, *items, call]):
        return None
    chunks = _chunks(site.value(arguments(call)["self"]), items).reshape(len(items), *shapes.pop())
    dim = dim % out.dim()
    together = chunks.movedim(0, dim)
    return together if operator_name(site.node) == "stack" else together.flatten(dim, dim + 1)


@sweep(phase=Phase.SIMPLIFY)
def merge_splits(editor: Editor) -> None:
    """A split whose pieces are split again along the same dimension: one split."""
    for outer in _splits(editor.graph):
        if not outer._erased and not is_symbolic(outer):
            _merge_split(editor, outer)


def _merge_split(editor: Editor, outer: fx.Node) -> None:
    dim = arguments(outer)["dim"] % ir.value(outer)[0].dim()
    items = {item.args[1]: item for item in outer.users}
    again = {i: user for i, item in items.items() if (user := _only_split(item, dim)) is not None}
    if not again or len(items) != len(outer.users):
        return
    sizes, roots, positions = [], [], []
    for i, piece in enumerate(ir.value(outer)):
        if i in again:
            roots += [(item, len(sizes) + _index(item)) for item in again[i].users]
            sizes += [part.shape[dim] for part in ir.value(again[i])]
        else:
            roots += [(items[i], len(sizes))] if i in items else []
            sizes.append(piece.shape[dim])
    positions = [position for _, position in roots]
    through = [outer, *again.values(), *(items[i] for i in again)]

    def build() -> list[Tensor]:
        found = editor.value(arguments(outer)["self"]).split(sizes, dim)
        return [found[position] for position in positions]

    if len(set(positions)) == len(positions) and roots:
        editor.replace_all([root for root, _ in roots], through, build)


@sweep(phase=Phase.SIMPLIFY)
def split_to_unbind(editor: Editor) -> None:
    """Pieces of size 1 that all lose that dimension: unbind."""
    for call in _splits(editor.graph):
        given = arguments(call)
        dim = given["dim"] % ir.value(call)[0].dim()
        items = list(call.users)
        squeezes = [user for item in items for user in item.users]
        if is_symbolic(call) or any(part.shape[dim] != 1 for part in ir.value(call)) or not squeezes:
            continue
        if any(operator_name(s) != "squeeze" or _squeezed(s) != [dim] for s in squeezes):
            continue

        def build(call: fx.Node = call, dim: int = dim, squeezes: list[Any] = squeezes) -> list[Tensor]:
            found = editor.value(arguments(call)["self"]).unbind(dim)
            return [found[s.args[0].args[1]] for s in squeezes]

        editor.replace_all(squeezes, [call, *items], build)


def same_dtype(node: fx.Node, out: Tensor) -> bool:
    return ir.value(node).dtype == out.dtype


def _joins(node: fx.Node, out: Tensor) -> bool:
    """A cat of equal types and ranks: no promotion, no empty operand of the old kind."""
    given: Any = node.args[0]
    return all(same_dtype(leaf, out) and ir.value(leaf).dim() == out.dim() for leaf in given)


def _cat_dim(node: fx.Node) -> int:
    return arguments(node)["dim"] % ir.value(node).dim()


def _unsqueezed(box: Box, dim: int) -> Box:
    return replace(box, axes=(*box.axes[:dim], None, *box.axes[dim:]))


def _taken_apart(items: Sequence[Any]) -> fx.Node | None:
    """The split whose results, of equal size, these are, several and in this order."""
    call = items[0].args[0] if operator_name(items[0]) == "getitem" and len(items) > 1 else None
    if call is None or operator_name(call) not in SPLITS or len({tuple(part.shape) for part in ir.value(call)}) != 1:
        return None
    first = _index(items[0])
    return call if all(item.args == (call, first + i) for i, item in enumerate(items)) else None


def _chunks(whole: Tensor, items: Sequence[fx.Node]) -> Tensor:
    """Equal pieces of a value that lie side by side, one per row."""
    call: Any = items[0].args[0]
    dim = arguments(call)["dim"] % whole.dim()
    size, count = ir.value(items[0]).shape[dim], len(items)
    if whole.shape[dim] != count * size:
        whole = whole.narrow(dim, _index(items[0]) * size, count * size)
    return whole.unflatten(dim, (count, size)).movedim(dim, 0)


def _groups(boxes: Sequence[Box], dim: int) -> Iterator[Joined | Box]:
    """Neighbours that join, joined; greedily from the left."""
    run = [boxes[0]]
    for box in boxes[1:]:
        if join([*run, box], dim) is None:
            yield _group(run, dim)
            run = []
        run.append(box)
    yield _group(run, dim)


def _group(run: list[Box], dim: int) -> Joined | Box:
    found = join(run, dim) if len(run) > 1 else None
    return run[0] if found is None else found


def _through(group: Joined | Box) -> tuple[fx.Node, ...]:
    return group.box.through if isinstance(group, Joined) else ()


def _built(group: Joined | Box, site: Site) -> Tensor:
    if isinstance(group, Joined):
        return group.build(site.value(group.box.source))
    return group.build(site.value(group.source))


def _splits(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in ir.calls(graph) if operator_name(node) in SPLITS]


def _only_split(item: fx.Node, dim: int) -> fx.Node | None:
    """The split along `dim` that alone reads a piece."""
    user = next(iter(item.users)) if len(item.users) == 1 else None
    if operator_name(user) not in SPLITS or user is None:
        return None
    return user if arguments(user)["dim"] % ir.value(item).dim() == dim else None


def _index(item: fx.Node) -> int:
    """Which result of a call this is."""
    index: Any = item.args[1]
    return index


def _squeezed(node: fx.Node) -> list[int]:
    given = arguments(node)
    sizes, dims = ir.value(given["self"]).shape, given.get("dim")
    rank = len(sizes)
    if dims is None:
        return [d for d in range(rank) if sizes[d] == 1]
    return sorted({d % rank for d in (dims if not isinstance(dims, int) else [dims])})


PIECES: tuple[Pass, ...] = (
    drop_single_cat,
    stack_to_unsqueeze,
    drop_single_split,
    merge_cats,
    merge_splits,
    split_to_unbind,
    join_pieces,
    join_chunks,
)
