"""What the backward derives again from less, rather than having it saved.

- A view: it keeps its whole storage alive, so saving its base is never dearer.
- What the user put under `checkpoint`, but for what comes out of it.
- A size made of other sizes: those are saved, and of second order the backward may make other sizes of them.
- A copy or a mask at least twice as large as what it is made of: a repeated key, a causal mask, a number widened. It is
  written faster than a larger value is read back, and nobody pays for keeping it.
- A sum, a product, SiLU, GELU, layer or group norm of a megabyte or more of what the backward has at hand anyway: one
  pass over memory, as long as what it saves is kept.

Where a plan has decided (`plan`), that holds instead: of second order the same forward is divided once more.

The other way round, a small view of a large value that nobody else keeps is saved as a copy: eager keeps all of it.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from tapeless import torch_internals
from tapeless.differentiate.reverse import Joint
from tapeless.ir import graph as ir
from tapeless.ir.cost import likely_bytes
from tapeless.ir.symbols import Symbolic
from tapeless.rules.registry import named_arguments

aten = torch.ops.aten

VIEWS = frozenset(
    getattr(getattr(aten, name), overload)
    for name, overload in [
        ("t", "default"), ("transpose", "int"), ("permute", "default"), ("view", "default"),
        ("_unsafe_view", "default"), ("expand", "default"), ("unsqueeze", "default"),
        ("squeeze", "dim"), ("squeeze", "dims"), ("squeeze", "default"),
        ("slice", "Tensor"), ("select", "int"), ("detach", "default"), ("alias", "default"), ("split", "Tensor"),
        ("split_with_sizes", "default"), ("unsafe_split", "Tensor"), ("unsafe_split_with_sizes", "default"),
        ("unbind", "int"), ("diagonal", "default"), ("view_as_real", "default"),
        ("view_as_complex", "default"), ("_conj", "default"), ("unfold", "default"), ("as_strided", "default"),
    ]
)  # fmt: skip

MOVES = frozenset([
    aten.clone, aten._to_copy, aten.repeat, aten.arange, aten.full, aten.zeros, aten.ones, aten.scalar_tensor,
    aten.where, aten.masked_fill, aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge, aten.logical_and,
    aten.logical_or, aten.logical_not, aten.bitwise_and, aten.bitwise_or, aten.bitwise_not,
])  # fmt: skip

ONE_PASS = frozenset([aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.silu.default, aten.gelu.default])

# Norms of rows or groups, which stay in the cache while they are read twice, and the positions of their offsets.
NORMS: dict[Any, int] = {aten.native_layer_norm.default: 3, aten.native_group_norm.default: 2}

LARGE = 2**20  # bytes from which a value is worth a pass over memory

GROWTH = 2  # how many times larger than its sources a value is that is made again


def rederived(joint: Joint) -> set[fx.Node]:
    """The forward values that the backward computes again if it needs them."""
    found: set[fx.Node] = set()
    sources: dict[fx.Node, int] = {}  # the bytes to keep in order to have the value
    for node in joint.graph.nodes:
        if node in joint.backward:
            continue
        sources[node] = size = likely_bytes(ir.value(node))
        if node.op == "placeholder":
            continue
        below = sum(sources[a] for a in node.all_input_nodes)
        grown = ir.again(node) is None and _moves(node, joint) and 0 < size >= GROWTH * below
        if is_free(node) or _is_checkpointed(node, joint) or _is_arithmetic(node) or ir.again(node) or grown:
            found.add(node)
            sources[node] = below
    return found


def made_at_hand(
    joint: Joint, again: Collection[fx.Node], kept: Sequence[fx.Node], overwritten: Collection[fx.Node]
) -> list[fx.Node]:
    """Those of the values that would be `kept` which are made of others that the backward has, in one pass."""
    returned = {node for node in joint.outputs if isinstance(node, fx.Node)}
    at_hand = set(kept).difference(overwritten)
    for node in joint.graph.nodes:
        if node in again and at_hand.issuperset(node.all_input_nodes):
            at_hand.add(node)
    large = (n for n in kept if ir.again(n) is None and n not in returned and likely_bytes(ir.value(n)) >= LARGE)
    offsets = set(joint.inputs).difference(overwritten)
    return [made for node in large for made in _one_pass(node, at_hand, offsets)]


def _one_pass(node: fx.Node, at_hand: Collection[fx.Node], offsets: Collection[fx.Node]) -> list[fx.Node]:
    """The calls that make `node` of values `at_hand`, if that is one pass. The offset of a norm may be any input."""
    if node.target in ONE_PASS:
        return [node] if all(a in at_hand for a in node.all_input_nodes) else []
    call = node.args[0] if node.target is operator.getitem and node.args[1] == 0 else None
    if not isinstance(call, fx.Node) or call.target not in NORMS:
        return []
    offset = call.args[NORMS[call.target]]
    found = all(a in at_hand or (a is offset and a in offsets) for a in call.all_input_nodes)
    return [call, node] if found else []


def is_free(node: fx.Node) -> bool:
    """Costs nothing to derive again: a view or a constant."""
    return is_view(node) if node.op == "call_function" else node.op == "get_attr"


def _is_arithmetic(node: fx.Node) -> bool:
    """Is it a number made of numbers alone?"""
    return _is_number(node) and bool(node.all_input_nodes) and all(_is_number(a) for a in node.all_input_nodes)


def _is_number(node: fx.Node) -> bool:
    """A size, or a step on the way to one, whose value nobody wrote down."""
    val = ir.value(node)
    return isinstance(val, Symbolic) or (val is None and bool(node.args) and all(map(_is_number, node.all_input_nodes)))


def is_view(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return is_view(node.args[0])  # type: ignore[arg-type]
    return node.target in VIEWS


def _moves(node: fx.Node, joint: Joint) -> bool:
    """Does the operator only move or compare? Not a cast with a derivative: cotangents add up in the wider type."""
    packet = getattr(node.target, "overloadpacket", None)
    return packet in MOVES and ir.is_tensor(node) and not (packet is aten._to_copy and node in joint.active)


def _is_checkpointed(node: fx.Node, joint: Joint) -> bool:
    """Did the user ask to recompute this value? Random ones are saved: recomputed they would differ. So is what comes
    out of a region, or else the next one would be computed from where the first began."""
    return is_marked(node) and not draws_numbers(node) and not _leaves_region(node, joint)


def _leaves_region(node: fx.Node, joint: Joint) -> bool:
    """Is the value, or a view of it, read in the forward by what is not under the same `checkpoint`?"""
    users = [user for user in node.users if user not in joint.backward]
    return any(_region(user) != _region(node) or (is_view(user) and _leaves_region(user, joint)) for user in users)


def _region(node: fx.Node) -> Any:
    """Of regions inside each other the outermost."""
    return is_marked(node) and node.meta.get("ac_graph_id")


def is_marked(node: fx.Node) -> bool:
    """Is the value one that was computed under `checkpoint`?"""
    mark = node.meta.get("recompute")
    return mark is not None and mark.name in ("MUST_RECOMPUTE", "PREFER_RECOMPUTE")


def draws_numbers(node: fx.Node) -> bool:
    """Does the call draw random numbers? Fused attention may, but does not without dropout."""
    source = node.args[0] if node.target is operator.getitem else node
    if not isinstance(source, fx.Node) or torch.Tag.nondeterministic_seeded not in getattr(source.target, "tags", ()):
        return False
    if not isinstance(source.target, OpOverload):
        return True
    return named_arguments(source.target, source.args, source.kwargs).get("dropout_p") != 0


def copy_small_views(joint: Joint, again: set[fx.Node], kept: Sequence[fx.Node]) -> bool:
    """Where a value would be `kept` for small views of it alone, go on with copies of these. Any found?"""
    returned = {node for node in (*joint.outputs, *joint.gradients) if isinstance(node, fx.Node)}
    found = [view for base in kept if base.op == "call_function" for view in _small_views(joint, again, base, returned)]
    for view in found:
        _go_on_with_copy(joint, view)
    return bool(found)


def _small_views(joint: Joint, again: set[fx.Node], base: fx.Node, returned: set[fx.Node]) -> list[fx.Node]:
    """The views of `base` that the backward reads, if `base` is kept for them alone and they are small."""
    found: list[fx.Node] = []
    stack = [base]
    while stack:
        node = stack.pop()
        users = list(node.users)
        if node in returned or any(user in again and not is_view(user) for user in users):
            return []
        if any(user in joint.backward for user in users):
            found.append(node)  # views of it will be views of its copy
        else:
            stack.extend(user for user in users if is_view(user))
    if base in found:
        return []
    size = sum(likely_bytes(ir.value(view)) for view in found)
    return found if GROWTH * size <= likely_bytes(ir.value(base)) else []


def _go_on_with_copy(joint: Joint, view: fx.Node) -> None:
    users = list(view.users)
    with joint.graph.inserting_after(view):
        copy = joint.graph.create_node("call_function", aten.clone.default, (view,), name=f"{view.name}_copy")
    copy.meta = dict(view.meta)
    with torch_internals.without_modes():
        ir.set_value(copy, ir.value(view).clone())
    for user in users:
        user.replace_input_with(view, copy)
