"""Every error a user can see. The docstring of each is its manual page."""

from __future__ import annotations

from dataclasses import dataclass


class TapelessError(Exception):
    """Base of all errors raised by Tapeless on purpose."""


@dataclass(frozen=True)
class Where:
    """A place in the user's own source."""

    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""

    def __str__(self) -> str:
        if not self.file:
            return "(source line unknown)"
        return f"{self.file}:{self.line} in {self.function}:  {self.text}"


@dataclass(eq=False)
class MissingRule(TapelessError, NotImplementedError):
    """An operator on the path from a differentiated input to an output has no derivative rule.

    Every operator of the graph that lacks one is named, the first with its source line. Write a rule (docs/rules.md,
    usually one to three lines), cut the gradient there with `.detach()`, or run such graphs in eager with
    `options={"fallback": "eager"}`.
    """

    op: str
    where: Where
    because: str
    reason: str = ""
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        also = f"\n  also without a rule in this graph: {', '.join(self.others)}" if self.others else ""
        why = f"\n  {self.reason}" if self.reason else ""
        return (
            f"no derivative rule for `{self.op}`\n  at {self.where}\n"
            f"  needed because its input depends on `{self.because}`{why}{also}\n"
            "  Write one (docs/rules.md, usually 1-3 lines) or cut the gradient with `.detach()`; "
            'options={"fallback": "eager"} runs this graph in eager.'
        )


@dataclass(eq=False)
class NoDecomposition(TapelessError, NotImplementedError):
    """An operator was to be decomposed into others, and nobody said how.

    Register a decomposition for this use (docs/decompositions.md, usually one line), or write a derivative rule.
    """

    op: str
    reason: str

    def __str__(self) -> str:
        return (
            f"no decomposition of `{self.op}`: {self.reason}\n"
            "  Register one with `tapeless.rules.decomposition` (docs/decompositions.md) or write a derivative rule."
        )


@dataclass(eq=False)
class RuleFailed(TapelessError, RuntimeError):
    """A derivative rule raised, or returned something that cannot be the gradient of its argument."""

    op: str
    where: Where
    problem: str

    def __str__(self) -> str:
        return f"the derivative rule of `{self.op}` failed\n  at {self.where}\n  {self.problem}"


@dataclass(eq=False)
class PassFailed(TapelessError, RuntimeError):
    """A pass before differentiation changed what the program computes, or raised.

    Raised under `options={"check": True}`. Otherwise the change is undone and the pass switched off with a warning.
    Switch it off yourself with `options={"prepare": "-its_name"}`, and report it: the message says all that is needed.
    """

    name: str
    pattern: str
    where: Where
    problem: str

    def __str__(self) -> str:
        return (
            f"the pass `{self.name}` ({self.pattern}) is wrong here\n  at {self.where}\n  {self.problem}\n"
            f'  options={{"prepare": "-{self.name}"}} switches it off.'
        )


@dataclass(eq=False)
class ProgramFailed(TapelessError, RuntimeError):
    """The program itself fails on inputs like the examples: shapes that do not fit, a number where a tensor must be.

    It would fail in eager too; call it there with the same inputs to see it.
    """

    where: Where
    problem: str

    def __str__(self) -> str:
        return f"the program fails on these inputs\n  at {self.where}\n  {self.problem}"


@dataclass(eq=False)
class NotDependent(TapelessError, ValueError):
    """`wrt` names an input that no differentiable output depends on, so there is nothing to differentiate."""

    names: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"no output depends differentiably on {', '.join(f'`{n}`' for n in self.names)}\n"
            f"  outputs: {', '.join(self.outputs) or '(none)'}\n"
            "  Check that the path is not cut by `.detach()`, `no_grad` or an integer operation; or leave it out of"
            " `wrt`."
        )


@dataclass(eq=False)
class NotATensor(TapelessError, TypeError):
    """A tensor was expected where the program has something else."""

    what: str
    got: str

    def __str__(self) -> str:
        return f"{self.what} must be a tensor with a floating point or complex dtype, got {self.got}"


class BadOption(TapelessError, ValueError):
    """An option with an unknown name, or a value outside its range. The message lists the options there are."""


class Unsupported(TapelessError, NotImplementedError):
    """The program uses something Tapeless refuses to differentiate rather than differentiate wrongly."""
