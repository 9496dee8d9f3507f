"""A tour of the compiler: one small program, carried through every stage by hand.

Run it: `python docs/tour.py`. It prints what each stage makes, and asserts what it says. The stages are those of
`src/tapeless/pipeline.py`, called one by one instead of by `torch.compile`; read that file next to this one.
"""

import torch
from torch import fx

import tapeless
from tapeless.differentiate.reverse import reverse
from tapeless.ir import graph as ir
from tapeless.ir import text
from tapeless.ir.copying import copy_graph
from tapeless.partition.split import split
from tapeless.pipeline import trace
from tapeless.rules.registry import gradients, named_arguments, rule_of
from tapeless.specialize.lower import lower_grad_of
from tapeless.specialize.rewrite import specialize

aten = torch.ops.aten
torch.manual_seed(0)


def show(title, what):
    print(f"\n# --- {title} ---\n\n{str(what).strip()}")


# 1. A program ---------------------------------------------------------------------------------------------------------
#
# Two heads on one trunk. Nothing about it says "derivative".


def two_heads(x, w, a, b):
    trunk = torch.tanh(x @ w)
    return trunk @ a, torch.relu(trunk @ b)


x = torch.randn(4, 3)
w, a, b = (torch.randn(size, requires_grad=True) for size in [(3, 8), (8, 2), (8, 1)])


# 2. Capture -----------------------------------------------------------------------------------------------------------
#
# Dynamo reads the bytecode, AOTAutograd's first stage removes mutation and aliasing. What is left is a torch.fx
# graph of ATen operators. Every node knows the type of its value and the line it comes from.

captured = trace(two_heads, (x, w, a, b), {})
show("captured", text.function(captured.graph, "program"))

program = captured.graph
assert [node.target for node in ir.calls(program)] == [
    aten.mm.default,
    aten.tanh.default,
    aten.mm.default,
    aten.mm.default,
    aten.relu.default,
]


# 3. Rules -------------------------------------------------------------------------------------------------------------
#
# A rule is plain PyTorch. Its parameters name what it needs: arguments by their schema names, `out` for the result,
# `g` for the cotangent. What it names is what will be saved. Called on tensors, it computes.

rule = rule_of(aten.tanh.default)
assert rule.form == "pointwise"
assert rule.vjps["self"].reads == ("g", "out")  # saves the result, not the input

out, g = torch.tanh(torch.ones(2)), torch.ones(2)
found = gradients(rule, ["self"], {"out": out, "g": g})
torch.testing.assert_close(found["self"], 1 - out**2)


# 4. The idea: one walk backwards --------------------------------------------------------------------------------------
#
# Reverse mode in fifteen lines. Visit the calls in reverse order; pop the cotangent of a call's result; let the
# rule turn it into gradients of the arguments; add those to the arguments' own cotangents. Here on numbers.


def run_forward(graph, inputs):
    values = dict(zip(ir.inputs(graph), inputs, strict=True))
    for node in ir.calls(graph):
        args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
        values[node] = node.target(*args, **kwargs)
    return values


def run_backward(graph, values, cotangents):
    """`cotangents` maps results to what arrived for them. Returns every value's cotangent that was not used up."""
    for node in reversed(ir.calls(graph)):
        if node not in cotangents:
            continue  # nobody sent anything: structurally zero, so there is nothing to do
        arguments = named_arguments(node.target, node.args, node.kwargs)
        given = {name: values.get(argument, argument) for name, argument in arguments.items()}
        wanted = [name for name, argument in arguments.items() if isinstance(argument, fx.Node)]
        known = {**given, "out": values[node], "g": cotangents.pop(node)}
        for name, gradient in gradients(rule_of(node.target), wanted, known).items():
            argument = arguments[name]
            cotangents[argument] = cotangents[argument] + gradient if argument in cotangents else gradient
    return cotangents


with torch.no_grad():
    values = run_forward(program, [x, w, a, b])
    first, second = ir.outputs(program)
    by_hand = run_backward(program, values, {first: torch.ones(4, 2), second: torch.ones(4, 1)})

eager = torch.autograd.grad(two_heads(x, w, a, b), (w, a, b), (torch.ones(4, 2), torch.ones(4, 1)))
for node, expected in zip(ir.inputs(program)[1:], eager, strict=True):
    torch.testing.assert_close(by_hand[node], expected)


# 5. Differentiate -----------------------------------------------------------------------------------------------------
#
# The compiler's walk is the same one, but the rules run on fake tensors, and every ATen call they make becomes a
# node. So the result is not a gradient but the program of one, appended to the forward: the joint graph.

