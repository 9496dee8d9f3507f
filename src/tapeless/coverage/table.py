"""The page docs/coverage.md, and the few lines that `tapeless coverage` prints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import torch

from tapeless.coverage.explained import EXPLAINED
from tapeless.coverage.forward import beyond_eager
from tapeless.coverage.operators import Support, without_forward_mode
from tapeless.coverage.sweep import FEW, PLAN, further
from tapeless.rules.registry import RULES
from tapeless.rules.support import WRITTEN
from tapeless.testing.opinfo import Count, Row, entry_names

KINDS = ("written", "derived", "decomposed", "traced", "nondifferentiable", "not captured")


def kind(row: Row) -> str:
    """How an OpInfo entry is differentiated, in one word."""
    forms = [how for how in row.operators.values() if how != "nondifferentiable"]
    if not forms:
        return "nondifferentiable" if row.operators else "not captured"
    if "traced" in forms:
        return "traced"
    if len(forms) > 1:
        return "decomposed"
    return "written" if forms[0] == "vjp" else "derived"


def total(counts: Iterable[Count]) -> Count:
    result = Count()
    for count in counts:
        result.ok, result.of = result.ok + count.ok, result.of + count.of
    return result


def entries(counts: Iterable[Count]) -> Count:
    """The entries with something to count, and those of them that are complete."""
    asked = [count for count in counts if count.of]
    return Count(sum(count.ok == count.of for count in asked), len(asked))


# -- summary -------------------------------------------------------------------------------------------------------


def summary(operators: dict[str, Support], rows: list[Row]) -> list[str]:
    """A few lines of counts."""
    reverse = [how.reverse for how in operators.values()]
    counts = Counter("written" if how in WRITTEN else how for how in reverse)
    forms = Counter(how for how in reverse if how in WRITTEN)
    beyond = sum(str(op) not in operators for op in RULES)
    lines = [
        f"{len(operators)} operators with a derivative in torch {torch.__version__}: "
        + ", ".join(f"{counts[kind]} {kind}" for kind in ("written", "traced", "nondifferentiable", "none")),
        "written as " + ", ".join(f"{forms[form]} {form}" for form in WRITTEN)
        + f"; {beyond} more rules for operators without a formula of their own",
        f"{_ratio(_beyond())} operators without forward mode in eager have it here, by finite differences",
    ]  # fmt: skip
    return lines + _samples_summary(rows)


def _beyond() -> Count:
    found = beyond_eager().values()
    return Count(sum(not problem for problem in found), len(found))


def _samples_summary(rows: list[Row]) -> list[str]:
    by_dtype: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_dtype[row.dtype].append(row)
    lines = []
    for dtype in (dtype for dtype in PLAN if dtype in by_dtype):
        found = by_dtype[dtype]
        if (planned := len(entry_names(getattr(torch, dtype)))) > len(found):
            lines.append(f"{dtype}: {planned - len(found)} of {planned} entries have not been run")
        lines.append(f"{dtype}: gradients {_of(r.first for r in found)}")
        if further(dtype):
            lines.append(f"{dtype}: second order {_of(r.second for r in found)}")
            lines.append(f"{dtype}: forward mode {_of(r.forward for r in found)}")
            lines.append(f"{dtype}: forward mode where eager has none {_of(r.beyond for r in found)}")
            lines.append(f"{dtype}: through `torch.compile` {_of(r.dynamo for r in found)}")
    if absent := [dtype for dtype in PLAN if dtype not in by_dtype and rows]:
        lines.append(f"{', '.join(absent)}: not run")
    if "float64" in by_dtype:
        kinds = Counter(map(kind, by_dtype["float64"]))
        lines.append("entries: " + ", ".join(f"{kinds[k]} {k}" for k in KINDS if kinds[k]))
    return lines


def _of(counts: Iterable[Count]) -> str:
    counts = list(counts)
    return f"equal on {_ratio(total(counts))} samples; {_ratio(entries(counts))} entries complete"


def _ratio(count: Count) -> str:
    return f"{count.ok} of {count.of}" + (f" ({100 * count.ok / count.of:.2f} %)" if count.of else "")


# -- the page --------------------------------------------------------------------------------------------------------


def markdown(operators: dict[str, Support], rows: list[Row]) -> str:
    """The page docs/coverage.md."""
    parts = [
        "# Coverage",
        'Made by `make coverage-ops ARGS="--out docs/coverage.md"`; `coverage.json` beside this page has every figure.',
        "\n".join(f"- {line}" for line in summary(operators, rows)),
    ]
    if rows:
        parts += ["## Samples", _SAMPLES, *_differences(rows), "### Entries", _entries_table(rows)]
    parts += ["## Operators", _OPERATORS, *_operators_lists(operators)]
    parts += ["## Forward mode where eager has none", _BEYOND, *_beyond_lists()]
    return "\n\n".join(parts) + "\n"


_SAMPLES = f"""\
PyTorch's OpInfo database judges: every entry with a backward on the CPU, all its samples in float64 and complex128. A
sample counts if outputs, gradients and which of them are `None` equal eager's. Samples without a gradient in eager are
left out.

