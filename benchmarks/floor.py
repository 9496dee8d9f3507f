"""The floor under a training step: its matrix products, convolutions and attention, and nothing else.

An eager step is watched for calls of these operators; they are replayed, each on tensors of its own with the shapes,
strides and values that it had. No compiler of the same kernels can be faster than that.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from benchmarks.variants import LEARNING_RATE, Training, Variant
from benchmarks.workloads import Workload

HEAVY = (
    "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "convolution", "convolution_backward",
    "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward",
)  # fmt: skip
ATTENTION = "_scaled_dot_product_"


class Recording(TorchDispatchMode):
    """Notes the heavy calls, with copies of their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in HEAVY or name.startswith(ATTENTION):
            kept = tree_map_only(Tensor, _copy, (args, kwargs))
            self.calls.append((func, *kept))
        return func(*args, **kwargs)


def _copy(value: Tensor) -> Tensor:
    """The tensor in memory of its own, laid out as it was; one that is expanded, dense."""
    plain = value.detach()
    if 0 in plain.stride():
        return plain.clone()
    return torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype).copy_(plain)


class Floor:
    """The heavy calls of a step, as something that is timed."""

    def __init__(self, workload: Workload) -> None:
        training = Training(workload, Variant.parse("eager"))
        training.step()
        with Recording() as recording:
            training.step()
        self.calls = recording.calls

    @torch.no_grad()
    def step(self) -> None:
        """Run them all."""
        for func, args, kwargs in self.calls:
            func(*args, **kwargs)


class WholeFloor:
    """The same and the optimizer's update, by the kernel that reads and writes every value once."""

    def __init__(self, workload: Workload) -> None:
        self.floor = Floor(workload)  # leaves gradients behind
        trained = [p for p in workload.model.parameters() if p.grad is not None]
        self.optimizer = torch.optim.AdamW(trained, LEARNING_RATE, fused=True)

    def step(self) -> None:
        """Products and update."""
        self.floor.step()
        self.optimizer.step()
