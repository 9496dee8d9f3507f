"""Matrix products by oneDNN, as an operator of Inductor's: like torch's own, they are written to memory that is given.

Torch's products of float32 on the CPU go to the library that torch was built with, mostly MKL. oneDNN is part of torch
as well, for other dtypes; on some machines it is faster for these too. See docs/decisions/0024-products.md.
"""

from __future__ import annotations

import ctypes
import functools
import math
import pathlib
import threading
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx

Tensor = torch.Tensor
aten = torch.ops.aten

SMALL = 2_000_000  # multiplications of a product; of more, copying a bias to every row is nothing beside it
PREFIX = "tapeless_"  # of what Inductor's code calls

# at::native::mkldnn_matmul(Tensor const& a, Tensor const& b, Tensor const& out, float beta, float alpha)
_SYMBOL = "_ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff"


@functools.cache
def _function() -> Any:
    """out = beta out + alpha a b, by oneDNN; None if torch has no such function, or it refuses this processor.

    Relies on the C++ function through which torch multiplies bfloat16, which its library shows: the name there spells
    its types, so that another one would not be found. A tensor is a pointer to what `_cdata` is the address of. Of any
    dtype it demands what bfloat16 takes, and whoever calls it without that is aborted.
    """
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    try:
        library = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        function = getattr(library, _SYMBOL)
    except (OSError, AttributeError):
        return None
    function.restype, function.argtypes = None, [ctypes.c_void_p] * 3 + [ctypes.c_float] * 2
    return function


def can_multiply() -> bool:
    """Is there oneDNN, and does the user want it? Relies on where `torch.backends.mkldnn` keeps that."""
    return _function() is not None and torch._C._get_mkldnn_enabled()


def product(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    """out = a b, of matrices or batches of them: float32 on the CPU, no size 0. By torch if oneDNN was switched off."""
    if can_multiply():
        _multiply(a, b, out, 0)
    else:
        torch.matmul(a, b, out=out)


def added_product(added: Tensor, a: Tensor, b: Tensor, *, out: Tensor) -> None:
    """out = added + a b, of matrices. Otherwise as `product`."""
    if can_multiply():
        out.copy_(added)
        _multiply(a, b, out, 1)
    else:
        torch.addmm(added, a, b, out=out)


def _multiply(a: Tensor, b: Tensor, out: Tensor, beta: int) -> None:
    pointers = (ctypes.byref(ctypes.c_void_p(x._cdata)) for x in (a, b, out))
    _function()(*pointers, beta, 1)


_LIBRARY = torch.library.Library("tapeless", "FRAGMENT")
for schema, real in (
    ("product(Tensor a, Tensor b) -> Tensor", torch.matmul),
    ("added_product(Tensor added, Tensor a, Tensor b) -> Tensor", torch.addmm),
    ("mm(Tensor a, Tensor b) -> Tensor", torch.mm),
):
    _LIBRARY.define(schema)
    _LIBRARY.impl(schema.partition("(")[0], real, "CompositeExplicitAutograd")  # on fake tensors as well

KERNELS: dict[str, Any] = {PREFIX + kernel.__name__: kernel for kernel in (product, added_product, torch.mm)}
_OURS: dict[Any, Any] = {
    aten.mm.default: torch.ops.tapeless.product.default,
    aten.bmm.default: torch.ops.tapeless.product.default,
    aten.addmm.default: torch.ops.tapeless.added_product.default,
}


_registering = threading.Lock()  # programs are compiled and loaded in several threads


def register_kernels() -> None:
    """Let Inductor's code call oneDNN. To be called before such code is loaded.

    Relies on `ExternKernelChoice`, by which torch's own products become calls that write to planned memory.
    """
    with _registering:
        _choices()


@functools.cache
def _choices() -> dict[str, Any]:
    from torch._inductor.select_algorithm import ExternKernelChoice

    return {kernel.__name__: ExternKernelChoice(kernel, name=name) for name, kernel in KERNELS.items()}


def _register_lowerings() -> None:
    """Let Inductor write such calls. Relies on how it lowers torch's own products."""
    with _registering:
        _lowerings()


@functools.cache
def _lowerings() -> list[Any]:
    return [_lowering(name, choice) for name, choice in _choices().items()]


def _lowering(name: str, choice: Any) -> Any:
    from torch._inductor import ir, lowering
    from torch._inductor.kernel.mm_common import mm_args

    @lowering.register_lowering(getattr(torch.ops.tapeless, name).default, type_promotion_kind=None)
    def lower(*args: Any) -> Any:
        *added, a, b = args
        layout: Any
        layout, a, b = mm_args(a, b)[-3:]
        added = [ir.ExternKernel.realize_input(lowering.expand(x, layout.size)) for x in added]
        return choice.bind((*added, a, b), layout).output_node()

    return lower


def replace_products(
    module: fx.GraphModule, is_faster: Callable[[Tensor, Tensor], bool], except_at: Collection[fx.Node] = ()
) -> None:
    """Let oneDNN multiply in a decomposed graph where `is_faster` says so of the operands."""
    if not can_multiply():
        return
    _register_lowerings()
    for node in module.graph.nodes:
        if node not in except_at and _is_plain(node) and is_faster(*(factor.meta["val"] for factor in node.args[-2:])):
            node.target = _OURS[node.target]
    module.recompile()


def keep_biases_apart(module: fx.GraphModule) -> None:
    """Let a bias that is added to a product be added by the kernel that reads the sum, elementwise.

    Inductor would have the product add it, for which torch copies the bias to every row first: of a small product that
    is half the time. Relies on its looking for `aten.mm`; the same product by another name is not found.
    """
    _register_lowerings()
    for node in module.graph.find_nodes(op="call_function", target=aten.mm.default):
        if len(node.users) == 1 and _is_small(node) and _adds_bias(next(iter(node.users)), node):
            node.target = torch.ops.tapeless.mm.default
    module.recompile()


def _is_small(product: fx.Node) -> bool:
    a, b = (factor.meta["val"] for factor in product.args)  # type: ignore[union-attr]
    sizes = [*a.shape, b.shape[-1]]
    return all(isinstance(n, int) for n in sizes) and math.prod(sizes) < SMALL


def _adds_bias(total: fx.Node, product: fx.Node) -> bool:
    """Is it a product and a vector of one dtype, that is read by elementwise calls alone?"""
    if total.target is not aten.add.Tensor or total.kwargs or product is not total.args[0]:
        return False
    bias = total.args[1]
    if not isinstance(bias, fx.Node) or bias.meta["val"].dim() != 1 or bias.meta["val"].device.type != "cpu":
        return False
    plain = bias.meta["val"].dtype is product.meta["val"].dtype and bias.meta["val"].dtype in _ROUNDED_ONCE
    return plain and all(torch.Tag.pointwise in getattr(user.target, "tags", ()) for user in total.users)


_ROUNDED_ONCE = (torch.float32, torch.float64)  # kernels compute others in float32, and round the product first


def _is_plain(node: fx.Node) -> bool:
    """A product, and perhaps a matrix that is added as it is: what is scaled by nought may be infinite."""
    return node.target in _OURS and not node.kwargs and len(node.args) == len(_OURS[node.target]._schema.arguments)
