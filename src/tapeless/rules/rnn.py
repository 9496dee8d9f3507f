"""Recurrent layers with a kernel of their own: on the CPU oneDNN's LSTM. Other cells are made of plain operators."""

from __future__ import annotations

import torch

from tapeless.errors import Unsupported
from tapeless.ir import kernels
from tapeless.rules.decompositions import decomposition
from tapeless.rules.registry import vjp
from tapeless.torch_internals.recurrent import LSTM

aten = torch.ops.aten


@vjp(
    aten.mkldnn_rnn_layer.default,
    wrt=("input", "weight0", "weight1", "weight2", "weight3", "hx_", "cx_"),
)
def lstm_layer(g, input, weight0, weight1, weight2, weight3, hx_, cx_, out, **how):
    """Backpropagation through time; the gates are in the workspace that the forward kernel leaves behind."""
    given = (input, weight0, weight1, weight2, weight3, hx_, cx_, *out[:3], *g[:3])
    return aten.mkldnn_rnn_layer_backward(*given, **how, workspace=out[3])


@vjp(kernels.ops.lstm_layer.default)
def own_lstm_layer(g, x, weight, recurrent, bias, other_bias, hidden, cell, reverse, out):
    """The same, of a layer whose workspace is always there."""
    given = (x, weight, recurrent, bias, other_bias, hidden, cell, *out[:3], *g[:3])
    how = (reverse, LSTM, hidden.shape[-1], 1, True, True, False, [], False)
    return aten.mkldnn_rnn_layer_backward(*given, *how, out[3])


@decomposition(aten.mkldnn_rnn_layer.default, use="forward")
def lstm_layer_by_steps(input, weight0, weight1, weight2, weight3, hx_, cx_, reverse, batch_sizes):
    """c ← σ(f) c + σ(i) tanh(u),  h ← σ(o) tanh(c),  where (i, f, u, o) = W₀ x + W₁ h + b."""
    if batch_sizes:
        raise Unsupported("forward mode of an LSTM whose sequences are packed")
    steps = _Steps(input, (weight0, weight1, weight2 + weight3), hx_, cx_, reverse)
    return steps.in_order(steps.outputs), steps.outputs[-1].view_as(hx_), steps.cells[-1].view_as(cx_), None


@decomposition(kernels.ops.lstm_layer.default, use="forward")
def own_lstm_layer_by_steps(x, weight, recurrent, bias, other_bias, hidden, cell, reverse):
    """The same."""
    return lstm_layer_by_steps(x, weight, recurrent, bias, other_bias, hidden, cell, reverse, [])


@decomposition(aten.mkldnn_rnn_layer_backward.default, use="second order")
def lstm_layer_backward_by_steps(
    input, weight1, weight2, weight3, weight4, hx_, cx_tmp, grad_output, grad_hy, grad_cy, reverse
):
    """o̅ = h̅ tanh(c),  c̅ += h̅ o (1 − tanh²(c)),  (i̅, f̅, u̅) = c̅ (u, c₋, i),  c̅₋ = c̅ f,  h̅₋ = W₁ᵀ (i̅, f̅, u̅, o̅)."""
    steps = _Steps(input, (weight1, weight2, weight3 + weight4), hx_, cx_tmp, reverse)
    zero = torch.zeros_like(steps.hidden)
    arriving = [zero] * len(steps.gates) if grad_output is None else steps.in_order_of_time(grad_output)
    g_hidden = zero if grad_hy is None else grad_hy.view_as(zero)
    g_cell = zero if grad_cy is None else grad_cy.view_as(zero)
    found = []
    before = zip([steps.cell, *steps.cells[:-1]], steps.cells, steps.gates, arriving, strict=True)
    for cell_before, cell, (inward, kept, update, outward), g in reversed(list(before)):
        g_hidden, shown = g_hidden + g, cell.tanh()
        g_cell = g_cell + g_hidden * outward * (1 - shown * shown)
        g_gates = torch.cat([
            g_cell * update * inward * (1 - inward),
            g_cell * cell_before * kept * (1 - kept),
            g_cell * inward * (1 - update * update),
            g_hidden * shown * outward * (1 - outward),
        ], -1)  # fmt: skip
        found.append(g_gates)
        g_hidden, g_cell = g_gates @ weight2, g_cell * kept
    g_gates = steps.in_order(found[::-1])
    hidden_before = steps.in_order([steps.hidden, *steps.outputs[:-1]])
    columns = g_gates.flatten(0, 1).mT
    g_bias = columns.sum(1)
    weights = columns @ input.flatten(0, 1), columns @ hidden_before.flatten(0, 1)
    return g_gates @ weight1, *weights, g_bias, g_bias, g_hidden.view_as(hx_), g_cell.view_as(cx_tmp)


class _Steps:
    """An LSTM layer step by step: its gates, cells and outputs, each in the order in which they are computed."""

    def __init__(self, input, weights, hidden, cell, reverse):
        weight, recurrent, bias = weights
        self.reverse = reverse
        self.hidden, self.cell = hidden.view(input.shape[1], -1), cell.view(input.shape[1], -1)
        self.gates, self.cells, self.outputs = [], [], []
        hidden, cell = self.hidden, self.cell
        for step in self.in_order_of_time(torch.nn.functional.linear(input, weight, bias)):
            inward, kept, update, outward = (step + hidden @ recurrent.mT).chunk(4, -1)
            gates = inward.sigmoid(), kept.sigmoid(), update.tanh(), outward.sigmoid()
            inward, kept, update, outward = gates
            cell = kept * cell + inward * update
            hidden = outward * cell.tanh()
            self.gates.append(gates)
            self.cells.append(cell)
            self.outputs.append(hidden)

    def in_order_of_time(self, sequence):
        """The parts of a sequence as this layer goes through them."""
        return sequence.unbind(0)[::-1] if self.reverse else sequence.unbind(0)

    def in_order(self, found):
        """What was found step by step as a sequence."""
        return torch.stack(found[::-1] if self.reverse else found)
