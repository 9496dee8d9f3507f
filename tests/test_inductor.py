"""Backend `inductor`: eager's gradients, `None`s and random numbers from compiled kernels."""

import warnings

import pytest
import torch
import torch.nn.functional as F

from comparing import seeded
from models import TwoHeads
from tapeless import torch_internals


def train(model, call, used):
    """Gradients of a few steps that send a gradient to the outputs `used`, and the running statistics."""
    for step in range(3):
        model.zero_grad()
        torch.manual_seed(step)
        x = torch.randn(8, 4, dtype=torch.float64)
        outputs = call(x)
        sum(outputs[i].square().sum() for i in used).backward()
    return [p.grad for p in model.parameters()], list(model.buffers())


@pytest.mark.parametrize("used", [(0,), (0, 1)], ids=["one head", "both heads"])
def test_training_equals_eager(used):
    eager, ours = (seeded(0, TwoHeads).double() for _ in range(2))
    call = torch.compile(ours, backend="tapeless", options={"backend": "inductor"})

    torch.testing.assert_close(train(ours, call, used), train(eager, eager, used))


def test_second_order_and_other_batch_sizes():
    def f(x, w):
        return torch.tanh(x @ w).square().sum()

    call = torch.compile(f, backend="tapeless", options={"backend": "inductor"}, dynamic=True)
    for size in (3, 5):
        w = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
        x = torch.randn(size, 4, dtype=torch.float64, requires_grad=True)
        found = []
        for function in (f, call):
            first = torch.autograd.grad(function(x, w), (x, w), create_graph=True)
            found.append((first, torch.autograd.grad(first[0].sin().sum(), (x, w))))

        torch.testing.assert_close(found[1], found[0])


def test_a_failing_compiler_leaves_generated_python(monkeypatch):
    def fail(*_):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch_internals, "compile_with_inductor", fail)
    call = torch.compile(lambda x: F.gelu(x) * 3, backend="tapeless", options={"backend": "inductor"})
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    with pytest.warns(UserWarning, match="no compiler here"):
        call(x).sum().backward()
    (expected,) = torch.autograd.grad((F.gelu(x) * 3).sum(), x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(x)  # said once

    torch.testing.assert_close(x.grad, expected)


def test_gradient_inside_a_function_that_breaks_there():
    """The backward runs while Dynamo watches: Inductor's code is none of its business."""

    def f(x, w):
        y = torch.tanh(x @ w)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return (slope @ w).square().sum() + y.sum()

    call = torch.compile(f, backend="tapeless", options={"backend": "inductor"})
    w = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    found = [torch.autograd.grad(function(x, w), (x, w)) for function in (f, call, call)]
    torch.testing.assert_close(found[1:], [found[0]] * 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_numbers_drawn_with_probabilities_are_those_of_eager(dtype):
    """Also where the probabilities are computed by the same program, for which Inductor may choose another layout."""

    def f(x):
        p = x.detach()
        others = [torch.bernoulli(part.sigmoid()) for part in (p.T, p[:, ::2], p[0].expand(5, 6))]
        return x * torch.bernoulli(p.sigmoid()), *others, torch.rand(())

    call = torch.compile(f, backend="tapeless", options={"backend": "inductor"})
    x = torch.randn(6, 6, dtype=dtype, requires_grad=True)
    found = []
    for function in (f, call):
        torch.manual_seed(3)
        out, *others = function(x)
        found.append([out, *others, *torch.autograd.grad(out.sum(), x), torch.rand(())])

    torch.testing.assert_close(found[1], found[0])
