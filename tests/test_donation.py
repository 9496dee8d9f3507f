"""A backward writes to what was saved for it alone, and to nothing that anybody else can see."""

import threading

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

import tapeless
from tapeless.backends.python import Overwriting
from tapeless.ir import graph as ir
from tapeless.ir.reuse import Terms, overwritten_inputs, own_results, reusable_operands
from tapeless.partition import rederive, schedule
from tapeless.runtime import program as programs


def product(x, w, v):
    return (torch.sin(x @ w) * torch.exp(x @ v)).square().sum()


def classes(x, w, v):
    return F.cross_entropy(torch.tanh(x @ v) @ w, torch.arange(len(x)))


def gated(x, w, v):
    return (F.silu(x @ w) * (x @ v).sigmoid()).sum() + F.gelu(x @ v).pow(3).mean()


def normalised(x, w, v):
    return (torch.softmax(x @ w, -1) * torch.log_softmax(x @ v, -1)).sum().tanh()


def with_a_view(x, w, v):
    h = torch.exp(x @ w)
    return (h * torch.cos(x @ v)).sum() * h.mT.reshape(-1)[3:].prod()


PROGRAMS = {f.__name__: f for f in (product, classes, gated, normalised, with_a_view)}


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return [torch.randn(16, 16, dtype=torch.float64, requires_grad=True) for _ in range(3)]


@pytest.fixture(params=PROGRAMS.values(), ids=PROGRAMS)
def program(request):
    return request.param


@pytest.fixture
def compiled(program):
    torch._dynamo.reset()
    return torch.compile(program, backend="tapeless", options={"backend": "python"})


def backwards():
    found = [b for p in programs.LIVE for _, b in p.specialized_backwards()]
    return [b for b in found if isinstance(b.run, Overwriting)]


def test_something_is_written_to(inputs):
    torch._dynamo.reset()
    compiled = torch.compile(product, backend="tapeless", options={"backend": "python"})
    compiled(*inputs).backward()

    assert any(b.run.terms.donated for b in backwards())


def test_every_step_has_eagers_gradients(program, compiled, inputs):
    expected = torch.autograd.grad(program(*inputs), inputs)
    for _ in range(3):
        found = torch.autograd.grad(compiled(*inputs), inputs)

        torch.testing.assert_close(found, expected)
        assert not any(g.requires_grad for g in found)


def test_a_retained_graph_answers_again(program, compiled, inputs):
    expected = torch.autograd.grad(program(*inputs), inputs)
    loss = compiled(*inputs)
    for again in (True, True, False):
        torch.testing.assert_close(torch.autograd.grad(loss, inputs, retain_graph=again), expected)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, inputs)


def test_gradients_one_by_one(program, compiled, inputs):
    expected = torch.autograd.grad(program(*inputs), inputs)
    loss = compiled(*inputs)
    for k, x in enumerate(inputs):
        (found,) = torch.autograd.grad(loss, x, retain_graph=k < 2)

        torch.testing.assert_close(found, expected[k])


def test_what_hooks_hold_stays_as_it_is(program, compiled, inputs):
    compiled(*inputs).backward()
    held, copies = [], []

    def keep(saved):
        held.append(saved)
        copies.append(saved.detach().clone())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        loss = compiled(*inputs)
    found = torch.autograd.grad(loss, inputs)

    torch.testing.assert_close(found, torch.autograd.grad(program(*inputs), inputs))
    assert all(map(torch.equal, held, copies))


def test_what_a_recorded_backward_saved_stays_as_it_is(program, compiled, inputs):
    def orders(call):
        loss = call(*inputs)
        first = torch.autograd.grad(loss, inputs, create_graph=True)
        again = torch.autograd.grad(loss, inputs, retain_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), inputs, retain_graph=True)
        third = torch.autograd.grad(loss, inputs)
        return *first, *again, *second, *third

    for _ in range(2):
        torch.testing.assert_close(orders(compiled), orders(program))


