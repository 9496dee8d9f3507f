"""Printed programs: they run alone, they are the same every time, and each line says where it comes from."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import tapeless


def two_heads(x, w, a, b):
    trunk = torch.tanh(x @ w)
    return trunk @ a, torch.relu(trunk @ b)


def two_heads_inputs():
    sizes = [(4, 3), (3, 8), (8, 2), (8, 1)]
    return [torch.randn(size, requires_grad=index > 0) for index, size in enumerate(sizes)]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3))

    def forward(self, x):
        y = self.layers(x)
        return y.softmax(-1), torch.where(y > 0, y, -torch.inf).logsumexp(-1)


PROGRAMS = {
    "two heads": (two_heads, two_heads_inputs),
    "network": (Network(), lambda: [torch.randn(2, 4)]),
    "constant": (lambda x: x * torch.tensor([1.0, float("inf"), float("nan")]), lambda: [torch.randn(3)]),
    "complex": (lambda x: (x * (1 + 2j)).abs(), lambda: [torch.randn(3, dtype=torch.complex64)]),
}


@pytest.fixture(params=PROGRAMS.values(), ids=PROGRAMS)
def gradient(request):
    function, inputs = request.param
    return tapeless.differentiate(function, *inputs())


def calls(program):
    """The lines of a printed program that compute something."""
    lines = program.partition("args.clear()\n")[2].splitlines()
    return [line for line in lines if " = " in line]


# --- it runs alone ----------------------------------------------------------------------------------------------------


def test_printed_programs_run_alone(gradient):
    torch.manual_seed(0)
    values = [torch.randn(v.shape, dtype=v.dtype) for v in types_of(gradient.forward)]
    for program in (gradient.forward, gradient.backward):
        arguments = [torch.randn(v.shape).to(v.dtype) for v in types_of(program)]
        arguments = values if program is gradient.forward else arguments
        namespace = {}
        exec(str(program), namespace)
        torch.manual_seed(0)
        alone = namespace[program.name](list(arguments))
        torch.manual_seed(0)

        torch.testing.assert_close(alone, program(*arguments), equal_nan=True)


def types_of(program):
    return [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]


def test_a_file_with_both_programs_runs(tmp_path):
    gradient = tapeless.differentiate(two_heads, *two_heads_inputs())
    path = tmp_path / "pasted.py"
    ones = "[torch.ones(4, 3), torch.ones(3, 8), torch.ones(8, 2), torch.ones(8, 1)]"
    path.write_text(f"{gradient}\nprint([tuple(out.shape) for out in forward({ones})])\n")

    assert "[(4, 2), (4, 1), (4, 8)]\n" == run(path)


# --- it is the same every time ----------------------------------------------------------------------------------------

PRINTING = """
import torch, tapeless
def f(x, w, scale):
    hidden = torch.relu(x @ w)
    parts = hidden.split(2, dim=1)
    return {name: (part * scale).var() for name, part in zip("ab", parts)}
torch.manual_seed(0)
print(tapeless.differentiate(f, torch.randn(2, 3), torch.randn(3, 4), torch.randn(2)))
"""


def test_two_processes_print_the_same_text(tmp_path):
    path = tmp_path / "printing.py"
    path.write_text(PRINTING)
    first, second = run(path, PYTHONHASHSEED="1"), run(path, PYTHONHASHSEED="2")

    assert first == second
    assert "grad_of" in first


def test_one_process_prints_the_same_text():
    texts = {str(tapeless.differentiate(two_heads, *two_heads_inputs())) for _ in range(3)}

    assert 1 == len(texts)


# --- it says where it comes from --------------------------------------------------------------------------------------


def test_every_forward_line_names_its_source():
    gradient = tapeless.differentiate(two_heads, *two_heads_inputs())

    assert len(calls(str(gradient.forward))) == 5
    assert all("test_text.py:" in line for line in calls(str(gradient.forward)))


def test_every_backward_line_names_forward_value_and_source():
    gradient = tapeless.differentiate(two_heads, *two_heads_inputs())
    lines = calls(str(gradient.backward))

    assert all("grad_of " in line or "total of " in line for line in lines)
    assert all("test_text.py:" in line for line in lines)
    assert any("total of trunk  test_text.py:" in line for line in lines)
    assert any("grad_of relu" in line and "torch.relu(trunk @ b)" in line for line in lines)


def test_backward_lines_of_a_module_name_their_source():
    lines = calls(str(tapeless.differentiate(Network(), torch.randn(2, 4)).backward))

    assert all("  # " in line and ".py:" in line for line in lines)


def test_parameters_keep_their_names():
    text = str(tapeless.differentiate(Network(), torch.randn(2, 4)).forward)

    assert "layers_0_weight: f32[8, 4]" in text


# --- names do not collide ---------------------------------------------------------------------------------------------


def test_names_that_the_text_uses_itself():
    def program(args, operator, aten, device, accumulate, math):
        inf = args.sin() * operator
        torch = inf.cos() + aten
        return torch * device, torch.exp() * accumulate * inf * math

    inputs = [torch.randn(3, requires_grad=True) for _ in range(6)]
    expected = program(*inputs)
    gradient = tapeless.differentiate(program, *inputs)
    actual = gradient.forward(*inputs)
    captures = [*(inputs[i] for i in gradient.captured_inputs), *(actual[i] for i in gradient.captured_outputs)]

    torch.testing.assert_close(actual[:2], list(expected))
    found = gradient.backward(torch.ones(3), torch.ones(3), *captures)
    torch.testing.assert_close(found, list(torch.autograd.grad(expected, inputs, [torch.ones(3)] * 2)))


def run(path, **environment):
    command = [sys.executable, str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_an_exported_program_is_differentiated():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    gradient = tapeless.differentiate(torch.export.export(model, (x,)), x)
    parameters = [p.detach() for p in model.parameters()]
    out, *saved = gradient.forward(x, *parameters)
    captured = [[x, *parameters][i] for i in gradient.captured_inputs] + [
        [out, *saved][i] for i in gradient.captured_outputs
    ]
    found = dict(zip(gradient.gradient_inputs, gradient.backward(torch.ones_like(out), *captured), strict=True))

    model(x.requires_grad_()).sum().backward()
    for i, expected in enumerate([x.grad, *(p.grad for p in model.parameters())]):
        torch.testing.assert_close(found[i], expected)
