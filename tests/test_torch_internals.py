"""What Tapeless relies on in private torch, one test per function of `torch_internals/`.

A failure here after an upgrade of torch says which door moved; the others may fail for that reason alone.
"""

import functools
import io
import os
import pickle
import sys
import warnings
import weakref
from pathlib import Path

import pytest
import torch
from torch import fx
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.autograd import forward_ad

from tapeless import torch_internals
from tapeless.errors import ProgramFailed
from tapeless.torch_internals import dynamo as dynamo_door
from tapeless.torch_internals import frames as frames_door
from tapeless.torch_internals import guards as guards_door

aten = torch.ops.aten


def captured(function, *args):
    """The captured forward of a function, its convention, and the graph inputs."""
    traced = torch_internals.trace_function(function, args, {})
    with traced.context():
        return torch_internals.capture_forward(traced.module, traced.inputs)


def targets(module):
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def run(module):
    return lambda args: list(fx.Interpreter(module).run(*args))


# -- settings --------------------------------------------------------------------------------------------------------


def test_settings_of_knows_sets_by_their_elements():
    """Equal sets are written in other orders if their elements came in another one."""
    config, name = torch._dynamo.config, "allowed_functions_module_string_ignorelist"
    first, second = ({f"torch.a{k}" for k in order} for order in (range(64), range(63, -1, -1)))
    with config.patch({name: first}):
        expected = torch_internals.settings_of(config)
    with config.patch({name: second}):
        assert expected == torch_internals.settings_of(config)
    assert expected != torch_internals.settings_of(config)


# -- pickles -------------------------------------------------------------------------------------------------------


def test_a_memory_format_is_read_in_a_process_that_does_not_know_the_program(monkeypatch):
    """The program is found before torch in a process that was started with `spawn`."""
    monkeypatch.setattr(sys, "modules", {"not_to_be_imported": sys.modules[__name__], **sys.modules})
    data, stream = torch_internals.dumps([torch.channels_last, torch.strided]), io.BytesIO()
    torch_internals.Pickler(stream).dump(torch.channels_last)

    with pytest.raises(pickle.PicklingError, match="not_to_be_imported"):
        pickle.dumps(torch.channels_last)
    assert [torch.channels_last, torch.strided] == pickle.loads(data)
    assert torch.channels_last is pickle.loads(stream.getvalue())


# -- capture -------------------------------------------------------------------------------------------------------


def test_capture_forward_traces_no_backward():
    module, convention = captured(lambda x: torch.tanh(x).sum(), torch.ones(3, requires_grad=True))

    assert [aten.tanh.default, aten.sum.default] == targets(module)
    assert convention.differentiable


def test_capture_forward_is_functional():
    module, _ = captured(lambda x: (x * 2).add_(1), torch.ones(3, requires_grad=True))

    assert [aten.mul.Tensor, aten.add.Tensor] == targets(module)


def test_capture_forward_uses_the_operators_of_training():
    module, _ = captured(lambda x: torch.nn.functional.dropout(x, 0.5), torch.ones(3, requires_grad=True))

    assert aten.native_dropout.default in targets(module)


def test_capture_forward_leaves_stage_1_as_it_was():
    before = torch_internals.capture.graph_compile.aot_dispatch_autograd_graph
    captured(lambda x: x.sin(), torch.ones(3, requires_grad=True))

    assert before is torch_internals.capture.graph_compile.aot_dispatch_autograd_graph


def test_convention_of_a_plain_program():
    def two(x, y):
        return x.sin(), y.cos()

    module, convention = captured(two, torch.ones(3, requires_grad=True), torch.ones(3))

    assert [True, False] == convention.output_requires_grad()
    assert [True, False] == convention.input_requires_grad()
    assert [] == convention.hidden_outputs()
    assert [] == convention.mutated_inputs()
    assert [] == convention.write_backs()
    assert 0 == convention.tokens
    assert [0, 1] == [convention.argument_of(node) for node in module.graph.find_nodes(op="placeholder")]


def test_convention_knows_aliased_outputs():
    _, convention = captured(lambda x: (x.sin(), x.view(-1)), torch.ones(3, requires_grad=True))

    assert [1] == convention.hidden_outputs()


def test_convention_knows_mutated_inputs():
    def mutate(x, y):
        out = x.sin()
        y.add_(1)
        return out

    _, convention = captured(mutate, torch.ones(3, requires_grad=True), torch.zeros(3))

    assert [1] == convention.mutated_inputs()
    assert [(0, 1)] == convention.write_backs()
    assert 1 == convention.first_output


def test_convention_counts_effect_tokens():
    def effect(x):
        torch.ops.aten._print("")
        return x.sin()

    _, convention = captured(effect, torch.ones(3, requires_grad=True))

    assert 1 == convention.tokens


def test_convention_wrap_restores_views_and_mutation():
    def program(x, y):
        view = x.view(1, 3)
        y.add_(1)
        return view, x.sin()

    module, convention = captured(program, torch.ones(3, requires_grad=True), torch.zeros(3))
    x, y = torch.ones(3, requires_grad=True), torch.zeros(3)
    view, _ = convention.wrap(run(module))([x, y])

    assert view._is_view() and view._base is x
    assert [1, 1, 1] == y.tolist()


def test_convention_wrap_runs_the_first_call_outside_of_torchs_mode():
    """In which `linalg.pinv` of a complex matrix is wrong."""
    A = torch.tensor([[1 + 1j, 2], [0, 3 - 1j]])
    seen = []

    def run(args):
        seen.append(torch.utils._python_dispatch._get_current_dispatch_mode())
        return [torch.linalg.pinv(args[0])]

    _, convention = captured(lambda x: torch.linalg.pinv(x), A)
    (out,) = convention.wrap(run)([A])

    assert [None] == seen
    torch.testing.assert_close(torch.linalg.pinv(A), out)


def test_argument_of_is_none_for_a_synthetic_base():
    def overlapping(x, y):
        x.add_(1)
        return x + y

    base = torch.ones(4, requires_grad=True).clone()
    module, convention = captured(overlapping, base[:3], base[1:])

    assert None in [convention.argument_of(node) for node in module.graph.find_nodes(op="placeholder")]


def test_trace_function_gives_one_dynamo_graph():
    traced = torch_internals.trace_function(lambda x, y: x.sin() + y, (torch.ones(3),), {"y": torch.ones(3)})

    assert 2 == len(traced.inputs)
    assert [torch.Tensor] * 2 == [type(value) for value in traced.inputs]


def test_trace_function_without_tensor_operations():
    assert torch_internals.trace_function(lambda x: 3, (torch.ones(3),), {}) is None


def count_graphs(found):
    def backend(module, inputs, options=None):
        found.append((module, options))
        return module

    return backend


