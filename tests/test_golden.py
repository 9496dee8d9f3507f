"""Goldens: a program, the line `# output`, and the text the compiler prints for it. `--accept` rewrites the text.

The folder says what is printed. `capture`: the captured graph. `prepare`: the graph after one pass, named in a header
line `# prepare: name`, of a program `f` where it acts and of one where it must decline. `differentiate`,
`specialize`: the backward. `lower`: the backward that serves every pattern of undefined cotangents. `partition`:
forward and backward.
A header line `# undefined: 0, 2` lists outputs that never receive a cotangent, `# memory: small` gives that option.
"""

import inspect
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves

import tapeless
from tapeless.ir import graph as ir
from tapeless.ir import header, text
from tapeless.options import Options
from tapeless.pipeline import preparation, trace
from tapeless.prepare import PREPARE
from tapeless.specialize.lower import lower_grad_of
from tapeless.specialize.rewrite import specialize

FOLDER = Path(__file__).parent / "golden"
PASSES = sorted(FOLDER.glob("prepare/*.py"))
CASES = [path for path in sorted(FOLDER.glob("*/*.py")) if path not in PASSES]
MARKER = "# output\n"
LINES = 25  # of program; a longer one is about two things


@dataclass
class Golden:
    """One golden file, its program executed."""

    path: Path

    def __post_init__(self):
        self.source, _, self.expected = self.path.read_text().partition(MARKER)
        namespace = {"torch": torch, "F": torch.nn.functional}
        torch.manual_seed(0)
        exec(compile(self.source, str(self.path), "exec"), namespace)
        self.function, self.inputs = namespace["f"], namespace["inputs"]
        header = self.source.partition("\n")[0]
        listed = header.removeprefix("# undefined:") if header.startswith("# undefined:") else ""
        self.undefined = tuple(int(number) for number in listed.split(",") if number.strip())
        self.options = {"memory": header.removeprefix("# memory: ")} if header.startswith("# memory: ") else {}

    @property
    def stage(self):
        return self.path.parent.name

    def fresh_inputs(self):
        """Copies of the inputs, requiring a gradient as `differentiate` chooses."""
        chosen = [t.requires_grad for t in self.inputs]
        chosen = chosen if any(chosen) else [t.is_floating_point() or t.is_complex() for t in self.inputs]
        return [t.detach().clone().requires_grad_(c) for t, c in zip(self.inputs, chosen, strict=True)]

    def in_order_of(self, graph, inputs):
        """The inputs that the graph reads, in its order: Dynamo's is that of first use."""
        named = dict(zip(inspect.signature(self.function).parameters, inputs, strict=True))
        return [named[node.name] for node in ir.inputs(graph)]

    def results(self, inputs):
        """What eager changes in place, then what it returns: the convention of captured graphs."""
        torch.manual_seed(1)
        given = [x * 1 if x.requires_grad else x for x in inputs]  # a leaf that requires a gradient refuses changes
        outputs = tree_leaves(self.function(*given))
        return [*(x for x in given if x._version), *outputs]

    @cached_property
    def gradient(self):
        return self.differentiate()

    def differentiate(self):
        return tapeless.differentiate(self.function, *self.inputs, undefined=self.undefined, options=self.options)

    def captured(self):
        return trace(self.function, tuple(self.fresh_inputs()), {}).graph

    def masks(self):
        """The patterns of undefined cotangents that the printed backward serves."""
        if self.stage != "lower":
            return [self.undefined]
        outputs = self.gradient.cotangent_outputs
        return [mask for count in range(len(outputs)) for mask in combinations(outputs, count)]

    def printed(self):
        if self.stage == "capture":
            return without_header(text.program(self.captured(), "program"))
        gradient = self.gradient
        if self.stage == "lower":
            lowered = lower_grad_of(gradient.split.backward, len(gradient.cotangent_outputs))
            return without_header(text.program(lowered, "backward"))
        forward, backward = without_header(str(gradient.forward)), without_header(str(gradient.backward))
        return f"{forward}\n\n{backward}" if self.stage == "partition" else backward


