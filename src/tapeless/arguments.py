"""Arguments and results of transforms: which are meant, whether they fit, and where derivatives go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from tapeless.derive import Halves
from tapeless.differentiate.reverse import memory_format
from tapeless.errors import BadOption, NotATensor
from tapeless.functions import Slot, Traced, slots
from tapeless.ir import graph as ir

Argnums = int | tuple[int, ...]


def checked_argnums(argnums: Any) -> Argnums:
    if isinstance(argnums, int):
        return argnums
    if not isinstance(argnums, (tuple, list)) or not argnums or not all(isinstance(i, int) for i in argnums):
        raise BadOption(f"argnums must be an integer or a tuple of integers, got {argnums!r}")
    return tuple(argnums)


def chosen(traced: Traced, argnums: Argnums) -> Any:
    """The arguments to differentiate by."""
    positional = traced.args[0]
    for i in (argnums,) if isinstance(argnums, int) else argnums:
        if not -len(positional) <= i < len(positional):
            raise BadOption(f"argnums={argnums}: the function was called with {len(positional)} positional arguments")
        for slot in tree_leaves(positional[i]):
            if slot is None or not ir.is_differentiable_type(traced.input_value(slot)):
                raise NotATensor(f"argument {i}, named in argnums,", described(traced, slot, argument=True))
    return positional[argnums] if isinstance(argnums, int) else tuple(positional[i] for i in argnums)


def described(traced: Traced, leaf: Any, argument: bool = False) -> str:
    if isinstance(leaf, Slot):
        return f"a tensor of {(traced.input_value if argument else traced.output_value)(leaf).dtype}"
    return "something else" if argument else f"{type(leaf).__name__} {leaf!r}"


def with_aux(out: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise BadOption("has_aux=True: the function must return a pair (value, aux)")
    return out[0], out[1]


def floating(traced: Traced, tree: Any) -> list[Slot]:
    return [slot for slot in slots(tree) if ir.is_differentiable_type(traced.input_value(slot))]


def placed(tree: Any, places: Sequence[Slot], values: Sequence[Any]) -> Any:
    """The tree with `values` at the slots `places`, None at all others."""
    table = dict(zip(places, values, strict=True))
    return tree_map(lambda leaf: table.get(leaf) if isinstance(leaf, Slot) else None, tree)


def vectors_for(halves: Halves, tree: Any, given: Any, value: Callable[[Slot], torch.Tensor], what: str) -> list[Any]:
    """One vector per slot that takes one, in the memory format that the program was written for."""
    (places, spec), (leaves, found) = tree_flatten(tree), tree_flatten(given)
    if spec != found:
        raise BadOption(f"the {what} must have the structure {spec}, got {found}")
    by_slot = dict(zip(places, leaves, strict=True))
    vectors = []
    for slot in halves.vectors:
        val, vector = value(slot), by_slot[slot]
        if not isinstance(vector, torch.Tensor) or vector.shape != val.shape or vector.dtype != val.dtype:
            raise NotATensor(f"a {what} of shape {tuple(val.shape)} and {val.dtype}", _type(vector))
        vectors.append(vector.contiguous(memory_format=memory_format(val)))
    return vectors


def dense(found: Sequence[Any], places: Sequence[Slot], value: Callable[[Slot], torch.Tensor]) -> list[torch.Tensor]:
    """Zeros for results that are structurally zero."""
    types = [value(slot) for slot in places]
    return [
        torch.zeros(val.shape, dtype=val.dtype, device=val.device) if t is None else t
        for t, val in zip(found, types, strict=True)
    ]


def check_alike(what: str, primals: Any, vectors: Any) -> None:
    """Same structure, same types: anything else would broadcast into a wrong derivative."""
    (leaves, spec), (others, found) = tree_flatten(tuple(primals)), tree_flatten(tuple(vectors))
    if spec != found:
        raise BadOption(f"{what} must have the structure of the primals, {spec}, got {found}")
    for leaf, other in zip(leaves, others, strict=True):
        if _type(leaf) != _type(other):
            raise BadOption(f"{what} must have the types of the primals: {_type(other)} for {_type(leaf)}")


def _type(leaf: Any) -> str:
    return f"{leaf.dtype} of shape {tuple(leaf.shape)}" if isinstance(leaf, torch.Tensor) else type(leaf).__name__
