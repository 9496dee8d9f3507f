"""What users call: parse arguments, call the pipeline."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from tapeless import torch_internals
from tapeless.capture.program import Captured
from tapeless.errors import NotATensor, NotDependent
from tapeless.gradient import Gradient
from tapeless.ir import graph as ir
from tapeless.layers import transformable
from tapeless.options import Options
from tapeless.pipeline import differentiate_captured, prepared, trace

Wrt = int | str | Sequence[int | str] | None


def compile(
    model: Callable[..., Any], *, options: Mapping[str, Any] | None = None, **keywords: Any
) -> Callable[..., Any]:
    """`torch.compile(model, backend="tapeless")`; torch.compile's own settings are passed on, and Tapeless' options are
    keywords too, or in `options` as they are there.

    `torch.autograd.grad` and `backward()` inside the model are part of its graph, and differentiable again. Transforms
    of `torch.func` around it are answered with programs of its graph.
    """
    theirs = {k: v for k, v in keywords.items() if k in _TORCH_COMPILE}
    ours = {**(options or {}), **{k: v for k, v in keywords.items() if k not in _TORCH_COMPILE}}
    Options.parse(ours)
    compiled = torch_internals.compile_capturing_autograd(model, "tapeless", ours, **theirs)
    return compiled if theirs.get("disable") else transformable(model, compiled)


_TORCH_COMPILE = ("fullgraph", "dynamic", "disable")


def differentiate(
    function: Callable[..., Any] | torch.export.ExportedProgram,
    *examples: Any,
    wrt: Wrt = None,
    undefined: Sequence[int] = (),
    options: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Gradient:
    """The forward and the backward of `function` (or of an exported program) at inputs like `examples`, as programs.

    `wrt` names the arguments to differentiate by, by position or name (default: the tensor arguments that require a
    gradient, or all floating point ones if none does); parameters of a module that require a gradient always count.
    `undefined` lists the outputs that never receive a cotangent. `options` are those of `compile`.
    """
    call = Call.of(function, examples, wrt, keywords)
    chosen = Options.parse(options)
    return call.differentiate(prepared(call.captured, chosen), undefined, chosen)


@dataclass(frozen=True)
class Call:
    """A function captured at example arguments, and by which of them it is differentiated."""

    captured: Captured
    arguments: dict[str, Any]  # by name, requiring gradients where they are asked for
    named: tuple[str, ...]  # the arguments that the user asked to differentiate by

    @classmethod
    def of(cls, function: Any, examples: tuple[Any, ...], wrt: Wrt, keywords: dict[str, Any]) -> Call:
        if isinstance(function, torch.export.ExportedProgram):
            function = function.module()
        names = _argument_names(function, len(examples), keywords)
        given = dict(zip(names, (*examples, *keywords.values()), strict=True))
        chosen = _chosen(given, wrt)
        tracked = {name: _tracked(value, name in chosen) for name, value in given.items()}
        args = tuple(tracked[name] for name in names[: len(examples)])
        captured = trace(function, args, {name: tracked[name] for name in keywords})
        return cls(captured, tracked, tuple(chosen) if wrt is not None else ())

    def differentiate(self, captured: Captured, undefined: Sequence[int], options: Options) -> Gradient:
        """The derivative of the captured graph, or of what the passes made of it."""
        leaves = [(name, leaf) for name, value in self.arguments.items() for leaf in _tensors(value)]
        gradient = differentiate_captured(captured, leaves, undefined, options.memory)
        _check_dependence(gradient, self.named, self.arguments, [leaf for _, leaf in leaves])
        return gradient


def _argument_names(function: Callable[..., Any], count: int, keywords: dict[str, Any]) -> list[str]:
    """Names of the positional arguments, then of the keywords."""
    target = function.forward if isinstance(function, torch.nn.Module) else function
    parameters = list(inspect.signature(target).parameters.values())
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    return [*positional, *(f"args_{i}" for i in range(len(positional), count)), *keywords]


def _chosen(given: dict[str, Any], wrt: Wrt) -> dict[str, Any]:
    """The arguments to differentiate by."""
    if wrt is None:
        requiring = {name: v for name, v in given.items() if any(t.requires_grad for t in _floating(v))}
        return requiring or {name: value for name, value in given.items() if _floating(value)}
    names = list(given)
    wanted = [wrt] if isinstance(wrt, (int, str)) else list(wrt)
    chosen = {}
    for item in wanted:
        name = names[item] if isinstance(item, int) and -len(names) <= item < len(names) else item
        if name not in given:
            raise NotATensor(f"`wrt` {item!r}", f"no such argument; the arguments are {', '.join(names)}")
        if not _floating(given[name]):
            raise NotATensor(f"argument `{name}`, named in `wrt`,", _describe(given[name]))
        chosen[name] = given[name]
    return chosen


def _tracked(value: Any, wanted: bool) -> Any:
    def track(t: torch.Tensor) -> torch.Tensor:
        return t.detach().requires_grad_(wanted and ir.is_differentiable_type(t))

    return tree_map_only(torch.Tensor, track, value)


def _floating(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if ir.is_differentiable_type(leaf)]


def _describe(value: Any) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else f"{type(value).__name__} {value!r}"


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _check_dependence(gradient: Gradient, chosen: Sequence[str], tracked: dict[str, Any], leaves: list[Any]) -> None:
    """Every argument the user named gets a gradient from some output."""
    reached = {id(leaves[i]) for i in gradient.gradient_inputs if i < len(leaves)}
    missing = [name for name in chosen if not any(id(leaf) in reached for leaf in tree_leaves(tracked[name]))]
    if missing:
        outputs = ir.outputs(gradient.forward.graph)[: gradient.real_outputs]
        raise NotDependent(tuple(missing), tuple(str(output) for output in outputs))