def test_a_backward_for_good_beside_a_recorded_one(inputs):
    """The recorded one saved what the other would write to."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w: (torch.exp(x * 2) * w).sum(), backend="tapeless")
    x, w, _ = inputs
    loss = compiled(x, w)
    (first,) = torch.autograd.grad(loss, w, create_graph=True)
    before = first.detach().clone()
    torch.autograd.grad(loss, (x, w))

    torch.testing.assert_close(first.detach(), before)


def test_a_thread_that_reads_what_another_is_given_for_good(inputs, monkeypatch):
    """While one backward has read what is saved and not computed yet, another one runs, for good."""
    torch._dynamo.reset()
    compiled = torch.compile(product, backend="tapeless", options={"backend": "python"})
    expected = torch.autograd.grad(product(*inputs), inputs)
    torch.autograd.grad(compiled(*inputs), inputs)
    loss, found, run = compiled(*inputs), [], Overwriting.__call__

    def interrupted(self, args):
        monkeypatch.setattr(Overwriting, "__call__", run)
        other = threading.Thread(target=lambda: found.append(torch.autograd.grad(loss, inputs)))
        other.start()
        other.join()
        return run(self, args)

    monkeypatch.setattr(Overwriting, "__call__", interrupted)
    found.append(torch.autograd.grad(loss, inputs, retain_graph=True))

    assert len(found) == 2
    for gradients in found:
        torch.testing.assert_close(gradients, expected)


def test_gradients_do_not_share_memory(compiled, inputs):
    loss = compiled(*inputs)
    gradients = torch.autograd.grad(loss, inputs)

    assert len({g.untyped_storage().data_ptr() for g in gradients}) == len(gradients)


def test_another_mask_of_cotangents(inputs):
    def heads(x, w, v):
        a, b = torch.sin(x @ w), torch.exp(x @ v)
        return (a * b).sum(), (a.tanh() * b).sum()

    torch._dynamo.reset()
    compiled = torch.compile(heads, backend="tapeless", options={"backend": "python"})
    for used in (0, 0, 0, 1, 1, 0, 1):
        found = torch.autograd.grad(compiled(*inputs)[used], inputs)

        torch.testing.assert_close(found, torch.autograd.grad(heads(*inputs)[used], inputs))


def test_printed_backwards_leave_their_arguments_alone(program, inputs):
    gradient = tapeless.differentiate(program, *inputs)
    outs = gradient.forward(*inputs)
    captures = [*(inputs[i] for i in gradient.captured_inputs), *(outs[i] for i in gradient.captured_outputs)]
    copies = [c.detach().clone() for c in captures]
    with torch.no_grad():
        gradient.backward(torch.ones((), dtype=torch.float64), *captures)

    assert all(map(torch.equal, captures, copies))


def test_printed_forwards_may_be_recorded(program, inputs):
    """Autograd refuses calls that are told where to write."""
    loss = tapeless.differentiate(program, *inputs).forward(*inputs)[0]

    torch.testing.assert_close(loss, program(*inputs))


# --- whose memory -----------------------------------------------------------------------------------------------------


def own(function, *examples):
    graph = tapeless.differentiate(function, *examples).forward.graph
    results = ir.outputs(graph)
    return [results[k].name for k in sorted(own_results(graph))]


def test_what_is_returned_as_a_view_is_nobodys_own():
    x = torch.randn(4, 4, requires_grad=True)

    assert own(lambda x: x.exp(), x) == ["exp"]
    assert own(lambda x: (h := x.exp(), h.mT)[1], x) == []
    assert own(lambda x: x.mT, x) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(7,), (5, 1), (3, 1000), (2, 3, 8192), (600, 33)])
@pytest.mark.parametrize("op", [torch.ops.aten._log_softmax, torch.ops.aten._softmax])
def test_softmax_over_its_operand(op, shape, dtype):
    """What `reuse.OVER` relies on."""
    x = torch.randn(shape, dtype=dtype)
    expected = op.default(x, -1, False)
    op.out(x, -1, False, out=x)

    assert torch.equal(x, expected)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", ["gelu", "tanh", "sigmoid", "silu"])
def test_elementwise_backwards_over_an_operand(name, first):
    """What `reuse.OVER` relies on."""
    op = getattr(torch.ops.aten, f"{name}_backward")
    args = [torch.randn(37, 129), torch.randn(37, 129)]
    expected = op.default(*args)

    assert torch.equal(op.grad_input(*args, grad_input=args[first]), expected)


def test_a_large_loss_needs_one_matrix():
    """Logits, their logarithms and the gradient take turns in one piece of memory."""
    from benchmarks.memory import peak_memory

    torch._dynamo.reset()
    head, x, labels = nn.Linear(64, 4096, bias=False), torch.randn(512, 64), torch.randint(0, 4096, (512,))
    compiled = torch.compile(
        lambda x: F.cross_entropy(head(x), labels), backend="tapeless", options={"backend": "python"}
    )
    for _ in range(2):
        compiled(x).backward()
    head.weight.grad = None

    assert peak_memory(lambda: compiled(x).backward()) < 9.2  # 8 of the logits, 1 of the weight's gradient


# --- what is made again, and when -------------------------------------------------------------------------------------


def gate(x, w, v):
    """What is saved: both products, from which everything else is one pass away."""
    return ((F.silu(x @ w) * (x @ v)) @ w).square().mean()


def written_out(x, w, v):
    h = x @ w
    return ((0.5 * h * (1 + torch.tanh(0.8 * (h + 0.04 * h.pow(3))))) @ v).square().mean()


def two_ends(x, w, v):
    h = F.silu(x @ w)
    return (h * (x @ v)).sum(), (h + x @ v).square().mean()


@pytest.fixture
def always(monkeypatch):
    """Nothing is too small to be made again, or to be put off."""
    monkeypatch.setattr(rederive, "LARGE", 0)
    monkeypatch.setattr(schedule, "SMALL", 0)
    monkeypatch.setattr(schedule, "WORTH", 1.0)
    torch._dynamo.reset()


@pytest.mark.parametrize("function", [gate, written_out, product, gated, normalised])
def test_what_is_made_again_has_derivatives_of_any_order(function, inputs, always):
    compiled = torch.compile(function, backend="tapeless", options={"backend": "python", "cache": False})
    inputs = [(0.1 * x).detach().requires_grad_() for x in inputs]

    def orders(call):
        first = torch.autograd.grad(call(*inputs), inputs, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), inputs, create_graph=True)
        third = torch.autograd.grad(sum(g.sin().sum() for g in second), inputs)
        return *first, *second, *third, *torch.autograd.grad(call(*inputs), inputs)

    for _ in range(2):
        torch.testing.assert_close(orders(compiled), orders(function))


def test_what_is_made_again_for_other_masks(inputs, always):
    compiled = torch.compile(two_ends, backend="tapeless", options={"backend": "python", "cache": False})
    for used in (0, 0, 0, 1, 1, 1, 0):
        found = torch.autograd.grad(compiled(*inputs)[used], inputs)

        torch.testing.assert_close(found, torch.autograd.grad(two_ends(*inputs)[used], inputs))


def test_a_product_of_what_is_saved_is_not(inputs, always):
    gradient = tapeless.differentiate(gate, *inputs)
    saved = [ir.outputs(gradient.forward.graph)[i].target for i in gradient.captured_outputs]

    assert saved == [torch.ops.aten.mm.default] * 3


def normed(x, w, v):
    """What is saved: the products, their statistics, and what SiLU is made of no more than the norms."""
    h = F.silu(F.layer_norm(x @ w, (16,), w[0], v[0]))
    return F.silu(F.group_norm((h @ v)[None].mT, 4, w[1], v[1])).square().mean()


def test_a_norm_of_what_is_saved_is_not(inputs, always):
    gradient = tapeless.differentiate(normed, *inputs)
    saved = [ir.value(ir.outputs(gradient.forward.graph)[i]) for i in gradient.captured_outputs]

    assert [(16, 16), (1, 16, 16)] == [tuple(val.shape) for val in saved if val.numel() == 256]


def test_norms_made_again_have_eagers_derivatives(inputs, always):
    def orders(run):
        first = torch.autograd.grad(run(*inputs), inputs, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), inputs)
        return *first, *second, *torch.autograd.grad(run(*inputs), inputs)

    compiled = torch.compile(normed, backend="tapeless", options={"backend": "python", "cache": False})
    for _ in range(2):
        torch.testing.assert_close(orders(compiled), orders(normed), rtol=1e-9, atol=1e-9)


def test_the_offset_of_a_group_norm_may_change_before_its_backward(always):
    """In eager that of a layer norm may not."""
    x, w = torch.randn(1, 8, 4, requires_grad=True), torch.ones(8, requires_grad=True)

    def loss(x, w, b):
        return F.silu(F.group_norm(x.sin(), 4, w, b)).sum()

    def gradients(run):
        b = torch.zeros(8, requires_grad=True)
        found = run(x, w, b)
        with torch.no_grad():
            b.add_(1)
        return torch.autograd.grad(found, (x, w, b))

    compiled = torch.compile(loss, backend="tapeless", options={"backend": "python", "cache": False})
    for _ in range(3):
        torch.testing.assert_close(gradients(compiled), gradients(loss))


def test_the_gradient_of_a_weight_waits_for_room():
    """At the start everything is there that was saved."""
    graph = fx.Graph()
    g, x, *saved = [graph.placeholder(name) for name in ("g", "x", "a", "b", "c", "d")]
    weight = graph.call_function(torch.ops.aten.mm.default, (x, g))
    through = [g]
    for value in saved:
        through.append(graph.call_function(torch.ops.aten.mul.Tensor, (through[-1], value)))
    results = [
        graph.call_function(op, (through[-1],)) for op in (torch.ops.aten.sin.default, torch.ops.aten.cos.default)
    ]
    graph.output([weight, *results])
    for node in graph.nodes:
        ir.set_value(node, torch.empty(512, 1024, device="meta"))
    schedule.with_lower_peak(graph, {2, 3, 4, 5}, Terms(unrecorded=True))

    assert ir.calls(graph).index(weight) > ir.calls(graph).index(through[1])
    graph.lint()


def test_calls_at_the_peak():
    """Where memory is fullest a product takes no room beside its result, unless it is little."""
    graph = fx.Graph()
    large, small = graph.placeholder("large"), graph.placeholder("small")
    wide = graph.call_function(torch.ops.aten.mm.default, (large, small))
    narrow = graph.call_function(torch.ops.aten.mm.default, (small, small))
    graph.output([wide, narrow])
    for node, rows in ((large, 1000), (small, 10), (wide, 1000), (narrow, 10)):
        ir.set_value(node, torch.empty(rows, 10))

    assert {wide} == schedule.at_the_peak(graph, {0}, Terms(fused=True), 2_000) - {large, small, graph.output_node()}
    assert {wide, narrow} <= schedule.at_the_peak(graph, {0}, Terms(fused=True), 100_000)
    assert not schedule.at_the_peak(graph, {0}, Terms(fused=True), 1_000)  # a hundredth of the peak: nobody notices


def test_a_call_may_work_in_the_whole_of_a_value_seen_in_another_shape():
    graph = fx.Graph()
    g, saved = graph.placeholder("g"), graph.placeholder("saved")
    product = graph.call_function(torch.ops.aten.mm.default, (g, g))
    seen = graph.call_function(torch.ops.aten.view.default, (product, [2, 8, 16]))
    shown = graph.call_function(torch.ops.aten.view.default, (saved, [2, 8, 16]))
    through = graph.call_function(torch.ops.aten.gelu_backward.default, (seen, shown))
    part = graph.call_function(torch.ops.aten.slice.Tensor, (shown, 0, 0, 1))
    again = graph.call_function(torch.ops.aten.exp.default, (part,))
    total = graph.call_function(torch.ops.aten.mul.Tensor, (through, shown))
    graph.output([again, total])
    for node in (g, saved, product):
        ir.set_value(node, torch.empty(16, 16))
    for node in (seen, shown, through, total):
        ir.set_value(node, torch.empty(2, 8, 16))
    for node in (part, again):
        ir.set_value(node, torch.empty(1, 8, 16))
    terms = Terms(unrecorded=True, donated=(1,), views=True)

    assert {through: seen, total: through} == reusable_operands(graph, terms)
    assert {total: through} == reusable_operands(graph, Terms(unrecorded=True, donated=(1,)))
    total.args = (shown, through)
    assert {through: seen, total: shown} == reusable_operands(graph, terms)
    assert (1,) == overwritten_inputs(graph, terms)
