"""oneDNN's LSTM, one layer in one direction, which always keeps what its backward reads."""

from __future__ import annotations

from collections.abc import Iterable

import torch

Tensor = torch.Tensor

LSTM = 2  # oneDNN's number of this cell


def lstm_layer(
    x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, other_bias: Tensor, hidden: Tensor, cell: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Outputs, last hidden state, last cell, and the workspace for `aten.mkldnn_rnn_layer_backward`, all contiguous.

    Relies on `aten.mkldnn_rnn_layer`, which returns a workspace in grad mode alone, whatever requires a gradient.
    """
    given = (x, weight, recurrent, bias, other_bias, hidden, cell)
    settings = (reverse, [], LSTM, hidden.shape[-1], 1, True, False, False, True)
    with torch.enable_grad():
        return torch.ops.aten.mkldnn_rnn_layer(*(tensor.detach() for tensor in given), *settings)


def has_lstm_layer(tensors: Iterable[Tensor]) -> bool:
    """Does torch run an LSTM of these by oneDNN? Relies on where `torch.backends.mkldnn` keeps whether it may."""
    plain = all(tensor.dtype is torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
    return plain and torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
