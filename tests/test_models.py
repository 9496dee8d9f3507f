"""Well-known models trained through `torch.compile(model, backend="tapeless")` behave as they do in eager.

`TAPELESS_TEST_BACKEND` names another Dynamo backend to put through the same tests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from comparing import Backend
from models import ARCHITECTURES, WITH_DROPOUT, Case, build, loss_of

STEPS = 20
NEGLIGIBLE = 1e-5

every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


@dataclass(frozen=True)
class Step:
    """What one forward and backward leave behind, by name."""

    output: Tensor
    gradients: dict[str, Tensor | None]
    buffers: dict[str, Tensor]


def compiled(model: nn.Module) -> Callable:
    """The model as a user would compile it; a call fails if Dynamo gave the backend nothing to compile."""
    backend = Backend()
    network = torch.compile(model, backend=backend)

    def call(**inputs: Tensor) -> Any:
        output = network(**inputs)
        assert backend.graphs > 0
        return output

    return call


def take_step(case: Case, network: Callable, seed: int = 0) -> Step:
    """Forward and backward once, with the random numbers of `seed`."""
    torch.manual_seed(seed)
    case.model.zero_grad(set_to_none=True)
    output = case.output(network)
    loss_of(output).backward()
    gradients = {name: parameter.grad for name, parameter in case.model.named_parameters()}
    return Step(output.detach(), gradients, dict(case.model.named_buffers()))


def assert_same_steps(name: str, dtype: torch.dtype, tolerance: float, dropout: float = 0.0) -> None:
    """Eager and compiled take the same first step, and the same second, which specialised programs may serve."""
    eager, other = build(name, dtype, dropout), build(name, dtype, dropout)
    network = compiled(other.model)
    for seed in range(2):
        assert_same_step(take_step(eager, eager.model, seed), take_step(other, network, seed), tolerance)


def train(case: Case, network: Callable) -> dict[str, Tensor]:
    """Parameters and buffers after some steps of AdamW."""
    optimizer = torch.optim.AdamW(case.model.parameters(), lr=1e-3, weight_decay=0.1)
    for seed in range(STEPS):
        take_step(case, network, seed)
        optimizer.step()
    return {name: value.detach() for name, value in case.model.state_dict().items()}


def largest(value: Tensor) -> float:
    """The largest entry of a tensor by magnitude."""
    return value.abs().max().item() if value.numel() else 0.0


def relative_errors(expected: dict[str, Tensor], actual: dict[str, Tensor]) -> dict[str, float]:
    """Largest difference in each tensor, relative to the largest entry expected in it.

    Some gradients are zero in exact arithmetic (the key bias of an attention) and hold rounding noise only:
    negligible tensors are measured against the largest entry of all.
    """
    magnitudes = {name: largest(value) for name, value in expected.items()}
    overall = max(magnitudes.values())
    scales = {name: size if size >= NEGLIGIBLE * overall else overall for name, size in magnitudes.items()}
    return {name: largest(actual[name] - value) / scales[name] for name, value in expected.items()}


def assert_close(expected: dict[str, Tensor], actual: dict[str, Tensor], tolerance: float) -> None:
    """The same tensors under the same names, up to the relative tolerance; NaN is never close."""
    assert expected.keys() == actual.keys()
    errors = relative_errors(expected, actual)
    wrong = {name: error for name, error in errors.items() if not error <= tolerance}

    assert not wrong


def defined(gradients: dict[str, Tensor | None]) -> dict[str, Tensor]:
    """The gradients that are not None."""
    return {name: gradient for name, gradient in gradients.items() if gradient is not None}


def assert_same_step(expected: Step, actual: Step, tolerance: float) -> None:
    """The same output, gradients, Nones and buffers."""
    nones = [name for name, gradient in expected.gradients.items() if gradient is None]

    assert nones == [name for name, gradient in actual.gradients.items() if gradient is None]
    assert_close({"output": expected.output}, {"output": actual.output}, tolerance)
    assert_close(defined(expected.gradients), defined(actual.gradients), tolerance)
    assert_same_buffers(expected.buffers, actual.buffers, tolerance)


def assert_same_buffers(expected: dict[str, Tensor], actual: dict[str, Tensor], tolerance: float) -> None:
    """Counters are equal, statistics are close."""
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=tolerance, atol=tolerance)


@every_architecture
def test_gradients_in_double_precision(name: str) -> None:
    """Gradients, their Nones and the running statistics are eager's to 1e-9."""
    assert_same_steps(name, torch.float64, tolerance=1e-9)


@every_architecture
def test_gradients_in_single_precision(name: str) -> None:
    """Gradients, their Nones and the running statistics are eager's to 1e-4."""
    assert_same_steps(name, torch.float32, tolerance=1e-4)


@every_architecture
def test_twenty_optimizer_steps(name: str) -> None:
    """AdamW ends at eager's parameters, also for those it should not touch because the loss does not."""
    eager, other = build(name), build(name)

    assert_close(train(eager, eager.model), train(other, compiled(other.model)), tolerance=1e-8)


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_dropout_draws_the_same_masks(name: str) -> None:
    """The same seed drops the same entries as in eager, forward and backward."""
    plain, dropped = build(name), build(name, dropout=0.3)

    assert largest(take_step(plain, plain.model).output - take_step(dropped, dropped.model).output) > 0
    assert_same_steps(name, torch.float64, tolerance=1e-9, dropout=0.3)