The first two samples of an entry go through `torch.compile(backend="tapeless")`; so does any other that would differ.
The others are captured without Dynamo, which is two to three times faster and the same compiler from there on
([decision 7](decisions/0007-sweep-without-dynamo.md)). Second order (all second derivatives, contracted with random
vectors) and forward mode are checked on the first four samples. In complex128 it is one sample through `torch.compile`,
and two for the further derivatives. Where eager has no forward mode, ⟨ȳ, ẏ⟩ = ⟨x̄, ẋ⟩ is checked against eager's
gradient. In the other dtypes, {FEW} samples per entry are looked at, first order only, with the rounding of the dtype.

*Written*: its one ATen operator has a formula; *derived*: it is declared linear, bilinear, pointwise or constant, and
all derivatives follow; *decomposed*: it becomes several operators, each with a rule; *traced*: for at least one
operator, torch's own derivative is traced; *nondifferentiable*: none of its operators has a derivative; *not captured*:
its samples run in eager, or are refused."""
_OPERATORS = (
    "For each operator with a derivative formula in torch: a written rule, by its form; *traced*: torch's own\n"
    "derivative is traced into ATen operators; *nondifferentiable*: declared to have none; *none*: refused.\n"
    "Marked *: forward mode transposes the vjp."
)

_BEYOND = """\
Operators called directly, backward kernels among them, on the samples of `tapeless.testing.forward_samples`: eager
raises, or gives no tangent. Ours equals the finite difference in a random direction; of estimators, whose derivative is
not the slope, the product with eager's Jacobian. The others are those of torch's derivative table with a kernel on the
CPU and no formula for tangents: of sparse and nested tensors, of other devices, of outputs whose size is not known
before they run, and such as have a tangent by other means."""


def _beyond_lists() -> list[str]:
    found = beyond_eager()
    right = [op for op, problem in found.items() if not problem]
    parts = [f"### right ({len(right)})", _listed(right)]
    if wrong := [op for op in found if op not in right]:
        parts += [f"### wrong or refused ({len(wrong)})", _listed(wrong)]
    others = [op for op in without_forward_mode() if op not in found]
    return [*parts, f"### not asked ({len(others)})", _listed(others)]


def _listed(ops: list[str]) -> str:
    return " ".join(f"`{op.removeprefix('aten.')}`" for op in ops)


def _differences(rows: list[Row]) -> list[str]:
    differing = [row for row in rows if row.problems]
    if not differing:
        return []
    head = "### Differences\n\n| entry | dtype | what | why |\n|---|---|---|---|\n"
    return [head + "\n".join(_difference(row) for row in differing)]


def _difference(row: Row) -> str:
    problem = row.problems[0].replace("|", "\\|")
    return f"| {row.name} | {row.dtype} | {problem} | {EXPLAINED.get(row.name, '')} |"


def _entries_table(rows: list[Row]) -> str:
    by_name: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        by_name[row.name][row.dtype] = row
    columns = ("entry", "how", "gradients", "second order", "forward mode", "other dtypes", "operators")
    head = f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
    return head + "\n".join(_entry(name, found) for name, found in sorted(by_name.items()))


def _entry(name: str, rows: dict[str, Row]) -> str:
    main = next(rows[dtype] for dtype in PLAN if dtype in rows)
    forward = (
        _count(main.forward) if main.forward.of else f"{_count(main.beyond)} (eager: none)" if main.beyond.of else ""
    )
    others = " ".join(f"{dtype} {_count(row.first)}" for dtype, row in rows.items() if row is not main and row.first.of)
    operators = " ".join(
        f"`{op.removeprefix('aten.')}`" for op, how in main.operators.items() if how != "nondifferentiable"
    )
    return (
        f"| {name} | {kind(main)} | {_count(main.first)} | {_count(main.second)} | {forward} | {others} | {operators} |"
    )


def _count(count: Count) -> str:
    return f"{count.ok}/{count.of}" if count.of else ""


def _operators_lists(operators: dict[str, Support]) -> list[str]:
    parts = []
    for form in (*WRITTEN, "traced", "nondifferentiable", "none"):
        names = [_operator(op, how) for op, how in operators.items() if how.reverse == form]
        if names:
            parts += [f"### {form} ({len(names)})", " ".join(names)]
    return parts


def _operator(op: str, how: Support) -> str:
    mark = "\\*" if how.forward == "transposed" and how.reverse in WRITTEN else ""
    return f"`{op.removeprefix('aten.')}`{mark}"
