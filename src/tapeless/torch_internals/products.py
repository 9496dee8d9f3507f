"""Matrix products by oneDNN, as an operator of Inductor's: like torch's own, they are written to memory that is given.

Torch's products of float32 on the CPU go to the library that torch was built with, mostly MKL. oneDNN is part of torch
as well, for other dtypes; on some machines it is faster for these too. See docs/decisions/0024-products.md.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tapeless.torch_internals.fakes import fake_mode_of, without_modes

Tensor = torch.Tensor
aten = torch.ops.aten

NAME = "tapeless_product"  # in the code that Inductor generates

# at::native::mkldnn_matmul(Tensor const& a, Tensor const& b, Tensor const& out, float beta, float alpha)
_SYMBOL = "_ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff"

_LIBRARY = torch.library.Library("tapeless", "FRAGMENT")
_LIBRARY.define("product(Tensor a, Tensor b) -> Tensor")
_LIBRARY.impl("product", torch.matmul, "CompositeExplicitAutograd")
_LIBRARY.impl("product", lambda a, b: a.new_empty((*a.shape[:-1], b.shape[-1])), "Meta")


@functools.cache
def multiply_into() -> Callable[[Tensor, Tensor, Tensor], None] | None:
    """`(a, b, out)`: out = a b, of matrices or batches of them, in float32 and with no size 0. None if it is missing.

    Relies on the C++ function through which torch multiplies bfloat16, which its library shows: the name there spells
    its types, so that another one would not be found. A tensor is a pointer to what `_cdata` is the address of.
    """
    try:
        library = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        function = getattr(library, _SYMBOL)
    except (OSError, AttributeError):
        return None
    function.restype, function.argtypes = None, [ctypes.c_void_p] * 3 + [ctypes.c_float] * 2
    pointer, reference = ctypes.c_void_p, ctypes.byref

    def multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
        if not is_enabled():
            torch.matmul(a, b, out=out)
            return
        function(reference(pointer(a._cdata)), reference(pointer(b._cdata)), reference(pointer(out._cdata)), 0, 1)

    return multiply if torch.backends.mkldnn.is_available() else None


def is_enabled() -> bool:
    """May oneDNN be used? The user can say no at any time. Relies on where `torch.backends.mkldnn` keeps that."""
    return torch._C._get_mkldnn_enabled()


@functools.cache
def register_product() -> Any:
    """Let Inductor's code call oneDNN, and Inductor write such calls. To be called before either.

    Relies on `ExternKernelChoice`, by which torch's own products become calls that write to planned memory.
    """
    from torch._inductor.kernel.mm_common import mm_args
    from torch._inductor.lowering import register_lowering
    from torch._inductor.select_algorithm import ExternKernelChoice

    multiply = multiply_into()
    assert multiply is not None
    choice = ExternKernelChoice(multiply, name=NAME)

    @register_lowering(torch.ops.tapeless.product.default, type_promotion_kind=None)
    def lower(a: Any, b: Any) -> Any:
        *_, layout, a, b = mm_args(a, b)
        return choice.bind((a, b), layout).output_node()

    return choice


def replace_products(module: fx.GraphModule, is_faster: Callable[[Tensor, Tensor], bool]) -> None:
    """Let oneDNN multiply in a decomposed graph where `is_faster` says so of the operands."""
    if multiply_into() is None or not is_enabled():
        return
    found = [(node, factors) for node in module.graph.nodes if (factors := _factors(node)) and is_faster(*factors)]
    if found:
        register_product()
    for node, _ in found:
        _replace(node)
    if found:
        module.recompile()


def _factors(node: fx.Node) -> tuple[Tensor, Tensor] | None:
    """What is multiplied, if it is nothing but that: a number added at the end may be infinite times nought."""
    if node.target in (aten.mm.default, aten.bmm.default):
        nodes = node.args
    elif node.target is aten.addmm.default and not node.kwargs and len(node.args) == 3:
        nodes = node.args[1:]
    else:
        return None
    a, b = (x.meta["val"] for x in nodes if isinstance(x, fx.Node))
    return a, b


def _replace(node: fx.Node) -> None:
    """Whatever is added goes to the kernels that read the sum."""
    graph, value = node.graph, node.meta["val"]
    *added, a, b = node.args
    with graph.inserting_before(node):
        result = graph.call_function(torch.ops.tapeless.product.default, (a, b))
        result.meta["val"] = value
        if added:
            result.meta["val"] = _another(value)
            result = graph.call_function(aten.add.Tensor, (result, added[0]))
            result.meta["val"] = value
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def _another(value: Tensor) -> Tensor:
    with without_modes(), fake_mode_of([value]):
        return torch.empty_like(value)
