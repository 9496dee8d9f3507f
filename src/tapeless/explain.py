"""explain(f, x): the programs of a function, what passes between them and why, and the rules they were made with."""

from __future__ import annotations

import html
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tapeless.api import Call, Wrt
from tapeless.gradient import Gradient
from tapeless.ir import graph as ir
from tapeless.ir import text
from tapeless.ir.copying import copy_graph
from tapeless.ir.custom import inlined
from tapeless.options import Options
from tapeless.partition.peak import peak
from tapeless.partition.rederive import is_view
from tapeless.pipeline import preparation
from tapeless.prepare.report import Preparation
from tapeless.rules.support import support
from tapeless.specialize.savings import Savings


@dataclass(frozen=True)
class Saved:
    """A forward value that the backward reads."""

    name: str
    kind: str  # input, output or temporary: only a temporary is kept for the backward alone
    type: str
    bytes: int
    wanted_by: tuple[str, ...]  # the forward operators whose backward reads it, each with its source line


@dataclass(frozen=True)
class Recomputed:
    """A forward value that the backward computes again; views aside, which cost nothing."""

    name: str
    op: str
    type: str
    bytes: int


@dataclass(frozen=True)
class RuleUse:
    """An operator of the program and how its derivative was found."""

    op: str
    support: str  # the form of its written rule, "traced", or "custom" for an autograd.Function
    times: int


@dataclass(frozen=True)
class Report:
    """What `explain` returns: print it, write it with `.html(path)`, or show it in a notebook."""

    title: str
    captured: str
    program: str
    forward: str
    backward: str
    saved: tuple[Saved, ...]
    recomputed: tuple[Recomputed, ...]
    peak: int  # the most bytes that a step allocates at once, gradients included, as simulated
    rules: tuple[RuleUse, ...]
    savings: Savings  # what `undefined` outputs took away
    nodes: dict[str, int]  # calls in the program as captured and as prepared, in the backward, and `grad_of` regions
    preparation: Preparation  # what was done to the program before it was differentiated

    @property
    def saved_bytes(self) -> int:
        """What is kept for the backward alone."""
        return sum(value.bytes for value in self.saved if value.kind == "temporary")

    def summary(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in self.nodes.items())
        removed = f"\n{self.savings}" if self.savings.removed else ""
        memory = f"{self.saved_bytes:,} bytes kept for the backward alone, {self.peak:,} at the peak of a step"
        return f"{self.title}: {counts}; {memory}{removed}"

    def tables(self) -> dict[str, list[tuple[str, ...]]]:
        """Title → rows, the first of which is the heading."""
        saved = [(s.name, s.kind, s.type, f"{s.bytes:,}", "; ".join(s.wanted_by)) for s in self.saved]
        again = [(r.name, r.op, r.type, f"{r.bytes:,}") for r in self.recomputed]
        rules = [(r.op, r.support, str(r.times)) for r in self.rules]
        passes = [("pass", "applied", "declined", "saves", "first at"), *self.preparation.rows()]
        removed = [
            (r.region.forward, r.region.op, str(r.calls), str(r.calls_left), r.why) for r in self.savings.removed
        ]
        found = {
            "Passes before differentiation": passes,
            "What the backward reads": [("value", "kind", "type", "bytes", "for the gradient of"), *saved],
            "What the backward computes again": [("value", "operator", "type", "bytes"), *again],
            "Rules": [("operator", "rule", "times"), *rules],
            "Removed": [("grad_of", "operator", "calls gone", "calls left", "why"), *removed],
        }
        return {title: rows for title, rows in found.items() if len(rows) > 1}

    def programs(self) -> dict[str, str]:
        before = {"Captured": self.captured} if self.captured != self.program else {}
        return {**before, "Program": self.program, "Forward": self.forward, "Backward": self.backward}

    def __str__(self) -> str:
        tables = [f"{title}\n{_aligned(rows)}" for title, rows in self.tables().items()]
        programs = [f"# --- {title} ---\n\n{source.strip()}" for title, source in self.programs().items()]
        return "\n\n".join([self.summary(), *tables, *programs]) + "\n"

    def _repr_html_(self) -> str:
        tables = [f"<h3>{html.escape(title)}</h3>{_html_table(rows)}" for title, rows in self.tables().items()]
        programs = [
            f"<details open><summary><b>{title}</b></summary><pre>{html.escape(source)}</pre></details>"
            for title, source in self.programs().items()
        ]
        return f"<p>{html.escape(self.summary())}</p>" + "".join([*tables, *programs])

    def html(self, path: str | Path) -> None:
        """Write the report as a page that needs nothing else."""
        head = f'<!doctype html><meta charset="utf-8"><title>{html.escape(self.title)}</title>{_STYLE}'
        Path(path).write_text(f"{head}<h1>{html.escape(self.title)}</h1>{self._repr_html_()}\n", encoding="utf-8")


