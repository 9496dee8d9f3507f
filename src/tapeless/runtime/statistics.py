"""What compiled programs made of the gradients that arrived: variants, what each of them saves, wrong guesses."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tapeless.backends import auto
from tapeless.ir import graph as ir
from tapeless.runtime.derivatives import DERIVATIVES
from tapeless.runtime.program import LIVE, Program
from tapeless.specialize.savings import Savings, savings

T = TypeVar("T")

UNSETTLED = {"compiling", "racing"}


@dataclass(frozen=True)
class VariantStatistics:
    """A backward that was specialised to the outputs that get a gradient."""

    missing: tuple[str, ...]  # the outputs that get none
    trimmed: bool  # does its forward save less as well?
    savings: Savings


@dataclass(frozen=True)
class ProgramStatistics:
    """One compiled graph."""

    where: str  # its first source line
    variants: tuple[VariantStatistics, ...]
    mispredictions: int  # backwards for which the forward had saved too little and ran again
    backends: tuple[str, ...] = ()  # with backend "auto", for each mask that recurred: how far it is

    @property
    def is_settled(self) -> bool:
        """Is nothing being compiled or compared any more?"""
        return not UNSETTLED & set(self.backends)

    def __str__(self) -> str:
        lines = [f"{self.where}: {len(self.variants)} variants, {self.mispredictions} mispredictions"]
        if self.backends:
            lines.append(f"  backend auto: {', '.join(self.backends)}")
        for variant in self.variants:
            what = f"no gradient at {', '.join(variant.missing)}" if variant.missing else "all gradients arrive"
            lines.append(f"  {what}{' (forward saves less)' if variant.trimmed else ''}: {variant.savings}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Statistics:
    """All compiled graphs that are alive, and how often a derivative was known already."""

    programs: tuple[ProgramStatistics, ...]
    differentiated: int
    reused: int
    alone: tuple[str, ...] = ()  # graphs without a backward under backend "auto": how far each is

    @property
    def mispredictions(self) -> int:
        return sum(program.mispredictions for program in self.programs)

    @property
    def is_settled(self) -> bool:
        """Have all programs found the backend that they stay with?"""
        return all(program.is_settled for program in self.programs) and not UNSETTLED & set(self.alone)

    def __str__(self) -> str:
        known = f"{self.differentiated} graphs differentiated, {self.reused} known already"
        return "\n".join([f"{len(self.programs)} programs; {known}", *map(str, self.programs)])


def statistics() -> Statistics:
    """What became of the programs compiled so far, as far as they are still alive: `print(tapeless.statistics())`."""
    alone = tuple(graph.state for graph in _alive(auto.LIVE))
    return Statistics(tuple(map(of_program, _alive(LIVE))), DERIVATIVES.differentiated, DERIVATIVES.reused, alone)


def _alive(programs: weakref.WeakSet[T]) -> list[T]:
    """All at once: other threads may compile, and a set that grows cannot be walked. Relies on `WeakSet.data`."""
    references: list[weakref.ref[T]] = list(programs.data)  # type: ignore[attr-defined]
    return [found for reference in references if (found := reference()) is not None]


def of_program(program: Program) -> ProgramStatistics:
    places = [place for node in ir.calls(program.whole.parts.forward) if (place := ir.where(node)).file]
    where = f"{Path(places[0].file).name}:{places[0].line}" if places else "program"
    mispredictions = program.profile.mispredictions
    return ProgramStatistics(where, tuple(_variants(program)), mispredictions, tuple(program.backends))


def _variants(program: Program) -> Iterator[VariantStatistics]:
    whole = program.whole.parts
    cotangents = dict(zip(whole.cotangent_outputs, ir.inputs(whole.backward), strict=False))
    for (variant, mask, _), backward in program.specialized_backwards():
        undefined = {i: node for i, node in cotangents.items() if not mask[i]}
        yield VariantStatistics(
            missing=tuple(ir.outputs(whole.forward)[i].name for i in undefined),
            trimmed=variant is not program.whole,
            savings=savings(whole.backward, backward.graph, undefined.values(), whole.temporaries),
        )
