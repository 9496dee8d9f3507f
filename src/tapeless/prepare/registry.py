"""Which passes there are, and which of them run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tapeless.errors import BadOption
from tapeless.prepare.passes import Pass


@dataclass(frozen=True)
class Chosen:
    """A pass that is to run."""

    rule: Pass
    forced: bool = False


@dataclass
class Registry:
    """Our passes in their order, then those of users; and those that proved wrong in this process."""

    ours: tuple[Pass, ...]
    users: dict[str, Pass] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)  # name → why

    def register(self, rule: Pass) -> Pass:
        """Make a pass known by its name. It runs where `options={"prepare": name}` asks for it, checked like ours."""
        if any(rule.name == mine.name for mine in self.ours):
            raise BadOption(f"there is a pass named {rule.name} already; name yours differently")
        self.users[rule.name] = replace(rule, default=False)
        self.wrong.pop(rule.name, None)
        return rule

    def choose(self, option: str) -> list[Chosen]:
        """The passes that `option` asks for, in order (see `Options.prepare`)."""
        known = {rule.name: rule for rule in (*self.ours, *self.users.values())}
        on = {rule.name: False for rule in known.values() if rule.default}
        for word in filter(None, (part.strip() for part in option.split(","))):
            if word == "off":
                on.clear()
                continue
            name = word.removeprefix("-").removesuffix("!")
            if name not in known:
                raise BadOption(f"prepare={option!r}: no pass named {name}; there are {', '.join(sorted(known))}")
            if word.startswith("-"):
                on.pop(name, None)
            else:
                on[name] = word.endswith("!")
        return [Chosen(r, on[r.name]) for r in known.values() if r.name in on and r.name not in self.wrong]

    def settings(self, option: str) -> str | None:
        """What `option` asks for, as text; None if a pass is among it that did not come with Tapeless."""
        chosen = self.choose(option)
        return repr([(c.rule.name, c.forced) for c in chosen]) if all(c.rule in self.ours for c in chosen) else None


def ordered(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """By phase, within a phase as listed."""
    names = [rule.name for rule in passes]
    assert len(set(names)) == len(names), "two passes share a name"
    phases = {phase: i for i, phase in enumerate(type(passes[0].phase))}
    return tuple(sorted(passes, key=lambda rule: phases[rule.phase]))