_STYLE = (
    "<style>body{font-family:sans-serif;margin:2em}td,th{text-align:left;padding:.2em 1em;border-bottom:1px solid #ccc}"
    "table{border-collapse:collapse}pre{overflow-x:auto;background:#f6f6f6;padding:1em}</style>"
)


def explain(
    function: Callable[..., Any],
    *examples: Any,
    wrt: Wrt = None,
    undefined: Sequence[int] = (),
    options: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Report:
    """How `function` is differentiated at inputs like `examples`. The arguments are those of `differentiate`."""
    call = Call.of(function, examples, wrt, keywords)
    captured = text.program(inlined(call.captured.graph), "program")
    chosen = Options.parse(options)
    graph, done = preparation(call.captured, chosen)
    gradient = call.differentiate(replace(call.captured, graph=graph), undefined, chosen)
    backward = gradient.backward.graph
    program = _without_temporaries(gradient)
    regions = list(dict.fromkeys(record for node in ir.calls(backward) if (record := ir.region(node))))
    return Report(
        title=getattr(function, "__name__", type(function).__name__),
        captured=captured,
        program=text.program(program, "program"),
        forward=str(gradient.forward),
        backward=str(gradient.backward),
        saved=tuple(_saved(gradient)),
        recomputed=tuple(_recomputed(gradient)),
        peak=peak(gradient.split).most,
        rules=tuple(_rules(gradient, regions)),
        savings=gradient.savings,
        preparation=done,
        nodes={
            **({"operators captured": done.nodes_before} if done.applied else {}),
            "operators": len(ir.calls(program)),
            "operators in the backward": len(ir.calls(backward)),
            "regions": len(regions),
        },
    )


def _without_temporaries(gradient: Gradient) -> fx.Graph:
    """The program as it is differentiated: the forward that returns its own outputs only."""
    graph = copy_graph(gradient.forward.graph)
    graph.output_node().args = (ir.outputs(graph)[: gradient.real_outputs],)
    graph.eliminate_dead_code()
    return graph


def _saved(gradient: Gradient) -> Iterator[Saved]:
    kinds = [
        *("input" for _ in gradient.captured_inputs),
        *("output" if i < gradient.real_outputs else "temporary" for i in gradient.captured_outputs),
    ]
    for node, kind in zip(gradient.captures, kinds, strict=True):
        readers = dict.fromkeys(_readers(node))
        if readers:
            wanted_by = tuple(_described(record) for record in readers)
            yield Saved(node.name, kind, text.type_of(ir.value(node)), _bytes(ir.value(node)), wanted_by)


def _recomputed(gradient: Gradient) -> Iterator[Recomputed]:
    known = {node.name for node in ir.calls(gradient.split.forward)}
    for node in ir.calls(gradient.split.backward):
        again = node.name in known and ir.region(node) is None and node.op == "call_function"
        if again and ir.is_tensor(node) and not is_view(node):
            val = ir.value(node)
            yield Recomputed(node.name, _operator(node), text.type_of(val), _bytes(val))


def _operator(node: fx.Node) -> str:
    source = node.args[0] if node.target is operator.getitem else node
    return str(source.target) if isinstance(source, fx.Node) else ""


def _readers(node: fx.Node) -> Iterator[ir.Region]:
    """The regions that read a value, directly or through views of it."""
    for user in node.users:
        record = ir.region(user)
        if record is not None:
            yield record
        else:
            yield from _readers(user)


def _described(record: ir.Region) -> str:
    place = record.where
    return f"{record.forward} at {Path(place.file).name}:{place.line} {place.text}" if place.file else record.forward


def _bytes(val: Any) -> int:
    return val.numel() * val.element_size() if isinstance(val, torch.Tensor) else 8


def _rules(gradient: Gradient, regions: list[ir.Region]) -> Iterator[RuleUse]:
    targets = {node.name: node.target for node in ir.calls(gradient.split.forward)}
    uses = Counter((record.op, support(targets.get(record.forward))) for record in regions)
    for (op, how), times in sorted(uses.items()):
        yield RuleUse(op, how, times)


def _aligned(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join("  " + line.rstrip() for line in lines)


def _html_table(rows: list[tuple[str, ...]]) -> str:
    def cells(row: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    return "<table>" + cells(rows[0], "th") + "".join(cells(row, "td") for row in rows[1:]) + "</table>"
