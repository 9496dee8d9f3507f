"""Joint graph → forward and backward, and what passes between them.

Everything the backward reads from the forward is saved, except what it derives again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import fx

from tapeless.differentiate.activity import active_nodes
from tapeless.differentiate.reverse import Joint
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_nodes
from tapeless.ir.narrow import narrow
from tapeless.partition.companions import Companions
from tapeless.partition.cross_entropy import join_cross_entropy
from tapeless.partition.dropout import write_out_dropouts
from tapeless.partition.rederive import copy_small_views, is_marked, made_at_hand, rederived
from tapeless.partition.shapes import read_less

aten = torch.ops.aten


@dataclass(frozen=True)
class Split:
    """Forward and backward as two graphs, and the lists that connect them (indices are positions).

    forward:   inputs → real outputs, then temporaries saved for the backward
    backward:  cotangents of `cotangent_outputs`, captured inputs, captured outputs → gradients of `gradient_inputs`
    """

    forward: fx.Graph
    backward: fx.Graph
    real_outputs: int
    cotangent_outputs: tuple[int, ...]
    captured_inputs: tuple[int, ...]
    captured_outputs: tuple[int, ...]
    gradient_inputs: tuple[int, ...]
    active_outputs: tuple[bool, ...]  # which outputs of the forward carry a derivative
    captures: tuple[fx.Node, ...]  # the captured values as inputs of the backward
    companions: tuple[tuple[int, ...], ...]  # for each capture, the captures without which it is not saved

    def with_captures(self) -> Split:
        """The same with `captures` filled in: they are inputs of the backward."""
        return replace(self, captures=tuple(ir.inputs(self.backward)[len(self.cotangent_outputs) :]))

    def with_companions(self, kept: Iterable[int]) -> list[int]:
        """The captures `kept` and those that have to be saved along with them, in order."""
        return sorted({j for k in kept for j in (k, *self.companions[k])})

    @property
    def capture_keys(self) -> list[tuple[str, int]]:
        """Each capture, told apart: the input or the output of the forward that it is."""
        return [*(("input", i) for i in self.captured_inputs), *(("output", i) for i in self.captured_outputs)]

    @property
    def temporaries(self) -> list[fx.Node]:
        """Those captures that are kept in memory for the backward alone."""
        from_outputs = self.captures[len(self.captured_inputs) :]
        return [n for n, i in zip(from_outputs, self.captured_outputs, strict=True) if i >= self.real_outputs]


def split(joint: Joint, mutated: Sequence[int] = ()) -> Split:
    """Cut the joint graph where the forward ends, so that the step is fast."""
    again = derived_again(joint, mutated)
    for node in again_of_fast(joint, again, mutated):
        ir.set_again(node, True)  # of second order, too
        again.add(node)
        _copy_offset(joint, node)
    return divide(joint, again)


def again_of_fast(joint: Joint, again: Collection[fx.Node], mutated: Sequence[int]) -> list[fx.Node]:
    """What the backward of a fast step computes beside what it derives `again` in any case."""
    return made_at_hand(joint, again, needed(joint, again)[1], {joint.inputs[i] for i in mutated})


def derived_again(joint: Joint, mutated: Sequence[int] = ()) -> set[fx.Node]:
    """What the backward computes again in any case. Inputs that are `mutated` after the call are saved as copies."""
    join_cross_entropy(joint)
    write_out_dropouts(joint, is_marked)
    read_less(joint)
    again = rederived(joint)
    _copy_mutated(joint, mutated, again)
    copy_small_views(joint, again, needed(joint, again)[1])
    return again


Related = Callable[[fx.Node], list[fx.Node]]


def related(joint: Joint) -> Related:
    """The companions of each value, found once: they do not depend on what is saved."""
    return cache(Companions(joint.active, joint.backward, joint.reached).of)


def divide(joint: Joint, again: Collection[fx.Node], relations: Related | None = None) -> Split:
    """The joint graph in two: the backward computes `again` what it needs of that, and reads the rest."""
    backward, captures = needed(joint, again)
    captures, together = _with_companions(joint, captures, again, relations or related(joint))
    known = {node: i for i, node in reversed(list(enumerate(joint.outputs))) if isinstance(node, fx.Node)}
    position = {node: i for i, node in enumerate(joint.inputs)}
    temporaries = [node for node in captures if node not in known and node not in position]
    results = [*joint.outputs, *temporaries]
    index = {node: i for i, node in reversed(list(enumerate(results))) if isinstance(node, fx.Node)}
    from_inputs = [node for node in captures if node in position]
    from_outputs = [node for node in captures if node not in position]
    cotangents = [i for i, g in enumerate(joint.cotangents) if g is not None]
    wanted = [i for i, g in enumerate(joint.gradients) if g is not None]
    active = active_nodes(joint.graph, [node for node in joint.inputs if node in joint.active])  # copies, too
    saved = {node: k for k, node in enumerate([*from_inputs, *from_outputs])}
    arguments = [*(joint.cotangents[i] for i in cotangents), *saved]
    reverse = copy_nodes([n for n in backward if n in joint.backward], arguments, [joint.gradients[i] for i in wanted])
    return Split(
        forward=copy_nodes([n for n in joint.graph.nodes if n not in joint.backward], joint.inputs, results),
        backward=narrow(reverse),
        real_outputs=len(joint.outputs),
        cotangent_outputs=tuple(cotangents),
        captured_inputs=tuple(position[node] for node in from_inputs),
        captured_outputs=tuple(index[node] for node in from_outputs),
        gradient_inputs=tuple(wanted),
        active_outputs=tuple(isinstance(node, fx.Node) and node in active for node in results),
        captures=tuple(ir.inputs(reverse)[len(cotangents) :]),
        companions=tuple(tuple(saved[other] for other in together[node]) for node in saved),
    )


def _copy_mutated(joint: Joint, mutated: Sequence[int], again: set[fx.Node]) -> None:
    """The backward reads an input that the program overwrites: let it read a copy made before."""
    for node in (joint.inputs[i] for i in mutated):
        readers = [user for user in node.users if user in joint.backward or user in again]
        if readers:
            read_copy(joint, node, readers)


def _copy_offset(joint: Joint, node: fx.Node) -> None:
    """The offset of a group norm may be changed before a backward, which reads it in no other way, in eager either."""
    offset = node.args[2] if node.target is aten.native_group_norm.default else None
    if isinstance(offset, fx.Node) and offset in joint.inputs:
        read_copy(joint, offset, [node])


def read_copy(joint: Joint, node: fx.Node, readers: Iterable[fx.Node]) -> None:
    """Let the `readers` of an input read a copy, made before anything else happens."""
    last = [*joint.inputs, *(g for g in joint.cotangents if g is not None)][-1]
    with joint.graph.inserting_after(last):
        copy = joint.graph.call_function(aten.clone.default, (node,))
    copy.meta = dict(node.meta)
    for reader in readers:
        reader.replace_input_with(node, copy)


def needed(joint: Joint, again: Collection[fx.Node]) -> tuple[list[fx.Node], list[fx.Node]]:
    """What the backward consists of, and what it reads of the forward."""
    backward = _backward_nodes(joint, again)
    return backward, _captures(joint, backward)


def _backward_nodes(joint: Joint, again: Collection[fx.Node]) -> list[fx.Node]:
    """What the gradients need, in order: live nodes of the reverse part and forward nodes that are derived again."""
    needed: set[fx.Node] = set()
    stack = [g for g in joint.gradients if g is not None]
    while stack:
        node = stack.pop()
        if node in needed or not (node in joint.backward or node in again):
            continue
        needed.add(node)
        stack.extend(node.all_input_nodes)
    return [node for node in joint.graph.nodes if node in needed]


def _captures(joint: Joint, backward: list[fx.Node]) -> list[fx.Node]:
    """Forward values that the backward reads, in program order."""
    inside = set(backward)
    read = {a for node in backward for a in node.all_input_nodes if a not in inside}
    read |= {g for g in joint.gradients if g is not None and g not in inside}
    read -= set(joint.cotangents)
    return _in_order(joint, read)


def _in_order(joint: Joint, nodes: set[fx.Node]) -> list[fx.Node]:
    return [node for node in joint.graph.nodes if node in nodes]


def _with_companions(
    joint: Joint, captures: list[fx.Node], again: Collection[fx.Node], relations: Related
) -> tuple[list[fx.Node], dict[fx.Node, list[fx.Node]]]:
    """Captures and what is to be saved along with each, in program order."""
    together: dict[fx.Node, list[fx.Node]] = {}
    waiting = list(captures)
    while waiting:
        node = waiting.pop()
        if node not in together:
            together[node] = _sources(relations(node), again)
            waiting.extend(together[node])
    return _in_order(joint, set(together)), together


def _sources(nodes: list[fx.Node], again: Collection[fx.Node]) -> list[fx.Node]:
    """What has to be saved in order to have `nodes`."""
    found: dict[fx.Node, None] = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node in again:
            stack.extend(node.all_input_nodes)
        else:
            found[node] = None
    return list(found)
