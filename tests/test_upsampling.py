"""Upsampling by its kernels where sizes are known, as lookups where they vary; the numbers are eager's both ways."""

import pytest
import torch
import torch.nn.functional as F

import tapeless
from comparing import compiled

MODES = [
    ("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 1), ("nearest-exact", 2), ("nearest-exact", 3),
    ("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2),
]  # fmt: skip
SIZES = [{"scale_factor": 2}, {"scale_factor": 1.7}, {"scale_factor": 1.7, "recompute_scale_factor": True}, {"size": 3}]
CASES = [(dims, {"mode": mode, **size}) for mode, dims in MODES for size in SIZES]
CASES += [(dims, {**how, "align_corners": True}) for dims, how in CASES if "near" not in how["mode"]]


def image(dims, n=5):
    torch.manual_seed(0)
    return torch.randn(2, 3, *(n,) * dims, dtype=torch.float64, requires_grad=True)


def derivatives(call, x):
    out = call(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return out, slope, torch.autograd.grad(slope.sin().sum(), x)[0]


@pytest.mark.parametrize(("dims", "how"), CASES)
def test_values_and_derivatives_are_eagers(dims, how):
    def resized(x):
        return F.interpolate(x.sin(), **how).square()

    x = image(dims)
    found = derivatives(compiled(resized), x)

    torch.testing.assert_close(derivatives(resized, x), found)
    assert resized(x).stride() == found[0].stride()


@pytest.mark.parametrize(("mode", "dims"), MODES)
def test_sizes_that_vary(mode, dims):
    def resized(x):
        return F.interpolate(x.sin(), scale_factor=2, mode=mode).square()

    call = torch.compile(resized, backend="tapeless", options={"backend": "python"}, dynamic=True)
    for n in (5, 6, 4):
        x = image(dims, n)
        torch.testing.assert_close(derivatives(resized, x), derivatives(call, x))


@pytest.mark.parametrize(("mode", "dims"), MODES)
def test_one_call_forward_and_one_back(mode, dims):
    gradient = tapeless.differentiate(lambda x: F.interpolate(x, scale_factor=2, mode=mode), image(dims))

    assert 1 == str(gradient.forward).count("upsample_")
    assert 1 == sum("_backward.default(" in line for line in str(gradient.backward).splitlines())
