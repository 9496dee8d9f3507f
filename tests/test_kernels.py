"""Kernels that are compiled together, and generated code that runs without Inductor."""

import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tapeless import torch_internals
from tapeless.torch_internals import generated, kernels

ROWS = 5
QUANTIZE = "ops.quantized_decomposed.quantize_per_tensor.default"  # entered as Inductor is loaded


def several(x):
    """Three kernels: each reduction needs all of what comes before it. The last does what the first did."""
    first = torch.softmax(x.sin(), 0)
    second = torch.softmax((first @ x).cos(), 0)
    return [torch.softmax((second @ x).sin(), 0)]


def lowered(function=several, dtype=torch.float32):
    mode, _ = torch_internals.symbolic_sizes({})
    x = torch.randn(ROWS, ROWS, dtype=dtype)
    return x, torch_internals.decompose_for_inductor(function, [mode.from_tensor(x, static_shapes=True)])


@pytest.fixture
def builds(monkeypatch, tmp_path):
    """The sources that the C++ compiler is given, with nothing compiled before."""
    from torch._inductor import codecache, cpp_builder

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    codecache.CppPythonBindingsCodeCache.cache_clear()
    plain, given = cpp_builder.run_compile_cmd, []

    def run(cmd_line, cwd):
        given.append(next(word for word in cmd_line.split() if word.endswith((".cpp", ".h", ".hpp"))))
        return plain(cmd_line, cwd)

    monkeypatch.setattr(cpp_builder, "run_compile_cmd", run)
    yield given
    codecache.CppPythonBindingsCodeCache.cache_clear()


def of_kernels(given):
    """Those of kernels; others find out what the compiler can do."""
    texts = [Path(source).read_text() for source in given if source.endswith(".cpp")]
    return [text for text in texts if "PyInit_kernel" in text]


@pytest.mark.parametrize(("most", "libraries"), [(16, 1), (1, 2)], ids=["one library", "each by itself"])
def test_kernels_of_a_module_are_compiled_together(most, libraries, builds, monkeypatch):
    monkeypatch.setattr(kernels, "MOST", most)
    x, module = lowered()
    run = torch_internals.compile_decomposed(module, False, 1)

    torch.testing.assert_close(several(x), list(run([x])))
    assert 3 == run.source_code.count("async_compile.cpp_pybinding(") + 1  # the same kernel is asked for once
    assert libraries == len(of_kernels(builds))


def test_what_is_refused_together_is_compiled_one_by_one(builds, monkeypatch):
    joined = kernels._joined
    monkeypatch.setattr(kernels, "_joined", lambda sources: joined(sources) + "this is not C++")
    x, module = lowered()
    run = torch_internals.compile_decomposed(module, False, 1)

    torch.testing.assert_close(several(x), list(run([x])))
    assert 3 == len(of_kernels(builds))  # the first in vain


def test_programs_of_others_are_compiled_as_ever(builds):
    """`together` concerns what is compiled inside, in its thread."""
    x, module = lowered()
    found = []
    with kernels.together():
        thread = threading.Thread(target=lambda: found.append(torch.compile(several, backend="inductor")(x)))
        thread.start()
        thread.join()
        run = torch_internals.compile_decomposed(module, False, 1)

    torch.testing.assert_close(several(x), found[0])
    torch.testing.assert_close(several(x), list(run([x])))
    assert 1 == sum("namespace unit_0" in text for text in of_kernels(builds))
    assert 2 <= sum("namespace unit_0" not in text for text in of_kernels(builds))


def test_kernels_are_waited_for_at_the_end(builds, monkeypatch):
    """`kernels_later`: they are there when it is over, and later compilations wait as ever."""
    from torch._inductor.async_compile import AsyncCompile

    waited, wait = [], AsyncCompile.wait
    monkeypatch.setattr(AsyncCompile, "wait", lambda self, scope: (waited.append(scope), wait(self, scope)))
    functions = [lambda x: [x.sin().exp()], lambda x: [x.cos().exp()]]
    (x, first), (_, second) = (lowered(function) for function in functions)
    with torch_internals.kernels_later(1):
        compiled = [torch_internals.compile_decomposed(graph, False, 1) for graph in (first, second)]

        assert not waited

    assert 2 == len(waited)
    for function, run in zip(functions, compiled, strict=True):
        torch.testing.assert_close(function(x), list(run([x])))


