"""Graph → readable Python. One printer for the backend, goldens, errors and docs: what is printed is what runs."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import _get_qualified_name

from tapeless.ir import graph as ir
from tapeless.ir import kernels
from tapeless.ir.control import Control, control_flow
from tapeless.ir.header import header
from tapeless.ir.opaque import AutogradVjp
from tapeless.ir.ops import accumulate, any_defined, zeros_if_undefined
from tapeless.ir.reuse import ANY, IN_PLACE, OVER, Terms, reusable_operands
from tapeless.ir.spelling import spelling

INDENT = "    "

aten = torch.ops.aten

# Note [Layout at run time]: strides of a value that depends on cotangents are known only when it runs. An accumulation
# with one side missing is its other side as it stands, a dropped term leaves a broadcast one. So the text asks for a
# shape, which is a view whenever it can be, and reads memory by strides only where it has first made sure of them.
RESHAPES = (aten.view.default, aten._unsafe_view.default)

Dead = dict[fx.Node, list[fx.Node]]  # for each call, the values that nobody reads after it


def program(graph: fx.Graph, name: str = "forward", note: str = "", terms: Terms = ANY) -> str:
    """The whole file: header and function. Pasted in a file, it runs."""
    return programs({name: graph}, {name: note}, terms)


def functional_program(graph: fx.Graph, name: str) -> str:
    """The same for another compiler: no call works in place."""
    body = function(graph, name, in_place=False)
    return f"{header(body)}\n{body}"


def programs(graphs: Mapping[str, fx.Graph], notes: Mapping[str, str], terms: Terms = ANY) -> str:
    """Several functions in one file, with a note at the head of some."""
    body = "\n\n".join(function(graph, name, notes.get(name, ""), True, terms) for name, graph in graphs.items())
    literals = [_literal(item) for graph in graphs.values() for item in constants(graph).items()]
    return f"{header(body)}{''.join(dict.fromkeys(literals))}\n{body}"


def constants(graph: fx.Graph) -> dict[str, torch.Tensor]:
    """The tensors that the program closes over, by the names the text gives them."""
    found = {node.name: ir.constant(node) for node in graph.find_nodes(op="get_attr")}
    own = {f"constant_{name}": tensor for name, tensor in found.items() if tensor is not None}
    inner = [constants(body) for _, control in control_flow(graph) for body in control.bodies.values()]
    return own | {name: tensor for part in inner for name, tensor in part.items()}


def _literal(item: tuple[str, torch.Tensor]) -> str:
    name, tensor = item
    return f"{name} = torch.tensor({tensor.tolist()!r}, dtype={tensor.dtype})\n"


def function(graph: fx.Graph, name: str, note: str = "", in_place: bool = True, terms: Terms = ANY) -> str:
    """A function of one list, which it empties: values are deleted at their last use, its arguments too."""
    lines = [f"def {name}(args):", *(f"{INDENT}# {line}" for line in note.splitlines())]
    arguments = ir.inputs(graph)
    lines += [f"{INDENT}# {node.name}: {type_of(ir.value(node))}" for node in arguments]
    if arguments:
        names = ", ".join(node.name for node in arguments)
        lines += [f"{INDENT}{names}{',' if len(arguments) == 1 else ''} = args", f"{INDENT}args.clear()"]
    dead = _last_uses(graph)
    taken = reusable_operands(graph, terms) if in_place else {}
    for guard, group in groupby((n for n in ir.calls(graph) if n.target is not any_defined), ir.guard):
        nodes = list(group)
        lines += _block(nodes, dead, taken) if guard is None else _guarded_block(guard, nodes, dead)
    lines.append(f"{INDENT}return [{', '.join(argument(r) for r in ir.outputs(graph))}]")
    return "\n".join(lines) + "\n"


def _block(nodes: list[fx.Node], dead: Dead, taken: dict[fx.Node, fx.Node]) -> list[str]:
    lines = []
    for node in nodes:
        if isinstance(node.target, Control):
            for key, body in node.target.bodies.items():
                lines += _indented(function(body, f"{node.name}_{key}"))
        source = in_place_call(node, taken[node]) if node in taken else call(node)
        lines.append(f"{INDENT}{node.name} = {source}{_comment(node)}")
        lines += _deletion(dead.get(node, []))
    return lines


def _guarded_block(guard: fx.Node, nodes: list[fx.Node], dead: Dead) -> list[str]:
    """A region under its runtime test: `if` any cotangent is defined, else its gradients are undefined."""
    inside = set(nodes)
    local = {node: [d for d in dead.get(node, []) if d in inside] for node in nodes}
    outside = [d for node in nodes for d in dead.get(node, []) if d not in inside]
    results = [node for node in nodes if any(user not in inside for user in node.users)]
    test = " or ".join(f"{argument(g)} is not None" for g in guard.args)
    lines = [f"{INDENT}if {test}:", *(INDENT + line for line in _block(nodes, local, {}))]
    if results:
        lines += [f"{INDENT}else:", f"{INDENT * 2}{' = '.join(node.name for node in results)} = None"]
    return lines + _deletion([d for d in outside if d.target is not any_defined])


def _indented(source: str) -> list[str]:
    return [INDENT + line for line in source.splitlines()]


def _deletion(nodes: list[fx.Node]) -> list[str]:
    return [f"{INDENT}del {', '.join(node.name for node in nodes)}"] if nodes else []


def call(node: fx.Node) -> str:
    """The right-hand side of a node."""
    if node.op == "get_attr":
        return f"constant_{node.name}"
    if node.target is operator.getitem:
        return f"{argument(node.args[0])}[{argument(node.args[1])}]"
    if isinstance(node.target, AutogradVjp):
        return f"{_opaque(node.target)}({', '.join(map(argument, node.args))})"
    if node.target is zeros_if_undefined:
        g, size, dtype, device = map(argument, node.args)
        return f"torch.zeros({size}, dtype={dtype}, device={device}) if {g} is None else {g}"
    if isinstance(node.target, Control):
        return node.target.source(node.name, [argument(a) for a in node.args])
    args = [argument(a) for a in node.args] + [f"{k}={argument(v)}" for k, v in node.kwargs.items()]
    if node.target in RESHAPES:
        return f"{args[0]}.reshape({', '.join(args[1:])})"
    if node.target is aten.as_strided.default and _is_contiguous(node.args[0]):
        return f"{args[0]}.contiguous().as_strided({', '.join(args[1:])})"
    name = spelling(node, node.target) if isinstance(node.target, OpOverload) else None
    if name is not None and name.startswith("."):
        return f"{args[0]}{name}({', '.join(args[1:])})"
    return f"{name or target(node.target)}({', '.join(args)})"


def _is_contiguous(node: Any) -> bool:
    val = ir.value(node)
    return isinstance(val, torch.Tensor) and val.is_contiguous()


def in_place_call(node: fx.Node, operand: fx.Node) -> str:
    """The same call, writing into `operand`, which nobody reads any more."""
    if node.target in OVER:
        overload, result = OVER[node.target]
        args = [argument(a) for a in node.args] + [f"{k}={argument(v)}" for k, v in node.kwargs.items()]
        return f"{target(overload)}({', '.join([*args, f'{result}={operand.name}'])})"
    others = list(node.args)
    others.remove(operand)
    return f"{operand.name}.{IN_PLACE[node.target]}({', '.join(argument(a) for a in others)})"


def target(op: Any) -> str:
    if isinstance(op, OpOverload):
        own = f"kernels.{op.overloadpacket.__name__}" if op.namespace == kernels.NAMESPACE else f"torch.ops.{op}"
        return str(op) if op.namespace == "aten" else own
    if op is accumulate:
        return "accumulate"
    return _get_qualified_name(op).replace("_operator.", "operator.")


def _opaque(vjp: AutogradVjp) -> str:
    inner = _opaque(vjp.function) if isinstance(vjp.function, AutogradVjp) else target(vjp.function)
    return f"AutogradVjp({inner}, {vjp.wanted})"


def argument(value: Any) -> str:
    """A value as source text."""
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, (list, tuple)):
        inner = ", ".join(argument(v) for v in value)
        return f"[{inner}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {argument(v)}' for key, v in value.items())}}}"
    if isinstance(value, torch.device):
        return f"device({str(value)!r})"
    return repr(value)


def type_of(val: Any) -> str:
    """`f32[2, 3]`, as in comments and signatures."""
    if isinstance(val, torch.Tensor):
        return f"{_DTYPES.get(val.dtype, str(val.dtype))}[{', '.join(map(str, val.shape))}]"
    if isinstance(val, (tuple, list)):
        return f"({', '.join(map(type_of, val))})"
    return type(val).__name__ if not isinstance(val, torch.SymInt) else f"int {val}"


_DTYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.complex64: "c64",
    torch.complex128: "c128", torch.int64: "i64", torch.int32: "i32", torch.int8: "i8", torch.uint8: "u8",
    torch.bool: "bool",
}  # fmt: skip


def _comment(node: fx.Node) -> str:
    """The value's type, the forward operator whose backward this is, and the user's line."""
    record = ir.region(node)
    place = record.where if record else ir.where(node)
    total = ir.total_of(node)
    origin = f"grad_of {record.forward}" if record else f"total of {total}" if total else ""
    line = f"{place.file.rsplit('/', 1)[-1]}:{place.line}  {_shortened(place.text)}" if place.file else ""
    kind = "" if ir.value(node) is None else type_of(ir.value(node))
    parts = [part for part in (kind, origin, line) if part]
    return "  # " + "  ".join(parts) if parts else ""


def _shortened(line: str, width: int = 60) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def _last_uses(graph: fx.Graph) -> Dead:
    last: Dead = {}
    seen = set(graph.output_node().all_input_nodes)
    for node in reversed(ir.calls(graph)):
        if node.target is any_defined:
            continue  # written as the test of each block it guards
        dead = [a for a in dict.fromkeys(_reads(node)) if a not in seen]
        if not node.users:
            dead = [*dead, node]
        seen.update(dead)
        if dead:
            last[node] = dead
    return last


def _reads(node: fx.Node) -> list[fx.Node]:
    guard = ir.guard(node)
    return [*node.all_input_nodes, *(guard.all_input_nodes if guard is not None else ())]