graph = copy_graph(program)
joint = reverse(graph, ir.inputs(graph)[1:], [True, True])
print(f"\n{len(ir.calls(program))} calls before, {len(ir.calls(joint.graph))} in the joint graph")

# The backward of one forward operator is one region, with a record of where it comes from. A vjp is linear in its
# cotangents, so if none of them arrives, the whole region is zero, whatever stands inside.

regions = list(dict.fromkeys(r for node in joint.graph.nodes if (r := ir.region(node)) is not None))
show("regions", "\n".join(f"grad_of {r.forward}: {r.op} at line {r.where.line}" for r in regions))
assert regions[0].op == "aten.relu.default"  # the last operator first


# 6. Partition ---------------------------------------------------------------------------------------------------------
#
# Cut the joint graph where the forward ends. What the backward reads across the cut is captured: inputs and outputs
# cost nothing, the rest (`trunk`) becomes a further output of the forward.

parts = split(joint)
show("forward", text.function(parts.forward, "forward"))
show("backward, before specialisation", text.function(parts.backward, "backward"))

assert parts.real_outputs == 2 and len(ir.outputs(parts.forward)) == 3
assert [node.name for node in parts.captures] == ["x", "a", "b", "trunk", "relu"]


# 7. Specialize --------------------------------------------------------------------------------------------------------
#
# Suppose the loss uses the first head alone. The second cotangent is undefined, which is not a tensor full of
# zeros: the region of `relu` vanishes, and with it all that only it fed. Where a sum loses a term, the other term
# remains.

one_head = specialize(parts.backward, 2, undefined=[1])
show("backward of the first head", text.function(one_head, "backward"))

assert ir.outputs(one_head)[-1] is None  # the gradient of b, as eager has it
assert len(ir.calls(one_head)) < len(ir.calls(specialize(parts.backward, 2)))

# How zeros travel is written nowhere but in the rules: `linear` passes a zero on if all its arguments are zero,
# `bilinear` if either factor is.

assert rule_of(aten.mm.default).zero_groups == (("self",), ("mat2",))


# 8. Lower -------------------------------------------------------------------------------------------------------------
#
# Which cotangents arrive is known at the earliest when the first backward runs. Until then regions are guarded by a
# test at run time: one program that is right for every pattern.

generic = lower_grad_of(parts.backward, 2)
show("backward for any pattern", text.function(generic, "backward"))
assert "is not None" in text.function(generic, "backward")


# 9. Print and run -----------------------------------------------------------------------------------------------------
#
# The generated source is the backend: what is printed is what runs. `differentiate` does stages 2 to 7 in one call.

gradient = tapeless.differentiate(two_heads, x, w, a, b, undefined=(1,))
with torch.no_grad():
    results = gradient.forward(x, w, a, b)
    inputs = [x, w, a, b]
    captures = [*(inputs[i] for i in gradient.captured_inputs), *(results[i] for i in gradient.captured_outputs)]
    found = gradient.backward(torch.ones(4, 2), None, *captures)

expected = torch.autograd.grad(two_heads(x, w, a, b)[0].sum(), (w, a, b), allow_unused=True)
assert found[-1] is None and expected[-1] is None
torch.testing.assert_close(found[:-1], list(expected[:-1]))


# 10. Under autograd ---------------------------------------------------------------------------------------------------
#
# `torch.compile` calls the same stages and puts the pair behind an autograd.Function. A head that the loss does not
# use keeps `.grad = None`, so an optimizer with weight decay leaves it alone.

compiled = torch.compile(two_heads, backend="tapeless")
compiled(x, w, a, b)[0].sum().backward()
assert b.grad is None
torch.testing.assert_close(w.grad, expected[0])


# 11. Your own operator ------------------------------------------------------------------------------------------------
#
# An operator without a rule is refused, with your own source line; one line teaches it.


@torch.library.custom_op("tour::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


cube.register_fake(torch.empty_like)

try:
    tapeless.differentiate(lambda x: cube(x).sum(), torch.randn(3))
except tapeless.errors.MissingRule as missing:
    show("refused", missing)
else:
    raise AssertionError("a rule nobody wrote")

tapeless.rules.registry.pointwise(torch.ops.tour.cube.default, lambda x: 3 * x * x)
show("after one line", tapeless.differentiate(lambda x: cube(x).sum(), torch.randn(3)).backward)

# `tapeless.explain` tells the same story about any function: its programs, what they save and for whom, their
# rules.

print()
print(tapeless.explain(two_heads, x, w, a, b).summary())
