"""What a call costs: floating-point operations of products and convolutions (memory bounds the rest), bytes, time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.flop_counter import flop_registry

from tapeless.ir import graph as ir

aten = torch.ops.aten

# Of one core of a common server. Fresh memory is written far slower than it is read: the system hands out its pages.
FLOPS_PER_SECOND = 5e10
BYTES_PER_SECOND = 5e9
CALL = 5e-6  # seconds to launch a kernel

# torch counts attention for the kernels of the GPU only; the CPU's take the same arguments.
SAME_AS: dict[Any, Any] = {
    aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
}


def flops(nodes: Iterable[fx.Node]) -> int:
    """Multiplications and additions, symbolic sizes taken as they were when the program was traced."""
    return sum(map(_flops, nodes))


def likely_bytes(val: Any) -> int:
    """The memory of a tensor, or of all tensors of a tuple; symbolic sizes as when the program was traced."""
    tensors = [leaf for leaf in tree_leaves(val) if isinstance(leaf, torch.Tensor)]
    return sum(_likely(t.numel()) * t.dtype.itemsize for t in tensors)


def workspace(node: fx.Node) -> int:
    """Bytes that a kernel of the CPU takes for itself while it runs, where that is known.

    For convolutions it is about the most that oneDNN takes: which layouts it likes best depends on the machine.
    """
    measure = WORKSPACES.get(node.target)
    given = [ir.value(a) for a in node.args if isinstance(a, fx.Node)]
    return 0 if measure is None else measure(given, ir.value(node))


def _convolution(given: list[Any], out: Any) -> int:
    """Wide convolutions lay out their operands anew."""
    x, weight = map(likely_bytes, given[:2])
    return max(x + weight, likely_bytes(out)) if _is_wide(given[1]) else 0


def _convolution_backward(given: list[Any], out: Any) -> int:
    g, x, weight = map(likely_bytes, given[:3])
    return 2 * max(g, x) + weight if _is_wide(given[2]) else 0


def _attention(given: list[Any], out: Any) -> int:
    rows, columns = _block(*given[:2])
    return _per_thread(given[0], rows * columns + rows * (2 + _likely(given[0].shape[-1])))


def _attention_backward(given: list[Any], out: Any) -> int:
    rows, columns = _block(*given[1:3])
    return _per_thread(given[1], 2 * rows * columns)


def _batch_norm_backward(given: list[Any], out: Any) -> int:
    """It takes the gradient of the image twice, and gives one back when it is done."""
    return likely_bytes(out[0])


def _block(query: torch.Tensor, key: torch.Tensor) -> tuple[int, int]:
    """The rows and columns of scores that fused attention computes at once (`cpu_flash_attention`)."""
    rows = _likely(query.shape[-2])
    return min(rows, 256 if rows >= 768 else 64 if rows >= 192 else 32), min(_likely(key.shape[-2]), 512)


def _per_thread(like: torch.Tensor, count: int) -> int:
    return torch.get_num_threads() * count * max(like.dtype.itemsize, 4)


WORKSPACES: dict[Any, Callable[[list[Any], Any], int]] = {
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
}


def _is_wide(weight: torch.Tensor) -> bool:
    return any(_likely(n) > 1 for n in weight.shape[2:])


def seconds(node: fx.Node) -> float:
    """The time that a call takes, roughly: only the ratios between calls matter."""
    moved = likely_bytes(ir.value(node)) + sum(likely_bytes(ir.value(a)) for a in node.all_input_nodes)
    return CALL + _flops(node) / FLOPS_PER_SECOND + moved / BYTES_PER_SECOND


def _flops(node: fx.Node) -> int:
    packet = getattr(node.target, "overloadpacket", None)
    count = flop_registry.get(SAME_AS.get(packet, packet))
    if count is None:
        return 0
    args, kwargs = tree_map_only(fx.Node, lambda n: _shaped(ir.value(n)), (node.args, node.kwargs))
    return int(count(*args, **kwargs, out_val=_shaped(ir.value(node))))


def _shaped(val: Any) -> Any:
    """Tensors without memory, of the sizes met in tracing: what torch's formulas look at."""

    def plain(leaf: Any) -> Any:
        return torch.empty([_likely(n) for n in leaf.shape], device="meta") if isinstance(leaf, torch.Tensor) else leaf

    return tree_map(plain, val)


def _likely(size: Any) -> int:
    return int(size) if not isinstance(size, torch.SymInt) else int(size.node.hint or 0)