WITHOUT_INDUCTOR = """
import pickle, sys, torch
from pathlib import Path
artifact, x = pickle.loads(Path(sys.argv[1]).read_bytes())
run = artifact.load()
before = set(sys.modules)
found = run([x])
assert set(sys.modules) == before, set(sys.modules) - before  # nothing is left for whoever calls it
loaded = [name for name in sys.modules if name.startswith("torch._inductor.")]
Path(sys.argv[1]).write_bytes(pickle.dumps((found, loaded)))
"""


def run_elsewhere(artifact, x, directory):
    """What it finds in a fresh process, and the modules of Inductor that are loaded there in the end."""
    place = directory / "artifact"
    place.write_bytes(pickle.dumps((artifact, x)))
    subprocess.run([sys.executable, "-c", WITHOUT_INDUCTOR, str(place)], check=True)
    return pickle.loads(place.read_bytes())


@pytest.mark.parametrize("is_gone", [False, True], ids=["kernels there", "kernels gone"])
def test_generated_code_runs_without_inductor(is_gone, builds, tmp_path):
    """In a process that has not loaded it; where kernels are gone, it is loaded and compiles them again."""
    x, module = lowered()
    artifact = torch_internals.Artifact.of(torch_internals.compile_decomposed(module, False, 1))
    for library in tmp_path.glob("*/*.so") if is_gone else ():
        library.unlink()
    found, loaded = run_elsewhere(artifact, x, tmp_path)

    torch.testing.assert_close(several(x), list(found))
    assert is_gone == ("torch._inductor.select_algorithm" in loaded)


def convolve(x):
    return [torch.conv2d(x[None, None], x[None, None, :2, :2]).sin(), torch.bmm(x[None], x[None])]


def test_what_else_generated_code_calls(builds, tmp_path):
    """Functions of torch's that only Inductor has names for are called without it."""
    x, module = lowered(convolve)
    artifact = torch_internals.Artifact.of(torch_internals.compile_decomposed(module, False, 2))
    found, loaded = run_elsewhere(artifact, x, tmp_path)

    assert artifact.code is not None
    assert {"convolution": "convolution", "bmm": "bmm"} == artifact.code.externs
    torch.testing.assert_close(convolve(x), list(found))
    assert "torch._inductor.select_algorithm" not in loaded


@pytest.mark.parametrize("missing", [{"externs": {"mm": None}}, {"operators": (QUANTIZE,)}])
def test_what_only_inductor_has_is_there_once_code_is_loaded(missing, builds, tmp_path):
    x, module = lowered()
    artifact = torch_internals.Artifact.of(torch_internals.compile_decomposed(module, False, 1))
    assert artifact.code is not None
    artifact = replace(artifact, code=replace(artifact.code, **missing))
    found, loaded = run_elsewhere(artifact, x, tmp_path)

    torch.testing.assert_close(several(x), list(found))
    assert "torch._inductor.lowering" in loaded


def test_where_torch_has_what_inductor_calls():
    """Functions and operators of torch's; what is written in Inductor is nowhere else."""
    places = {name: generated._place_in_torch(name) for name in ("mm", "_mm_plus_mm", "bias_addmm")}

    assert {"mm": "mm", "_mm_plus_mm": "ops.inductor._mm_plus_mm", "bias_addmm": None} == places
    assert torch.ops.inductor._mm_plus_mm is generated._in_torch("ops.inductor._mm_plus_mm")


def test_files_have_their_names_when_they_are_complete(monkeypatch, tmp_path):
    """`write_whole_files`: whoever is ended on the way leaves nothing that looks like a library."""
    from torch._inductor import cpp_builder

    written = []

    def ended(cmd_line, cwd):
        target = Path(cmd_line.split()[-1])
        target.write_text("half")
        written.append(target)
        if len(written) > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(cpp_builder, "run_compile_cmd", ended)
    torch_internals.write_whole_files()
    whole, half = tmp_path / "whole.so", tmp_path / "half.so"
    cpp_builder.run_compile_cmd(f"g++ x.cpp -o {whole}", cwd=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        cpp_builder.run_compile_cmd(f"g++ x.cpp -o {half}", cwd=str(tmp_path))

    assert whole.exists() and not half.exists()


def test_headers_are_compiled_before_they_are_needed(builds):
    """`compile_header` leaves a library without kernels, and nothing more to do for the first kernel but itself."""
    torch_internals.compile_header()
    before = len(builds)
    torch_internals.compile_decomposed(lowered()[1], False, 1)

    assert 1 == len(builds) - before
