"""A graph compiled by Inductor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from tapeless.torch_internals.fakes import fake_mode_of, without_modes


def compile_with_inductor(
    module: fx.GraphModule, examples: Sequence[Any], args: Sequence[Any], backward: bool
) -> Callable[[list[Any]], Any]:
    """An ATen graph as Inductor's code, a function of one list. `examples` are fakes; `args` tell the strides.

    Relies on `compile_fx_inner`, on the table of decompositions it expects to have been applied, on the passes over
    joint graphs that replace random operators, and on a tracing context, without which nothing is cached on disk.
    Random numbers are eager's.
    """
    from torch._inductor import config, virtualized
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch.fx.experimental.proxy_tensor import make_fx

    fake_mode = fake_mode_of(examples)
    fakes = [_restrided(fake_mode, e, a) for e, a in zip(examples, args, strict=True)]
    with without_modes(), torch.no_grad(), tracing(TracingContext(fake_mode)), config.patch(fallback_random=True):
        with fake_mode, enable_python_dispatcher():
            decomposed = make_fx(fx.Interpreter(module).run, select_decomp_table(), "real")(*fakes)
        inputs = [node.meta["val"] for node in decomposed.graph.find_nodes(op="placeholder")]
        with virtualized.V.set_fake_mode(fake_mode):
            joint_graph_passes(decomposed)
        return compile_fx_inner(decomposed, inputs, is_backward=backward)


def _restrided(fake_mode: FakeTensorMode, example: Any, arg: Any) -> Any:
    """The fake tensor with the strides of a real one, which are sizes multiplied up where sizes are symbolic."""
    if not isinstance(example, torch.Tensor):
        return example
    strides = arg.stride()
    if any(isinstance(n, torch.SymInt) for n in (*example.shape, *example.stride())):
        strides = _dense_strides(example.shape, arg)
    if strides is None or tuple(map(str, example.stride())) == tuple(map(str, strides)):
        return example
    with without_modes(), fake_mode:
        return torch.empty_strided(example.shape, strides, dtype=example.dtype, device=example.device)


def _dense_strides(shape: Sequence[Any], arg: torch.Tensor) -> list[Any] | None:
    """Strides for `shape` with its dimensions in the order that they have in `arg`; None if that one has gaps."""
    order = sorted(range(arg.dim()), key=lambda dim: (arg.stride(dim), arg.shape[dim]))
    found: list[Any] = [None] * arg.dim()
    size, real = 1, 1
    for dim in order:
        if arg.stride(dim) != real and arg.shape[dim] != 1:
            return None
        found[dim] = size
        size, real = size * shape[dim], real * arg.shape[dim]
    return found
