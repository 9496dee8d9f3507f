"""How optimizers update: for each kind, its state, the numbers that may change from step to step, and its kernel.

A kernel is written into the program of a training step. It works on lists of parameters, in place, as the optimizer
itself does; where torch has a fused kernel for the CPU, it is that one: each value is read and written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tapeless.ir import graph as ir

aten = torch.ops.aten

Group = dict[str, Any]
Emit = Callable[..., Any]  # (operator, *arguments) → its result, written into the program
Nodes = list[Any]
States = dict[str, Nodes]
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of optimizer."""

    state: Callable[[Group, Tensor], dict[str, Tensor]]  # what the optimizer keeps for a parameter, at its beginning
    numbers: Callable[[Group], dict[str, float]]  # read before each step
    flags: Callable[[Group], tuple[Any, ...]]  # what the program is written for
    update: Callable[[Emit, Nodes, Nodes, States, Numbers, Group], None]  # of parameters by their gradients


class Lion(torch.optim.Optimizer):
    """Steps by the sign of an interpolated momentum (Chen et al., 2023), with decoupled weight decay."""

    def __init__(
        self, params: Any, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                state.update(_lion_state(group, p) if not state else {})
                _lion(_call, [p], [p.grad], {"exp_avg": [state["exp_avg"]]}, _lion_numbers(group), group)
        return loss


def kind_of(optimizer: torch.optim.Optimizer) -> Kind | None:
    """The kind of an optimizer whose every group we can update; None where its own `step` has to do it."""
    kind = KINDS.get(type(optimizer))
    if kind is None or not all(_is_plain(group) for group in optimizer.param_groups):
        return None
    return kind


def _is_plain(group: Group) -> bool:
    odd = group.get("differentiable") or group.get("capturable") or (group.get("momentum") and group.get("dampening"))
    return not odd and all(p.is_floating_point() and not p.is_sparse and _is_dense(p) for p in group["params"])


def _is_dense(p: Tensor) -> bool:
    """Does it lie in memory without gaps? Fused kernels go through it from the first number to the last."""
    return p.is_contiguous() or aten.is_non_overlapping_and_dense.default(p)


def _call(op: Any, *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def _zeros(p: Tensor) -> Tensor:
    return torch.zeros_like(p, memory_format=torch.preserve_format)


def _counter(group: Group) -> Tensor:
    """Of steps, in the type that torch's optimizers choose."""
    is_wide = torch.get_default_dtype() is torch.float64 and not group.get("fused")
    return torch.tensor(0.0, dtype=torch.float64 if is_wide else torch.float32)


# -- SGD ---------------------------------------------------------------------------------------------------------------


def _sgd_state(group: Group, p: Tensor) -> dict[str, Tensor]:
    return {"momentum_buffer": _zeros(p)} if group["momentum"] else {}


def _sgd_numbers(group: Group) -> dict[str, float]:
    return {name: float(group[name]) for name in ("lr", "momentum", "dampening", "weight_decay")}


def _sgd_flags(group: Group) -> tuple[Any, ...]:
    return group["nesterov"], group["maximize"], bool(group["momentum"]), bool(group["weight_decay"])


def _sgd(emit: Emit, params: Nodes, grads: Nodes, state: States, numbers: Numbers, group: Group) -> None:
    """Torch 2.13 computes nonsense of 16 or more numbers of a half precision in its fused kernel for the CPU."""
    halves = [ir.value(p).dtype in (torch.bfloat16, torch.float16) for p in params]
    for update, half in ((_sgd_fused, False), (_sgd_written_out, True)):
        mine = [k for k, is_half in enumerate(halves) if is_half == half]
        if mine:
            buffers = {name: [nodes[k] for k in mine] for name, nodes in state.items()}
            update(emit, [params[k] for k in mine], [grads[k] for k in mine], buffers, numbers, group)


def _sgd_fused(emit: Emit, params: Nodes, grads: Nodes, state: States, numbers: Numbers, group: Group) -> None:
    flags = {"nesterov": group["nesterov"], "maximize": group["maximize"], "is_first_step": False}
    emit(aten._fused_sgd_.default, params, grads, state.get("momentum_buffer", []), **numbers, **flags)


def _sgd_written_out(emit: Emit, params: Nodes, grads: Nodes, state: States, numbers: Numbers, group: Group) -> None:
    for k, (p, g) in enumerate(zip(params, grads, strict=True)):
        g = emit(aten.neg.default, g) if group["maximize"] else g
        g = emit(aten.add.Tensor, g, p, alpha=numbers["weight_decay"]) if group["weight_decay"] else g
        if group["momentum"]:
            buffer = emit(aten.mul_.Scalar, state["momentum_buffer"][k], numbers["momentum"])
            buffer = emit(aten.add_.Tensor, buffer, g)
            g = emit(aten.add.Tensor, g, buffer, alpha=numbers["momentum"]) if group["nesterov"] else buffer
        emit(aten.sub_.Tensor, p, g, alpha=numbers["lr"])


# -- Adam and AdamW ----------------------------------------------------------------------------------------------------


def _adam_state(group: Group, p: Tensor) -> dict[str, Tensor]:
    averages = {"exp_avg": _zeros(p), "exp_avg_sq": _zeros(p)}
    return {"step": _counter(group), **averages, **({"max_exp_avg_sq": _zeros(p)} if group["amsgrad"] else {})}


def _adam_numbers(group: Group) -> dict[str, float]:
    beta1, beta2 = map(float, group["betas"])
    return {"lr": float(group["lr"]), "beta1": beta1, "beta2": beta2} | {
        name: float(group[name]) for name in ("weight_decay", "eps")
    }


def _adam_flags(group: Group) -> tuple[Any, ...]:
    return group["amsgrad"], group["maximize"], group["decoupled_weight_decay"]


def _adam(emit: Emit, params: Nodes, grads: Nodes, state: States, numbers: Numbers, group: Group) -> None:
    kernel = aten._fused_adamw_ if group["decoupled_weight_decay"] else aten._fused_adam_
    moments = (state["exp_avg"], state["exp_avg_sq"], state.get("max_exp_avg_sq", []))
    emit(aten._foreach_add_.Scalar, state["step"], 1)
    emit(
        kernel.default, params, grads, *moments, state["step"], **numbers,
        amsgrad=group["amsgrad"], maximize=group["maximize"],
    )  # fmt: skip


# -- Adagrad -----------------------------------------------------------------------------------------------------------


def _adagrad_state(group: Group, p: Tensor) -> dict[str, Tensor]:
    return {"step": _counter(group), "sum": torch.full_like(p, group["initial_accumulator_value"])}


def _adagrad_numbers(group: Group) -> dict[str, float]:
    return {name: float(group[name]) for name in ("lr", "lr_decay", "weight_decay", "eps")}


def _adagrad(emit: Emit, params: Nodes, grads: Nodes, state: States, numbers: Numbers, group: Group) -> None:
    emit(aten._foreach_add_.Scalar, state["step"], 1)
    emit(
        aten._fused_adagrad_.default, params, grads, state["sum"], state["step"], **numbers, maximize=group["maximize"]
    )


# -- RMSprop -----------------------------------------------------------------------------------------------------------


def _rmsprop_state(group: Group, p: Tensor) -> dict[str, Tensor]:
    optional = {"momentum_buffer": group["momentum"] > 0, "grad_avg": group["centered"]}
    names = ["square_avg", *(name for name, wanted in optional.items() if wanted)]
    return {"step": _counter(group), **{name: _zeros(p) for name in names}}


def _rmsprop_numbers(group: Group) -> dict[str, float]:
    alpha = float(group["alpha"])
    chosen = {name: float(group[name]) for name in ("weight_decay", "eps", "momentum")}
    return {"minus_lr": -float(group["lr"]), "alpha": alpha, "rest": 1 - alpha, **chosen}


def _rmsprop_flags(group: Group) -> tuple[Any, ...]:
    return group["centered"], group["maximize"], group["momentum"] > 0, group["weight_decay"] != 0


def _rmsprop(emit: Emit, params: Nodes, grads: Nodes, state: States, numbers: Numbers, group: Group) -> None:
    emit(aten._foreach_add_.Scalar, state["step"], 1)
    for k, (p, g) in enumerate(zip(params, grads, strict=True)):
        g = emit(aten.neg.default, g) if group["maximize"] else g
        g = emit(aten.add.Tensor, g, p, alpha=numbers["weight_decay"]) if group["weight_decay"] else g
        square = emit(aten.mul_.Scalar, state["square_avg"][k], numbers["alpha"])
        square = emit(aten.addcmul_.default, square, g, g, value=numbers["rest"])
        if group["centered"]:
            mean = emit(aten.lerp_.Scalar, state["grad_avg"][k], g, numbers["rest"])
            square = emit(aten.addcmul.default, square, mean, mean, value=-1)
        scale = emit(aten.add.Scalar, emit(aten.sqrt.default, square), numbers["eps"])
        if group["momentum"] > 0:
            buffer = emit(aten.mul_.Scalar, state["momentum_buffer"][k], numbers["momentum"])
            emit(aten.add_.Tensor, p, emit(aten.addcdiv_.default, buffer, g, scale), alpha=numbers["minus_lr"])
        else:
            emit(aten.addcdiv_.default, p, g, scale, value=numbers["minus_lr"])


# -- Lion --------------------------------------------------------------------------------------------------------------


def _lion_state(group: Group, p: Tensor) -> dict[str, Tensor]:
    return {"exp_avg": _zeros(p)}


def _lion_numbers(group: Group) -> dict[str, float]:
    lr, (beta1, beta2) = float(group["lr"]), map(float, group["betas"])
    shrink = 1 - lr * float(group["weight_decay"])
    return {"shrink": shrink, "minus_lr": -lr, "rest1": 1 - beta1, "rest2": 1 - beta2}


def _lion(emit: Emit, params: Nodes, grads: Nodes, state: States, numbers: Numbers, group: Group) -> None:
    for p, g, average in zip(params, grads, state["exp_avg"], strict=True):
        direction = emit(aten.sign.default, emit(aten.lerp.Scalar, average, g, numbers["rest1"]))
        shrunk = emit(aten.mul_.Scalar, p, numbers["shrink"])
        emit(aten.add_.Tensor, shrunk, direction, alpha=numbers["minus_lr"])
        emit(aten.lerp_.Scalar, average, g, numbers["rest2"])


def _no_flags(group: Group) -> tuple[Any, ...]:
    return ()


_ADAM = Kind(_adam_state, _adam_numbers, _adam_flags, _adam)

KINDS: dict[type, Kind] = {
    torch.optim.SGD: Kind(_sgd_state, _sgd_numbers, _sgd_flags, _sgd),
    torch.optim.Adam: _ADAM,
    torch.optim.AdamW: _ADAM,
    torch.optim.Adagrad: Kind(_adagrad_state, _adagrad_numbers, lambda group: (group["maximize"],), _adagrad),
    torch.optim.RMSprop: Kind(_rmsprop_state, _rmsprop_numbers, _rmsprop_flags, _rmsprop),
    Lion: Kind(_lion_state, _lion_numbers, _no_flags, _lion),
}
