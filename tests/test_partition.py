"""What the forward saves: as little as eager or less, and to any order the same gradients."""

import pytest
import torch
from torch import Tensor

import tapeless
from comparing import compiled


def third(x: Tensor) -> Tensor:
    """Reads a third of a value that nothing else keeps."""
    a, b, c = (x + 1).chunk(3, dim=1)
    return a + b + c.exp() * c


def two_thirds(x: Tensor) -> Tensor:
    a, b, c = (x + 1).chunk(3, dim=1)
    return a + b.exp() * b + c.exp() * c


def third_of_a_result(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    return y, y[:, :2].exp() * y[:, :2]


def repeated(x: Tensor) -> Tensor:
    return x.repeat(4, 1).sin() * x.exp().unsqueeze(0).expand(4, *x.shape).reshape(-1, x.shape[1])


def widened(x: Tensor) -> Tensor:
    return (x.to(torch.bfloat16).double() ** 3).tanh()


def masked(x: Tensor) -> Tensor:
    rows, columns = torch.arange(x.shape[0]).unsqueeze(1), torch.arange(x.shape[1])
    return torch.where(rows >= columns, x.exp(), 0.0)


def overwritten(x: Tensor) -> Tensor:
    y = x + 1
    big = y.unsqueeze(0).expand(4, *y.shape).clone()
    y.mul_(2)
    return (big * y).sin()


PROGRAMS = [third, two_thirds, third_of_a_result, repeated, widened, masked, overwritten]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_of_first_and_second_order_equal_eagers(program):
    def derivatives(f):
        x = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(4, 6).requires_grad_()
        outputs = f(x)
        loss = sum(o.square().sum() for o in (outputs if isinstance(outputs, tuple) else (outputs,)))
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sin().sum(), x)
        return outputs, first, second

    torch.testing.assert_close(derivatives(compiled(program)), derivatives(program))


SAVED = [
    (third, [(4, 2), (4, 2)]),  # a copy of the third, and its exponential
    (two_thirds, [(4, 6), (4, 2), (4, 2)]),  # more than half is read: the value itself
    (third_of_a_result, [(4, 2)]),  # the result is alive anyway
    (masked, [(4, 6)]),  # the exponential; the mask is made again
]


@pytest.mark.parametrize(("program", "shapes"), SAVED, ids=lambda v: getattr(v, "__name__", None))
def test_what_is_saved(program, shapes):
    gradient = tapeless.differentiate(program, torch.ones(4, 6))
    results = gradient.forward(torch.ones(4, 6))

    assert shapes == [tuple(t.shape) for t in results[gradient.real_outputs :]]
