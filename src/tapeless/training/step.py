"""train_step(model, loss_fn, optimizer): a training step as one program. No tape, no engine, no `.grad`."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from tapeless import torch_internals
from tapeless.capture.program import Captured
from tapeless.errors import BadOption, Unsupported
from tapeless.ir import graph as ir
from tapeless.options import Options
from tapeless.pipeline import captured_and_prepared
from tapeless.runtime.derivatives import DERIVATIVES
from tapeless.runtime.program import Recent
from tapeless.runtime.signature import Signature
from tapeless.training.compiled import Program, compile_step
from tapeless.training.loss import Loss, called, loss_output, take_mark
from tapeless.training.optimizers import Kind, kind_of
from tapeless.training.program import Update, add_inputs, join, read_elsewhere


def train_step(
    model: nn.Module,
    loss_fn: Loss | None,
    optimizer: torch.optim.Optimizer,
    *,
    clip_norm: float | None = None,
    accumulate: int = 1,
    **options: Any,
) -> TrainStep:
    """A function of a batch that trains `model` by one step and returns the loss.

    `loss_fn(model, *batch)` gives the loss, a tuple that starts with it, or an object that holds it as `loss`;
    the rest is returned with it.
    A loss that is itself a module (`nn.CrossEntropyLoss()`) is called with what the model makes of all but the last of
    the batch, and that last; None stands for a model that returns its own loss. The optimizer keeps its state,
    parameter groups, learning rates and schedules, and `state_dict`. SGD, Adam, AdamW, Adagrad, RMSprop and Lion are
    part of the program; any other optimizer makes its step itself. Nothing is left in `grad`.

    `clip_norm` bounds the norm of all gradients together; with `accumulate=k` every k-th call updates, by the sum of
    the gradients of k calls. `options` are those of `compile`: `backend` chooses what runs forward and backward,
    `memory` bounds what they need.
    """
    if accumulate < 1:
        raise BadOption(f"accumulate={accumulate}: a whole number of calls, at least 1")
    if _asks_for_closure(optimizer):
        raise Unsupported(f"{type(optimizer).__name__} evaluates the loss several times in a step: `compile` the model")
    return TrainStep(model, called(model, loss_fn), optimizer, clip_norm, accumulate, Options.parse(options))


def _asks_for_closure(optimizer: torch.optim.Optimizer) -> bool:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


@dataclass(frozen=True)
class Inputs:
    """What a graph is called with, and what the optimizer makes of that."""

    given: list[Any]
    trained: dict[int, int]  # input → parameter group
    waiting: dict[int, int] = field(default_factory=dict)  # the same, for those with a gradient of earlier calls
    left_over: list[Tensor] = field(default_factory=list)  # the last of these: no inputs of the graph
    shared: tuple[int, ...] = ()  # those trained whose memory other inputs have a part in

    @property
    def all(self) -> list[Any]:
        return [*self.given, *self.left_over]

    @property
    def described(self) -> tuple[Any, ...]:
        """What a program is written for."""
        types = tuple((p.shape, p.stride(), p.dtype, p.device) for p in self.left_over)
        return tuple(self.trained.items()), tuple(self.waiting.items()), types, self.shared


class TrainStep:
    """Call it with a batch: it trains and returns the loss. Print it after a call: it shows the program."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        clip: float | None,
        accumulate: int,
        options: Options,
    ) -> None:
        self.model, self.optimizer, self.clip, self.accumulate = model, optimizer, clip, accumulate
        self.options = options
        self.calls = 0
        self._programs: Recent[Program] = Recent(32)
        self._sums: dict[Tensor, Tensor] = {}  # gradients of the calls since the last update
        self._last: Program | None = None
        self._ran = False  # did the call that is being made train?
        self._lock = threading.RLock()
        self._call = torch_internals.compile_whole(loss, self._backend, most=64, dynamic=None)

    def __call__(self, *batch: Any, **named: Any) -> Any:
        with self._lock:  # threads take turns, as their updates of the same parameters have to
            return self._train(batch, named)

    def _train(self, batch: Sequence[Any], named: dict[str, Any]) -> Any:
        self._ran = False
        with torch.enable_grad():
            found = self._call(*batch, **named)
        if not self._ran:
            raise Unsupported("torch.compile is switched off (`set_stance`, TORCHDYNAMO_DISABLE): nothing was trained")
        if self._updates:
            self._sums.clear()
            torch_internals.mark_stepped(self.optimizer)
        self.calls += 1  # a call that raised is none
        return found

    def __str__(self) -> str:
        return str(self._last) if self._last else "a training step that was not called yet"

    @property
    def _updates(self) -> bool:
        """Does the call that is being made update the parameters?"""
        return (self.calls + 1) % self.accumulate == 0

    @property
    def _kind(self) -> Kind | None:
        """How the program updates; None if the optimizer steps itself, be it for the sake of hooks."""
        hooked = torch_internals.has_step_hooks(self.optimizer) or self._has_hooked_parameters
        return None if hooked else kind_of(self.optimizer)

    @property
    def _has_hooked_parameters(self) -> bool:
        """Is somebody to be handed a gradient on its own?"""
        groups = self.optimizer.param_groups
        return any(torch_internals.has_gradient_hooks(p) for group in groups for p in group["params"])

    def _backend(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What Dynamo calls with the graph of the loss. The result runs the whole step, returns what the loss does."""
        marked = take_mark(module)
        captured = replace(captured_and_prepared(module, inputs, self.options), inputs=())  # a batch is not held
        wrapped = captured.convention.wrap(lambda args: self._run(captured, marked, args))
        return torch_internals.keeping_versions(lambda *args: wrapped(list(args)), captured.versionless)

    def _run(self, captured: Captured, marked: int | None, args: list[Any]) -> list[Any]:
        kind, inputs = self._kind, self._inputs(args)
        flags = tuple(kind.flags(group) for group in self.optimizer.param_groups) if kind else ()
        key = (captured.graph, kind, flags, self._updates, *inputs.described)
        program = self._programs.find(key, lambda: self._build(captured, marked, kind, inputs))
        self._last = program
        args = inputs.all
        sums = {p: self._sum(p) for p in (args[i] for i in program.summed)}
        with torch.no_grad(), torch_internals.without_autocast():
            outs = program.run(args, self._further(program, kind, args, sums))
            torch.autograd.graph.increment_version([args[i] for i in program.updated])  # fused kernels do not
            self._sums |= sums  # not those of a call that raised
            if program.returned:
                self._let_optimizer_step([args[i] for i in program.returned], outs[program.results :])
        self._ran = True
        return outs[: program.results]

    def _build(self, captured: Captured, marked: int | None, kind: Kind | None, inputs: Inputs) -> Program:
        if self.accumulate > 1 and self._has_hooked_parameters:
            raise Unsupported("a parameter has a hook on its gradient, of which accumulate adds several up: remove one")
        _check(captured, inputs)
        loss = loss_output(captured, marked)
        count = len(ir.outputs(captured.graph))
        wrt = tuple(i in inputs.trained for i in range(len(inputs.given)))
        signature = Signature(wrt, tuple(k == loss for k in range(count)), mutated=())
        whole = join(DERIVATIVES.of(captured.graph, signature, self.options.memory, self.options.cache), loss)
        add_inputs(whole, inputs.left_over)
        groups, group_of = self.optimizer.param_groups, inputs.trained | inputs.waiting
        update = Update(
            kind, groups, group_of, self.clip, self.accumulate > 1, tuple(inputs.waiting), inputs.shared, self._updates
        )
        return compile_step(whole, update, self.options)

    def _inputs(self, args: list[Any]) -> Inputs:
        inputs = self._known(args)
        if self.options.lone_backend != "python":  # all updates are made in the end
            return inputs
        return replace(inputs, shared=read_elsewhere(inputs.all, [*(inputs.trained | inputs.waiting)]))

    def _known(self, args: list[Any]) -> Inputs:
        groups = {p: k for k, group in enumerate(self.optimizer.param_groups) for p in group["params"]}
        known = {i: groups[a] for i, a in enumerate(args) if isinstance(a, Tensor) and a in groups}
        trained = {i: k for i, k in known.items() if args[i].requires_grad}
        if not self._updates or not self._sums:
            return Inputs(args, trained)
        met = {args[i] for i in known}
        left_over = [p for p in self._sums if p in groups and p not in met]
        waiting = {i: k for i, k in known.items() if args[i] in self._sums}
        waiting |= {i: groups[p] for i, p in enumerate(left_over, len(args))}
        return Inputs(args, trained, waiting, left_over)

    def _further(
        self, program: Program, kind: Kind | None, args: Sequence[Any], sums: dict[Tensor, Tensor]
    ) -> list[Any]:
        """The optimizer's state and numbers, and the gradients of earlier calls, as the program takes them."""
        numbers = [kind.numbers(group) if kind else {} for group in self.optimizer.param_groups]
        states = {i: self._state(args[i], kind, names) for i, names in program.kept.items()}
        found: list[Any] = []
        for further in program.further:
            if further.what == "number":
                found.append(numbers[further.of][further.name])
            elif further.what == "state":
                found.append(states[further.of][further.name])
            else:
                found.append(sums[args[further.of]])
        return found

    def _state(self, parameter: Tensor, kind: Kind | None, names: Sequence[str]) -> dict[str, Tensor]:
        """What the optimizer keeps for a parameter; at its first step, what the optimizer would make.

        Others may keep something of theirs beside it.
        """
        state = self.optimizer.state[parameter]
        found = [state[name] for name in names if name in state]
        if kind is not None and (not found or any(value is None for value in found)):
            group = next(g for g in self.optimizer.param_groups if any(p is parameter for p in g["params"]))
            made = kind.state(group, parameter.detach())
            state.update({name: value for name, value in made.items() if state.get(name) is None})
        _lay_out(state, parameter)
        return state

    def _sum(self, parameter: Tensor) -> Tensor:
        found = self._sums.get(parameter)
        return torch.zeros_like(parameter, requires_grad=False) if found is None else found

    def _let_optimizer_step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        self.optimizer.zero_grad()  # what was left by somebody else
        try:
            for parameter, gradient in zip(parameters, _apart(gradients), strict=True):
                torch_internals.give_gradient(parameter, gradient)
            if self.clip is not None:
                nn.utils.clip_grad_norm_(parameters, self.clip)
            self.optimizer.step()
        finally:
            self.optimizer.zero_grad()


def _lay_out(state: dict[str, Any], parameter: Tensor) -> None:
    """Give what is kept for each number of a parameter its layout, on which fused kernels rely.

    It has another one if the parameter was laid out anew, or if it was loaded.
    """
    shape, stride = parameter.shape, parameter.stride()
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == shape and value.stride() != stride:
            state[name] = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def _apart(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Gradients that may be changed one by one: some are the same tensor, or one number seen as many."""
    seen: set[int] = set()
    found = []
    for gradient in gradients:
        memory = gradient.untyped_storage()
        shared = memory.data_ptr() in seen or memory.nbytes() != gradient.numel() * gradient.element_size()
        seen.add(memory.data_ptr())
        found.append(gradient.clone(memory_format=torch.contiguous_format) if shared else gradient)
    return found


def _check(captured: Captured, inputs: Inputs) -> None:
    """Is there something to train, that may be overwritten when the step is over?"""
    trained, args = inputs.trained | inputs.waiting, inputs.all
    if not inputs.trained:
        raise Unsupported("the loss depends on no parameter that the optimizer trains")
    storages = [args[i].untyped_storage().data_ptr() for i in trained if args[i].numel()]  # all empty ones have one
    if len(set(storages)) < len(storages) or set(trained) & set(captured.convention.mutated_inputs()):
        raise Unsupported("a parameter shares memory with another one, or is overwritten in the forward")
