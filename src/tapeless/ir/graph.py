"""The vocabulary: a typed view of `torch.fx` graphs.

A graph is a functional ATen program. Placeholders are its inputs, the output node holds a flat list. What a node's
value looks like stands in `node.meta["val"]` (a fake tensor, a symbolic integer, or a tuple of those), where the user
wrote it in `node.meta["stack_trace"]`, which `grad_of` region it belongs to in `node.meta["region"]`, whose
cotangents it adds up in `node.meta["total_of"]`, the runtime test it stands under in `node.meta["guard"]`, which pass
made it from what in `node.meta["origin"]`, and whether a plan has the backward compute it again in
`node.meta["again"]`: these keys are read and written here only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tapeless.errors import Where


@dataclass(frozen=True, eq=False)
class Region:
    """`grad_of`: one forward operator's backward. Linear in its cotangents: all undefined in ⇒ all undefined out."""

    forward: str  # name of the forward value
    op: str
    where: Where
    linear: bool = True  # a custom backward is linear only if declared so


@dataclass(frozen=True)
class Origin:
    """Where a value that capture did not write comes from."""

    rule: str  # the pass that wrote it
    sources: tuple[str, ...]  # the values that it replaced


def inputs(graph: fx.Graph) -> list[fx.Node]:
    return list(graph.find_nodes(op="placeholder"))


def outputs(graph: fx.Graph) -> list[Any]:
    """The flat list that the graph returns: nodes, None or plain numbers."""
    return list(graph.output_node().args[0])  # type: ignore[arg-type]


def calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op in ("call_function", "get_attr")]


def value(node: fx.Node) -> Any:
    return node.meta.get("val")


def set_value(node: fx.Node, val: Any) -> None:
    node.meta["val"] = val


def region(node: fx.Node) -> Region | None:
    return node.meta.get("region")


def set_region(node: fx.Node, record: Region | None) -> None:
    if record is not None:
        node.meta["region"] = record


def total_of(node: fx.Node) -> str:
    """For a sum of cotangents: the forward value that they belong to."""
    return node.meta.get("total_of", "")


def set_total(node: fx.Node, of: fx.Node) -> None:
    """`node` adds up cotangents of the value `of`, or is another copy of the sum `of`."""
    node.meta["total_of"] = total_of(of) or of.name
    set_where(node, of)


def guard(node: fx.Node) -> fx.Node | None:
    """In a lowered backward: the runtime test under which the node runs."""
    return node.meta.get("guard")


def set_guard(node: fx.Node, test: fx.Node) -> None:
    node.meta["guard"] = test


def origin(node: fx.Node) -> Origin | None:
    return node.meta.get("origin")


def set_origin(node: fx.Node, record: Origin) -> None:
    node.meta["origin"] = record


def again(node: fx.Node) -> bool | None:
    """Is the value computed again by the backward, or not? None where no plan has decided."""
    return node.meta.get("again")


def set_again(node: fx.Node, decided: bool | None) -> None:
    node.meta["again"] = decided


def constant(node: fx.Node) -> torch.Tensor | None:
    """The tensor that a `get_attr` node stands for."""
    return node.meta.get("constant")


def set_constant(node: fx.Node, tensor: torch.Tensor) -> None:
    node.meta["constant"] = tensor


def is_differentiable_type(val: Any) -> bool:
    """Floating point and complex tensors have tangents; nothing else does."""
    return isinstance(val, torch.Tensor) and (val.is_floating_point() or val.is_complex())


def is_tensor(node: Any) -> bool:
    return isinstance(node, fx.Node) and isinstance(value(node), torch.Tensor)


_FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)\n\s*(?P<text>.*)')


def where(node: fx.Node) -> Where:
    """The user's source line that a node comes from: its innermost frame."""
    found = _FRAME.findall(node.meta.get("stack_trace") or "")
    if not found:
        return Where()
    file, line, function, text = found[-1]
    return Where(file, int(line), function, text.strip())


def set_where(node: fx.Node, like: fx.Node) -> None:
    """Let `node` come from the source line that `like` comes from."""
    node.meta["stack_trace"] = like.meta.get("stack_trace")


TAKEN = (
    "args",
    "aten",
    "kernels",
    "operator",
    "accumulate",
    "run_scan",
    "run_while",
    "stack_up",
)  # names that printed programs use themselves


def rename(node: fx.Node, name: str) -> None:
    """Give the node a readable name (made unique by the graph)."""
    clean = re.sub(r"\W+", "_", name).strip("_") or "value"
    node._rename(f"v_{clean}" if clean[0].isdigit() or clean in TAKEN else clean)


def take_name(node: fx.Node, gone: fx.Node) -> None:
    """Give the node the name of one that stands in the graph no more (which the graph itself never gives out again)."""
    if gone._erased:
        node.name = gone.name
