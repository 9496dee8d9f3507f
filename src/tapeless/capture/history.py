"""Mutation that autograd does not see: under `no_grad`, through `.data`, through `.detach()`.

In eager such a write changes the values of a tensor and leaves its derivative what it was. A functional graph knows
values alone, so the Dynamo graph is run once on fake tensors, with eager's own autograd watching; where a tensor that
requires a gradient was overwritten behind autograd's back, a `CustomFunction` gives the new value the derivative of
the old one. A tangent may arrive where nothing requires a gradient, so writes through `.detach()` and `.data`, which
forward mode does not see either, are looked for once more as if everything required one.
"""

from __future__ import annotations

import contextlib
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.capture.custom import keep_history
from tapeless.capture.facts import is_cut_in_dynamo, is_detach
from tapeless.ir import graph as ir

Undo = Callable[[], None]
Unseen = dict[
    fx.Node, list[tuple[fx.Node, tuple[bool, bool]]]
]  # who writes → to what; is its version hidden, is it apart

IN_PLACE = {
    operator.setitem,
    *(getattr(operator, name) for name in ("iadd", "isub", "imul", "itruediv", "ipow", "imatmul")),
}

MAX_NORM, NORM_TYPE = 3, 4  # positions, in the embeddings that shrink the rows of their weight before they read them


@contextlib.contextmanager
def histories_kept(module: fx.GraphModule) -> Iterator[tuple[int, ...]]:
    """While it lasts, the Dynamo graph of `module` (and of the bodies it calls) says what its unseen writes mean.

    Yields the inputs of `module` that are written to without a change of their version.
    """
    undo: list[Undo] = []
    versionless: tuple[int, ...] = ()
    try:
        for part in _parts(module):
            undo += _writes_apart(part.graph)
            seen = _Witness(part)
            if undo or any(map(is_cut_in_dynamo, part.graph.nodes)):
                seen.watch()
                versionless = seen.versionless if part is module else versionless
            if any(map(is_detach, part.graph.nodes)) and any(map(_may_write, part.graph.nodes)):
                seen.unseen = _together(seen.unseen, _apart_from_all(part))
            undo += _write_down(part.graph, seen)
        yield versionless
    finally:
        for step in reversed(undo):
            step()


