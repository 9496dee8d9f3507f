"""What the documentation says is executed: the tour, every program of every page, the README with its output."""

import contextlib
import copy
import io
import re
import runpy
from pathlib import Path

import pytest

import tapeless
from tapeless.rules import registry

ROOT = Path(__file__).parent.parent
OUTPUT = re.compile(r"(<!-- example-output -->\n```python\n)(.*?)(```\n<!-- /example-output -->)", re.DOTALL)
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
RAISES = re.compile(r"# raises (\w+)")
PAGES = [path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if PROGRAM.search(path.read_text())]


def printed_by(path):
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        runpy.run_path(str(path), run_name="__main__")
    return stream.getvalue()


@pytest.fixture
def rules_of_their_own(monkeypatch):
    """A page may declare rules; they are gone afterwards."""
    monkeypatch.setattr(registry, "RULES", copy.deepcopy(registry.RULES))
    monkeypatch.setattr(registry, "NONDIFFERENTIABLE", set(registry.NONDIFFERENTIABLE))


def test_tour_runs():
    printed = printed_by(ROOT / "docs" / "tour.py")

    assert "# --- backward for any pattern ---" in printed
    assert "no derivative rule for `tour.cube.default`" in printed


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_programs_of_a_page_run(page, tmp_path, rules_of_their_own):
    namespace = {}
    for number, program in enumerate(PROGRAM.findall(page.read_text())):
        path = tmp_path / f"program_{number}.py"
        path.write_text(program)
        code = compile(program, str(path), "exec")
        expected = RAISES.search(program)
        with told_of(expected[1]) if expected else contextlib.redirect_stdout(io.StringIO()):
            exec(code, namespace)


@contextlib.contextmanager
def told_of(error):
    """`torch.compile` wraps what a backend raises in an error of its own that names it."""
    with pytest.raises(Exception) as caught:
        yield
    assert error in f"{type(caught.value).__name__}: {caught.value}"


def test_readme_example_prints_what_the_readme_says(tmp_path, request):
    readme = (ROOT / "README.md").read_text()
    path = tmp_path / "two_heads.py"
    path.write_text(PROGRAM.search(readme)[1])
    actual = printed_by(path).rstrip("\n") + "\n"
    if request.config.getoption("--accept"):
        (ROOT / "README.md").write_text(OUTPUT.sub(lambda found: found[1] + actual + found[3], readme))
        return

    assert OUTPUT.search(readme)[2] == actual


def test_pages_do_not_name_what_is_not_there():
    text = "\n".join(path.read_text() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    names = re.findall(r"\btapeless\.([a-z_]+)\b(?!\.)", text)
    known = {"bench", "coverage", "demo"} | set(dir(tapeless))

    assert [] == sorted({name for name in names if name not in known})


def test_pages_name_files_that_are_there():
    text = (ROOT / "docs" / "architecture.md").read_text()
    folders = {path.name for path in (ROOT / "src" / "tapeless").iterdir() if path.is_dir()}
    named = {name for name in re.findall(r"`([a-z_]+/[a-z_]+)`", text) if name.split("/")[0] in folders}

    assert [] == sorted(name for name in named if not (ROOT / "src" / "tapeless" / f"{name}.py").exists())
