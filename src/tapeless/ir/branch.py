"""A choice between two graphs: what `torch.cond` becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import fx


@dataclass(frozen=True, eq=False)
class Branch:
    """Target of a node `branch(predicate, *operands)`: the results of one graph or the other on the operands."""

    true: fx.Graph
    false: fx.Graph
    __name__: str = "branch"

    def __str__(self) -> str:
        return "torch.cond"

    def __call__(self, predicate: Any, *operands: Any) -> Any:
        raise AssertionError("a branch is written out by the printer; nobody calls it")


def branches(graph: fx.Graph) -> list[tuple[fx.Node, Branch]]:
    return [(node, node.target) for node in graph.nodes if isinstance(node.target, Branch)]
