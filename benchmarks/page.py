"""The page of the documentation that shows the results: plots, means, promises."""

from pathlib import Path
from typing import Any

from benchmarks.plots import draw
from benchmarks.promises import promises
from benchmarks.summary import means

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
PLOTS = DOCS / "plots"
BEGIN, END = "<!-- results -->", "<!-- /results -->"


def write_page(results: dict[str, Any], page: Path = PAGE, plots: Path = PLOTS) -> None:
    """Put the results between the marks of the page; the text around them stays."""
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{_results(results, plots)}\n{END}{after}")


def _results(results: dict[str, Any], plots: Path) -> str:
    workloads, about = results["workloads"], results["origin"]
    images = [f"![{path.stem}]({plots.name}/{path.name})\n" for path in draw(workloads, plots)]
    source = f"Machine: {about['machine']}; torch {about['torch']}; commit {about['commit']}; {about['date']}.\n"
    return "\n".join([source, *images, promises(workloads).markdown(), means(workloads).markdown()])
