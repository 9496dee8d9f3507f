"""Convolutions before differentiation: batch norms folded into them, and images with their channels last."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import tapeless
from preparing import strides
from tapeless.options import Options
from tapeless.pipeline import preparation, trace

LAYERS = {
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1), (2, 4, 400), nn.BatchNorm1d),
    "conv2d, no bias": (lambda: nn.Conv2d(4, 6, 3, stride=2, bias=False), (2, 4, 40, 40), nn.BatchNorm2d),
    "conv3d": (lambda: nn.Conv3d(2, 6, 2), (2, 2, 12, 12, 12), nn.BatchNorm3d),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), (2, 4, 40, 40), nn.BatchNorm2d),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 2, stride=2), (2, 4, 20, 20), nn.BatchNorm2d),
    "transposed and grouped": (lambda: nn.ConvTranspose1d(4, 6, 2, groups=2), (2, 4, 400), nn.BatchNorm1d),
    "linear": (lambda: nn.Linear(5, 6), (800, 5), nn.BatchNorm1d),
    "linear of three dimensions": (lambda: nn.Linear(6, 6), (200, 6, 6), nn.BatchNorm1d),  # channels are another axis
}


FOLDING = "fold_batch_norm!, fold_batch_norm_of_linear!"


class Normalized(nn.Module):
    def __init__(self, layer, norm, **settings):
        super().__init__()
        self.layer, self.norm = layer, norm(6, **settings)
        with torch.no_grad():
            for buffer in (self.norm.running_mean, self.norm.running_var):
                buffer.uniform_(0.5, 2)

    def forward(self, x):
        return self.norm(self.layer(x)).relu()


def made_normalized(name, **settings):
    torch.manual_seed(0)
    make, shape, norm = LAYERS[name]
    return Normalized(make(), norm, **settings).double(), torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("name", LAYERS)
def test_batch_norm_folds_into_every_layer_it_may(name):
    model, x = made_normalized(name)
    captured = trace(model.eval(), (x.requires_grad_(),), {})
    _, report = preparation(captured, Options(prepare=FOLDING, check=True))

    assert (name != "linear of three dimensions") == any(rule.startswith("fold_batch_norm") for rule in report.applied)


SPELLINGS = {
    "keywords": lambda x, w, m, v: F.batch_norm(  # pytorch#196165: keywords of the convolution were dropped
        input=F.conv2d(x, weight=w, stride=2, padding=1), running_mean=m, running_var=v, training=False, eps=0.1
    ),
    "no weight, no shift": lambda x, w, m, v: F.batch_norm(F.conv2d(x, w), m, v),  # pytorch#169011: defaults
    "weight, no shift": lambda x, w, m, v: F.batch_norm(F.conv2d(x, w, m), m, v, weight=v),
    "read twice": lambda x, w, m, v: [y := F.conv2d(x, w), F.batch_norm(y, m, v)],
    "normalized twice": lambda x, w, m, v: [F.batch_norm(F.conv2d(x, w), a, v) for a in (m, v)],
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_batch_norm_folds_however_it_is_spelled(name):
    sizes = ((2, 4, 20, 20), (6, 4, 3, 3), (6,), (6,))
    inputs = [torch.rand(size, dtype=torch.float64) + 0.5 for size in sizes]
    captured = trace(SPELLINGS[name], (*inputs[:1], inputs[1].requires_grad_(), *inputs[2:]), {})
    _, report = preparation(captured, Options(prepare="fold_batch_norm!", check=True))

    assert report.applied["fold_batch_norm"] > 0


def test_batch_norm_of_another_precision_is_not_folded():
    """pytorch#120545: statistics are kept in more digits than the convolution has."""
    inputs = [torch.rand(2, 4, 20, 20).bfloat16(), torch.rand(6, 4, 3, 3).bfloat16(), torch.rand(6), torch.rand(6) + 1]
    captured = trace(SPELLINGS["no weight, no shift"], tuple(inputs), {})
    _, report = preparation(captured, Options(prepare=FOLDING, check=True))

    assert "fold_batch_norm" not in report.applied


def test_eval_train_eval_with_changing_weights():
    """pytorch#108863: weights folded once are wrong after a step; also through `.data`, which nobody can watch."""
    model, x = made_normalized("conv2d, no bias")
    eager, compiled = copy.deepcopy(model), tapeless.compile(model, prepare=FOLDING, check=True)

    for mode in ("eval", "train", "eval", "frozen", "eval"):
        outputs, gradients = [], []
        for network, called in ((eager, eager), (model, compiled)):
            network.train(mode == "train")
            with torch.set_grad_enabled(mode != "eval"):
                outputs.append(called(x))
            if mode != "eval":
                outputs[-1].square().mean().backward()
                gradients.append([p.grad for p in network.parameters()])
            for p in network.parameters():
                if p.grad is not None:
                    p.data.sub_(p.grad)
                p.grad = None
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-9, atol=1e-9)
        for expected, actual in zip(*gradients, strict=True) if gradients else ():
            torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def test_frozen_statistics_save_less():
    model, x = made_normalized("conv2d, no bias")
    saved = {
        option: tapeless.explain(model.eval(), x.requires_grad_(), options={"prepare": option}).saved_bytes
        for option in ("off", FOLDING)
    }

    assert saved[FOLDING] <= 0.7 * saved["off"]


CONVOLUTIONS = {
    "a returned image": lambda x, w: F.conv2d(x, w, padding=1).relu(),
    "returned and read again": lambda x, w: [y := F.conv2d(x, w).relu(), F.conv2d(y, w, stride=2).sum((2, 3))],
    "a returned view": lambda x, w: F.conv2d(x, w).flatten(1),
    "pooled": lambda x, w: F.adaptive_avg_pool2d(F.max_pool2d(F.conv2d(x, w), 2, return_indices=True)[0], 1),
    "branches": lambda x, w: torch.cat([F.conv2d(x, w), F.conv2d(x.flip(3), w)], 1).softmax(1).mean((2, 3)),
    "seen by its strides": lambda x, w: F.conv2d(x, w).as_strided((2, 3), (5, 1)) * 2,
    "grouped": lambda x, w: F.conv2d(x, w[:, :1], groups=3).permute(0, 2, 3, 1).reshape(2, -1),
    "transposed": lambda x, w: F.conv_transpose2d(x, w),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_images_with_their_channels_last_are_seen_by_nobody(name):
    x, w = torch.randn(2, 3, 12, 10), torch.randn(3, 3, 3, 3)
    expected = tree_leaves(CONVOLUTIONS[name](x, w))
    compiled = torch.compile(
        CONVOLUTIONS[name], backend="tapeless", options={"prepare": "convolve_channels_last!", "check": True}
    )
    actual = tree_leaves(compiled(x, w))

    torch.testing.assert_close(actual, expected)
    assert [strides(t) for t in expected] == [strides(t) for t in actual]


def test_images_are_reordered_where_no_derivative_is_asked():
    x, w = torch.randn(2, 3, 12, 10), torch.randn(3, 3, 3, 3)
    captured = [trace(CONVOLUTIONS["a returned image"], (x, weight), {}) for weight in (w, w.clone().requires_grad_())]
    acted = ["convolve_channels_last" in preparation(program, Options())[1].applied for program in captured]

    assert [True, False] == acted
