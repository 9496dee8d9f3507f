"""What specialization promises: dead heads cost nothing, masks may alternate, thawing differentiates nothing anew."""

import pytest
import torch
from torch import nn

import tapeless
from comparing import seeded
from tapeless.ir import graph as ir
from tapeless.partition import trim
from tapeless.runtime import program as programs
from tapeless.runtime.derivatives import DERIVATIVES
from tapeless.runtime.statistics import of_program
from tapeless.specialize.lower import lower_grad_of
from tapeless.specialize.rewrite import specialize

HEADS = 8


class Heads(nn.Module):
    """Several heads on a shared trunk."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 6)
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)) for _ in range(HEADS))

    def forward(self, x):
        shared = self.trunk(x).tanh()
        return [head(shared) for head in self.heads]


@pytest.fixture
def built(monkeypatch):
    """The programs that a test compiles, in order."""
    found = []
    original = programs.Program.__init__

    def record(self, *args, **kwargs):
        original(self, *args, **kwargs)
        found.append(self)

    monkeypatch.setattr(programs.Program, "__init__", record)
    return found


def step(call, x, used):
    outs = call(x)
    sum(outs[i].square().sum() for i in used).backward()


def saved_bytes(call, x):
    """Bytes of the distinct tensors saved for the backward, parameters and inputs not counted."""
    kept = {}

    def pack(t):
        if not isinstance(t, nn.Parameter) and t.data_ptr() != x.data_ptr():
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        outs = call(x)
        del outs
    return sum(kept.values())


def test_seven_dead_heads_leave_no_trace(built):
    model, x = seeded(0, Heads), torch.randn(3, 4)
    call = torch.compile(model, backend="tapeless")
    for _ in range(4):
        step(call, x, [2])
    program = built[0]
    variant = program.choose([])
    backward = program.backward(
        variant, (*[i == 2 for i in range(HEADS)], *[False] * (variant.outputs - HEADS)), program.signature.wrt
    )

    names = {node.name for graph in (backward.graph,) for node in graph.nodes}
    assert [name for name in names if "heads_" in name and "heads_2" not in name] == []
    assert [str(n) for n in variant.parts.captures if "heads_" in n.name and "heads_2" not in n.name] == []
    assert len(variant.parts.captures) < len(program.whole.parts.captures)
    # of eight tanh results only one is saved
    assert sum("tanh" in name or "input" in name for name in map(str, variant.parts.captures)) <= 3


def test_less_is_saved_than_eager_saves():
    model, x = seeded(0, Heads), torch.randn(3, 4)
    call = torch.compile(model, backend="tapeless")
    for _ in range(3):
        step(call, x, [0])

    assert saved_bytes(call, x) < saved_bytes(model, x)


@pytest.mark.parametrize("pattern", [([0], [1]), ([0], [1], [0, 1], [2], [3, 4], [5, 6, 7])], ids=["two", "six"])
def test_alternating_masks_compile_nothing_after_two_rounds(built, pattern):
    model, x = seeded(0, Heads), torch.randn(3, 4)
    call = torch.compile(model, backend="tapeless")
    for _ in range(3):
        for used in pattern:
            step(call, x, used)
    program = built[0]
    before, misses = program.profile.specialized, program.profile.mispredictions
    for used in (*pattern, *pattern, *reversed(pattern)):
        step(call, x, used)

    assert program.profile.specialized == before
    assert program.profile.mispredictions == misses


def test_at_most_so_many_variants(built):
    model, x = seeded(0, Heads), torch.randn(3, 4)
    call = torch.compile(model, backend="tapeless", options={"variants": 2})
    for _ in range(2):
        for head in range(HEADS):
            for _ in range(3):
                step(call, x, [head])

    assert len(built[0]._trimmed) <= 2


def test_thawing_a_layer_differentiates_nothing_anew():
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)

        def forward(self, x):
            for layer in self.base:
                x = (layer(x) + self.up(self.down(x))).tanh()
            return x

    model, x = seeded(0, Adapted), torch.randn(3, 4)
    model.base.requires_grad_(False)
    call = torch.compile(model, backend="tapeless")
    call(x).sum().backward()
    before, reused = DERIVATIVES.differentiated, DERIVATIVES.reused
    for thawed in (1, 0, 2):
        model.base[thawed].requires_grad_(True)
        model.zero_grad()
        call(x).sum().backward()
        actual = [p.grad for p in model.parameters()]
        model.zero_grad()
        model(x).sum().backward()
        for expected, got in zip((p.grad for p in model.parameters()), actual, strict=True):
            assert (expected is None) == (got is None)
            if expected is not None:
                torch.testing.assert_close(got, expected)

    assert DERIVATIVES.differentiated == before
    assert DERIVATIVES.reused == reused + 3


def test_a_frozen_weight_has_no_gradient_in_the_backward(built):
    model, x = seeded(0, Heads), torch.randn(3, 4)
    model.trunk.requires_grad_(False)
    step(torch.compile(model, backend="tapeless"), x, range(HEADS))

    assert not any(built[0].signature.wrt[i] is False for i in built[0].whole.parts.gradient_inputs)
    count = sum(node.target is torch.ops.aten.mm.default for node in built[0].whole.parts.backward.nodes)
    assert count == 3 * HEADS  # two weights and one hidden value a head, nothing for the trunk


# --- the limits of `specializeAutogradZero`, gone -------------------------------------------------------------------


def backward_of(function, *inputs):
    return tapeless.differentiate(function, *inputs).split


def node_count(graph):
    return len(ir.calls(graph))


def test_zeros_pass_through_every_linear_operator():
    parts = backward_of(lambda x, w: ((x * 2).neg().t().sum(0) @ w, x.sin()), torch.randn(3, 4), torch.randn(3, 2))

    left = specialize(parts.backward, 2, [0])
    assert all("sin" in ir.region(node).forward for node in ir.calls(left) if ir.region(node))


def test_a_region_with_one_zero_cotangent_of_two_shrinks():
    parts = backward_of(lambda x: torch.var_mean(x, 1), torch.randn(3, 4))

    assert node_count(specialize(parts.backward, 2, [0])) < node_count(specialize(parts.backward, 2)) / 2


def test_zeros_pass_through_control_flow():
    def program(x, y):
        a = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))
        return a, y.sin()

    parts = backward_of(program, torch.randn(3), torch.randn(3))

    assert "branch" not in {node.name for node in specialize(parts.backward, 2, [0]).nodes}


def test_no_profiling_is_needed_where_the_mask_is_known():
    gradient = tapeless.differentiate(lambda x, y: (x.sin(), y.cos()), torch.randn(3), torch.randn(3), undefined=[0])

    assert "sin" in str(gradient.backward) and ir.outputs(gradient.backward.graph)[0] is None


def test_lists_of_cotangents_may_have_holes():
    x = torch.randn(6, requires_grad=True)
    call = torch.compile(lambda x: x.sin().chunk(3), backend="tapeless")
    call(x)[1].sum().backward()

    torch.testing.assert_close(x.grad, torch.cat([torch.zeros(2), x.detach()[2:4].cos(), torch.zeros(2)]))


def test_one_generic_program_serves_every_mask():
    parts = backward_of(lambda x, y: (x * y, x.sin(), y.exp()), torch.randn(3), torch.randn(3))
    lowered = lower_grad_of(parts.backward, 3)

    assert lower_grad_of(lowered, 3) is lowered
    assert any(ir.guard(node) is not None for node in lowered.nodes)


def test_statistics_name_what_a_variant_leaves_out(built):
    model, x = seeded(0, Heads), torch.randn(3, 4)
    call = torch.compile(model, backend="tapeless")
    for _ in range(4):
        step(call, x, [2])
    step(call, x, [0, 2])  # more than the trimmed forward saved for
    program = of_program(built[0])
    trimmed = next(variant for variant in program.variants if variant.trimmed)

    assert program.where.startswith("test_variants.py")
    assert program in tapeless.statistics().programs
    assert program.mispredictions == 1
    assert len(trimmed.missing) == HEADS - 1
    assert trimmed.savings.regions_removed >= HEADS - 1
    assert trimmed.savings.flops > 0
    assert trimmed.savings.bytes > 0
    assert "no gradient arrives at" in trimmed.savings.details()


def test_outputs_that_never_get_a_cotangent_are_no_reason_to_trim(monkeypatch):
    """Statistics and indices are returned beside a loss: the second step is not held up for them."""
    monkeypatch.setattr(trim, "without_undefined", None)
    call = tapeless.compile(lambda x: (x.sin().square().sum(), x.argmax()))
    x = torch.randn(4, requires_grad=True)
    for _ in range(3):
        torch.testing.assert_close((2 * x).sin(), *torch.autograd.grad(call(x)[0], x))