def inner_gradient(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return g.sum()


def test_capturing_autograd_does_not_break_the_graph():
    found = []
    capturing = torch_internals.CapturingAutograd(count_graphs(found), (("variants", 2),))
    torch._dynamo.optimize(capturing)(inner_gradient)(torch.ones(3, requires_grad=True))

    assert [{"variants": 2}] == [options for _, options in found]


def test_compile_capturing_autograd_takes_a_backend_by_name():
    compiled = torch_internals.compile_capturing_autograd(inner_gradient, "eager", {}, fullgraph=True)
    x = torch.ones(3, requires_grad=True)

    assert 9 == compiled(x).item()


def test_compile_whole_compiles_once_per_signature():
    found = []
    compiled = torch_internals.compile_whole(lambda x: x.sin(), count_graphs(found), 4)
    for size in (3, 3, 5):
        compiled(torch.ones(size))

    assert 2 == len(found)


def test_compile_whole_blames_the_program():
    compiled = torch_internals.compile_whole(lambda x, y: x @ y, count_graphs([]), 4)
    with pytest.raises(ProgramFailed):
        compiled(torch.ones(2, 3), torch.ones(2, 3))


def test_traced_function_rebuild_keeps_the_signature():
    def program(x, *, scale):
        return {"out": x * scale}

    traced = torch_internals.trace_function(program, (torch.ones(3),), {"scale": torch.ones(3)})
    rebuilt = traced.rebuild(lambda *args: traced.module(*args))

    assert [2, 2, 2] == rebuilt(torch.full((3,), 2.0), scale=torch.ones(3))["out"].tolist()


def test_traced_function_context_gives_the_fake_mode():
    traced = torch_internals.trace_function(lambda x: x.sin(), (torch.ones(3),), {})
    with traced.context():
        found = torch_internals.dynamo.TracingContext.get().fake_mode

    assert traced.output.backend_input.fake_mode is found


def test_a_failing_operator_is_blamed_on_its_line():
    with pytest.raises(ProgramFailed) as caught:
        torch_internals.trace_function(lambda x, y: x @ y, (torch.ones(2, 3), torch.ones(2, 3)), {})

    assert __file__ == caught.value.where.file
    assert "x @ y" in caught.value.where.text


def test_set_grad_enabled_is_what_dynamo_writes():
    def program(x):
        with torch.no_grad():
            y = x.sin()
        return y * x

    traced = torch_internals.trace_function(program, (torch.ones(3, requires_grad=True),), {})

    assert 2 == targets(traced.module).count(torch_internals.set_grad_enabled)


def test_data_attribute_is_what_dynamo_writes():
    traced = torch_internals.trace_function(lambda x: x.data * x, (torch.ones(3, requires_grad=True),), {})

    assert torch_internals.data_attribute in targets(traced.module)


def test_cond_is_what_a_traced_graph_contains():
    def choose(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    module, _ = captured(choose, torch.ones(3, requires_grad=True))

    assert torch_internals.cond in targets(module)


@pytest.mark.parametrize(
    ("op", "program"),
    [
        (torch_internals.scan, lambda x: scan(lambda c, row: (c * row, c + 1), torch.ones(3), x)[0]),
        (torch_internals.map_, lambda x: map_rows(torch.sin, x)),
        (torch_internals.while_loop, lambda x: while_loop(lambda v: v.sum() < 9, lambda v: (v * 2,), (x,))[0]),
    ],
)
def test_loops_are_what_a_traced_graph_contains(op, program):
    module, _ = captured(program, torch.ones(4, 3))

    assert op in targets(module)


def test_below_autograd_leaves_no_trace():
    x = torch.ones(3, requires_grad=True)
    with torch_internals.below_autograd():
        y = x.sin()

    assert not y.requires_grad


def test_stacked_type_and_unknown_size():
    mode = torch_internals.fake_mode_of([])
    mode = type(mode)(shape_env=torch.fx.experimental.symbolic_shapes.ShapeEnv())
    like, rounds = mode.from_tensor(torch.ones(2, 3)), torch_internals.unknown_size(mode)

    assert (5, 2, 3) == torch_internals.stacked_type(like, 5).shape
    assert rounds.node.expr == torch_internals.stacked_type(like, rounds).shape[0].node.expr
    assert [] == mode.shape_env.pending_fresh_unbacked_symbols


def test_autograd_function_apply_is_what_dynamo_writes():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    traced = torch_internals.trace_function(lambda x: Double.apply(x), (torch.ones(3, requires_grad=True),), {})

    assert torch_internals.autograd_function_apply in targets(traced.module)


def test_register_hook_is_what_dynamo_writes():
    def hooked(x):
        y = 2 * x
        y.register_hook(lambda g: g * 3)
        return y

    traced = torch_internals.trace_function(hooked, (torch.ones(3, requires_grad=True),), {})

    assert torch_internals.register_hook in targets(traced.module)


def test_with_effects_is_what_aot_autograd_writes():
    def effect(x):
        torch.ops.aten._print("")
        return x.sin()

    module, _ = captured(effect, torch.ones(3, requires_grad=True))

    assert torch_internals.with_effects in targets(module)


def test_a_convention_is_plain_data_once_the_compilers_are_gone():
    """AOTAutograd's metadata, settings and wrappers survive pickling, and wrap as they did before."""

    def program(x, y):
        y.mul_(2)
        return x[0], x + y

    module, convention = captured(program, torch.ones(2, 3, requires_grad=True), torch.ones(2, 3))
    again = pickle.loads(pickle.dumps(convention.without_compilers()))
    x, y = torch.rand(2, 3, requires_grad=True), torch.rand(2, 3)
    before = y.clone()
    row, total = again.wrap(run(module))([y, x])  # in the order in which Dynamo met them

    assert convention.hidden_outputs() == again.hidden_outputs()
    assert torch.equal(2 * before, y)
    assert row._base is x
    assert torch.equal(x + y, total)


def test_assumptions_count_what_dynamo_is_to_guard():
    """Two arguments of symbolic size that overlap, one of them written to: Dynamo hears of it."""
    counts = []

    def backend(module, inputs):
        before = torch_internals.assumptions()
        torch_internals.capture_forward(module, inputs)
        counts.append(torch_internals.assumptions() - before)
        return module

    def program(a, b):
        a.mul_(2)
        return a + b

    base = torch.ones(4)
    torch.compile(program, backend=backend, dynamic=True)(base[:3], base[1:])
    torch.compile(lambda a: a + 1, backend=backend)(base)

    assert counts[0] > 0
    assert counts[1] == 0


def test_circumstances_are_the_same_twice_and_change_with_the_mode():
    here = torch_internals.circumstances()
    with torch.no_grad():
        assert here != torch_internals.circumstances()
    assert here == torch_internals.circumstances()


def test_new_fakes_have_the_type_asked_for():
    mode = torch_internals.FakeTensorMode()
    for shape, stride, offset in (((2, 3), (3, 1), 0), ((3, 2), (1, 4), 5), ((0, 2), (2, 1), 3), ((), (), 1)):
        with torch_internals.without_modes():
            fake = torch_internals.new_fake(mode, shape, stride, offset, torch.float64, torch.device("cpu"))

        assert torch_internals.is_fake(fake)
        assert (shape, stride, offset) == (tuple(fake.shape), fake.stride(), fake.storage_offset())
        assert (torch.float64, "cpu", mode) == (fake.dtype, fake.device.type, fake.fake_mode)


def test_the_fake_mode_of_a_trace_is_found():
    modes = []

    def backend(module, inputs):
        modes.append((torch_internals.tracing_fake_mode(inputs), torch._guards.TracingContext.get().fake_mode))
        return module

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    ((found, expected),) = modes

    assert found is expected


def test_control_flow_in_transform():
    """Dynamo's error inside a transform is known by its frames; outside one it is none of ours."""

    def chosen(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)).sum()

    def ill_formed(x):
        return torch.cond(x.sum() > 0, lambda x: x, lambda x: (x, x), (x,))

    def problem_of(function):
        with pytest.raises(Exception) as found:
            torch.compile(function, backend="eager", fullgraph=True)(torch.ones(2))
        return torch_internals.control_flow_in_transform(found.value)

    assert "`torch.cond` inside a transform" in str(problem_of(torch.func.grad(chosen)))
    assert problem_of(ill_formed) is None


def test_dynamo_names_functions_for_its_logs_alone(monkeypatch):
    """Dynamo looks the name up where we replaced it; it is given where the log is written, and only there."""
    asked = []
    monkeypatch.setattr(dynamo_door, "get_funcname", lambda *args: asked.append(args) or "name")

    def trace():
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))

    trace()
    assert [] == asked
    monkeypatch.setattr(dynamo_door.log_state, "is_artifact_enabled", lambda name: name == "trace_call")
    trace()
    assert __file__ in {file for file, _ in asked}


