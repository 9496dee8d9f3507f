"""The command line."""

import json
import re

import pytest
import torch
from typer.testing import CliRunner

import tapeless
from tapeless import coverage, demo
from tapeless.cli import app

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
    assert "bilinear" == operators["aten.mm.default"]
    assert "pointwise" == operators["aten.tanh.default"]
    assert not any("_." in name for name in operators)


def test_coverage_writes_a_page(tmp_path):
    printed = invoke("coverage", "--out", str(tmp_path / "coverage.md")).output
    page = (tmp_path / "coverage.md").read_text()

    assert "operators with a derivative in torch" in printed
    assert "### bilinear" in page and "`mm.default`" in page


@pytest.mark.slow
def test_coverage_over_samples_resumes(tmp_path):
    out = tmp_path / "coverage.md"
    arguments = ("coverage", "--opinfo", "--most", "2", "--processes", "1", "--out", str(out))
    invoke(*arguments, "--only", "sin")
    rows = json.loads(out.with_suffix(".json").read_text())["rows"]
    rows[0]["ok"] = rows[0]["samples"] = 100
    content = {"torch": torch.__version__, "most": 2, "rows": rows}
    out.with_suffix(".json").write_text(json.dumps(content))
    invoke(*arguments, "--only", "sin,tanh")

    assert "| sin | 100/100 | `aten.sin.default` |" in out.read_text()
    assert re.search(r"\| tanh \| (\d+)/\1 \| `aten.tanh.default` \|", out.read_text())


def test_a_crash_becomes_a_row(monkeypatch):
    class Crashing(coverage.Worker):
        def check(self, name):
            self.process.kill()
            return super().check(name)

    monkeypatch.setattr(coverage, "Worker", Crashing)
    rows = coverage.sweep(1, ["sin"], 1, None)

    assert [("sin", "the process ended with code -9")] == [(row.name, row.problem) for row in rows]


def test_unknown_entries_are_refused():
    with pytest.raises(SystemExit, match=r"no OpInfo entry.*: frobnicate"):
        coverage.sweep(1, ["frobnicate"], 1, None)


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
