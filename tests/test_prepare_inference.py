"""Passes where no derivative is asked: what they do with weights that are kept is what eager does."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

from prepare_inference_programs import INFERENCE
from prepare_programs import PROGRAMS
from preparing import FEW, assert_as_eager, aten_graph, prepared, strides
from tapeless import prepare
from tapeless.prepare import check

EVERY = ", ".join(f"{rule.name}!" for rule in prepare.PREPARE)
DEFAULT = ""


def compared(function, inputs, weights, option):
    """What was done to the graph of a function, seen to have left its results and their strides as they were."""
    fixed = [i >= len(inputs) - weights for i in range(len(inputs))]
    graph, report = prepare.run(
        aten_graph(function, inputs), [False] * len(inputs), prepare.REGISTRY, option, fixed=fixed
    )
    torch.manual_seed(check.SEED)
    expected = tree_leaves(function(*inputs))
    actual = check.observe(graph, inputs, [False] * len(inputs)).outputs

    assert [strides(t) for t in expected] == [strides(t) for t in actual]
    for a, b in zip(actual, expected, strict=True):
        bound = check.TOLERANCE.get(b.dtype, check.EXACT)
        torch.testing.assert_close(a, b, rtol=bound, atol=bound, equal_nan=True)
    return graph, report


@pytest.mark.parametrize("name", sorted(INFERENCE))
def test_equal_to_eager_on_random_programs(name):
    acted = []

    @FEW
    @given(data=st.data())
    def run(data):
        torch.manual_seed(0)
        _, report = compared(*INFERENCE[name](data.draw), f"{name}!")
        acted.append(report.applied[name])

    run()

    assert any(acted), "no program had the pass act"


@pytest.mark.parametrize("name", ["fold_batch_norm", "fold_batch_norm_of_linear", "fuse_parallel_linears"])
def test_those_that_train_have_eagers_gradients(name):
    acted = []

    @FEW
    @given(data=st.data())
    def run(data):
        torch.manual_seed(0)
        function, drawn, _ = INFERENCE[name](data.draw)
        inputs = [t.double() for t in drawn]
        graph, report = prepared(aten_graph(function, inputs), inputs, f"{name}!")
        acted.append(report.applied[name])

        assert_as_eager(function, inputs, graph)

    run()

    assert any(acted), "no program had the pass act"


@pytest.mark.parametrize("option", [EVERY, DEFAULT], ids=["every", "default"])
def test_all_passes_together(option):
    @FEW
    @given(data=st.data())
    def run(data):
        torch.manual_seed(0)
        name = data.draw(st.sampled_from(sorted({*INFERENCE, *PROGRAMS})))
        function, inputs, *weights = ({**PROGRAMS, **INFERENCE})[name](data.draw)
        compared(function, inputs, *(weights or [data.draw(st.integers(0, len(inputs)))]), option)

    run()


def test_parallel_linear_maps_are_fused_where_weights_are_kept_and_rows_are_few():
    def f(x, q, k):
        return torch.mm(x, q.t()).sin() * torch.mm(x, k.t())

    acted = {}
    for rows in (1, 64, 65):
        for weights in (0, 2):
            inputs = [torch.randn(rows, 8), torch.randn(8, 8), torch.randn(8, 8)]
            _, report = compared(f, inputs, weights, "")
            acted[rows, weights] = report.applied["fuse_parallel_linears"]

    assert {(1, 2), (64, 2)} == {case for case, times in acted.items() if times}


@pytest.mark.parametrize("name", sorted(INFERENCE))
def test_kept_and_rest_are_the_whole(name):
    """The program in two parts computes what it does in one."""
    parted = []

    @FEW
    @given(data=st.data())
    def run(data):
        torch.manual_seed(0)
        function, inputs, weights = INFERENCE[name](data.draw)
        graph, _ = compared(function, inputs, weights, EVERY)
        parts = prepare.split(graph, [i >= len(inputs) - weights for i in range(len(inputs))])
        if parts is None:
            return
        parted.append(1)
        made = check.evaluate(parts.made, [inputs[i] for i in parts.weights])
        torch.manual_seed(check.SEED)
        expected = check.evaluate(graph, inputs)
        torch.manual_seed(check.SEED)
        actual = check.evaluate(parts.rest, [*inputs, *made])

        for a, b in zip(actual, expected, strict=True):
            assert torch.equal(a.nan_to_num(), b.nan_to_num())

    run()

    assert bool(parted) == (name not in ("gumbel_max", "quantize_before_view"))  # which have no weights
