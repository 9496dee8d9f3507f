"""The command line."""

import json
import re

import pytest
import torch
from typer.testing import CliRunner

import tapeless
from tapeless import coverage, demo
from tapeless.cli import app
from tapeless.coverage import sweep
from tapeless.coverage.operators import Support
from tapeless.rules.registry import RULES, pointwise
from tapeless.testing import opinfo
from tapeless.testing.opinfo import Job
from tapeless.testing.samples import opinfo_entries

aten = torch.ops.aten
PROGRAM = """
import torch

def two_heads(x, w):
    trunk = torch.tanh(x @ w)
    return trunk, trunk.sum()

inputs = (torch.randn(4, 3), torch.randn(3, 2, requires_grad=True))
"""


def invoke(*arguments):
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_help_lists_the_commands():
    printed = invoke("--help").output

    assert all(command in printed for command in ("demo", "explain", "coverage", "bench"))


# --- explain ----------------------------------------------------------------------------------------------------------


def test_explain_prints_a_report(program):
    printed = invoke("explain", f"{program}:two_heads").output

    assert "trunk" in printed and "program.py:5 trunk = torch.tanh(x @ w)" in printed
    assert "aten.mm.default    bilinear   1" in printed
    assert "def backward(args):" in printed


def test_explain_writes_html(program, tmp_path):
    invoke("explain", f"{program}:two_heads", "--html", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()

    assert page.startswith("<!doctype html>")
    assert "def backward(args):" in page and "<td>bilinear</td>" in page


@pytest.mark.parametrize(
    ("place", "expected"),
    [("two_heads", "file.py:function"), ("nowhere.py:f", "no Python file"), ("{program}:three_heads", "not define")],
)
def test_explain_says_what_is_wrong(program, place, expected):
    result = invoke("explain", place.format(program=program))

    assert result.exit_code == 2
    assert expected in result.output


def test_report_says_what_is_saved_and_for_whom():
    report = tapeless.explain(lambda x, w: torch.exp(x @ w.t()), torch.randn(2, 3), torch.randn(4, 3))
    saved = {value.name: value for value in report.saved}

    assert {"x": "input", "w": "input", "exp": "output"} == {name: value.kind for name, value in saved.items()}
    assert 2 * 4 * 4 == saved["exp"].bytes
    assert saved["w"].wanted_by[0].startswith("matmul at test_cli.py:")
    assert 0 == report.saved_bytes
    assert "<table>" in report._repr_html_()


def test_report_tells_traced_rules_from_written_ones():
    report = tapeless.explain(lambda x: torch._C._linalg.linalg_householder_product(x, x[0]).sin(), torch.randn(3, 3))
    used = {use.op: use.support for use in report.rules}

    assert "pointwise" == used["aten.sin.default"]
    assert used["aten.linalg_householder_product.default"] in ("traced", "vjp")


# --- coverage ---------------------------------------------------------------------------------------------------------


def test_coverage_counts_every_operator_once():
    operators = coverage.differentiable_operators()

    assert len(operators) > 500
    assert Support("bilinear", "derived") == operators["aten.mm.default"]
    assert Support("pointwise", "derived") == operators["aten.tanh.default"]
    assert Support("vjp", "written") == operators["aten._softmax.default"]
    assert not any("_." in name for name in operators)


def test_coverage_writes_a_page(tmp_path):
    printed = invoke("coverage", "--out", str(tmp_path / "coverage.md")).output
    page = (tmp_path / "coverage.md").read_text()

    assert "operators with a derivative in torch" in printed
    assert "### bilinear" in page and "`mm.default`" in page


def test_coverage_over_samples_resumes(tmp_path):
    out = tmp_path / "coverage.md"
    arguments = ("coverage", "--opinfo", "--dtypes", "float64", "--most", "2", "--processes", "1", "--out", str(out))
    invoke(*arguments, "--only", "sin")
    store = json.loads(out.with_suffix(".json").read_text())
    store["rows"][0]["first"] = {"ok": 100, "of": 100}
    out.with_suffix(".json").write_text(json.dumps(store))
    invoke(*arguments, "--only", "sin,tanh")

    assert "| sin | derived | 100/100 | 1/1 | 1/1 |  | `sin.default` |" in out.read_text()
    assert re.search(r"\| tanh \| derived \| (\d+)/\1 \|", out.read_text())


def test_coverage_checks_again_what_was_asked_for(tmp_path):
    out = tmp_path / "coverage.md"
    store = sweep.Results(out.with_suffix(".json"))
    for name in ("sin", "tanh"):
        store.add(opinfo.Row(name, "float64", problems=["first[0]: it differed"]))
    invoke("coverage", "--opinfo", "--again", "--only", "sin", "--dtypes", "float64", "--most", "1", "--out", str(out))
    found = sweep.Results.load(out.with_suffix(".json"))

    assert ["tanh"] == [row.name for row in found.differing()]
    assert 1 == found.rows["sin", "float64"].first.ok


def test_a_crash_becomes_a_row(monkeypatch):
    class Crashing(sweep.Worker):
        def check(self, job):
            self.process.kill()
            return super().check(job)

    monkeypatch.setattr(sweep, "Worker", Crashing)
    results = sweep.Results()
    sweep.run_jobs([Job("sin", "float64")], 1, results)

    assert ["first: the process ended with code -9"] == results.rows["sin", "float64"].problems


def test_unknown_entries_are_refused():
    with pytest.raises(SystemExit, match=r"no OpInfo entry.*: frobnicate"):
        sweep.jobs(["frobnicate"])


def test_a_difference_is_counted_and_named(monkeypatch):
    monkeypatch.setitem(RULES, aten.sinh.default, RULES[aten.sinh.default])
    RULES.pop(aten.sinh.default)
    pointwise(aten.sinh.default, lambda out: out)
    (entry,) = [e for e in opinfo_entries() if e.name == "sinh"]
    row = opinfo.check(entry, Job("sinh", "float64", first=1))

    assert opinfo.Count(0, 1) == row.first
    assert row.problems[0].startswith("first[0]: AssertionError: Tensor-likes are not close!")


# --- demo -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_shows_programs_and_a_table():
    printed = invoke("demo", "--steps", "6").output
    (row,) = [line for line in printed.splitlines() if "unused_head.weight.grad" in line]

    assert "def two_heads(x, w, a, b):" in printed
    assert "def backward(args):" in printed
    assert ["None", "zeros", "None"] == [cell.strip() for cell in row.split("│")[2:5]]


def test_demo_model_gradients_equal_eager():
    torch.manual_seed(0)
    model = demo.Transformer(length=8, width=8, heads=2, depth=1).double()
    eager, compiled = (demo.Run.of(name, model) for name in ("eager", "tapeless"))
    text = demo.batch(2, 8)
    for run in (eager, compiled):
        run.step(text)

    assert demo._gradient_difference(compiled, eager) < 1e-9
    assert compiled.first_gradients["unused_head.weight"] is None
