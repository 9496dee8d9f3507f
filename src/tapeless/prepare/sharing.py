"""A value that is computed twice is computed once."""

from __future__ import annotations

from typing import Any

from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare import facts
from tapeless.prepare.editor import Editor
from tapeless.prepare.passes import Pass, Phase, sweep


@sweep(phase=Phase.SHARE, symbolic=True)
def share_equal_values(editor: Editor) -> None:
    """Calls of the same operator on the same arguments, under the same tags, are one call."""
    first: dict[Any, fx.Node] = {}
    for node in ir.calls(editor.graph):
        if node._erased or node.op != "call_function" or not facts.is_pure(node) or _narrows(editor, node):
            continue
        key = (node.target, _frozen(node.args), _frozen(node.kwargs), facts.tags(node))
        known = first.setdefault(key, node)
        if known is not node:
            editor.replace(node, [known], lambda known=known: editor.value(known))


def _narrows(editor: Editor, node: fx.Node) -> bool:
    """A derivative that passes a narrowing cast: shared, its parts would be summed before they are widened again."""
    if node not in editor.active or not ir.is_tensor(node):
        return False
    widths = [ir.value(a).element_size() for a in node.all_input_nodes if a in editor.active and ir.is_tensor(a)]
    return any(width > ir.value(node).element_size() for width in widths)


def _frozen(value: Any) -> Any:
    """Comparable by what it is: nodes by identity, numbers by type and value (1, 1.0 and True differ)."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple((key, _frozen(v)) for key, v in value.items())
    return (type(value), str(value)) if isinstance(value, float) else (type(value), value)


SHARING: tuple[Pass, ...] = (share_equal_values,)
