"""Tables for the terminal and for Markdown files, and what every results file says about its origin."""

import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table as RichTable

Cell = str | float | int | None

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Table:
    """A title, column heads and rows of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def show(self) -> None:
        """Print the table to the terminal."""
        table = RichTable(title=self.title, title_justify="left")
        for column in self.columns:
            table.add_column(column, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        Console().print(table)

    def markdown(self) -> str:
        """The table as a section of a Markdown file."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"## {self.title}\n\n{body}\n"


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many decimals; nothing where nothing was measured."""
    return "" if value is None else f"{value:.{digits}f}"


def tiny(value: float | None) -> str:
    """An error, as a power of ten."""
    if value is None:
        return ""
    return "0" if value == 0 else f"{value:.0e}"


def origin() -> dict[str, str]:
    """Where and from what these numbers come."""
    return {
        "date": date.today().isoformat(),
        "machine": f"{_processor()} with {torch.backends.cpu.get_cpu_capability()}, {platform.system()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "commit": _commit(),
        "command": " ".join(["python -m", _module(), *sys.argv[1:]]),
    }


def write_markdown(path: Path, heading: str, about: dict[str, str], tables: Sequence[Table]) -> None:
    """Write a results page: heading, origin, tables."""
    facts = "\n".join(f"- {key}: {value}" for key, value in about.items())
    path.write_text("\n".join([f"# {heading}\n", f"{facts}\n", *(table.markdown() for table in tables)]))


def update_markdown(path: Path, heading: str, about: dict[str, str], table: Table) -> None:
    """Write one table of a results page, with its origin; what was measured before stays."""
    old = path.read_text().split("\n## ")[1:] if path.exists() else []
    sections = {section.partition("\n")[0]: f"## {section.strip()}\n" for section in old}
    facts = "; ".join(f"{key}: {value}" for key, value in about.items())
    sections[table.title] = f"{table.markdown()}\n{facts}\n"
    path.write_text("\n".join([f"# {heading}\n", *sections.values()]))


def _module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec else Path(sys.argv[0]).stem


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _commit() -> str:
    command = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
