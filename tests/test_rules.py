"""Every written rule against the laws, over what OpInfo's samples call and the calls of `rule_table`.

Three samples an entry; `RULE_SAMPLES=all` takes them all.
"""

import collections
import functools
import os
import warnings

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_leaves

import tapeless.rules  # noqa: F401
from rule_table import AUTOGRAD_IS_WRONG, CALLS, NOT_A_PLAIN_FUNCTION
from tapeless.rules.registry import RULES, rule_of
from tapeless.testing import laws
from tapeless.testing.forward_samples import samples
from tapeless.testing.samples import aten_calls, opinfo_entries

aten = torch.ops.aten
MOST = None if os.environ.get("RULE_SAMPLES") == "all" else 3
DTYPES = (torch.float64, torch.complex128)
ENTRIES = {f"{e.name}.{e.variant_test_name}".rstrip("."): e for e in opinfo_entries(torch.float64)}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("dtype", DTYPES, ids=["real", "complex"])
def test_gradients_equal_autograd(name, dtype):
    entry = ENTRIES[name]
    if dtype not in entry.supported_backward_dtypes("cpu"):
        pytest.skip("OpInfo claims no backward in this dtype")
    for call in distinct(aten_calls(entry, dtype, MOST)):
        if call.op not in AUTOGRAD_IS_WRONG:
            laws.gradients_equal_autograd(call)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.op).removeprefix("aten."))
def test_gradients_of_the_table_equal_autograd(call):
    if call.op not in AUTOGRAD_IS_WRONG:
        laws.gradients_equal_autograd(call)


@pytest.mark.parametrize("dtype", DTYPES, ids=["real", "complex"])
@pytest.mark.parametrize("part", range(8))
def test_finite_differences(part, dtype):
    """Law 4, on the first smooth call of each operator that an eighth of the entries makes."""
    done = collections.Counter()
    for name in list(ENTRIES)[part::8]:
        entry = ENTRIES[name]
        if dtype in entry.supported_backward_dtypes("cpu"):
            for call in distinct(aten_calls(entry, dtype, 1)):
                if not done[call.op]:
                    done[call.op] += finite_difference(call)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.op).removeprefix("aten."))
def test_finite_differences_of_the_table(call):
    finite_difference(call)


def test_every_rule_is_met():
    met = {call.op for call in CALLS} | recorded_operators() | {sample.op for sample in samples()}  # of test_beyond
    ours = [op for op in RULES if op.namespace == "aten"]  # the tour of the documentation adds one of its own

    assert sorted(str(op) for op in ours if op not in met) == []


@pytest.mark.parametrize("op", [aten.linalg_cholesky_ex.default, aten._linalg_eigh.default], ids=str)
def test_tangents_at_symmetric_matrices(op):
    """Law 4 in a symmetric direction, which is what these operators read of one."""
    A, V = symmetric(0) @ symmetric(0) + torch.eye(4), symmetric(1)
    out = op(A)
    actual = rule_of(op).jvp({"self": A, "A": A, "upper": False, "out": out}, {"self": V, "A": V})
    for have, low, high in zip(actual, op(A - 1e-6 * V), op(A + 1e-6 * V), strict=True):
        if have is not None:
            torch.testing.assert_close((high - low) / 2e-6, have, rtol=1e-5, atol=1e-6)


def symmetric(seed):
    X = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return X + X.mT


def finite_difference(call):
    if call.op in NOT_A_PLAIN_FUNCTION:
        return False
    rule = rule_of(call.op)
    smooth = laws.gradients_equal_finite_difference(call)
    if rule.jvp is not None:
        laws.tangents_equal_finite_difference(call)
    return smooth


def distinct(calls):
    """Calls of operators with a written rule on ordinary tensors, each kind of call once."""
    seen = set()
    for call in calls:
        if rule_of(call.op) is None or any(sparse(t) for t in tree_leaves((call.args, call.kwargs))):
            continue
        key = signature(call)
        if key not in seen:
            seen.add(key)
            yield call


def sparse(value):
    return isinstance(value, torch.Tensor) and value.layout != torch.strided


def signature(call):
    leaves, spec = tree_flatten((call.args, call.kwargs))
    kinds = [(tuple(t.shape), t.dtype) if isinstance(t, torch.Tensor) else repr(t) for t in leaves]
    return call.op, str(spec), str(kinds)


@functools.cache
def recorded_operators():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {call.op for dtype in DTYPES for e in opinfo_entries(dtype) for call in aten_calls(e, dtype, 3)}
