"""What was done to a graph, for `explain`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tapeless.errors import Where


@dataclass(frozen=True)
class Step:
    """One replacement: made, or declined because it would not pay."""

    rule: str
    made: bool
    before: tuple[str, ...]
    after: tuple[str, ...]
    where: Where
    saved: float  # microseconds by the cost model


@dataclass(frozen=True)
class Preparation:
    """All replacements in order."""

    steps: tuple[Step, ...] = ()
    nodes_before: int = 0
    nodes_after: int = 0

    @property
    def applied(self) -> Counter[str]:
        """How often each pass acted."""
        return Counter(step.rule for step in self.steps if step.made)

    @property
    def declined(self) -> Counter[str]:
        """How often each pass was right but would not have paid."""
        return Counter(step.rule for step in self.steps if not step.made)

    def rows(self) -> list[tuple[str, ...]]:
        """Per pass: times applied and declined, what the cost model says it saves, the first place."""
        found = []
        for rule in dict.fromkeys(step.rule for step in self.steps):
            mine = [step for step in self.steps if step.rule == rule]
            saved = sum(step.saved for step in mine if step.made)
            place = mine[0].where
            line = f"{place.file.rsplit('/', 1)[-1]}:{place.line}" if place.file else ""
            found.append((rule, str(self.applied[rule]), str(self.declined[rule]), f"{saved:.1f} µs", line))
        return found