# -- fake tensors --------------------------------------------------------------------------------------------------


def test_fake_mode_of_finds_the_mode():
    mode = torch_internals.FakeTensorMode()

    assert mode is torch_internals.fake_mode_of([3, mode.from_tensor(torch.ones(2))])
    assert isinstance(torch_internals.fake_mode_of([3]), torch_internals.FakeTensorMode)


def test_fresh_is_another_tensor_that_no_mode_sees():
    fake = torch_internals.FakeTensorMode().from_tensor(torch.ones(2))
    with torch.utils.flop_counter.FlopCounterMode(display=False):
        other = torch_internals.fresh(fake)

    assert other is not fake
    assert (fake.shape, fake.dtype, fake.fake_mode) == (other.shape, other.dtype, other.fake_mode)


def test_running_leaves_the_compilation_and_its_random_numbers_alone():
    mode = torch_internals.FakeTensorMode()
    before = torch.random.get_rng_state()
    with mode, torch.no_grad(), torch_internals.running():
        x = torch.randn(3, requires_grad=True)
        made = x * 2

    assert not torch_internals.is_fake(made)
    assert made.requires_grad
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch_internals.is_fake(mode.from_tensor(torch.ones(1)))


def test_without_modes_leaves_every_mode():
    with torch_internals.FakeTensorMode(), torch_internals.without_modes():
        made = torch.ones(2)

    assert not isinstance(made, torch_internals.FakeTensor)


def test_emission_allows_data_dependent_sizes():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = torch_internals.FakeTensorMode(shape_env=ShapeEnv(allow_dynamic_output_shape_ops=False))
    fake = mode.from_tensor(torch.ones(3))
    with torch_internals.emission(mode):
        found = fake[fake > 0]

    assert isinstance(found.shape[0], torch.SymInt)
    assert not mode.shape_env.settings.allow_dynamic_output_shape_ops


def test_emission_is_without_autograd_and_autocast():
    mode = torch_internals.FakeTensorMode()
    with torch.autocast("cpu"), torch_internals.emission(mode):
        found = torch.ones(2, 2, requires_grad=True) @ torch.ones(2, 2)

    assert (torch.float32, False) == (found.dtype, found.requires_grad)


def test_skip_in_dynamo_keeps_it_out_of_our_files():
    from torch._dynamo import trace_rules

    from tapeless.runtime import bridge

    assert trace_rules.check(bridge.run)
    assert not trace_rules.check(captured)


def test_set_tracer_keeps_dynamo_out_of_what_is_called():
    seen = []

    def backend(module, inputs):
        seen.append(module)
        return module.forward

    def inner(x):
        return x.sin()

    @torch.compiler.disable(recursive=False)
    def unseen(x):
        before = torch_internals.set_tracer(None)
        try:
            return inner(x)
        finally:
            torch_internals.set_tracer(before)

    torch.compile(lambda x: unseen(x) + 1, backend=backend)(torch.ones(2))

    assert ["add"] == [n.target.__name__ for m in seen for n in m.graph.nodes if n.op == "call_function"]


# -- running -------------------------------------------------------------------------------------------------------


def test_in_forward_mode():
    before = torch_internals.in_forward_mode()
    with forward_ad.dual_level():
        during = torch_internals.in_forward_mode()

    assert (False, True, False) == (before, during, torch_internals.in_forward_mode())


def test_is_batch():
    x = torch.randn(3, requires_grad=True)
    y, seen = x.sin(), []
    y.register_hook(lambda g: seen.append(torch_internals.is_batch(g)))
    torch.autograd.grad(y, x, torch.ones(3), retain_graph=True)
    torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)

    assert [False, True] == seen


def test_keeps_graph():
    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):  # type: ignore[override]
            seen.append(torch_internals.keeps_graph())
            return g

    seen = []
    y = Identity.apply(torch.ones((), requires_grad=True))
    y.backward(retain_graph=True)
    y.backward()

    assert [True, False] == seen


def test_has_saving_hooks():
    assert not torch_internals.has_saving_hooks()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert torch_internals.has_saving_hooks()


def test_in_fx_trace():
    seen = []
    torch.fx.experimental.proxy_tensor.make_fx(lambda x: seen.append(torch_internals.in_fx_trace()) or x)(torch.ones(2))

    assert [True, False] == [*seen, torch_internals.in_fx_trace()]


class Squared(torch_internals.SingleLevelFunction):
    """x² and 3x: a gradient that shows where it comes from."""

    @staticmethod
    def forward(ctx, layer, x):
        (plain,) = layer.without([x])
        with layer.below():
            y = plain * plain
        ctx.save_for_backward(x)
        return layer.within([y])[0]

    @staticmethod
    def backward(ctx, g):
        return None, 3 * g * torch_internals.without_dead_wrappers(ctx.saved_tensors)[0]


def test_a_tensor_that_cannot_be_printed_leaves_no_keys_behind(monkeypatch):
    """In torch's own function a local variable keeps transforms away, for as long as somebody holds its traceback."""
    keys, problems = torch._C._dispatch_tls_local_exclude_set, []
    monkeypatch.setattr(torch._tensor_str, "_str_intern", lambda *_, **__: 1 / 0)

    def unprintable(x):
        before = str(keys())
        try:
            repr(x)
        except ZeroDivisionError as problem:
            problems.append(problem)
        assert before == str(keys())
        return (x * x).sum()

    assert [2, 2] == torch.func.grad(unprintable)(torch.ones(2)).tolist()
    assert len(problems) == 1


def test_layers():
    seen = []

    def look(x):
        layer = torch_internals.innermost_layer()
        assert isinstance(layer, torch_internals.Layer) and torch_internals.is_wrapped(x)
        seen.append((layer.is_batch, layer.is_reverse))
        if not layer.is_batch:
            return layer.apply(Squared, layer, x).sum()
        whole, dim = layer.whole(x)
        assert (layer.batch_size(), layer.whole(torch.ones(2))[1]) == (whole.shape[dim], None)
        with layer.below():
            inner = torch_internals.innermost_layer()
            y = whole * whole if inner is None else inner.apply(Squared, inner, whole)
        return layer.one(y)

    x = torch.arange(3.0)

    torch.testing.assert_close(torch.func.grad(look)(x), 3 * x)
    torch.testing.assert_close(torch.func.grad(lambda x: torch.func.grad(look)(x).sum())(x), torch.full((3,), 3.0))
    torch.testing.assert_close(torch.func.vmap(look)(x), x * x)
    torch.testing.assert_close(torch.func.grad(lambda x: torch.func.vmap(look)(x).sum())(x), 3 * x)
    assert seen == [(False, True), (False, True), (True, False), (True, False)]
    assert torch_internals.innermost_layer() is None and not torch_internals.is_wrapped(x)


