"""Forward mode of the operators for which eager has none."""

import pytest
import torch

from tapeless.coverage.forward import beyond_eager
from tapeless.coverage.operators import without_forward_mode
from tapeless.rules.registry import RULES, jvp
from tapeless.testing.beyond import by_rows, check, finite_difference
from tapeless.testing.derivatives import Call, forward, same
from tapeless.testing.forward_samples import plain, samples, x

aten = torch.ops.aten

pytestmark = pytest.mark.filterwarnings("ignore")

NAMES = sorted({str(sample.op) for sample in samples()})


@pytest.mark.parametrize("name", NAMES)
def test_tangents_are_right_where_eager_has_none(name):
    outcomes = [check(sample) for sample in samples() if str(sample.op) == name]

    assert [(False, "")] * len(outcomes) == [(outcome.eager_has_it, outcome.problem) for outcome in outcomes]


def test_at_least_sixty():
    assert 60 <= len(NAMES)


def test_a_wrong_tangent_is_found(monkeypatch):
    op = aten._pdist_forward.default
    monkeypatch.setattr(RULES[op], "jvp", RULES[op].jvp)
    jvp(op)(lambda self_t, out: self_t.sum() + out)

    assert all(check(sample).problem for sample in samples() if sample.op is op)


def test_an_operator_that_eager_pushes_forward_does_not_count():
    outcome = check(plain(aten.sin.default, x(3)))

    assert (True, "") == (outcome.eager_has_it, outcome.problem)


@pytest.mark.parametrize("reference", [finite_difference, by_rows])
def test_references_agree_with_eager(reference):
    call = Call(lambda a, b: [a.sin() * b, a.argmax()], (x(3, 4), x(4, seed=1)), {})

    same(forward(call), reference(call), tolerance=1e-6)


def test_what_torch_says_it_lacks():
    lacking = without_forward_mode()

    assert {"aten.grid_sampler_2d.default", "aten._cdist_forward.default"} <= set(lacking)
    assert not {"aten.sin.default", "aten.max.dim", "aten.linalg_qr.default", "aten.eq.Tensor"} & set(lacking)
    assert "aten.grid_sampler_2d.default" in beyond_eager()
