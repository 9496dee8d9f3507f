"""The benchmark suite: what its numbers mean."""

from collections import Counter

import pytest
import torch
from rich.progress import Progress

from benchmarks import page, peer, run
from benchmarks.against import hidden_temporaries
from benchmarks.floor import Floor, WholeFloor
from benchmarks.measure import settled
from benchmarks.memory import step_memory
from benchmarks.promises import AUTO, PROMISES, Promise, step_ratio
from benchmarks.summary import means, tables_of
from benchmarks.variants import Training, Variant, WholeTraining
from benchmarks.workloads import build


def ratios(**to):
    return {"ratio_to": {other: {"cpu_s": {"low": r, "median": r, "high": r}} for other, r in to.items()}}


def test_a_loop_has_settled_after_its_last_slow_step():
    steps = [5.0, *[0.2] * 10, 0.9, *[0.1] * 20]
    found = settled(steps, steps)

    assert pytest.approx(5.0 + 10 * 0.2 + 0.9) == found["settled_s"]
    assert 0.1 == found["final_step_s"]
    assert 0.2 == found["early_step_s"]
    assert pytest.approx(0.7) == found["longest_stall_s"]  # beyond a step of generated Python


def test_one_disturbed_step_does_not_unsettle_a_loop():
    steps = [5.0, *[0.1] * 20, 0.4, *[0.1] * 20]

    assert 5.0 == settled(steps, steps)["settled_s"]


def test_a_busy_machine_does_not_unsettle_a_loop():
    found = settled([5.0, *[0.3] * 20, *[0.1] * 20], [2.0, *[0.1] * 40])

    assert 5.0 == found["settled_s"]
    assert pytest.approx(0.1) == found["longest_stall_s"]


def test_the_floor_of_a_perceptron_is_its_products():
    """Four layers: a product forwards and one for each weight; one for each input but the first, which is no leaf."""
    floor = Floor(build("mlp_small"))

    assert {"addmm": 4, "mm": 4 + 3} == Counter(func.overloadpacket.__name__ for func, _, _ in floor.calls)
    floor.step()


def test_the_floor_of_a_whole_step_updates():
    workload = build("mlp_small")
    floor = WholeFloor(workload)
    before = [p.detach().clone() for p in workload.model.parameters()]
    floor.step()

    assert all((p != b).any() for p, b in zip(workload.model.parameters(), before, strict=True))


@pytest.mark.parametrize("label", ["train/eager", "train/tapeless:backend=python"])
def test_whole_steps_move_the_parameters_alike(label):
    eager = WholeTraining(build("mlp_small"), Variant.parse("train/eager"))
    other = WholeTraining(build("mlp_small"), Variant.parse(label))
    for training in (eager, other):
        training.step()
        training.step()

    for name, moved in eager.gradients().items():
        assert (moved - other.gradients()[name]).abs().max() < 1e-8


def test_whole_steps_begin_anew():
    def sgd(parameters):
        return torch.optim.SGD(parameters, 1e-2, momentum=0.9)

    training = WholeTraining(build("mlp_small"), Variant.parse("train/tapeless:backend=python"), sgd)
    training.step()
    once = training.gradients()
    training.step()
    training.restart()
    training.step()

    assert all(torch.equal(moved, once[name]) for name, moved in training.gradients().items())


@pytest.mark.parametrize(
    ("dtype", "rounding", "of_allowed"), [("float64", None, 1e5), ("float32", 1e-6, 1.0), ("float32", 1e-3, 0.05)]
)
def test_gradients_in_float32_are_as_near_as_roundings_allow(dtype, rounding, of_allowed):
    promise = next(p for p in PROMISES if p.text == f"gradient error ÷ allowed, {dtype}")
    found = {"error": 1e-4} | ({} if rounding is None else {"rounding": rounding})

    assert pytest.approx(of_allowed) == promise.quantity({"gradients": {dtype: found}}, {})


def test_frozen_statistics_stay():
    workload = build("resnet18_frozen")
    before = {name: value.clone() for name, value in workload.model.named_buffers()}
    Training(workload, Variant.parse("eager")).step()

    assert all((value == before[name]).all() for name, value in workload.model.named_buffers())


def test_a_variant_that_this_version_lacks_says_why():
    assert "unknown option speed" in str(Variant.parse("tapeless:speed=high").missing())
    assert Variant.parse("tapeless:backend=python").missing() is None


