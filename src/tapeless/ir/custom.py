"""A custom `autograd.Function` in a graph: its forward inlined, its own backward kept.

The forward's nodes carry no derivative; what they compute passes through one `CustomFunction` node, an identity on the
outputs, whose derivative is the user's backward. `inline_custom` removes these nodes once differentiation is done.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.control import control_flow
from tapeless.ir.copying import copy_graph


@dataclass(frozen=True, eq=False)
class CustomFunction:
    """Target of a node `custom(outputs, arguments, saved)`: returns `outputs`."""

    backward: fx.GraphModule  # (cotangent of every output, saved values) → gradient of every argument
    constants: tuple[Any, ...]  # per saved value: None for a tensor, else (the value,)
    outputs: int  # of the user's function, of which the node passes on those at `passed`
    passed: tuple[int, ...]
    tensor_arguments: tuple[bool, ...]
    keeps_history: bool = False  # a write that reverse mode does not see: forward mode does
    keeps_tangent: bool = False  # such a write through `.detach()` or `.data`, which forward mode does not see either
    __name__: str = "custom_function"
    own: tuple[int | None, ...] = ()  # per saved tensor: which of the values passed on it is, if it is one

    def __call__(self, outputs: Any, arguments: Any, saved: Any) -> Any:
        return outputs

    def cotangents(self, g: Any) -> list[Any]:
        """One per output of the user's function; None for those that carry no derivative."""
        found = dict(zip(self.passed, g, strict=True))
        return [found.get(i) for i in range(self.outputs)]

    def saved(self, tensors: Any, results: Any) -> list[Any]:
        """All saved values in order, tensors and constants. A result that was saved has the derivative of a result."""
        own = self.own or (None,) * len(tensors)
        rest = iter([t if i is None else results[i] for t, i in zip(tensors, own, strict=True)])
        return [next(rest) if constant is None else constant[0] for constant in self.constants]


def inline_custom(graph: fx.Graph) -> fx.Graph:
    """Replace the results of custom function nodes by the values they pass on, in the bodies of control flow too."""
    for node, control in control_flow(graph):
        node.target = control.with_bodies(inlined)
    for node in ir.calls(graph):
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, fx.Node) and isinstance(source.target, CustomFunction):
            node.replace_all_uses_with(source.args[0][node.args[1]])  # type: ignore[index]
            graph.erase_node(node)
    for node in reversed(ir.calls(graph)):
        if isinstance(node.target, CustomFunction):
            graph.erase_node(node)
    graph.eliminate_dead_code()
    return graph


def inlined(graph: fx.Graph) -> fx.Graph:
    """`graph` itself if it holds no custom function, else a copy with them inlined."""
    return inline_custom(copy_graph(graph)) if _has_custom(graph) else graph


def _has_custom(graph: fx.Graph) -> bool:
    bodies = [body for _, control in control_flow(graph) for body in control.bodies.values()]
    return any(isinstance(node.target, CustomFunction) for node in ir.calls(graph)) or any(map(_has_custom, bodies))
