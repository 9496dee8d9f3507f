"""Recurrent layers with a kernel of their own: on the CPU oneDNN's LSTM. Other cells are made of plain operators."""

from __future__ import annotations

import torch

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
