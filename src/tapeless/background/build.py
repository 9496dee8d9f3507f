"""An order carried out: texts traced into one graph, cut where least is saved, both parts compiled by Inductor."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.background.cut import cut
from tapeless.background.order import Answer, Order, TensorType
from tapeless.background.products import SCRATCH, prefer_faster_products
from tapeless.errors import Unsupported
from tapeless.ir.reuse import Terms
from tapeless.partition.schedule import at_the_peak, with_lower_peak
from tapeless.torch_internals import Artifact

Boxed = Callable[[list[Any]], list[Any]]

FUSED = Terms(fused=True)

_COMPILERS = max(1, (os.cpu_count() or 1) - 1)  # the program has a processor to itself

# A product alone: nothing for the C++ compiler to do.
REHEARSAL = Order(
    forward="import torch\ndef forward(args):\n    return [torch.ops.aten.mm.default(args[0], args[0])]",
    inputs=(TensorType((32, 32), (32, 1), torch.float32),),
    real_outputs=1,
    sizes={},
    threads=1,
    precision="highest",
)


class Builder:
    """Carries out one order after the other. Made while nothing is ordered yet, with a rehearsal: much of Inductor is
    loaded, and the patterns of its passes are made, at their first use."""

    def __init__(self) -> None:
        self._trust = torch_internals.Trust()
        torch_internals.write_whole_files()
        threading.Thread(target=_compile_header, daemon=True).start()
        self.rehearsed = build(REHEARSAL)

    def build(self, order: Order) -> Answer:
        """Compile what is ordered; again, if the C++ compiler was thought too much of."""
        try:
            return build(order)
        except Exception as problem:
            if not self._trust.is_granted or not torch_internals.is_refusal(problem):
                raise
            self._trust.withdraw()
            return build(order)


def _compile_header() -> None:
    with contextlib.suppress(Exception):  # what is wrong is told with the first order
        torch_internals.compile_header()


def build(order: Order) -> Answer:
    """Compile what is ordered."""
    torch.set_num_threads(order.threads)
    torch.set_float32_matmul_precision(order.precision)
    fake_mode, sizes = torch_internals.symbolic_sizes(order.sizes)
    inputs = [_fake(kind, fake_mode, sizes) for kind in order.inputs]
    answer = _forward_alone(order, inputs) if order.backward is None else _pair(order, inputs)
    return answer(torch_internals.guards_on(fake_mode, list(sizes.values())))


def _compiled(
    graph: fx.GraphModule,
    backward: bool,
    visible: int,
    donated: Sequence[int] = (),
    crowded: Collection[fx.Node] = (),
) -> Any:
    """`crowded`: the calls at which there is no memory to spare."""
    if all(node.op in ("placeholder", "output") for node in graph.graph.nodes):
        raise Unsupported("nothing is left to be computed")
    prefer_faster_products(graph, crowded)
    torch_internals.keep_biases_apart(graph)
    return torch_internals.compile_decomposed(graph, backward, visible, donated)


def _fake(kind: TensorType | str, fake_mode: Any, sizes: dict[str, Any]) -> Any:
    if isinstance(kind, str):
        return sizes[kind]
    shape, stride = ([_size(n, sizes) for n in numbers] for numbers in (kind.shape, kind.stride))
    with fake_mode:
        return torch.empty_strided(shape, stride, dtype=kind.dtype)


def _size(number: int | str, sizes: dict[str, Any]) -> Any:
    return number if isinstance(number, int) else eval(number, {}, sizes)


def _function(text: str, name: str) -> Boxed:
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    return namespace[name]


def _forward_alone(order: Order, inputs: list[Any]) -> Callable[[str | None], Answer]:
    forward = _function(order.forward, "forward")
    graph = torch_internals.decompose_for_inductor(lambda *args: forward(list(args)), inputs)
    compiled = Artifact.of(_compiled(graph, False, order.real_outputs))
    return lambda guards: Answer(compiled, guards)


def _pair(order: Order, inputs: list[Any]) -> Callable[[str | None], Answer]:
    joint = torch_internals.decompose_for_inductor(_joint(order), [*inputs, *_cotangents(order, inputs)])
    forward, backward = cut(joint, len(inputs), order.real_outputs, order.parameters)
    wiring = _Wiring(order, forward, backward)
    with torch_internals.kernels_later(_COMPILERS):
        # What is saved has the strides that are best for it, and the backward is compiled for these; if sizes vary,
        # those that it had when it was traced.
        compiled_forward = _compiled(forward, False, wiring.outputs if order.sizes else order.real_outputs)
        if not order.sizes:
            strides = torch_internals.strides_given(compiled_forward)
            chosen = {n: s for n, k in wiring.captured_outputs.items() if (s := strides[k])}
            torch_internals.take_strides(backward, chosen)
        with_lower_peak(backward.graph, wiring.read_once, FUSED)  # from which Inductor starts to look for one
        backward.recompile()
        crowded = at_the_peak(backward.graph, wiring.read_once, FUSED, order.threads * SCRATCH)
        gradients = len(backward.graph.output_node().args[0])  # type: ignore[arg-type]
        compiled_backward = _compiled(backward, True, gradients, wiring.donated, crowded)
    return lambda guards: Answer(
        forward=Artifact.of(compiled_forward),
        guards=guards,
        backward=Artifact.of(compiled_backward),
        outputs=wiring.outputs,
        captured_inputs=tuple(wiring.captured_inputs.values()),
        captured_outputs=tuple(wiring.captured_outputs.values()),
        arguments=wiring.arguments,
        donated=wiring.donated,
    )


def _joint(order: Order) -> Callable[..., list[Any]]:
    """Forward and backward as one function of [inputs, cotangents] to [real outputs, gradients]."""
    assert order.backward is not None
    forward, backward = _function(order.forward, "forward"), _function(order.backward, "backward")

    def joint(*args: Any) -> list[Any]:
        inputs, cotangents = args[: len(order.inputs)], args[len(order.inputs) :]
        outs = forward(list(inputs))
        arriving: list[Any] = [None] * order.outputs
        for output, cotangent in zip(order.cotangents, cotangents, strict=True):
            arriving[output] = cotangent
        captures = [*(inputs[i] for i in order.captured_inputs), *(outs[i] for i in order.captured_outputs)]
        available = [*arriving, *captures]
        return [*outs[: order.real_outputs], *backward([available[i] for i in order.arguments])]

    return joint


def _cotangents(order: Order, inputs: Sequence[Any]) -> list[Any]:
    """One like each output that gets one, in the memory format in which the bridge hands it over."""
    forward = _function(order.forward, "forward")
    with torch_internals.emission(torch_internals.fake_mode_of(inputs)):
        outs = forward(list(inputs))
        return [
            torch.empty_like(outs[i], memory_format=f) for i, f in zip(order.cotangents, order.formats, strict=True)
        ]


class _Wiring:
    """How the backward that was cut off gets at what it reads; nothing is returned twice by the forward."""

    def __init__(self, order: Order, forward: fx.GraphModule, backward: fx.GraphModule) -> None:
        inputs = {node.name: k for k, node in enumerate(forward.graph.find_nodes(op="placeholder"))}
        results = list(forward.graph.output_node().args[0])  # type: ignore[arg-type]
        real = results[: order.real_outputs]
        known = {node.name: k for k, node in reversed(list(enumerate(real))) if isinstance(node, fx.Node)}
        hidden = (node for node in results[order.real_outputs :] if node.name not in inputs and node.name not in known)
        saved = list(dict.fromkeys(hidden))
        known |= {node.name: order.real_outputs + k for k, node in enumerate(saved)}
        forward.graph.output_node().args = ([*real, *saved],)
        forward.recompile()
        self.outputs = len(real) + len(saved)
        read = [node.name for node in backward.graph.find_nodes(op="placeholder")]
        self.captured_inputs = {name: inputs[name] for name in read if name in inputs}
        self.captured_outputs = {n: known[n] for n in read if n in known and n not in inputs}
        if overwritten := set(self.captured_inputs.values()) & set(order.mutated):
            raise Unsupported(f"the backward would read inputs {sorted(overwritten)}, which are overwritten by then")
        captures = [*self.captured_inputs, *self.captured_outputs]
        position = {name: self.outputs + k for k, name in enumerate(captures)}
        position |= {f"tangents_{k + 1}": output for k, output in enumerate(order.cotangents)}
        self.arguments = tuple(position[name] for name in read)
        gradients: Any = backward.graph.output_node().args[0]
        own = _with_memory_of_their_own(saved, [*forward.graph.find_nodes(op="placeholder"), *real, *gradients])
        self.donated = tuple(k for k, name in enumerate(read) if name in own)
        arriving = {f"tangents_{k + 1}" for k in range(len(order.cotangents))}
        saved = {name for name, k in known.items() if k >= order.real_outputs}
        self.read_once = {k for k, name in enumerate(read) if name in arriving | saved}  # by nobody else


def _with_memory_of_their_own(saved: Sequence[fx.Node], others: Sequence[Any]) -> set[str]:
    """Saved values that nobody else holds: they share memory with nothing that is given, returned or saved besides."""
    held = Counter(map(_memory, (*saved, *others)))
    return {node.name for node in saved if held[_memory(node)] == 1}


def _memory(node: Any) -> int | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None
