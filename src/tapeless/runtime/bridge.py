"""The bridge to `torch.autograd`: leaves undefined gradients undefined, works to any order.

Captured temporaries are outputs of the forward, so they have cotangents of their own. At first order nobody sends
those and the backward does not know them; under `create_graph=True` the backward is itself such a program, its
gradients flow back into the temporaries, and that is all it takes for derivatives of any order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tapeless import torch_internals
from tapeless.backends.python import Given
from tapeless.errors import Unsupported
from tapeless.ir.ops import accumulate
from tapeless.runtime.fused import Fused, NotServed
from tapeless.runtime.noughts import arrived
from tapeless.runtime.program import Program
from tapeless.runtime.signature import ZERO, Mask
from tapeless.runtime.tangents import (
    as_in_eager,
    moving,
    tangent,
    tangents_alone,
    type_of,
    with_tangents_of_their_own,
)
from tapeless.runtime.variant import Variant

# What `Bridge.apply` takes before the program's own arguments, and its backward has no gradients for.
LEADING = 3


class _Hidden:
    """An output that autograd must not see."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


@dataclass(frozen=True)
class _Replay:
    """What it takes to run a trimmed forward again in full."""

    args: tuple[Any, ...]
    versions: list[int]
    random_state: torch.Tensor | None

    @classmethod
    def of(cls, args: tuple[Any, ...], program: Program) -> _Replay:
        mutated = program.signature.mutated
        kept = tuple(a.clone() if i in mutated else a for i, a in enumerate(args)) if mutated else args
        state = torch.get_rng_state() if program.random else None
        return cls(kept, _versions(kept, program), state)

    def run(self, program: Program) -> list[Any]:
        """The full forward once more, on the same numbers."""
        if self.versions != _versions(self.args, program):
            raise Unsupported(
                "an input was modified in place between a forward and a backward that asks for more gradients than the "
                "last ones did; modify a copy, or call backward first"
            )
        with _random_numbers_of(self.random_state):
            return apply(program, program.whole, list(self.args))


def _versions(args: Sequence[Any], program: Program) -> list[int]:
    return [a._version for a, is_tensor in zip(args, program.tensor_inputs, strict=True) if is_tensor]


@contextlib.contextmanager
def _random_numbers_of(state: torch.Tensor | None) -> Iterator[None]:
    """Draw the numbers that were drawn from `state` once more; afterwards everything is as before."""
    with torch.random.fork_rng(devices=[], enabled=state is not None):
        if state is not None:
            torch.set_rng_state(state)
        yield


def run(program: Program, args: list[Any]) -> list[Any]:
    """Run a program under autograd; the list is used up."""
    if torch_internals.in_forward_mode():
        return apply(program, program.whole, args)
    variant = program.choose(args)
    if not isinstance(variant, Fused):
        return apply(program, variant, args)
    state = None if variant.is_checked or not program.random else torch.get_rng_state()
    try:
        return apply(program, variant, list(args))
    except (NotServed, AssertionError):  # the latter of strides that Inductor's code does not know
        program.give_up_compiling()
        if state is not None:  # it may have drawn numbers before
            torch.set_rng_state(state)
        return apply(program, program.whole, args)


def apply(program: Program, variant: Variant | Fused, args: list[Any]) -> list[Any]:
    call, forward_mode = _applied(program, args), torch_internals.in_forward_mode()
    unmoved = program.unmoved(moving(args)) if forward_mode else []
    args[:0] = (program, variant, program.probe)  # in place: a thousand arguments are copied often enough
    outs = list(call(*args))
    del outs[variant.parts.real_outputs :]
    for i in program.signature.hidden:
        outs[i] = outs[i].tensor
    return as_in_eager(tangents_alone(outs, variant), unmoved) if forward_mode else outs


def _applied(program: Program, args: list[Any]) -> Any:
    """`Bridge.apply`, without its look at every argument where only few of them can be left over from a transform."""
    if program.unwrapped is None or torch_internals.in_functorch():
        return Bridge.apply
    for i in program.unwrapped:
        args[i] = torch_internals.unwrap_if_dead(args[i])
    return _direct_apply