@dataclass
class PassGolden:
    """One golden of a pass: what it makes of a program, and a program that it leaves alone."""

    path: Path

    def __post_init__(self):
        self.source, _, self.expected = self.path.read_text().partition(MARKER)
        self.option = self.source.partition("\n")[0].removeprefix("# prepare: ")
        self.namespace = {"torch": torch, "F": torch.nn.functional}
        torch.manual_seed(0)
        exec(compile(self.source, str(self.path), "exec"), self.namespace)

    @cached_property
    def prepared(self):
        """For each program: the graph, and how often the pass acted. Outputs and gradients are checked on the way."""
        return {name: self.prepare(self.namespace[name]) for name in ("f", "declined")}

    def prepare(self, function):
        given = self.namespace["inputs"]
        if any(isinstance(t, torch.nn.Parameter) for t in given):  # weights that are kept: no derivative is asked
            with torch.no_grad():
                return self.outcome(trace(function, tuple(given), {}))
        chosen = [t.requires_grad for t in given] if any(t.requires_grad for t in given) else [True] * len(given)
        inputs = [t.detach().clone().requires_grad_(c) for t, c in zip(given, chosen, strict=True)]
        return self.outcome(trace(function, tuple(inputs), {}))

    def outcome(self, captured):
        graph, report = preparation(captured, Options(prepare=f"off, {self.option}", check=True))
        return graph, report.applied[self.option.removesuffix("!")]

    def printed(self):
        return "\n\n".join(text.function(graph, name) for name, (graph, _) in self.prepared.items())


@pytest.mark.parametrize("path", PASSES, ids=lambda path: path.stem)
def test_golden_of_a_pass(path, request):
    golden = PassGolden(path)
    if request.config.getoption("--accept"):
        path.write_text(golden.source + MARKER + golden.printed())
        return
    (_, acted), (_, declined) = golden.prepared.values()

    assert acted > 0
    assert 0 == declined
    assert golden.expected == golden.printed()
    assert golden.source.count("\n") < LINES


def test_every_pass_has_a_golden():
    assert sorted(rule.name for rule in PREPARE) == [path.stem for path in PASSES]


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden(path, request):
    golden = Golden(path)
    actual = golden.printed()
    if request.config.getoption("--accept"):
        path.write_text(golden.source + MARKER + actual)
        return

    assert golden.expected == actual
    assert golden.source.count("\n") < LINES
    if golden.stage == "capture":
        assert_runs_as_eager(golden, actual)
    else:
        for undefined in golden.masks():
            assert_equivalent(golden, actual, undefined)
        assert_stable(golden)


def test_every_stage_has_goldens():
    assert {"capture", "differentiate", "lower", "partition", "specialize"} == {path.parent.name for path in CASES}


def assert_runs_as_eager(golden, printed):
    """The printed graph returns what the program returns."""
    expected = golden.results(golden.fresh_inputs())
    torch.manual_seed(1)
    actual = function_of(printed, "program")(golden.in_order_of(golden.captured(), golden.fresh_inputs()))

    torch.testing.assert_close(actual, expected)


def assert_equivalent(golden, printed, undefined):
    """The printed programs run, and agree with eager autograd."""
    gradient = golden.gradient
    inputs = golden.fresh_inputs()
    read = golden.in_order_of(gradient.forward.graph, inputs)
    before = [x.detach().clone() for x in read]
    outputs = golden.results(inputs)
    cotangents = {i: torch.randn_like(outputs[i]) for i in gradient.cotangent_outputs if i not in undefined}
    wrt = [read[i] for i in gradient.gradient_inputs]
    expected = torch.autograd.grad([outputs[i] for i in cotangents], wrt, list(cotangents.values()), allow_unused=True)
    torch.manual_seed(1)
    results = function_of(str(gradient.forward), "forward")(list(before))
    captures = [*(before[i] for i in gradient.captured_inputs), *(results[i] for i in gradient.captured_outputs)]
    actual = function_of(printed, "backward")([*(cotangents.get(i) for i in gradient.cotangent_outputs), *captures])

    torch.testing.assert_close(results[: gradient.real_outputs], [output.detach() for output in outputs])
    assert [g is None for g in expected] == [g is None for g in actual]
    torch.testing.assert_close([g for g in actual if g is not None], [g for g in expected if g is not None])


def assert_stable(golden):
    """The same program prints the same text; specialising again changes nothing."""
    first, again = golden.gradient, golden.differentiate()
    missing = [k for k, output in enumerate(first.cotangent_outputs) if output in golden.undefined]
    graph = specialize(first.backward.graph, len(first.cotangent_outputs), missing)

    assert str(first) == str(again)
    assert str(first.backward) == text.program(graph, "backward", first.backward.note)


def without_header(program):
    """What differs from program to program: constants, and the function."""
    return program.removeprefix(header.header(program)).lstrip("\n")


def function_of(printed, name):
    """The function that a printed program defines, in a namespace of its own."""
    namespace = {}
    exec(header.header(printed) + printed, namespace)
    return namespace[name]