def _may_write(node: fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") or node.target in IN_PLACE
    return node.op.startswith("call") and (in_place or "out" in node.kwargs)


def _apart_from_all(part: fx.GraphModule) -> Unseen:
    """Writes through `.detach()` or `.data`, if everything required a gradient; none of what autograd would refuse."""
    seen = _Witness(part)
    with contextlib.suppress(RuntimeError):
        seen.watch(pretending=True)
    return {node: [(value, how) for value, how in written if how[1]] for node, written in seen.unseen.items()}


def _together(known: Unseen, further: Unseen) -> Unseen:
    """What is known, and writes to other values that are further known; each in the order of the program."""
    found = {}
    for node in {**known, **further}:
        values = dict(further.get(node, ())) | dict(known.get(node, ()))
        order = {n: i for i, n in enumerate(node.graph.nodes)}
        found[node] = sorted(values.items(), key=lambda written: order[written[0]])
    return found


def _writes_apart(graph: fx.Graph) -> Iterator[Undo]:
    """Calls that write to an argument unseen and read it then, as two calls."""
    for function in (torch.nn.functional.embedding, torch.nn.functional.embedding_bag):
        for node in graph.find_nodes(op="call_function", target=function):
            args, kwargs = node.args, node.kwargs
            given = dict(enumerate(args)) | {MAX_NORM: kwargs.get("max_norm", dict(enumerate(args)).get(MAX_NORM))}
            if given[MAX_NORM] is None:
                continue
            norm = kwargs.get("norm_type", given.get(NORM_TYPE, 2.0))
            indices, weight = (kwargs.get(name, given.get(i)) for i, name in enumerate(("input", "weight")))
            with graph.inserting_before(node):
                shrink = graph.call_function(_shrink, (weight, indices, given[MAX_NORM], norm))
            shrink.meta = {"stack_trace": node.meta.get("stack_trace"), "custom": {"no_grad": True}}
            node.args = tuple(None if i == MAX_NORM else a for i, a in enumerate(args))
            node.kwargs = {name: value for name, value in kwargs.items() if name != "max_norm"}
            yield partial(_restore, node, args, kwargs, shrink)


def _restore(node: fx.Node, args: Any, kwargs: Any, inserted: fx.Node) -> None:
    node.args, node.kwargs = args, kwargs
    node.graph.erase_node(inserted)


def _shrink(weight: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float) -> None:
    torch.embedding_renorm_(weight.detach(), indices.contiguous(), max_norm, norm_type)


def _parts(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """The module and the bodies that it calls, but for custom functions and hooks: their derivative is their own."""
    apart = (torch_internals.autograd_function_apply, torch_internals.register_hook)
    yield module
    for node in module.graph.find_nodes(op="get_attr"):
        body = getattr(module, str(node.target), None)
        own = any(user.target in apart for user in node.users)
        if isinstance(body, fx.GraphModule) and not own:
            yield from _parts(body)


def _write_down(graph: fx.Graph, seen: _Witness) -> Iterator[Undo]:
    for node, written in seen.unseen.items():
        for value, how in reversed(written):  # so that the base, which was there first, is written first
            yield from _keep_history(graph, node, value, how)
    for node, values in seen.detached.items():
        for value in values:
            yield _detach_after(graph, node, value)


def _keep_history(graph: fx.Graph, node: fx.Node, value: fx.Node, how: tuple[bool, bool]) -> Iterator[Undo]:
    """`node` writes to `value` unseen: its derivative stays that of a copy made before."""
    with graph.inserting_before(node):
        before = graph.call_method("clone", (value,))
    with graph.inserting_after(node):
        after = graph.call_function(keep_history, (before, value, *how))
    for new in (before, after):
        new.meta = {"stack_trace": node.meta.get("stack_trace"), "custom": {}}
        yield partial(graph.erase_node, new)


def _detach_after(graph: fx.Graph, node: fx.Node, value: fx.Node) -> Undo:
    """`y.detach_()`: whoever reads `y` from now on reads `y.detach()`."""
    order = {n: i for i, n in enumerate(graph.nodes)}
    with graph.inserting_after(node):
        detached = graph.call_method("detach", (value,))
    detached.meta = {**node.meta, "custom": {"no_grad": True}}
    value.replace_all_uses_with(detached, lambda user: user is not detached and order[user] > order[node])

    def undo() -> None:
        detached.replace_all_uses_with(value)
        graph.erase_node(detached)

    return undo


_NONE = object()  # the history of a tensor that requires no gradient


class _Witness(fx.Interpreter):
    """Runs a Dynamo graph on fake tensors and notes which histories survived a write, and which were dropped."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.unseen: Unseen = defaultdict(list)
        self.detached: dict[fx.Node, list[fx.Node]] = defaultdict(list)
        self.histories: dict[fx.Node, tuple[Any, int]] = {}  # and versions
        self.sharing: dict[int | None, list[fx.Node]] = defaultdict(list)  # by storage
        self.apart: set[fx.Node] = set()  # detached aliases, and views of them
        self.versionless: tuple[int, ...] = ()  # inputs whose memory changed while their version did not
        self._written: set[int | None] = set()  # storages

    def watch(self, pretending: bool = False) -> None:
        examples = [node.meta.get("example_value") for node in ir.inputs(cast(fx.Graph, self.module.graph))]
        mode = torch_internals.fake_mode_of(examples)
        with torch_internals.tracing_on_fakes(), mode, torch_internals.ignoring_fresh_symbols(mode):
            inputs = [_input_like(example, pretending) for example in examples]
            versions = [_version(x) if isinstance(x, torch.Tensor) else None for x in inputs]
            self.run(*inputs, enable_io_processing=False)
        self.versionless = tuple(
            i
            for i, x in enumerate(inputs)
            if isinstance(x, torch.Tensor) and versions[i] == _version(x) and _storage(x) in self._written
        )

    def run_node(self, n: fx.Node) -> Any:
        arguments = {a: self.env[a] for a in n.all_input_nodes if isinstance(self.env[a], torch.Tensor)}
        before = {a: (_version(t), t.requires_grad) for a, t in arguments.items()}
        result = super().run_node(n)
        for a, t in arguments.items():
            if before[a][1] and not t.requires_grad:
                self.detached[n].append(a)
        changed = {a: _storage(t) for a, t in arguments.items() if _version(t) != before[a][0]}
        for storage in set(changed.values()) - {None}:
            self._note_write(n, storage, _written([a for a in changed if changed[a] == storage], n) in self.apart)
        if isinstance(result, torch.Tensor):
            self.histories[n] = _history(result), _version(result)
            self._note_alias(n, _storage(result))
        return result

    def _note_alias(self, node: fx.Node, storage: int | None) -> None:
        others = self.sharing[storage]
        of_one = storage is not None and any(a in self.apart and a in others for a in node.all_input_nodes)
        if is_detach(node) or of_one:
            self.apart.add(node)
        others.append(node)

    def _note_write(self, node: fx.Node, storage: int | None, apart: bool) -> None:
        """Whoever shares the memory that was written and still has the history it had, does not know of it."""
        self._written.add(storage)
        noted: set[int] = set()
        for other in self.sharing[storage]:
            tensor = self.env[other]
            history, version = self.histories[other]
            self.histories[other] = _history(tensor), _version(tensor)
            if history is not _NONE and history is self.histories[other][0] and id(tensor) not in noted:
                noted.add(id(tensor))
                self.unseen[node].append((other, (_version(tensor) == version, apart)))


def _written(changed: list[fx.Node], node: fx.Node) -> fx.Node:
    """Of the arguments of `node` that share the memory it wrote, the one it was told to write to."""
    told = (node.kwargs.get("out"), *node.args[:1])
    return next((a for a in changed if any(a is each for each in told)), changed[0])


def _input_like(example: Any, pretending: bool) -> Any:
    """Another tensor of the type of `example`, a leaf of the autograd graph only if `example` is one."""
    if not isinstance(example, torch.Tensor):
        return example
    if pretending:
        return example.detach().requires_grad_(ir.is_differentiable_type(example)).clone()
    leaf = example.detach().requires_grad_(example.requires_grad)
    return leaf if example.is_leaf else leaf.clone()


def _history(tensor: torch.Tensor) -> Any:
    """Where the tensor's derivative comes from (a view's, from its base): None for a leaf, `_NONE` if it has none."""
    if not tensor.requires_grad:
        return _NONE
    if tensor._base is None:
        return tensor.grad_fn
    return tensor._base.grad_fn if tensor._base.requires_grad and _is_tracked(tensor) else _NONE


def _is_tracked(view: torch.Tensor) -> bool:
    """A view made under `no_grad` says that it requires a gradient, but knows no way to its base."""
    try:
        return view.grad_fn is not None
    except Exception:  # what eager says once the base was written to or reshaped: views are made again, which may fail
        return False


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _storage(tensor: torch.Tensor) -> int | None:
    """What tells whether two tensors share memory; None for one that has no memory of its own (under `vmap`)."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None