class Bridge(torch.autograd.Function, metaclass=torch_internals.Boxed):
    """Runs a variant's forward and backward."""

    @staticmethod
    def forward(ctx: Any, program: Program, variant: Variant | Fused, probe: Any, *args: Any) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)
        ctx.program, ctx.variant = program, variant
        ctx.replay = None if variant is program.whole else _Replay.of(args, program)
        forward_mode = torch_internals.in_forward_mode()
        if forward_mode:
            ctx.random_state = torch.get_rng_state() if program.random else None
        outs = list(variant.forward(list(args)))
        if forward_mode:
            outs = with_tangents_of_their_own(outs, args, program)
        if not isinstance(variant, Fused):  # whose results are no views
            variant.cut_views(args, outs)
        _save(ctx, variant.captured(args, outs))
        constant = variant.constant_outputs
        if forward_mode:
            ctx.args, ctx.results = args, [type_of(out, i, variant) for i, out in enumerate(outs)]
            constant = [i for i in constant if ctx.results[i] is None]
        for i in program.signature.hidden:
            outs[i] = _Hidden(outs[i])
        if constant:
            ctx.mark_non_differentiable(*(outs[i] for i in constant if isinstance(outs[i], torch.Tensor)))
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        before = torch_internals.set_tracer(None)  # Dynamo looks on where the program itself calls for gradients
        given = [_unboxed(cotangents)]
        del cotangents  # they go when they have been read
        try:
            return None, None, None, *_gradients(ctx, given.pop())
        finally:
            torch_internals.set_tracer(before)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        given = tuple(isinstance(t, torch.Tensor) for t in tangents[LEADING:])
        args = [*ctx.args, *(t for t in tangents[LEADING:] if isinstance(t, torch.Tensor))]
        recording = torch.is_grad_enabled()
        requires_grad = tuple(recording and isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        with _random_numbers_of(ctx.random_state):  # the tangent program draws those of the forward again
            found = run(ctx.program.tangent(given, requires_grad), args)
        return tuple(tangent(t, kind) for t, kind in zip(found, ctx.results, strict=True))


def _unboxed(cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
    """The cotangents, which the engine hands over in a list, others one by one."""
    if len(cotangents) != 1 or not isinstance(cotangents[0], list):
        return cotangents
    (given,) = cotangents
    found = tuple(given)
    given.clear()
    return found


def _gradients(ctx: Any, cotangents: tuple[Any, ...]) -> list[Any]:
    """For each input of the program its gradient or None."""
    program, variant = ctx.program, ctx.variant
    mask = arrived(cotangents, variant.parts.real_outputs)
    wanted = _wanted(ctx)
    recording = torch.is_grad_enabled() or torch_internals.in_forward_mode()
    if not variant.serves(mask, wanted, recording):
        return _unexpected(ctx, cotangents, wanted)
    if ZERO in mask:
        cotangents = tuple(None if m == ZERO else g for m, g in zip(mask, cotangents, strict=True))
    program.profile.record(mask[: variant.parts.real_outputs])
    if any(g is not None and torch_internals.is_batch(g) for g in cotangents):
        return _batched(ctx, mask, wanted, cotangents)
    if recording:
        return _differentiable(ctx, mask, wanted, cotangents)
    backward = program.backward(variant, mask, wanted)
    ctx.readers.append(reader := object())
    try:
        args = _handed_over(ctx, backward.select([*_coerced(cotangents, variant.formats), *_saved(ctx)]))
        if isinstance(variant, Fused) and not (variant.is_proven and isinstance(args, Given)):
            return _fused(ctx, variant, args, cotangents, wanted)
        _let_go(ctx, args, cotangents)
        del cotangents
        if torch_internals.autocast_enabled():  # the program says which dtypes it wants
            with torch_internals.without_autocast():
                return backward.gradients(args)
        return backward.gradients(args)
    finally:
        ctx.readers.remove(reader)


def _handed_over(ctx: Any, args: list[Any]) -> list[Any]:
    """What a backward is given: for good, if this is the last time and nobody else can see what was saved for it.

    Note [Readers]: who reads what is saved enters `ctx.readers` before, and leaves it when it is done; hooks and
    backwards that are recorded stay. Once what is saved has been cleared nobody new gets at it, so whoever finds
    itself alone from then on may write to it.
    """
    ctx.maybe_clear_saved_tensors()
    return args if torch_internals.keeps_graph() or len(ctx.readers) > 1 else Given(args)


def _let_go(ctx: Any, args: list[Any], cotangents: Sequence[Any]) -> None:
    """What the forward was called with may be freed, if it need not run again: all that was saved is `Given` for good,
    and there is no output that might get a gradient later."""
    outputs = zip(ctx.variant.signature.differentiable, cotangents, strict=False)
    if isinstance(args, Given) and ctx.saves and not any(may and g is None for may, g in outputs):
        ctx.replay = None


def _differentiable(ctx: Any, mask: Mask, wanted: Mask, cotangents: Sequence[Any]) -> list[Any]:
    """The backward as a call that autograd records, and that carries tangents."""
    ctx.readers.append("recorded")  # for good: it saves what it reads
    available = [*_coerced(cotangents, ctx.variant.formats), *_saved(ctx)]
    recording = torch.is_grad_enabled()
    requires_grad = tuple(recording and isinstance(a, torch.Tensor) and a.requires_grad for a in available)
    backward, derivative = ctx.program.derivative(ctx.variant, mask, wanted, requires_grad)
    with torch_internals.without_autocast():
        found = run(derivative, backward.select(available)) if derivative else backward.run([])
        return backward.spread(found)


def _batched(ctx: Any, mask: Mask, wanted: Mask, cotangents: Sequence[Any]) -> list[Any]:
    """The backward on a batch of cotangents, one operator at a time: autograd records what is inside the batch."""
    ctx.readers.append("recorded")
    backward = ctx.variant.specialized(mask, wanted)  # never the general form, which tests what has arrived
    with torch_internals.without_autocast():
        args = backward.select([*_coerced(cotangents, ctx.variant.formats), *_saved(ctx)])
        return backward.spread(backward.functional(*args))


def _fused(ctx: Any, variant: Fused, args: list[Any], cotangents: Sequence[Any], wanted: Mask) -> list[Any]:
    """The compiled backward; should it not know the strides of what it is given, the generated one."""
    if not isinstance(args, Given):  # others hold what the backward writes to, or it runs again
        for k in variant.donated:
            args[k] = args[k].clone()
    try:
        with torch_internals.without_autocast():
            found = variant.backward.gradients(args)
    except AssertionError:
        return _replayed(ctx, cotangents, wanted)
    variant.is_proven = variant.is_proven or isinstance(args, Given)
    _let_go(ctx, args, cotangents)
    return found


def _unexpected(ctx: Any, cotangents: Sequence[Any], wanted: Mask) -> list[Any]:
    """Cotangents that a trimmed forward did not expect, and perhaps such of its temporaries as well (second order)."""
    real = ctx.variant.parts.real_outputs
    gradients = _replayed(ctx, cotangents, wanted)
    if all(g is None for g in cotangents[real:]):
        return gradients
    of_temporaries = _gradients(ctx, (*(None,) * real, *cotangents[real:]))
    return [accumulate(a, b) for a, b in zip(gradients, of_temporaries, strict=True)]


def _replayed(ctx: Any, cotangents: Sequence[Any], wanted: Mask) -> list[Any]:
    """The gradients from cotangents of real outputs: run the full forward again and differentiate that."""
    program: Program = ctx.program
    program.profile.mispredicted()
    if isinstance(ctx.variant, Fused):
        program.give_up_compiling()
    real = ctx.variant.parts.real_outputs
    program.profile.record(tuple(g is not None for g in cotangents[:real]))
    create_graph = torch.is_grad_enabled()
    args = ctx.replay.args
    chosen = [i for i, w in enumerate(wanted) if w]
    with torch.enable_grad(), torch_internals.without_autocast():
        tracked = tuple(_tracked(a, w, create_graph) for a, w in zip(args, wanted, strict=True))
        outs = _Replay(tracked, ctx.replay.versions, ctx.replay.random_state).run(program)
        pairs = [(o, g) for o, g in zip(outs, cotangents[:real], strict=True) if g is not None]
        found = torch.autograd.grad(
            [o for o, _ in pairs], [tracked[i] for i in chosen], [g for _, g in pairs],
            allow_unused=True, create_graph=create_graph,
        )  # fmt: skip
    gradients: list[Any] = [None] * len(args)
    for i, gradient in zip(chosen, found, strict=True):
        gradients[i] = gradient
    return gradients


def _tracked(value: Any, wanted: bool, create_graph: bool) -> Any:
    """An argument of the forward that runs again: apart from the others, which may have been computed from it."""
    if not isinstance(value, torch.Tensor):
        return value
    if create_graph:
        return value.view_as(value) if wanted else value
    return value.detach().requires_grad_(wanted)


def _wanted(ctx: Any) -> Mask:
    """Per input: will the engine use a gradient for it?

    Where the engine runs the whole graph it uses all of them. Whether it does is seen at the probe, an input that
    nobody asks for: only the whole graph includes it.
    """
    program = ctx.program
    if program.probe is not None and torch_internals.engine_wants(program.probe_node):
        return ctx.needs_input_grad[LEADING:]
    edges = iter(ctx.next_functions[program.probe is not None :])  # of the tensor arguments alone
    return tuple(is_tensor and _wants(next(edges)[0]) for is_tensor in program.tensor_inputs)


def _wants(node: Any) -> bool:
    return node is not None and torch_internals.engine_wants(node)


def _coerced(cotangents: Sequence[Any], formats: Sequence[Any]) -> list[Any]:
    """Cotangents in the memory format that the backward was written for; autograd may send expanded ones."""
    found = list(cotangents)
    for i, g in enumerate(found):
        if g is not None:
            g = g.contiguous(memory_format=formats[i])
            found[i] = g.resolve_conj().resolve_neg() if g.is_conj() or g.is_neg() else g
    return found


def _save(ctx: Any, captured: list[Any]) -> None:
    """Keep what the backward reads: tensors with autograd, which watches over their versions; numbers as they are."""
    ctx.numbers = None
    if ctx.variant.saves_numbers:
        ctx.numbers = [None if isinstance(v, torch.Tensor) else v for v in captured]
        captured = [v for v in captured if isinstance(v, torch.Tensor)]
    ctx.readers = ["hooks"] if torch_internals.has_saving_hooks() else []
    ctx.saves = bool(captured)  # tensors, which can be read once unless the graph is kept
    if captured:
        ctx.save_for_backward(*captured)


def _saved(ctx: Any) -> Sequence[Any]:
    if ctx.numbers is None:
        return ctx.saved_tensors
    tensors = iter(ctx.saved_tensors)
    return [next(tensors) if number is None else number for number in ctx.numbers]


_direct_apply = torch_internals.direct_apply(Bridge)
