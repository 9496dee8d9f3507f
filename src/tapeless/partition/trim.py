"""When the mask of undefined cotangents is known before the forward runs, the forward saves less as well."""

from __future__ import annotations

from dataclasses import replace

from torch import fx

from tapeless.differentiate.activity import active_nodes
from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_nodes
from tapeless.partition.split import Split
from tapeless.specialize.rewrite import without_undefined


def trim(parts: Split, defined: tuple[bool, ...]) -> Split | None:
    """`parts` for calls in which only the outputs `defined` get cotangents; None if all captures are needed still."""
    count = len(parts.cotangent_outputs)
    undefined = [k for k, output in enumerate(parts.cotangent_outputs) if not defined[output]]
    if not undefined:  # the others, such as statistics, never get one
        return None
    backward = without_undefined(parts.backward, range(count), undefined)
    kept = _drop_captures(parts, backward)
    if len(kept) == len(parts.captures):
        return None
    return _with_captures(parts, backward, kept)


def restrict(parts: Split, wrt: tuple[bool, ...]) -> Split:
    """`parts` giving only the gradients of the inputs `wrt`, and saving only what those need."""
    unwanted = [k for k, i in enumerate(parts.gradient_inputs) if not wrt[i]]
    if not unwanted:
        return parts
    count = len(parts.cotangent_outputs)
    backward = without_undefined(parts.backward, range(count), (), unwanted, settle=False)
    results = [r for k, r in enumerate(ir.outputs(backward)) if k not in unwanted]
    backward.output_node().args = (results,)
    fewer = _with_captures(parts, backward, _drop_captures(parts, backward))
    active = active_nodes(fewer.forward, [n for n, w in zip(ir.inputs(fewer.forward), wrt, strict=True) if w])
    return replace(
        fewer,
        gradient_inputs=tuple(i for i in parts.gradient_inputs if wrt[i]),
        active_outputs=tuple(node in active for node in ir.outputs(fewer.forward)),
    )


def _drop_captures(parts: Split, backward: fx.Graph) -> list[int]:
    """Remove from `backward` the captures that nobody needs any more; those that stay."""
    captures = ir.inputs(backward)[len(parts.cotangent_outputs) :]
    kept = parts.with_companions(k for k, node in enumerate(captures) if node.users)
    for k, node in enumerate(captures):
        if k not in kept:
            backward.erase_node(node)
    return kept


def _with_captures(parts: Split, backward: fx.Graph, kept: list[int]) -> Split:
    """The same forward, returning only the temporaries among the captures `kept`."""
    results, keys = ir.outputs(parts.forward), [parts.capture_keys[k] for k in kept]
    outputs = [i for kind, i in keys if kind == "output"]
    temporaries = sorted(i for i in outputs if i >= parts.real_outputs)
    returned = [*range(parts.real_outputs), *temporaries]
    position = {old: new for new, old in enumerate(returned)}
    return replace(
        parts,
        forward=copy_nodes(ir.calls(parts.forward), ir.inputs(parts.forward), [results[i] for i in returned]),
        backward=backward,
        captured_inputs=tuple(i for kind, i in keys if kind == "input"),
        captured_outputs=tuple(position[i] for i in outputs),
        active_outputs=tuple(parts.active_outputs[i] for i in returned),
        captures=tuple(ir.inputs(backward)[len(parts.cotangent_outputs) :]),
        companions=tuple(tuple(kept.index(j) for j in parts.companions[k]) for k in kept),
    )
