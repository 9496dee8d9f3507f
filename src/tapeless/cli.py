"""The command line: `tapeless demo`, `explain`, `coverage`, `bench`. Commands import what they need when they run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Ahead-of-time automatic differentiation for PyTorch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # our own errors say what a reader needs
)


def main() -> None:
    """The console script."""
    app()


@app.command()
def demo(steps: Annotated[int, typer.Option(help="Training steps of the transformer.")] = 30) -> None:
    """Print a program with its backward, train a small transformer, compare with eager and aot_eager."""
    from tapeless import demo

    demo.run(steps)


@app.command()
def explain(
    place: Annotated[str, typer.Argument(help="file.py:function; the file defines `inputs`, a tuple of examples")],
    html: Annotated[Path | None, typer.Option(help="Write the report to this HTML file instead.")] = None,
) -> None:
    """Show how a function is differentiated: its programs, what they save and why, the rules they used."""
    from tapeless.explain import explain

    file, _, name = place.rpartition(":")
    if not file:
        raise typer.BadParameter(f"{place!r} does not look like file.py:function")
    module = _module(Path(file))
    missing = [wanted for wanted in (name, "inputs") if not hasattr(module, wanted)]
    if missing:
        raise typer.BadParameter(f"{file} does not define {' and '.join(f'`{m}`' for m in missing)}")
    report = explain(getattr(module, name), *module.inputs)
    if html is None:
        print(report)
    else:
        report.html(html)


@app.command()
def coverage(
    opinfo: Annotated[bool, typer.Option("--opinfo", help="Check gradients over PyTorch's OpInfo samples.")] = False,
    most: Annotated[int | None, typer.Option(help="Samples per OpInfo entry (default: all).")] = None,
    only: Annotated[str, typer.Option(help="OpInfo entries to check, separated by commas (default: all).")] = "",
    dtypes: Annotated[str, typer.Option(help="Their dtypes, separated by commas (default: all).")] = "",
    again: Annotated[bool, typer.Option("--again", help="Check entries that differed once more.")] = False,
    processes: Annotated[int, typer.Option(help="Processes for the OpInfo samples.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Markdown file to write; a JSON file stands beside it.")] = None,
) -> None:
    """Which operators have a written rule, a traced one, none; with --opinfo, whether gradients equal eager's."""
    from tapeless import coverage

    coverage.run(opinfo, most, _names(only), _names(dtypes), again, processes, out)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(context: typer.Context) -> None:
    """Measure against eager and aot_eager (in a checkout); further arguments go to `python -m benchmarks.run`."""
    root = Path(__file__).parents[2]
    if not (root / "benchmarks" / "run.py").exists():
        raise typer.BadParameter("the benchmarks are part of a checkout, not of the installed package")
    raise typer.Exit(subprocess.run([sys.executable, "-m", "benchmarks.run", *context.args], cwd=root).returncode)


def _names(given: str) -> list[str]:
    return [name for name in given.split(",") if name]


def _module(path: Path) -> Any:
    """The module in a file, imported under the file's name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.exists() or spec is None or spec.loader is None:
        raise typer.BadParameter(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
