"""What a second derivative reads beyond the first.

`values, vectors = eigh(x)`: the gradient of the values reads the vectors, so these are saved. At second order they get
a cotangent of their own, and its way back through `eigh` reads the values too. Any other temporary lies on the way to
an output, where everything its derivative reads is saved already; an unused result beside a used one does not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator

from torch import fx

from tapeless.differentiate.forward import SingleVjp
from tapeless.differentiate.reverse import Joint
from tapeless.errors import TapelessError
from tapeless.ir import graph as ir
from tapeless.rules.traced import Untraceable


def further_captures(joint: Joint, captures: list[fx.Node], is_free: Callable[[fx.Node], bool]) -> set[fx.Node]:
    """The values that the derivatives of captured elements read, were all elements beside them to have cotangents."""
    elements = [node for node in captures if _is_element(node) and ir.is_differentiable_type(ir.value(node))]
    sources = dict.fromkeys(source for node in elements for source in node.all_input_nodes if source in joint.active)
    stack = [value for source in sources for value in _reads(source, joint.active)]
    found: set[fx.Node] = set()
    while stack:
        node = stack.pop()
        if is_free(node):
            stack.extend(node.all_input_nodes)
        else:
            found.add(node)
    return found


def _is_element(node: fx.Node) -> bool:
    return node.target is operator.getitem


def _reads(node: fx.Node, active: set[fx.Node]) -> Iterator[fx.Node]:
    """The arguments and the results of `node` that its derivative reads."""
    try:
        vjp = SingleVjp(node, [argument for argument in node.all_input_nodes if argument in active])
    except (Untraceable, TapelessError):
        return  # second order will say so, should it come to that
    vjp.graph.eliminate_dead_code()
    call = vjp.copies[node]
    for argument, copy in vjp.copies.items():
        if argument is not node and any(user is not call for user in copy.users):
            yield argument
    for element in call.users:
        yield _element(node, element)


def _element(node: fx.Node, like: fx.Node) -> fx.Node:
    index = like.args[1]
    found = next((user for user in node.users if user.target is operator.getitem and user.args[1] == index), None)
    if found is not None:
        return found
    with node.graph.inserting_after(node):
        new = node.graph.call_function(operator.getitem, (node, index))
    new.meta = dict(node.meta)
    ir.set_value(new, ir.value(node)[index])
    return new
