"""Several calls of one kind as one call on more data.

On a CPU the data has to be put together first, which usually costs more than the calls: the cost model decides, and
all of these are off unless asked for (docs/decisions/0014-grouping.md has the figures).

Members of a group must get gradients together: one that gets none would otherwise get zeros. They do if the same
outputs of the program depend on them. And none may depend on another: they stand at the same depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from tapeless.ir import graph as ir
from tapeless.prepare import facts
from tapeless.prepare.calls import arguments, operator_name
from tapeless.prepare.editor import Editor
from tapeless.prepare.passes import Pass, Phase, sweep

Tensor = torch.Tensor

POINTWISE = ("relu", "tanh", "sigmoid", "gelu", "silu", "nan_to_num", "clamp", "exp", "sin", "cos", "abs", "neg")
SHAPE_ONLY = ("empty_like", "zeros_like", "ones_like", "full_like", "new_ones", "new_zeros", "new_full", "new_empty")
LEAST = 2
FEW = 64  # rows of a product: of more the call itself takes no time that could be saved


@sweep(phase=Phase.GROUP, relayout=True)
def fuse_parallel_linears(editor: Editor) -> None:
    """Linear maps of one input are one product with the weights side by side: query, key and value; gate and up."""
    for group in _groups(editor, _linear_of_one_input):
        kept = editor.is_fixed(*(a for node in group for a in _weights(node)))
        if editor.forced or (kept and ir.value(group[0]).shape[0] <= FEW):
            _fuse_linears(editor, group)


def _weights(node: fx.Node) -> list[fx.Node]:
    """The matrix and the bias, if there is one."""
    return [node.args[1]] if operator_name(node) == "mm" else [node.args[0], node.args[2]]  # type: ignore[list-item]


def _linear_of_one_input(node: fx.Node) -> Any:
    name, given = operator_name(node), arguments(node)
    if name == "mm" and operator_name(given["mat2"]) == "t":
        return "mm", given["self"], ir.value(node).dtype
    plain = name == "addmm" and (given["beta"], given["alpha"]) == (1, 1)
    if plain and operator_name(given["mat2"]) == "t" and ir.value(given["self"]).dim() == 1:
        return "addmm", given["mat1"], ir.value(node).dtype
    return None


def _fuse_linears(editor: Editor, group: list[fx.Node]) -> None:
    biased = operator_name(group[0]) == "addmm"
    weights = [arguments(node)["mat2"].args[0] for node in group]

    def build() -> list[Tensor]:
        x = editor.value(arguments(group[0])["mat1" if biased else "self"])
        whole = torch.cat(editor.value(weights)).t()
        sizes = [ir.value(node).shape[1] for node in group]
        shift = torch.cat([editor.value(node.args[0]) for node in group]) if biased else None
        return list((torch.mm(x, whole) if shift is None else torch.addmm(shift, x, whole)).split(sizes, 1))

    editor.replace_all(group, [node.args[-1] for node in group], build)  # type: ignore[misc]


@sweep(phase=Phase.GROUP, default=False)
def batch_linears(editor: Editor) -> None:
    """Linear maps of equal shapes are one batched product."""
    for group in _groups(editor, _linear):
        biased = operator_name(group[0]) == "addmm"

        def build(group: list[fx.Node] = group, biased: bool = biased) -> list[Tensor]:
            names = ("mat1", "mat2") if biased else ("self", "mat2")
            x, w = (torch.stack(editor.value([arguments(node)[name] for node in group])) for name in names)
            if not biased:
                return list(torch.bmm(x, w).unbind(0))
            shift = torch.stack(editor.value([node.args[0] for node in group])).unsqueeze(1)
            return list(torch.baddbmm(shift, x, w).unbind(0))

        editor.replace_all(group, [], build)


def _linear(node: fx.Node) -> Any:
    name, given = operator_name(node), arguments(node)
    if name == "addmm" and ((given["beta"], given["alpha"]) != (1, 1) or ir.value(given["self"]).dim() != 1):
        return None
    return (name, *map(_type, node.all_input_nodes)) if name in ("mm", "addmm") else None


@sweep(phase=Phase.GROUP, default=False)
def batch_layer_norms(editor: Editor) -> None:
    """Layer norms of equal shapes: normalize all at once, then scale and shift each with its own weights."""
    for group in _groups(editor, _layer_norm):
        given = [arguments(node) for node in group]

        def build(given: list[dict[str, Any]] = given) -> list[Tensor]:
            x = torch.stack(editor.value([g["input"] for g in given]))
            size, eps = given[0]["normalized_shape"], given[0]["eps"]
            y = torch.ops.aten.native_layer_norm(x, size, None, None, eps)[0]
            ones = [1] * (x.dim() - 1 - len(size))
            for name, combine in (("weight", torch.mul), ("bias", torch.add)):
                if given[0][name] is not None:
                    side = torch.stack(editor.value([g[name] for g in given]))
                    y = combine(y, side.view(len(given), *ones, *size))
            return list(y.unbind(0))

        items = [user for node in group for user in node.users]
        if len(items) == len(group) and all(item.args[1] == 0 for item in items):
            editor.replace_all(items, group, build)


def _layer_norm(node: fx.Node) -> Any:
    if operator_name(node) != "native_layer_norm":
        return None
    given = arguments(node)
    present = given["weight"] is not None, given["bias"] is not None
    return tuple(given["normalized_shape"]), given["eps"], present, tuple(map(_type, node.all_input_nodes))


@sweep(phase=Phase.GROUP, default=False)
def batch_pointwise(editor: Editor) -> None:
    """One elementwise call on several values of a type: on all of them, stacked."""
    for group in _groups(editor, _pointwise):
        rest = {name: value for name, value in arguments(group[0]).items() if name != "self"}

        def build(group: list[Any] = group, rest: dict[str, Any] = rest) -> list[Tensor]:
            stacked = torch.stack(editor.value([node.args[0] for node in group]))
            return list(group[0].target(stacked, **rest).unbind(0))

        editor.replace_all(group, [], build)


def _pointwise(node: fx.Node) -> Any:
    if operator_name(node) not in POINTWISE or len(node.all_input_nodes) != 1 or not node.args:
        return None
    rest = {name: value for name, value in arguments(node).items() if name != "self"}
    return node.target, str(rest), _type(node.all_input_nodes[0])


# -- who belongs together --------------------------------------------------------------------------------------------


def _groups(editor: Editor, key: Callable[[fx.Node], Any]) -> Iterator[list[fx.Node]]:
    """Calls with the same key, tags, depth and outputs that depend on them; at least two."""
    depth, reach = _depths(editor.graph), _reached_outputs(editor.graph)
    found: dict[Any, list[fx.Node]] = {}
    for node in ir.calls(editor.graph):
        if node.op == "call_function" and facts.is_pure(node) and (kind := key(node)) is not None:
            found.setdefault((kind, facts.tags(node), depth[node], reach[node]), []).append(node)
    yield from (group for group in found.values() if len(group) >= LEAST and not any(n._erased for n in group))


def _depths(graph: fx.Graph) -> dict[fx.Node, int]:
    """The longest way from an input: of two calls at the same depth none depends on the other."""
    depth = dict.fromkeys(ir.inputs(graph), 0)
    for node in ir.calls(graph):
        depth[node] = 1 + max((depth[a] for a in node.all_input_nodes), default=0)
    return depth


def _reached_outputs(graph: fx.Graph) -> dict[fx.Node, int]:
    """For each value the outputs that carry its derivative, as bits."""
    reach: dict[fx.Node, int] = {}
    for bit, output in enumerate(ir.outputs(graph)):
        if isinstance(output, fx.Node):
            reach[output] = reach.get(output, 0) | 1 << bit
    for node in reversed(ir.calls(graph)):
        own = reach.setdefault(node, 0)
        if facts.may_carry(node) and operator_name(node) not in SHAPE_ONLY:
            for argument in node.all_input_nodes:
                reach[argument] = reach.get(argument, 0) | own
    return reach


def _type(node: fx.Node) -> Any:
    val = ir.value(node)
    return val.dtype, val.device, tuple(map(str, val.shape)), tuple(map(str, val.stride()))


GROUPING: tuple[Pass, ...] = (fuse_parallel_linears, batch_linears, batch_layer_norms, batch_pointwise)