def test_requires_grad_anywhere():
    seen = []

    def look(x, y):
        seen.append([torch_internals.requires_grad_anywhere(each) for each in (x, y, torch.ones(3))])
        return x.sum() + y.sum()

    recorded, plain = torch.ones(3, requires_grad=True), torch.ones(3)
    look(recorded, plain)
    torch.func.grad(look)(plain, plain)
    torch.func.grad(look)(plain, recorded)
    torch.func.grad(lambda y: torch.func.grad(look)(plain, y).sum())(plain)

    assert [[True, False, False]] * 2 + [[True, True, False]] * 2 == seen


def test_in_functorch_and_outside_functorch():
    seen = []

    def program(x):
        seen.append(torch_internals.in_functorch())
        with torch_internals.outside_functorch():
            seen.append(torch_internals.in_functorch())
        return x.sum()

    torch.func.grad(program)(torch.ones(3))

    assert [True, False, False] == [*seen, torch_internals.in_functorch()]


def test_autocast_enabled_and_without_autocast():
    with torch.autocast("cpu"):
        outer = torch_internals.autocast_enabled()
        with torch_internals.without_autocast():
            inner = torch_internals.autocast_enabled()

    assert (True, False, False) == (outer, inner, torch_internals.autocast_enabled())


class Asking(torch.autograd.Function):
    """x + y; in its backward, notes for which of the two the engine wants a gradient."""

    answers: list[bool] = []

    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        Asking.answers = [torch_internals.engine_wants(node) for node, _ in ctx.next_functions]
        return g, g


@pytest.mark.parametrize("of_leaves", [True, False])
def test_engine_wants_what_was_asked_for(of_leaves):
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    a, b = (x, y) if of_leaves else (x * 1, y * 1)
    torch.autograd.grad(Asking.apply(a, b).sum(), a)

    assert [True, False] == Asking.answers


def test_engine_wants_everything_in_a_plain_backward():
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    Asking.apply(x, y).sum().backward()

    assert [True, True] == Asking.answers


def test_accumulator_is_the_node_that_the_engine_knows():
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    found = (x * y).grad_fn.next_functions

    assert torch_internals.accumulator(x) is found[0][0]


def test_direct_apply_and_unwrap_if_dead_are_what_apply_does():
    kept = []
    torch.func.grad(lambda x: (kept.append(x), x.sum())[1])(torch.ones(2))
    x = torch.ones(2, requires_grad=True)
    dead = kept[0]
    plain = torch_internals.unwrap_if_dead(dead)
    out = torch_internals.direct_apply(Asking)(x, plain)

    assert torch._C._functorch.is_gradtrackingtensor(dead)
    assert not torch._C._functorch.is_gradtrackingtensor(plain)
    assert x is torch_internals.unwrap_if_dead(x)
    assert [2, 2] == out.tolist()
    assert type(Asking.apply(x, dead).grad_fn) is type(out.grad_fn)


class Twice(torch.autograd.Function, metaclass=torch_internals.Boxed):
    @staticmethod
    def forward(ctx, x):
        return x + 0, x * 2

    @staticmethod
    def backward(ctx, *cotangents):
        if isinstance(cotangents[0], list):
            cotangents = cotangents[0]
            Twice.held = [weakref.ref(g) for g in cotangents]
            found = cotangents[0] + 2 * cotangents[1]
            cotangents.clear()
            return found
        return cotangents[0] + 2 * cotangents[1]


def test_boxed():
    """The engine hands over the only reference; compiled autograd, which cannot, is told that it need not."""
    x = torch.ones(3, requires_grad=True)
    first, second = Twice.apply(x)
    (first.sin().sum() + second.cos().sum()).backward()

    assert [None, None] == [held() for held in Twice.held]
    torch.testing.assert_close(torch.ones(3).cos() - 2 * torch.full((3,), 2.0).sin(), x.grad)

    del Twice.held
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        torch.autograd.grad(sum(out.sum() for out in Twice.apply(x)), x)

    assert not hasattr(Twice, "held")


@pytest.mark.parametrize("enabled", [True, False])
def test_in_grad_mode(enabled):
    call = torch_internals.in_grad_mode(lambda args: torch.is_grad_enabled(), enabled)
    with torch.no_grad():
        inside = call([])

    assert [enabled, enabled] == [inside, call([])]


# -- tracing torch's own derivatives -------------------------------------------------------------------------------


def test_tracing_on_fakes_records_autograd_of_fake_tensors():
    mode = torch_internals.FakeTensorMode()
    fake = mode.from_tensor(torch.ones(3))
    with torch.no_grad(), mode, torch_internals.tracing_on_fakes():
        leaf = fake.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(leaf.sin().sum(), leaf)

    assert isinstance(gradient, torch_internals.FakeTensor)


def test_ignoring_fresh_symbols_forgets_them():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = torch_internals.FakeTensorMode(shape_env=ShapeEnv(allow_dynamic_output_shape_ops=True))
    fake = mode.from_tensor(torch.ones(3))
    with mode, torch_internals.ignoring_fresh_symbols(mode):
        fake[fake > 0]

    assert [] == mode.shape_env.pending_fresh_unbacked_symbols


def test_has_kernel():
    assert torch_internals.has_kernel(aten.cumsum.default, "CPU")
    assert torch_internals.has_kernel(aten.matmul.default, "CompositeImplicitAutograd")
    assert not torch_internals.has_kernel(aten.cumsum.default, "CompositeImplicitAutograd")


