"""The two gradients of a convolution by two calls: the same numbers, and the image is free before the second."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tapeless.ir import convolutions
from tapeless.ir import graph as ir
from tapeless.runtime import program as programs

aten = torch.ops.aten

SETTINGS = {
    "plain": {"kernel_size": 3, "padding": 1},
    "strided": {"kernel_size": 3, "padding": 1, "stride": 2},
    "strided and dilated": {"kernel_size": (3, 2), "padding": (2, 1), "stride": (3, 2), "dilation": (2, 1)},
    "in groups": {"kernel_size": 5, "stride": 2, "groups": 4},
    "of each channel": {"kernel_size": 7, "padding": 3, "groups": 8, "bias": False},
}


@pytest.fixture(autouse=True)
def every_image_is_large(monkeypatch):
    monkeypatch.setattr(convolutions, "LARGE", 0)
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled_and_eager(model, x):
    compiled = torch.compile(model, backend="tapeless", options={"backend": "python", "cache": False})
    wanted = [x, *model.parameters()]
    expected = torch.autograd.grad(model(x).sin().sum(), wanted)
    return torch.autograd.grad(compiled(x).sin().sum(), wanted), expected


def masks():
    runs = [b for p in programs.LIVE for _, b in p.specialized_backwards()]
    graphs = [convolutions.split_convolutions(b.runnable) for b in runs]
    return [
        node.args[convolutions.MASK]
        for g in graphs
        for node in ir.calls(g)
        if node.target is aten.convolution_backward.default
    ]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("size", [(9, 9), (12, 11)], ids=str)
def test_gradients_are_eagers(settings, size):
    x = torch.randn(2, 8, *size, requires_grad=True)
    found, expected = compiled_and_eager(nn.Conv2d(8, 16, **settings), x)

    assert [False] == [mask[0] for mask in masks()]
    torch.testing.assert_close(found, expected)
    assert [g.stride() for g in expected] == [g.stride() for g in found]


def test_what_needs_no_image_stays_whole():
    """One by one pixels, double precision, channels last, and a convolution that goes up."""
    x = torch.randn(2, 8, 9, 9, requires_grad=True)
    for model, image in (
        (nn.Conv2d(8, 4, 1), x),
        (nn.Conv2d(8, 4, 3).double(), x.detach().double().requires_grad_()),
        (nn.Conv2d(8, 4, 3), x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()),
        (nn.ConvTranspose2d(8, 4, 3), x),
    ):
        torch._dynamo.reset()
        found, expected = compiled_and_eager(model, image)

        torch.testing.assert_close(found, expected)
    assert all(mask[0] for mask in masks())


def test_frozen_weights():
    model, x = nn.Conv2d(8, 4, 3).requires_grad_(False), torch.randn(2, 8, 9, 9, requires_grad=True)
    compiled = torch.compile(model, backend="tapeless", options={"backend": "python", "cache": False})

    torch.testing.assert_close(
        torch.autograd.grad(F.relu(compiled(x)).sum(), x), torch.autograd.grad(F.relu(model(x)).sum(), x)
    )
