"""What the documentation says is executed: the tour, and the example of the README with its output."""

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OUTPUT = re.compile(r"(<!-- example-output -->\n```python\n)(.*?)(```\n<!-- /example-output -->)", re.DOTALL)


def printed_by(path):
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        runpy.run_path(str(path), run_name="__main__")
    return stream.getvalue()


def test_tour_runs():
    printed = printed_by(ROOT / "docs" / "tour.py")

    assert "# --- backward for any pattern ---" in printed
    assert "no derivative rule for `tour.cube.default`" in printed


def test_readme_example_prints_what_the_readme_says(tmp_path, request):
    readme = (ROOT / "README.md").read_text()
    path = tmp_path / "two_heads.py"
    path.write_text(re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1])
    actual = printed_by(path).rstrip("\n") + "\n"
    if request.config.getoption("--accept"):
        (ROOT / "README.md").write_text(OUTPUT.sub(lambda found: found[1] + actual + found[3], readme))
        return

    assert OUTPUT.search(readme)[2] == actual


@pytest.mark.parametrize("page", ["index.md", "rules.md"])
def test_pages_do_not_name_what_is_not_there(page):
    import tapeless

    names = re.findall(r"\btapeless\.([a-z_]+)\(", (ROOT / "docs" / page).read_text())

    assert [] == [name for name in names if not hasattr(tapeless, name)]
