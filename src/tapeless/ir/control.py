"""Control flow: node targets that are made of graphs. What `torch.cond`, `scan`, `map` and `while_loop` become.

Three kinds suffice: a `Branch`, a `Scan` (a map is a scan that carries nothing) and a `While`. The derivative of each
is made of the same kinds again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.ir.loops import run_scan, run_while


class Control:
    """A node target made of graphs, which the printer writes as functions before the line that calls them."""

    __name__: str

    @property
    def bodies(self) -> dict[str, fx.Graph]:
        """The graphs, by the names of the fields that hold them."""
        raise NotImplementedError

    def with_bodies(self, change: Callable[[fx.Graph], fx.Graph]) -> Any:
        """The same with its graphs changed."""
        return replace(cast(Any, self), **{key: change(body) for key, body in self.bodies.items()})

    @property
    def tags(self) -> list[torch.Tag]:
        """As operators have them: a body that draws random numbers makes the whole random."""
        random = torch.Tag.nondeterministic_seeded
        nodes = [node for body in self.bodies.values() for node in ir.calls(body)]
        return [random] if any(random in getattr(node.target, "tags", ()) for node in nodes) else []

    def source(self, name: str, arguments: Sequence[str]) -> str:
        """The call as text; each body is a function `{name}_{its key}`."""
        raise NotImplementedError

    def __call__(self, *arguments: Any) -> list[Any]:
        """What the text does, operator by operator: for transforms of torch's own that go through the graph."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Branch(Control):
    """Target of a node `branch(predicate, *operands)`: the results of one graph or the other on the operands."""

    true: fx.Graph
    false: fx.Graph
    __name__: str = "branch"

    def __str__(self) -> str:
        return "torch.cond"

    @property
    def bodies(self) -> dict[str, fx.Graph]:
        return {"true": self.true, "false": self.false}

    def source(self, name: str, arguments: Sequence[str]) -> str:
        predicate, *operands = arguments
        return f"({name}_true if {predicate} else {name}_false)([{', '.join(operands)}])"

    def __call__(self, *arguments: Any) -> list[Any]:
        predicate, *operands = arguments
        return _interpreted(self.true if predicate else self.false)(operands)


@dataclass(frozen=True, eq=False)
class Scan(Control):
    """Target of a node `scan(length, carries, rows, operands)`.

    body:  carries, one row of each of `rows`, operands → carries, totals, stacked

    The carries pass from one round to the next; the node returns the last ones, the sums over all rounds of the
    totals, and the rest stacked. Transposition turns a row into what is stacked, an operand into a total, and back.
    """

    body: fx.Graph
    carries: int
    totals: int = 0
    reverse: bool = False
    linear: tuple[int, ...] = ()  # inputs of the body in which it is jointly linear: the cotangents
    __name__: str = "scan"

    def __str__(self) -> str:
        return "scan"

    @property
    def bodies(self) -> dict[str, fx.Graph]:
        return {"body": self.body}

    def source(self, name: str, arguments: Sequence[str]) -> str:
        how = f"{_count('totals', self.totals)}{_count('stacked', self.stacked)}"
        return f"run_scan({name}_body, {', '.join(arguments)}{how}{', reverse=True' if self.reverse else ''})"

    def __call__(self, *arguments: Any) -> list[Any]:
        return run_scan(
            _interpreted(self.body), *arguments, totals=self.totals, stacked=self.stacked, reverse=self.reverse
        )

    @property
    def stacked(self) -> int:
        return len(ir.outputs(self.body)) - self.carries - self.totals


@dataclass(frozen=True, eq=False)
class While(Control):
    """Target of a node `while_loop(carries, operands)`.

    condition, body:  carries, operands → a boolean; carries, stacked

    The node returns the last carries, the number of rounds, and what is stacked.
    """

    condition: fx.Graph
    body: fx.Graph
    carries: int
    __name__: str = "while_loop"

    def __str__(self) -> str:
        return "while_loop"

    @property
    def bodies(self) -> dict[str, fx.Graph]:
        return {"condition": self.condition, "body": self.body}

    def source(self, name: str, arguments: Sequence[str]) -> str:
        return f"run_while({name}_condition, {name}_body, {', '.join(arguments)}{_count('stacked', self.stacked)})"

    def __call__(self, *arguments: Any) -> list[Any]:
        return run_while(_interpreted(self.condition), _interpreted(self.body), *arguments, stacked=self.stacked)

    @property
    def stacked(self) -> int:
        return len(ir.outputs(self.body)) - self.carries


def _count(what: str, number: int) -> str:
    return f", {what}={number}" if number else ""


def _interpreted(body: fx.Graph) -> Callable[[Sequence[Any]], list[Any]]:
    constants = {str(node.target): ir.constant(node) for node in body.find_nodes(op="get_attr")}
    interpreter = fx.Interpreter(fx.GraphModule(constants, body))
    return lambda arguments: list(interpreter.run(*arguments))


def control_flow(graph: fx.Graph) -> list[tuple[fx.Node, Control]]:
    return [(node, node.target) for node in graph.nodes if isinstance(node.target, Control)]


@dataclass(frozen=True)
class Loop:
    """A `Scan` or `While` node, seen alike: the body reads carries, rows, operands, gives carries, totals, stacked."""

    node: fx.Node
    target: Scan | While
    carries: list[Any]
    rows: list[Any]
    operands: list[Any]

    @classmethod
    def of(cls, node: fx.Node) -> Loop:
        target: Any = node.target
        *_, carries, rows, operands = node.args if isinstance(target, Scan) else (node.args[0], [], node.args[1])
        return cls(node, target, list(carries), list(rows), list(operands))  # type: ignore[arg-type]

    @property
    def inputs(self) -> list[Any]:
        """What the body reads, as the node is given it."""
        return [*self.carries, *self.rows, *self.operands]

    @property
    def totals(self) -> int:
        return self.target.totals if isinstance(self.target, Scan) else 0

    def result(self, output: int) -> int:
        """Where the node returns what the body returns at `output`: a `While` returns its rounds in between."""
        return output + (isinstance(self.target, While) and output >= len(self.carries))

    @property
    def length(self) -> Any:
        """The number of rounds: of a `Scan` an argument, of a `While` a result."""
        if isinstance(self.target, While):
            return ir.value(self.node)[len(self.carries)]
        length = self.node.args[0]
        return ir.value(length) if isinstance(length, fx.Node) else length

    def sections(self, carries: Sequence[Any], rows: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments of a node like this one."""
        if isinstance(self.target, While):
            return list(carries), list(operands)
        return self.node.args[0], list(carries), list(rows), list(operands)