def test_workloads_without_a_counterpart_are_not_asked_of_jax():
    assert "no counterpart in JAX" == peer.missing("lstm")


def test_a_promise_names_its_worst_workload_and_all_that_break_it():
    promise = Promise("step ÷ the faster", 1.03, (AUTO,), step_ratio("eager", "inductor"))
    workloads = {
        "good": {AUTO: ratios(eager=0.9, inductor=1.0)},
        "bad": {AUTO: ratios(eager=0.8, inductor=1.1)},
        "failing": {AUTO: {"error": "it fails"}},
        "skipped": {AUTO: {"skipped": "not there"}},
    }

    assert ["inf", "failing", "bad, failing"] == promise.row(workloads)[3:]
    assert ["1.1", "bad", "bad"] == promise.row({k: workloads[k] for k in ("good", "bad")})[3:]
    assert "not measured" == promise.row({"skipped": workloads["skipped"]})[4]


def test_a_promise_about_a_mean():
    promise = Promise("step ÷ inductor", 0.92, (AUTO,), step_ratio("inductor"), mean=True)
    workloads = {"one": {AUTO: ratios(inductor=0.5)}, "two": {AUTO: ratios(inductor=2.0)}}

    assert ["1", "mean of 2", "the mean"] == promise.row(workloads)[3:]


def test_geometric_means():
    workloads = {"one": {AUTO: ratios(eager=0.5)}, "two": {AUTO: ratios(eager=2.0)}, "three": {AUTO: {"error": ""}}}

    assert [[AUTO, "1.000 (2)", "", "", ""]] == means(workloads).rows


def test_results_are_put_between_the_marks_of_the_page(tmp_path):
    target = tmp_path / "page.md"
    target.write_text(f"before\n{page.BEGIN}\nformer results\n{page.END}\nafter\n")
    about = {"machine": "m", "torch": "2", "commit": "c", "date": "d"}
    page.write_page({"workloads": {"one": {AUTO: ratios(eager=0.5)}}, "origin": about}, target, tmp_path / "plots")
    text = target.read_text()

    assert ("before", "after") == (text.splitlines()[0], text.splitlines()[-1])
    assert "former results" not in text
    assert "commit c" in text


def test_tables_take_what_failed_and_what_was_skipped():
    variants = {"eager": {"error": "broken"}, AUTO: {"skipped": "not there"}}
    measured = {"one": {"steps": {"commit": "abc"}}, "two": {"first": {"commit": "def"}}}
    *_, origins, failures = tables_of({"workloads": {"one": variants}, "measured": measured})

    assert [["one", "eager", "broken"], ["one", AUTO, "skipped: not there"]] == failures.rows
    assert [["one", "abc", ""], ["two", "", "def"]] == origins.rows


def test_a_part_that_is_not_measured_again_stays(monkeypatch):
    monkeypatch.setattr(run.isolate, "call", lambda *args, **settings: {"first_call_s": 2.0})
    settings = run.Settings(["mlp_small"], ["eager", "aot_eager"], 1, 1, ["float32"], 1.0, None, ("first",))
    earlier = {"eager": {"step_wall_s": 1.0, "first_call_s": 3.0}, "aot_eager": {"error": "broken"}}
    found = run.measure_workload("mlp_small", settings, Progress(disable=True), earlier)

    assert {"step_wall_s": 1.0, "first_call_s": 2.0, "warm_first_call_s": 2.0} == found["eager"]
    assert {"first_call_s": 2.0, "warm_first_call_s": 2.0} == found["aot_eager"]


@pytest.mark.parametrize("name", ("mlp_small", "gru_cell_loop", "tfm_plain"))
def test_the_possibility_of_further_orders_saves_nothing(name):
    """The same gradients, from the same bytes, as programs give that could not be differentiated again."""
    training = Training(build(name), Variant.parse("tapeless:backend=python"))
    training.step()
    expected, saved = training.gradients(), step_memory(training)["saved"]
    with hidden_temporaries():
        loss = training.step()
        once = step_memory(training)["saved"]
        training.step()

    assert "FirstOrder" in type(loss.grad_fn).__name__
    assert once == saved
    for parameter, gradient in training.gradients().items():
        assert torch.equal(gradient, expected[parameter])
