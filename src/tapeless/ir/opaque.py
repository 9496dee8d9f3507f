"""A derivative that cannot be written down as a graph: autograd takes it, while the program runs.

An operator registered from outside may have a backward whose sizes depend on its data, a loop over `lengths.tolist()`
for example. It runs as it stands, on real tensors, and the graph shows it as one node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from tapeless.torch_internals import registered_call

Cotangents = Sequence[torch.Tensor | None]


@dataclass(frozen=True)
class AutogradVjp:
    """Target of a node `vjp(cotangents, results, arguments, keywords)`: the gradients of the leaves `wanted`.

    `results` are what an operator `function(*arguments, **keywords)` returned. A cotangent may be None. So may a
    gradient: the backward decides that when it runs.
    """

    function: OpOverload | AutogradVjp
    wanted: tuple[int, ...]  # positions among the leaves of `arguments`
    __name__: str = "autograd_vjp"

    def __str__(self) -> str:
        return f"the derivative of {self.function}"

    def __call__(
        self, cotangents: Cotangents, results: Any, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> list[torch.Tensor | None]:
        again = torch.is_grad_enabled()
        leaves, spec = tree_flatten(list(arguments))
        with torch.enable_grad():
            tracked = [_tracked(leaf, i in self.wanted, again) for i, leaf in enumerate(leaves)]
            found = self._call(tree_unflatten(tracked, spec), keywords, results)
            pairs = [(o, g) for o, g in zip(found, cotangents, strict=True) if g is not None and _is_tracked(o)]
            inputs = [tracked[i] for i in self.wanted]
            if not pairs:
                return [None] * len(inputs)
            outputs, arriving = zip(*pairs, strict=True)
            return list(torch.autograd.grad(outputs, inputs, arriving, allow_unused=True, create_graph=again))

    def _call(self, arguments: list[Any], keywords: dict[str, Any], results: Any) -> list[Any]:
        """The results, differentiable by autograd."""
        if isinstance(self.function, AutogradVjp):
            return self.function(*arguments, **keywords)
        return tree_leaves(registered_call(self.function, arguments, keywords, results))

    def narrowed(self, used: Sequence[int]) -> AutogradVjp:
        """Only the gradients at the positions `used`."""
        return replace(self, wanted=tuple(self.wanted[i] for i in used))


def _tracked(leaf: Any, wanted: bool, again: bool) -> Any:
    """An argument that autograd tells from all others, if `wanted`; with `again` it remembers where it came from."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if again and leaf.requires_grad:
        return leaf.view_as(leaf) if wanted else leaf
    return leaf.detach().requires_grad_(wanted)


def _is_tracked(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.requires_grad
