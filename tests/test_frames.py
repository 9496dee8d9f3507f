"""Frames that were traced by another process: the same program is not traced again, a changed one always is.

Real processes run the programs of `frame_programs`; the rest stands in for a second process by forgetting.
"""

import importlib
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import tapeless
from frame_programs import CASES
from tapeless.cache import Place
from tapeless.capture import frames
from tapeless.capture.objects import Objects
from tapeless.ir.content import Indescribable
from tapeless.runtime.derivatives import DERIVATIVES
from tapeless.torch_internals import frames as door

HERE = Path(__file__).parent
# Not all of these is kept: a result that is taken for constant, a class that is made by code of its own; or the graph
# breaks there, and what comes before the break is traced again.
TRACED_AGAIN = {
    "assumed_constant", "metaclass", "context_variable", "attention_kernels", "number_of_threads",
    "precision_of_products",
}  # fmt: skip

# -- real processes ------------------------------------------------------------------------------------------------


def start(mode, directory, results):
    paths = os.pathsep.join([str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])
    settings = {"TAPELESS_CACHE_DIR": str(directory), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, HERE / "frame_programs.py", mode, results], env={**os.environ, **settings})


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Per process (eager, compiled, frames traced) of each program; the first two processes run at once."""
    folder = tmp_path_factory.mktemp("frames")
    cache, results = folder / "cache", {}
    runs = {
        "cold": ("plain", cache), "beside": ("plain", cache), "warm": ("plain", cache), "uncached": ("later", ""),
        "changed": ("changed", folder / "copy"), "later": ("later", cache),
    }  # fmt: skip
    for pair in (("cold", "beside"), ("warm", "uncached"), ("changed", "later")):
        if "changed" in pair:
            shutil.copytree(cache, folder / "copy")  # or else the other one keeps changed programs for it
        running = [start(*runs[name], folder / name) for name in pair]
        assert all(process.wait(timeout=400) == 0 for process in running)
        results |= {name: torch.load(folder / name) for name in pair}
    return results


def assert_same(expected, actual):
    assert len(expected) == len(actual)
    for left, right in zip(expected, actual, strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            torch.testing.assert_close(right, left)


@pytest.mark.parametrize("name", CASES)
def test_the_same_program_is_not_traced_again(found, name):
    for process in ("cold", "beside", "warm"):
        eager, compiled, _ = found[process][name]
        assert_same(eager, compiled)

    assert name in TRACED_AGAIN or 0 == found["warm"][name][2]


@pytest.mark.parametrize("name", CASES)
def test_a_changed_program_is_traced(found, name):
    eager, compiled, traced = found["changed"][name]

    assert_same(eager, compiled)
    assert traced


@pytest.mark.parametrize("name", CASES)
def test_a_later_change_is_noticed_as_without_a_cache(found, name):
    """Dynamo overlooks some changes in a process; whatever it does, it does no less with kept frames."""
    assert_same(found["uncached"][name][1], found["later"][name][1])
    assert name in TRACED_AGAIN or 0 == found["later"][name][2]


# -- forgetting instead --------------------------------------------------------------------------------------------


@pytest.fixture
def traced(monkeypatch):
    """Lists the frames that Dynamo traces."""
    traced, original = [], door._compile
    monkeypatch.setattr(door, "_compile", lambda *args, **kwargs: traced.append(args[0]) or original(*args, **kwargs))
    return traced


@pytest.fixture(autouse=True)
def no_file_counts(monkeypatch, request):
    if "edited" not in request.node.name:
        monkeypatch.setattr(frames, "_file", lambda name: "")


def as_a_new_process():
    torch._dynamo.reset()
    DERIVATIVES.known.clear()


def compiled(function, directory, backend="tapeless"):
    as_a_new_process()
    options = {"options": {"cache": str(directory)}} if backend == "tapeless" else {}
    return torch.compile(function, backend=backend, **options)


def gradient(function, *shape):
    torch.manual_seed(0)
    x = torch.randn(shape or (3, 4), dtype=torch.float64).requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0]


def curve(x):
    return (x * 2).sin()


def test_a_kept_frame_is_not_traced(tmp_path, traced):
    first = gradient(compiled(curve, tmp_path))
    assert torch.equal(first, gradient(compiled(curve, tmp_path)))

    assert 1 == len(traced)


HASHED = """
import sys, torch
from tapeless.torch_internals import frames
traced, compile = [], frames._compile
frames._compile = lambda *args, **kwargs: traced.append(args) or compile(*args, **kwargs)
torch.compile(lambda x: x.sin(), backend="tapeless", options={"cache": sys.argv[1]})(torch.ones(3))
print(len(traced))
"""


def test_processes_that_hash_differently_find_the_same(tmp_path):
    """As all do that are not told otherwise: Python draws the order of its sets."""
    traced = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", HASHED, str(tmp_path)]
        traced.append(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout)

    assert ["1\n", "0\n"] == traced


def test_tapeless_compile(tmp_path, traced):
    def slope(x):
        return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]

    for _ in range(2):
        as_a_new_process()
        torch.testing.assert_close(gradient(slope), gradient(tapeless.compile(slope, cache=str(tmp_path))))

    assert 1 == len(traced)


def test_other_backends_are_left_alone(tmp_path, traced):
    seen = []
    gradient(compiled(curve, tmp_path))
    gradient(compiled(curve, tmp_path, backend=lambda module, inputs: seen.append(module) or module))

    assert 2 == len(traced)
    assert 1 == len(seen)
    assert not door._watching.frames


@pytest.mark.parametrize("options", [{"prepare": "off"}, {"keep": False}, {"variants": 3}])
def test_other_options_are_another_program(tmp_path, traced, options):
    gradient(compiled(curve, tmp_path))
    as_a_new_process()
    gradient(torch.compile(curve, backend="tapeless", options={"cache": str(tmp_path), **options}))

    assert 2 == len(traced)


def test_an_edited_file_is_another_program(tmp_path, traced, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "edited_program.py"
    path.write_text("def function(x):\n    return x.sin()\n")
    function = importlib.import_module("edited_program").function
    gradient(compiled(function, tmp_path / "cache"))
    gradient(compiled(function, tmp_path / "cache"))
    assert 1 == len(traced)

    path.write_text("def function(x):\n    return x.sin()\n\n# edited\n")
    gradient(compiled(function, tmp_path / "cache"))

    assert 2 == len(traced)


def test_several_ways_to_trace_the_same_code_are_kept(tmp_path, traced):
    makes = (nn.Tanh, nn.Softplus, nn.ReLU)
    for _ in range(2):
        for make in makes:
            model = nn.Sequential(make(), nn.Tanh())
            torch.testing.assert_close(gradient(model), gradient(compiled(lambda x, m=model: m(x), tmp_path)))

    assert len(makes) == len(traced)


def test_sizes_that_vary_are_found_out_as_early(tmp_path, traced):
    for _ in range(2):
        call = compiled(curve, tmp_path)
        for rows in (3, 5, 7, 9):
            torch.testing.assert_close(gradient(curve, rows, 4), gradient(call, rows, 4))

    assert 3 == len(traced)  # once for three rows; in each process once for any number of them


def test_a_broken_graph(tmp_path):
    def broken(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return (y * 2).cos()

    for _ in range(3):
        torch.testing.assert_close(gradient(broken), gradient(compiled(broken, tmp_path)))


def test_writes_and_side_effects(tmp_path, traced):
    def function(x, seen):
        seen.append(x.shape[0])
        y = x * 2
        y.mul_(3)
        return y.sin(), seen

    for _ in range(2):
        out, seen = compiled(function, tmp_path)(torch.ones(3), [])
        torch.testing.assert_close(torch.full((3,), 6.0).sin(), out)
        assert [3] == seen

    assert 1 == len(traced)


def test_two_models_at_once(tmp_path, traced):
    """Each frame has its own weights, though its code and its entry are the same."""
    first, second = nn.Linear(4, 4, dtype=torch.float64), nn.Linear(4, 4, dtype=torch.float64)
    for _ in range(2):
        as_a_new_process()
        calls = [torch.compile(lambda x, m=m: m(x).sin(), backend="tapeless", options={"cache": str(tmp_path)})
                 for m in (first, second)]  # fmt: skip
        for model, call in zip((first, second), calls, strict=True):
            torch.testing.assert_close(gradient(lambda x, m=model: m(x).sin()), gradient(call))


@pytest.mark.parametrize("payload", [b"no pickle", pickle.dumps("no entry")])
def test_an_entry_of_another_make_is_of_no_use(tmp_path, traced, monkeypatch, payload):
    first = gradient(compiled(curve, tmp_path))
    original = Place.read
    monkeypatch.setattr(Place, "read", lambda self, mode: {"": payload} if mode is None else original(self, mode))

    assert torch.equal(first, gradient(compiled(curve, tmp_path)))
    assert 2 == len(traced)


def test_a_graph_that_is_gone_is_traced_again(tmp_path, traced):
    first = gradient(compiled(curve, tmp_path))
    largest = sorted(tmp_path.glob("*.entry"), key=lambda path: path.stat().st_size)
    for path in largest[:-1]:
        path.unlink()

    assert torch.equal(first, gradient(compiled(curve, tmp_path)))


def test_logs_of_dynamo_tell_of_tracing(tmp_path, traced):
    gradient(compiled(curve, tmp_path))
    torch._logging.set_logs(graph_code=True)
    try:
        gradient(compiled(curve, tmp_path))
    finally:
        torch._logging.set_logs()

    assert 2 == len(traced)


# -- descriptions --------------------------------------------------------------------------------------------------


def function_with(constant):
    namespace = {"__name__": "somewhere"}
    exec(f"def function(x, y={constant}):\n    return x + {constant}", namespace)
    return namespace["function"]


def test_functions_by_their_content():
    assert Objects().exact(function_with(1)) == Objects().exact(function_with(1))
    assert Objects().exact(function_with(1)) != Objects().exact(function_with(2))
    assert Objects().exact(function_with(1)) != Objects().exact(function_with(1.0))


def class_with(constant):
    return type("Made", (nn.Module,), {"forward": function_with(constant), "__module__": "somewhere"})


def test_classes_by_their_methods():
    assert Objects().exact(class_with(1)) == Objects().exact(class_with(1))
    assert Objects().exact(class_with(1)) != Objects().exact(class_with(2))


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), ("1", 1), ((1,), [1]), ({"a": 1, "b": 2}, {"b": 2, "a": 1})])
def test_values_of_another_kind_are_others(pair):
    assert Objects().exact(pair[0]) != Objects().exact(pair[1])


@pytest.mark.parametrize("value", [object(), torch.ones(1), nn.Linear(1, 1), nn.Linear(1, 1).forward, [object()]])
def test_what_text_cannot_say_is_refused(value):
    with pytest.raises(Indescribable):
        Objects().exact(value)


def test_objects_that_hold_each_other():
    first, second = {}, {}
    first["other"], second["other"] = second, first

    assert Objects().exact(first) == Objects().exact(second)
