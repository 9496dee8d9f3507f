"""When the mask of undefined cotangents is known before the forward runs, the forward saves less as well."""

from __future__ import annotations

from dataclasses import replace

from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.copying import copy_nodes
from tapeless.partition.split import Split
from tapeless.specialize.rewrite import specialize


def trim(parts: Split, defined: tuple[bool, ...]) -> Split | None:
    """`parts` for calls in which only the outputs `defined` get cotangents; None if all captures are needed still."""
    count = len(parts.cotangent_outputs)
    undefined = [k for k, output in enumerate(parts.cotangent_outputs) if not defined[output]]
    backward = specialize(parts.backward, count, undefined)
    captures = ir.inputs(backward)[count:]
    kept = [k for k, node in enumerate(captures) if node.users]
    if len(kept) == len(captures):
        return None
    for node in captures:
        if not node.users:
            backward.erase_node(node)
    return _with_captures(parts, backward, [parts.capture_keys[k] for k in kept])


def _with_captures(parts: Split, backward: fx.Graph, keys: list[tuple[str, int]]) -> Split:
    """The same forward, returning only the temporaries among `keys`."""
    results = ir.outputs(parts.forward)
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
    )
