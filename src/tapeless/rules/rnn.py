"""Recurrent layers with a kernel of their own: on the CPU oneDNN's LSTM. Other cells are made of plain operators."""

from __future__ import annotations

import torch

from tapeless.errors import Unsupported
from tapeless.rules.decompositions import decomposition
from tapeless.rules.registry import vjp

aten = torch.ops.aten


@vjp(
    aten.mkldnn_rnn_layer.default,
    wrt=("input", "weight0", "weight1", "weight2", "weight3", "hx_", "cx_"),
)
def lstm_layer(g, input, weight0, weight1, weight2, weight3, hx_, cx_, out, **how):
    """Backpropagation through time; the gates are in the workspace that the forward kernel leaves behind."""
    given = (input, weight0, weight1, weight2, weight3, hx_, cx_, *out[:3], *g[:3])
    return aten.mkldnn_rnn_layer_backward(*given, **how, workspace=out[3])


@decomposition(aten.mkldnn_rnn_layer.default, use="forward")
def lstm_layer_by_steps(input, weight0, weight1, weight2, weight3, hx_, cx_, reverse, batch_sizes):
    """c ← σ(f) c + σ(i) tanh(u),  h ← σ(o) tanh(c),  where (i, f, u, o) = W₀ x + W₁ h + b."""
    if batch_sizes:
        raise Unsupported("forward mode of an LSTM whose sequences are packed")
    hidden, cell = hx_.view(input.shape[1], -1), cx_.view(input.shape[1], -1)
    given = torch.nn.functional.linear(input, weight0, weight2 + weight3).unbind(0)
    outputs = []
    for step in reversed(given) if reverse else given:
        inward, kept, update, outward = (step + hidden @ weight1.mT).chunk(4, -1)
        cell = kept.sigmoid() * cell + inward.sigmoid() * update.tanh()
        hidden = outward.sigmoid() * cell.tanh()
        outputs.append(hidden)
    output = torch.stack(outputs[::-1] if reverse else outputs)
    return output, hidden.view_as(hx_), cell.view_as(cx_), None
