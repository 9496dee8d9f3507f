"""Graphs of plain functions, prepared, and compared with eager: outputs, gradients and strides."""

import warnings

import torch
from hypothesis import HealthCheck, Phase, settings
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from tapeless import prepare
from tapeless.capture.effects import keep_constants
from tapeless.prepare import check

FEW = settings(
    max_examples=8, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def aten_graph(function, inputs):
    """The functional ATen graph of a pure function, without Dynamo: a few milliseconds."""
    module = make_fx(lambda *args: list(tree_leaves(function(*args))), tracing_mode="fake")(*inputs)
    keep_constants(module.graph, module)
    module.graph.eliminate_dead_code()
    return module.graph


def prepared(graph, inputs, option):
    wrt = [t.is_floating_point() for t in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return prepare.run(graph, wrt, prepare.REGISTRY, option)


def eager(function, inputs):
    own = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]
    outputs = tree_leaves(function(*own))
    roots = [o for o in outputs if o.requires_grad]
    torch.manual_seed(check.SEED)
    leaves = [t for t in own if t.requires_grad]
    cotangents = [torch.randn_like(o) for o in roots]
    found = iter(torch.autograd.grad(roots, leaves, cotangents, allow_unused=True) if roots and leaves else [])
    return [o.detach() for o in outputs], [next(found) if t.requires_grad else None for t in own]


def assert_as_eager(function, inputs, graph):
    outputs, gradients = eager(function, inputs)
    actual = check.observe(graph, inputs, [t.is_floating_point() for t in inputs])

    assert [g is None for g in gradients] == [g is None for g in actual.gradients]
    assert [strides(o) for o in outputs] == [strides(o) for o in actual.outputs]
    for expected, found in zip([*outputs, *gradients], [*actual.outputs, *actual.gradients], strict=True):
        if expected is not None:
            assert (expected.dtype, expected.shape) == (found.dtype, found.shape)
            bound = check.TOLERANCE.get(expected.dtype, check.EXACT)
            torch.testing.assert_close(found.detach(), expected, rtol=bound, atol=bound, equal_nan=True)


def strides(t):
    return [n for n, size in zip(t.stride(), t.shape, strict=True) if size > 1]
