"""What becomes of a node that is no operator when some of its arguments are structural zeros."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map_only

from tapeless.ir import graph as ir
from tapeless.ir.control import Control
from tapeless.ir.emit import Emitter
from tapeless.ir.opaque import AutogradVjp
from tapeless.torch_internals import fresh


@singledispatch
def with_zeros(target: Any, emitter: Emitter, node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The value of `target(*args, **kwargs)`: an operator says by its rule what it makes of zeros."""
    return target(*args, **kwargs)


@with_zeros.register
def _(target: Control, emitter: Emitter, node: fx.Node, args: Any, kwargs: Any) -> Any:
    """Zeros are filled in, where nothing better is known."""
    return emitter.emit(target, args, kwargs, tree_map_only(torch.Tensor, fresh, ir.value(node)))


@with_zeros.register
def _(vjp: AutogradVjp, emitter: Emitter, node: fx.Node, args: Any, kwargs: Any) -> Any:
    """An opaque backward takes an undefined cotangent as eager's engine hands it over."""
    cotangents, *others = args
    arriving = [None if emitter.is_zero(g) else g for g in cotangents]
    return emitter.emit(vjp, (arriving, *others), kwargs, tree_map_only(torch.Tensor, fresh, ir.value(node)))