def test_custom_op_without_derivative():
    @torch.library.custom_op("test_torch_internals::bare", mutates_args=())
    def bare(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @torch.library.custom_op("test_torch_internals::complete", mutates_args=())
    def complete(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    complete.register_autograd(lambda ctx, g: g)
    library = torch.ops.test_torch_internals

    assert torch_internals.custom_op_without_derivative(library.bare.default)
    assert not torch_internals.custom_op_without_derivative(library.complete.default)
    assert not torch_internals.custom_op_without_derivative(aten.sin.default)


def test_registered_call_runs_no_kernel():
    def kernel(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x * 2

    calls = []
    op = torch.library.custom_op("test_torch_internals::doubled", kernel, mutates_args=())
    op.register_autograd(
        lambda ctx, g: g * ctx.factor, setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", 7)
    )
    x, overload = torch.ones(3, requires_grad=True), torch.ops.test_torch_internals.doubled.default
    out = torch_internals.registered_call(overload, [x], {}, torch.full((3,), 2.0))

    assert torch_internals.has_registered_derivative(overload)
    assert not torch_internals.has_registered_derivative(aten.sin.default)
    assert [2.0, 2.0, 2.0] == out.tolist()
    assert [7.0, 7.0, 7.0] == torch.autograd.grad(out.sum(), x)[0].tolist()
    assert [] == calls


def test_keeping_versions():
    x, y = torch.ones(2), torch.ones(2)
    torch_internals.keeping_versions(lambda x, y: (x.add_(1), y.add_(1)), (0,))(x, y)

    assert (0, 1) == (x._version, y._version)
    assert [2, 2] == x.tolist()


def test_as_kernels():
    """Also tells when torch's decomposition is right and the operator can leave `WRONGLY_DECOMPOSED`."""
    op = torch.ops.aten.multilabel_margin_loss_forward.default
    x, target = torch.randn(2, 3), torch.tensor([[1, 0, -1], [2, -1, -1]])
    decomposed = op.py_kernels[torch._C.DispatchKey.Autograd]
    with torch_internals.as_kernels(*torch_internals.WRONGLY_DECOMPOSED):
        assert torch._C.DispatchKey.Autograd not in op.py_kernels

    assert decomposed is op.py_kernels[torch._C.DispatchKey.Autograd]
    assert not torch.allclose(op(x, target, 1)[0], decomposed(x, target, 1)[0])


def test_every_function_has_a_test():
    """A new function of the door is named in a test of this file, or of test_kernels.py."""
    door = torch_internals.__name__
    own = [n for n, v in vars(torch_internals).items() if getattr(v, "__module__", "").startswith(door)]
    source = "".join(Path(__file__).with_name(name).read_text() for name in (Path(__file__).name, "test_kernels.py"))
    public = [name for name in own if not name.startswith("_") and name not in ("Convention", "TracedFunction")]

    assert [] == [name for name in public if name not in source]
    assert "capture_forward" in public


def test_has_step_hooks_and_mark_stepped():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    assert not torch_internals.has_step_hooks(optimizer)

    optimizer.register_step_pre_hook(lambda *_: None)
    assert torch_internals.has_step_hooks(optimizer)

    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    torch_internals.mark_stepped(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule.step()


def test_has_gradient_hooks_and_give_gradient():
    parameter = torch.nn.Parameter(torch.ones(2))
    assert not torch_internals.has_gradient_hooks(parameter)

    parameter.register_hook(lambda g: g + 1)
    parameter.register_hook(lambda g: None)
    assert torch_internals.has_gradient_hooks(parameter)

    parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad * 2))
    (parameter * 3).sum().backward()
    expected, parameter.grad = parameter.grad, None
    torch_internals.give_gradient(parameter, torch.full((2,), 3.0))

    assert torch.equal(expected, parameter.grad)

    later = torch.nn.Parameter(torch.ones(2))
    later.register_post_accumulate_grad_hook(lambda p: None)

    assert torch_internals.has_gradient_hooks(later)


@pytest.mark.parametrize("static", [True, False], ids=["known sizes", "symbolic sizes"])
def test_compile_with_inductor(static):
    mode = torch_internals.FakeTensorMode(shape_env=torch.fx.experimental.symbolic_shapes.ShapeEnv())
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = mode.from_tensor(torch.ones(4, 6), static_shapes=static)
    graph.output([graph.call_function(aten.t.default, (graph.call_function(aten.sin.default, (x,)),)), None])
    real = torch.randn(6, 4).t()  # strides other than the example's
    run = torch_internals.compile_with_inductor(fx.GraphModule({}, graph), [x.meta["val"]], [real], False)

    torch.testing.assert_close(list(run([real])), [real.sin().t(), None])


def test_the_best_instructions_are_those_that_inductor_picks():
    """Only the best is tried; settings that ask for others are obeyed."""
    from torch._inductor import config as inductor_config
    from torch._inductor import cpu_vec_isa

    from tapeless.torch_internals import inductor

    every = cpu_vec_isa.valid_vec_isa_list()

    assert inductor._best_instruction_set() == every[:1]
    with inductor._best_instructions():
        assert cpu_vec_isa.valid_vec_isa_list() == every[:1]
    assert cpu_vec_isa.valid_vec_isa_list() == every
    with inductor_config.patch({"cpp.simdlen": 256}), inductor._best_instructions():
        assert cpu_vec_isa.valid_vec_isa_list() == every


def test_instructions_are_trusted_and_doubted(monkeypatch):
    """`Trust`: nothing is compiled to find out what works, until trust is withdrawn."""
    from torch._inductor import cpu_vec_isa

    from tapeless.torch_internals import inductor

    asked = []
    with monkeypatch.context() as patched:
        patched.setattr(cpu_vec_isa.VecISA, "check_build", lambda self, code: bool(asked.append(code)))
        inductor._forget_instructions()
        trust = torch_internals.Trust()
        trusted = inductor._best_instruction_set()

        assert trusted and all(trusted) and not asked

        trust.withdraw()

        assert not inductor._best_instruction_set() and asked and not trust.is_granted
    inductor._forget_instructions()


def test_a_refusal_of_the_cxx_compiler_is_known(monkeypatch, tmp_path):
    """`is_refusal`, also of what Inductor raises in its place."""
    from torch._inductor import config

    older = tmp_path / "g++"
    older.write_text('#!/bin/sh\ncase "$*" in *.main.cpp*) exit 1;; esac\nexec g++ "$@"\n')
    older.chmod(0o755)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    mode, _ = torch_internals.symbolic_sizes({})
    graph = torch_internals.decompose_for_inductor(lambda x: [x.sin().exp()], [mode.from_tensor(torch.ones(77))])
    with config.patch({"cpp.cxx": (None, str(older))}), pytest.raises(Exception) as caught:
        torch_internals.compile_decomposed(graph, False, 1)

    assert torch_internals.is_refusal(caught.value)
    assert not torch_internals.is_refusal(ValueError())


def test_what_else_decides_what_inductor_makes_of_a_graph(monkeypatch, tmp_path):
    """`circumstances_of_inductor`: the same until a setting changes or the directory of kernels is another one."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    first = torch_internals.circumstances_of_inductor()

    assert first == torch_internals.circumstances_of_inductor()

    (kept,) = tmp_path.iterdir()
    kept.unlink()
    removed = torch_internals.circumstances_of_inductor()

    assert first != removed

    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")

    assert removed != torch_internals.circumstances_of_inductor()


def test_what_inductor_compiled_travels_between_processes():
    """`decompose_for_inductor`, `min_cut`, `compile_decomposed`, `Artifact`: two parts, cut and loaded."""

    def joint(x, w, g):
        y = torch.tanh(x @ w)
        return [y, (g * (1 - y * y)) @ w.t()]

    mode, _ = torch_internals.symbolic_sizes({})
    real = [torch.randn(*shape, dtype=torch.float64) for shape in ((3, 4), (4, 2), (3, 2))]
    graph = torch_internals.decompose_for_inductor(joint, [mode.from_tensor(t) for t in real])
    forward, backward = torch_internals.min_cut(graph, 2, 1, [1])
    runs = []
    for part, is_backward in ((forward, False), (backward, True)):
        compiled = torch_internals.compile_decomposed(part, is_backward, 1)
        runs.append(pickle.loads(pickle.dumps(torch_internals.Artifact.of(compiled))).load())
    y, *saved = runs[0](real[:2])
    names = [node.name for node in backward.graph.find_nodes(op="placeholder")]
    kept = [node.name for node in forward.graph.output_node().args[0]][1:]
    (gradient,) = runs[1]([{**dict(zip(kept, saved)), "tangents_1": real[2]}[name] for name in names])

    torch.testing.assert_close(joint(*real), [y, gradient])


def test_a_bias_is_added_where_the_sum_is_read():
    """`decompose_for_inductor` has a product with a bias as two operators, but where the sum is rounded once."""
    plain, mode = [aten.mm.default, aten.add.Tensor], torch_internals.fake_mode_of([])
    for dtype, expected in ((torch.float32, plain), (torch.bfloat16, [aten.addmm.default])):
        fakes = [mode.from_tensor(torch.ones(*shape, dtype=dtype)) for shape in ((3,), (4, 2), (2, 3))]
        module = torch_internals.decompose_for_inductor(lambda *args: [torch.addmm(*args)], fakes)

        assert expected == targets(module)


def _products(function, *shapes, dtype=torch.float32):
    """The products of a decomposed function once biases are kept apart, and what Inductor calls for them."""
    mode = torch_internals.fake_mode_of([])
    real = [torch.randn(*shape, dtype=dtype) for shape in shapes]
    module = torch_internals.decompose_for_inductor(function, [mode.from_tensor(tensor) for tensor in real])
    torch_internals.keep_biases_apart(module)
    found = targets(module)
    torch.testing.assert_close(function(*real), torch_internals.compile_decomposed(module, False, 1)(real))
    return found


def test_a_bias_that_is_read_elementwise_is_not_added_by_the_product():
    """`keep_biases_apart`: a small product takes half the time without it."""
    shapes, ours, theirs = ((3,), (4, 2), (2, 3)), torch.ops.tapeless.mm.default, aten.mm.default
    for dtype in (torch.float32, torch.float64):
        assert ours in _products(lambda *args: [torch.addmm(*args).relu()], *shapes, dtype=dtype)

    assert theirs in _products(lambda b, x, y: [torch.addmm(b, x, y) @ y.mT], *shapes)
    assert theirs in _products(lambda b, x, y: [torch.addmm(b, x, y)], *shapes)
    assert theirs in _products(lambda b, x, y: [x @ y, (x @ y + b).relu()], *shapes)
    assert theirs in _products(lambda b, x, y: [(x @ y + x @ y * 2).relu()], *shapes)
    assert ours not in _products(lambda *args: [torch.addmm(*args).relu()], *shapes, dtype=torch.bfloat16)


def _laid_out(shape, transposed):
    return torch.randn(*shape[:-2], shape[-1], shape[-2]).mT if transposed else torch.randn(*shape)


@pytest.mark.parametrize("batch", [(), (3,)], ids=["matrices", "batches"])
def test_product_by_onednn(batch):
    """Any layout, and nothing is left of what was in memory before."""
    for transposed in ((False, False), (False, True), (True, False), (True, True)):
        a, b = _laid_out((*batch, 5, 7), transposed[0]), _laid_out((*batch, 7, 4), transposed[1])
        out = torch.full((*batch, 5, 4), float("nan"))
        torch_internals.product(a, b, out=out)

        torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-5)
    a, out = torch.randn(*batch, 5, 14)[..., ::2], torch.empty(*batch, 5, 4)
    torch_internals.product(a, b, out=out)  # with gaps, which it copies

    torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 4), (4,)])
def test_added_product_by_onednn(shape):
    added, a, b, out = torch.randn(shape), torch.randn(5, 7), torch.randn(7, 4), torch.full((5, 4), float("nan"))
    torch_internals.products.added_product(added, a, b, out=out)

    torch.testing.assert_close(out, added + a @ b, rtol=1e-4, atol=1e-5)


def test_products_when_the_user_wants_no_onednn(monkeypatch):
    before = torch_internals.can_multiply()
    monkeypatch.setattr(torch_internals.products, "_multiply", None)
    out, one = torch.full((2, 2), float("nan")), torch.eye(2)
    with torch.backends.mkldnn.flags(enabled=False):
        assert not torch_internals.can_multiply()
        torch_internals.product(one, one, out=out)
        assert torch.equal(one, out)
        torch_internals.products.added_product(one, one, one, out=out)
        assert torch.equal(2 * one, out)
    assert before == torch_internals.can_multiply()


def test_a_library_of_torch_without_the_function(monkeypatch):
    monkeypatch.setattr(torch_internals.products, "_SYMBOL", "another")

    assert torch_internals.products._function.__wrapped__() is None


@pytest.mark.parametrize("supported", [False, True])
def test_a_processor_on_which_the_function_would_end_the_process(supported, monkeypatch):
    """It asks whether it can multiply bfloat16, of float32 as well."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported)

    assert supported == (torch_internals.products._function.__wrapped__() is not None)


@pytest.mark.skipif(not torch_internals.can_multiply(), reason="oneDNN does not multiply float32 here")
def test_replace_products():
    """In Inductor's code they write to the memory that it has planned."""

    def several(x, w, bias, c):
        return [
            torch.addmm(bias, x, w),
            torch.addmm(c, x, w),
            torch.addmm(c, x, w, beta=0),
            torch.bmm(x[None], w[None]),
        ]

    real = [torch.randn(*shape) for shape in ((3, 4), (4, 2), (2,), (3, 2))]
    mode = torch_internals.fake_mode_of([])
    module = torch_internals.decompose_for_inductor(several, [mode.from_tensor(t) for t in real])
    torch_internals.replace_products(module, lambda a, b: a.dim() == 2)
    product, added = torch.ops.tapeless.product.default, torch.ops.tapeless.added_product.default
    compiled = torch_internals.compile_decomposed(module, False, 4)

    assert [1, 1, 1] == [targets(module).count(op) for op in (product, added, aten.addmm.default)]
    for name in ("product", "added_product"):
        assert f"extern_kernels.{torch_internals.products.PREFIX}{name}(" in compiled.source_code
    torch.testing.assert_close(several(*real), list(compiled(list(real))), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(several(*real)[:2], [product(*real[:2]) + real[2], added(real[3], *real[:2])])


def test_lstm_layer():
    """Also tells when ATen's layer keeps its workspace without grad mode, and ours can leave."""
    weights = [torch.randn(*size) for size in ((12, 4), (12, 3), (12,), (12,))]
    x, hidden, cell = torch.randn(5, 2, 4), torch.randn(2, 3), torch.randn(2, 3)
    settings = ([], torch_internals.LSTM, 3, 1, True, False, False, True)
    with torch.no_grad():
        *found, workspace = torch_internals.lstm_layer(x, *weights, hidden, cell, True)
        *expected, kept = aten.mkldnn_rnn_layer(x, *weights, hidden, cell, True, *settings)

    torch.testing.assert_close(expected, found)
    assert workspace.numel() and kept is None


def test_has_lstm_layer():
    one = torch.ones(2)

    assert torch_internals.has_lstm_layer([one, one])
    assert not torch_internals.has_lstm_layer([one, one.double()])
    with torch.backends.mkldnn.flags(enabled=False):
        assert not torch_internals.has_lstm_layer([one])


def test_inductor_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    assert str(tmp_path) == torch_internals.inductor_directory()


@pytest.mark.parametrize("rows", [1, 4100])
def test_large_buffers_are_in_large_pages(rows, monkeypatch):
    """Those of one program: not of another one that has the same code."""
    advised = []
    monkeypatch.setattr(torch_internals.memory, "_advice", lambda: lambda *given: advised.append(given))
    mode, real = torch_internals.fake_mode_of([]), [torch.randn(rows), torch.randn(2048)]
    module = torch_internals.decompose_for_inductor(
        lambda a, b: [torch.sin(a[:, None]) * b], [mode.from_tensor(t) for t in real]
    )
    compiled = torch_internals.compile_decomposed(module, False, 1)
    with_large_pages = torch_internals.memory.with_large_pages(compiled.current_callable)
    (plain,) = compiled(list(real))

    assert not advised
    (found,) = with_large_pages(list(real))
    assert torch.equal(plain, found)
    assert (found.nbytes >= torch_internals.memory.LARGE) == bool(advised)
    assert bool(advised) == torch_internals.memory.allocates_much(compiled.source_code)
    for start, length, _ in advised:
        assert found.data_ptr() <= start < start + length == found.data_ptr() + found.nbytes


def _scattered(dim, into, index, values):
    return [into.scatter_add(dim, index, values)]


@pytest.mark.parametrize(("rows", "fused"), [(1, True), (2, False)], ids=["one per row", "several per row"])
def test_scatter_add_for_inductor(rows, fused):
    """`decompose_for_inductor` has one element per row added elementwise."""
    mode, _ = torch_internals.symbolic_sizes({})
    into, index, values = torch.randn(4, 6), torch.randint(0, 6, (4, rows)), torch.randn(4, rows)
    for dim in (1, -1):
        fakes = [mode.from_tensor(t, static_shapes=True) for t in (into, index, values)]
        module = torch_internals.decompose_for_inductor(functools.partial(_scattered, dim), fakes)

        assert fused == (not module.graph.find_nodes(op="call_function", target=aten.scatter_add.default))
        torch.testing.assert_close(module(into, index, values)[0], into.scatter_add(dim, index, values))


def test_strides_of_what_inductor_compiled():
    """`strides_given` tells how results are laid out, `take_strides` compiles for it."""
    mode, _ = torch_internals.symbolic_sizes({})
    real = [torch.randn(2, 8, 5, 5), torch.randn(8, 8, 3, 3)]
    convolve = torch_internals.decompose_for_inductor(
        lambda x, w: [torch.conv2d(x, w).relu(), 2], [mode.from_tensor(t, static_shapes=True) for t in real]
    )
    compiled = torch_internals.compile_decomposed(convolve, False, visible=0)
    strides = torch_internals.strides_given(compiled)
    result = torch_internals.Artifact.of(compiled).load()(list(real))[0]

    assert [result.stride(), None] == strides

    like = mode.from_tensor(torch.randn(2, 8, 3, 3), static_shapes=True)
    twice = torch_internals.decompose_for_inductor(lambda y: [2 * y], [like])
    (taken,) = twice.graph.find_nodes(op="placeholder")
    torch_internals.take_strides(twice, {taken.name: (72, 1, 24, 8)})
    double = torch_internals.Artifact.of(torch_internals.compile_decomposed(twice, True, visible=0)).load()
    last = torch.randn(2, 3, 3, 8).permute(0, 3, 1, 2)

    torch.testing.assert_close(double([last])[0], 2 * last)


@pytest.mark.parametrize("donated", [(), (1,)])
def test_a_backward_writes_to_what_it_is_given_for_good(donated):
    g, t = torch.randn(50, 50), torch.randn(50, 50)
    with torch_internals.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(g), mode.from_tensor(t)]
    graph = torch_internals.decompose_for_inductor(lambda g, t: [(g * (1 - t * t)) @ g], fakes)
    run = torch_internals.compile_decomposed(graph, True, 1, donated)
    before, expected = t.clone(), (g * (1 - t * t)) @ g

    torch.testing.assert_close(run([g, t])[0], expected)
    assert torch.equal(before, t) != bool(donated)


def test_symbolic_sizes_and_what_was_assumed_of_them():
    mode, sizes = torch_internals.symbolic_sizes({"s0": 6, "s1": 8})
    assert sizes["s0"] < sizes["s1"]
    guards = torch_internals.guards_on(mode, list(sizes.values()))

    assert torch_internals.holds(guards)([6, 9])
    assert not torch_internals.holds(guards)([9, 6])
    assert torch_internals.holds(None)([])


def test_restrided():
    mode = torch_internals.fake_mode_of([])
    fake, real = mode.from_tensor(torch.ones(2, 3)), torch.ones(3, 2).t()

    assert (1, 2) == torch_internals.restrided(fake, real).stride()
    assert torch_internals.restrided(fake, torch.ones(2, 3)) is fake


def test_every_number_drawn():
    """Dead code removal inside Dynamo drops random operators; not in this context."""
    drawn = []

    def keep(module, inputs):
        with torch_internals.every_number_drawn():
            traced, _ = torch_internals.capture_forward(module, inputs)
        drawn.append(targets(traced))
        return module

    torch.compile(lambda x: (torch.rand_like(x), x + 1)[1], backend=keep)(torch.ones(3))

    assert [[aten.rand_like.default, aten.add.Tensor]] == drawn


# -- weights at inference ------------------------------------------------------------------------------------------


WRITERS = {
    "in place": lambda w: w.detach().mul_(2),
    "through .data": lambda w: w.data[1:, :1].zero_(),
    "out=": lambda w: torch.add(w.data, 1, out=w.data),
    "foreach": lambda w: torch._foreach_add_([w.data], 1.0),
    "fused optimizer": lambda w: torch._fused_sgd_(
        [w.data], [torch.ones_like(w)], [], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=True,
    ),
    "NumPy": lambda w: w.detach().numpy(),
    "a pointer": lambda w: w.data_ptr(),
    "storage": lambda w: w.untyped_storage().fill_(0),
}  # fmt: skip
READERS = {
    "product": lambda w: torch.randn(2, 4) @ w,
    "sum": lambda w: w.sum().item(),
    "cat": lambda w: torch.cat([w, w]),
    "clone": lambda w: w.clone(),
    "gradient": lambda w: torch.nn.functional.linear(torch.randn(2, 4), w).sum().backward(),
    "print": str,
}


@pytest.mark.parametrize("name", [*WRITERS, *READERS])
def test_watch_sees_writes_and_not_reads(name):
    w = torch.nn.Parameter(torch.randn(4, 4))
    watch, address = torch_internals.Watch.over([w]), torch._C._data_address(w)
    held = watch.holds([w])
    {**WRITERS, **READERS}[name](w)

    assert held
    assert (name in READERS) == watch.holds([w])
    assert address == torch._C._data_address(w)  # nothing was copied


def test_watch_is_not_fooled_by_a_younger_mark():
    w = torch.nn.Parameter(torch.randn(4, 4))
    watch = torch_internals.Watch.over([w])
    w.data.mul_(2)
    younger = torch_internals.Watch.over([w])

    assert not watch.holds([w])
    assert younger.holds([w]) and younger.renewed().holds([w])
    assert not younger.holds([torch.nn.Parameter(w.detach().clone())])


def test_watch_refuses_memory_that_others_hold():
    w = torch.nn.Parameter(torch.randn(4, 4))
    array = w.detach().numpy()

    assert torch_internals.Watch.over([w]) is None
    assert torch_internals.Watch.over([torch.from_numpy(array.copy())]) is None
    assert torch_internals.Watch.over([torch.randn(3).share_memory_()]) is None
    del array
    assert torch_internals.Watch.over([w]) is not None


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_packed_convolution(window, order):
    x, w, b = torch.randn(2, 6, 7, 5).contiguous(memory_format=order), torch.randn(4, 3, window, window), torch.randn(4)
    settings = [2, 2], [1, 1], [1, 1], 2
    packed = torch_internals.packed.pack_filters(w, *settings, list(x.shape))
    actual = torch_internals.packed.convolve_packed(x, packed, torch_internals.packed.pack_bias(b), *settings)
    fake = torch.ops.tapeless.convolve_packed(x.to("meta"), w.to("meta"), b.to("meta"), *settings)

    torch.testing.assert_close(actual, torch.nn.functional.conv2d(x, w, b, *settings), rtol=1e-4, atol=1e-5)
    assert fake.stride() == actual.stride()  # its channels are last in any case


def test_packed_product():
    x, w = torch.randn(5, 6)[:, ::2], torch.randn(4, 3)
    actual = torch_internals.packed.multiply_packed(x, torch_internals.packed.pack_matrix(w, 5), None)

    torch.testing.assert_close(actual, x @ w.t(), rtol=1e-4, atol=1e-5)
    assert torch_internals.can_pack(x)
    assert not torch_internals.can_pack(x.double())
    with torch.backends.mkldnn.flags(enabled=False):
        assert not torch_internals.can_pack(x)


def test_is_static():
    """Parameters, buffers and other tensors of modules; not the arguments of a call."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.plain = torch.nn.Parameter(torch.ones(2)), torch.ones(2)
            self.register_buffer("buffer", torch.ones(2))

        def forward(self, x):
            return x * self.weight + self.buffer + self.plain

    traced = torch_internals.trace_function(Layer(), (torch.ones(2),), {})

    assert [False, True, True, True] == sorted(map(torch_internals.is_static, traced.inputs))


# -- frames --------------------------------------------------------------------------------------------------------


class Onlooker:
    """Watches frames with one backend, and keeps what it is told."""

    def __init__(self, backend):
        self.backend, self.frame, self.tracing, self.sources, self.found = backend, None, None, (), None

    def begin(self, frame):
        if frame.backend is not self.backend:
            return None
        self.frame = frame
        return self

    def replay(self):
        return self.found

    def record(self, tracing):
        self.tracing = tracing(self.sources)


@pytest.fixture
def onlooker():
    """A backend that runs graphs as they are, and who watches the frames that it is given."""

    def backend(module, inputs):
        assert onlooker is torch_internals.watcher()
        onlooker.sources = torch_internals.input_sources(module)
        return module.forward

    onlooker, before = Onlooker(backend), frames_door._begin[:]
    torch_internals.on_frames(onlooker.begin)
    yield onlooker
    frames_door._begin[:] = before


def test_on_frames_tells_what_dynamo_made_of_a_frame(onlooker):
    torch.compile(lambda x, y: x.sin() * y, backend=onlooker.backend)(torch.ones(3), torch.ones(3))

    assert isinstance(onlooker.frame, torch_internals.Frame)
    assert isinstance(onlooker.tracing, torch_internals.Tracing)
    assert ["L['x']", "L['y']"] == [source.name for source in onlooker.tracing.inputs]
    assert "TENSOR_MATCH" in [guarded.kind for guarded in onlooker.tracing.guards]
    assert all(isinstance(guarded, torch_internals.Guarded) for guarded in onlooker.tracing.guards)
    assert pickle.loads(pickle.dumps(onlooker.tracing)) == onlooker.tracing
    assert torch_internals.watcher() is None


def test_on_frames_leaves_other_backends_alone(onlooker):
    torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(3))

    assert onlooker.frame is None


def test_a_tracing_is_restored_with_guards_of_its_own(onlooker):
    bent = True

    def function(x):
        return x.sin() if bent else x.cos()

    torch.compile(function, backend=onlooker.backend)(torch.ones(3))
    tracing, calls = onlooker.tracing, []

    def replay():
        scope = onlooker.frame.scope(tracing.imports)
        return tracing.restored(onlooker.frame, scope, lambda x: calls.append(x) or (x + 1,))

    torch._dynamo.reset()
    onlooker.replay = replay
    call = torch.compile(function, backend=onlooker.backend)
    assert torch.equal(torch.full((3,), 2.0), call(torch.ones(3)))

    onlooker.replay = lambda: None
    bent = False
    torch.testing.assert_close(torch.ones(3).cos(), call(torch.ones(3)))
    assert 1 == len(calls)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_tracing_with_symbolic_sizes_is_unrepeatable(onlooker, dynamic):
    refused = []

    def record(tracing):
        try:
            tracing(onlooker.sources)
        except torch_internals.Unrepeatable as problem:
            refused.append(problem)

    onlooker.record = record
    torch.compile(lambda x: x.sin() * x.shape[0], backend=onlooker.backend, dynamic=dynamic)(torch.ones(3, 4))

    assert bool(dynamic) == bool(refused)


def test_what_dynamo_guards_with_nothing_is_told(onlooker, monkeypatch):
    monkeypatch.setenv("SLOPE", "2")
    torch.compile(lambda x: x * float(os.getenv("SLOPE")), backend=onlooker.backend)(torch.ones(3))
    scope = onlooker.frame.scope(onlooker.tracing.imports)

    assert isinstance(scope, torch_internals.Scope)
    assert b"2" in [scope.aspect(guarded) for guarded in onlooker.tracing.left_out]


def test_every_kind_of_guard_is_known():
    """A kind that is not listed is not repeated; those that are listed exist."""
    builder = guards_door.GuardBuilder
    kinds = {*guards_door.ASPECTS, *torch_internals.GUARDS_ON_STATE} - {guards_door.LEFT_OUT}

    assert [] == [kind for kind in kinds if not hasattr(builder, kind)]


def test_guarded_state():
    before = torch_internals.guarded_state()
    with torch.no_grad():
        assert before != torch_internals.guarded_state()
    with torch._dynamo.config.patch(specialize_float=True):
        assert before != torch_internals.guarded_state()
    with torch.device("cpu"), pytest.raises(torch_internals.Unrepeatable):
        torch_internals.guarded_state()
    with torch.autograd.graph.save_on_cpu(), pytest.raises(torch_internals.Unrepeatable):
        torch_internals.guarded_state()
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    with pytest.raises(torch_internals.Unrepeatable):
        torch_internals.guarded_state()
    handle.remove()

    assert before == torch_internals.guarded_state()


def test_static_mark_and_mark_static():
    model, seen = torch.nn.Linear(2, 2), []

    def backend(module, inputs):
        seen.extend(map(torch_internals.static_mark, inputs))
        return module.forward

    torch.compile(model, backend=backend)(torch.ones(1, 2))
    assert ["unguarded", "unguarded"] == [mark for mark in seen if mark]

    tensor = torch.ones(1)
    torch_internals.mark_static(tensor, None)
    assert torch_internals.static_mark(tensor) is None
    torch_internals.mark_static(tensor, "unguarded")
    assert torch_internals.is_static(tensor)


def test_as_while_compiling():
    with torch_internals.as_while_compiling():
        mode = torch_internals.tracing_fake_mode([])

        assert mode is torch_internals.tracing_fake_mode([])
        assert mode.shape_env is not None
