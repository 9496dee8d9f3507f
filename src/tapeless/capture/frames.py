"""What Dynamo made of a frame, kept for the next process: bytecode, guards, and which graph they call.

An entry is found by the code of the frame and the state of the process, and is put to use only if everything that its
guards look at is described as it was. The guards themselves are then made anew, for the objects of this process: from
there on nothing is different from a frame that was traced here. See decision 23.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import fx

from tapeless import torch_internals
from tapeless.cache import Place, place
from tapeless.capture.objects import Objects
from tapeless.errors import BadOption
from tapeless.ir.content import PLAIN, TORCH, Indescribable
from tapeless.options import Options
from tapeless.torch_internals import Frame, Scope, Tracing, Unrepeatable

MOST = 8  # ways to trace the same code that are kept: other layers, other sizes
EXPECTED = (Unrepeatable, Indescribable)
VALUES = (*PLAIN, *TORCH, tuple, frozenset)  # which object it is says nothing about these
log = logging.getLogger(__name__)

Rebuild = Callable[[str, Sequence[Any], Options], Callable[..., Any] | None]


@dataclass(frozen=True)
class Entry:
    """One way to trace the code of a frame, which graph it calls, and what was found true for it."""

    tracing: Tracing
    graph: str  # all that the graph says, in short
    marks: tuple[str | None, ...]  # of the graph's inputs: which are a module's own
    fingerprint: str


@contextmanager
def uncollected() -> Iterator[None]:
    """While it lasts, Python does not look for garbage: there is none, and to look takes longer than all the rest."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.enable() if was_enabled else None


class FrameWatcher:
    """Asked before Dynamo traces a frame, told afterwards."""

    def __init__(self, frame: Frame, options: Options, rebuild: Rebuild, kept: Place) -> None:
        self.frame, self.options, self.rebuild, self.kept = frame, options, rebuild, kept
        self.graphs: list[tuple[str, tuple[Any, ...], tuple[str | None, ...]] | None] = []

    @uncollected()
    def replay(self) -> Any:
        """What an earlier process found for such a frame, ready to run; None if there is nothing, or nothing fits."""
        for payload in self._payloads.values():
            try:
                found = self._replay(pickle.loads(payload))
            except Exception:  # whatever it is, tracing will tell; an entry alone is no reason to fail
                log.debug("an entry of the cache was of no use", exc_info=True)
            else:
                if found is not None:
                    return found
        return None

    @cached_property
    def _payloads(self) -> dict[str, bytes]:
        """The entries for this code, by fingerprint."""
        return self.kept.read(None) or {}

    def _replay(self, entry: Entry) -> Any:
        tracing, scope = entry.tracing, self.frame.scope(entry.tracing.imports)
        if fingerprint(tracing, scope) != entry.fingerprint:
            return None
        inputs = [scope.value(source) for source in tracing.inputs]
        for value, mark in zip(inputs, entry.marks, strict=True):
            torch_internals.mark_static(value, mark)
        compiled = self.rebuild(entry.graph, inputs, self.options)
        return None if compiled is None else tracing.restored(self.frame, scope, compiled)

    def captured(self, module: fx.GraphModule, inputs: Sequence[Any], digest: str | None) -> None:
        """This frame has a graph, to be found again by `digest` and the inputs."""
        try:
            sources = torch_internals.input_sources(module)
        except Unrepeatable:
            digest, sources = None, ()
        marks = tuple(map(torch_internals.static_mark, inputs))
        self.graphs.append((digest, sources, marks) if digest else None)

    def record(self, tracing: Callable[[tuple[Any, ...]], Tracing]) -> None:
        """Keep what Dynamo made of this frame, if another process could use it."""
        if len(self.graphs) != 1 or self.graphs[0] is None:
            return
        digest, sources, marks = self.graphs[0]
        try:
            made = tracing(sources)
            found = fingerprint(made, self.frame.scope(made.imports))
            payload = torch_internals.dumps(Entry(made, digest, marks, found))
        except Exception as problem:  # to look at an object may fail as its author pleases
            log.debug("not kept for the next process: %s", problem, exc_info=not isinstance(problem, EXPECTED))
            return
        self.kept.write(dict([*{**self._payloads, found: payload}.items()][-MOST:]))


def watching(function: Callable[..., Any], rebuild: Rebuild) -> Callable[[Frame], FrameWatcher | None]:
    """Watches the frames that are compiled with the backend `function`."""

    def begin(frame: Frame) -> FrameWatcher | None:
        if frame.backend is not function:
            return None
        try:
            options = Options.parse(frame.options)
        except BadOption:
            return None  # as the backend will say
        kept = place(options.cache, lambda: _key(frame, options))
        return FrameWatcher(frame, options, rebuild, kept) if kept else None

    return begin


def tell(module: fx.GraphModule, inputs: Sequence[Any], digest: str | None) -> None:
    """To whom it may concern: the graph of the frame that is being compiled."""
    watcher = torch_internals.watcher()
    if isinstance(watcher, FrameWatcher):
        watcher.captured(module, inputs, digest)


def _key(frame: Frame, options: Options) -> str | None:
    """What is known of a frame at once: its code and the state of the process."""
    if torch_internals.in_functorch() or torch_internals.in_forward_mode():
        return None
    try:
        state = torch_internals.guarded_state()
    except Unrepeatable:
        return None
    code, module = Objects().exact(frame.code), frame.globals.get("__name__")
    return "\n".join(map(str, ("frame", code, module, frame.whole, options, state, torch_internals.circumstances())))


def fingerprint(tracing: Tracing, scope: Scope) -> str:
    """All that the guards look at in this process, the files that were read, and who is the same object as whom."""
    objects, numbers = Objects(), dict[int, int]()
    parts = [f"{name} {_file(name)}" for name in tracing.files]
    for guarded in (*tracing.guards, *tracing.left_out):
        if guarded.kind in torch_internals.GUARDS_ON_STATE:
            continue  # in the key
        value = scope.value(guarded.source)
        number = None if type(value) in VALUES else numbers.setdefault(id(value), len(numbers))
        parts.append(f"{guarded.kind} {guarded.source.name} {number} {objects.exact(scope.aspect(guarded))}")
    parts += [f"{source.name} {numbers.get(id(scope.value(source)))}" for source in tracing.inputs]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _file(name: str) -> str:
    """The content of a source file; code that comes from none is described with its function."""
    path = Path(name)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
