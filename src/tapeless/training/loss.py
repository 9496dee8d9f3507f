"""The loss: what computes it from a batch, and where it stands among the results of the captured graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from tapeless.capture.program import Captured
from tapeless.errors import Unsupported
from tapeless.ir import graph as ir

Loss = Callable[..., Any]


def called(model: nn.Module, loss_fn: Loss | None) -> Loss:
    """A function of the batch whose graph says which of its results is the loss."""
    compute = _computed(model, loss_fn)

    def marked(*batch: Any, **named: Any) -> Any:
        out = compute(*batch, **named)
        loss = out[0] if isinstance(out, (tuple, list)) and out else _own_loss(out)
        if isinstance(loss, Tensor):
            _mark(loss)
        return out

    return marked


def _computed(model: nn.Module, loss_fn: Loss | None) -> Loss:
    if loss_fn is None:
        return lambda *batch, **named: _own_loss(model(*batch, **named))
    if isinstance(loss_fn, nn.Module):
        return lambda *batch: loss_fn(model(*batch[:-1]), batch[-1])
    return lambda *batch, **named: loss_fn(model, *batch, **named)


def _own_loss(out: Any) -> Any:
    return out.loss if hasattr(out, "loss") else out


@torch.compiler.allow_in_graph
def _mark(loss: Tensor) -> None:
    """Says in Dynamo's graph which value is the loss. Nothing else does: its outputs begin with what the program keeps
    in objects of its own making, and a tensor that is returned as it was given is none of them.
    """


def take_mark(module: fx.GraphModule) -> int | None:
    """Take the mark off Dynamo's graph: which of its outputs the loss is, if it is one."""
    marks = module.graph.find_nodes(op="call_function", target=_mark)
    losses = [mark.args[0] for mark in marks]
    for mark in marks:
        module.graph.erase_node(mark)
    module.recompile()
    outputs = ir.outputs(module.graph)
    return outputs.index(losses[0]) if losses and losses[0] in outputs else None


def loss_output(captured: Captured, marked: int | None) -> int:
    """Where the loss, output `marked` of the program, stands among the outputs of the graph."""
    if marked is None:
        raise Unsupported("the loss is no tensor that was computed: return one real number, first or alone")
    position = captured.convention.first_output + marked
    loss = ir.value(ir.outputs(captured.graph)[position])
    if loss.numel() != 1 or not ir.is_differentiable_type(loss) or loss.is_complex():
        kind = f"a tensor of shape {list(loss.shape)} and {loss.dtype}"
        raise Unsupported(f"the loss is {kind}: return one real number, first or alone")
    if not captured.convention.output_requires_grad()[position]:
        raise Unsupported("the loss requires no gradient: it was detached, or computed without `requires_grad`")
    return position
