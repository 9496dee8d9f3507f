"""The cache on disk: a second process gives the same without capturing or differentiating; nothing stale is found.

Most tests stand in for a second process by forgetting what this one knows. The first ones start real processes.
"""

import contextlib
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import tapeless
from cache_programs import PROGRAMS
from tapeless import cache, pipeline, rules, torch_internals
from tapeless.cache import pickled, store
from tapeless.cache.store import Store
from tapeless.errors import BadOption
from tapeless.ir.content import Indescribable, content
from tapeless.options import Options
from tapeless.runtime.derivatives import DERIVATIVES

HERE = Path(__file__).parent
BY_DESIGN = {"several_sizes": (1, 1), "constant": (1, 1), "tangents": (1, 0)}  # made anew: not all can be described


# -- real processes ------------------------------------------------------------------------------------------------


def start(directory, results):
    paths = os.pathsep.join([str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])
    settings = {"TAPELESS_CACHE_DIR": str(directory), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, HERE / "cache_programs.py", results], env={**os.environ, **settings})


@pytest.fixture(autouse=True)
def as_shipped(monkeypatch):
    """Whatever other tests of this process have declared counts as shipped."""
    monkeypatch.setattr(rules, "_SHIPPED", rules._state())


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What two processes at once with an empty cache, and one after them, find: (eager, compiled, how much made)."""
    folder = tmp_path_factory.mktemp("processes")
    found = []
    for group in (("one", "two"), ("three",)):
        running = [start(folder / "cache", folder / name) for name in group]
        assert all(process.wait(timeout=300) == 0 for process in running)
        found += [torch.load(folder / name) for name in group]
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_process_gives_the_same_and_makes_nothing(processes, name):
    (eager, cold, *_), (_, beside, *_), (_, warm, *made) = (found[name] for found in processes)
    for expected, first, parallel, second in zip(eager, cold, beside, warm, strict=True):
        assert (expected is None) == (first is None) == (parallel is None) == (second is None)
        if expected is not None:
            torch.testing.assert_close(first, expected)
            assert torch.equal(first, parallel)
            assert torch.equal(first, second)

    assert BY_DESIGN.get(name, (0, 0)) == tuple(made)


# -- forgetting instead --------------------------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch):
    """Lists what is captured; `made.differentiated()` counts derivatives taken since the test began."""

    class Made(list):
        before = DERIVATIVES.differentiated

        def differentiated(self):
            return DERIVATIVES.differentiated - self.before

        def all(self):
            return len(self), self.differentiated()

    made, original = Made(), pipeline.capture
    monkeypatch.setattr(pipeline, "capture", lambda *args: made.append(args) or original(*args))
    monkeypatch.setattr(store, "_warned", set())
    return made


def as_a_new_process():
    torch._dynamo.reset()
    DERIVATIVES.known.clear()


def gradient(directory, factor=2.0, shape=(3, 4), options=None, change=lambda x: x):
    """The gradient of a small program whose parts the tests vary, in what stands for a new process."""
    as_a_new_process()
    torch.manual_seed(0)
    x = change(torch.randn(shape, dtype=torch.float64).requires_grad_())

    def function(x):
        return (x * factor).sin().sum()

    call = torch.compile(function, backend="tapeless", options={"cache": str(directory), **(options or {})})
    (found,) = torch.autograd.grad(call(x), x)
    torch.testing.assert_close(found, factor * (x * factor).cos().detach())
    return found


def entries(directory):
    return sorted(directory.glob("*.entry"))


def test_what_is_kept_is_found(tmp_path, made):
    first = gradient(tmp_path)

    assert (1, 1) == made.all()
    assert 3 == len(entries(tmp_path))  # the frame, its graph, its derivative
    assert torch.equal(first, gradient(tmp_path))
    assert (1, 1) == made.all()


def test_without_a_cache_nothing_is_kept(tmp_path, made, monkeypatch):
    monkeypatch.setenv("TAPELESS_CACHE_DIR", str(tmp_path))
    gradient(tmp_path, options={"cache": False})
    gradient(tmp_path, options={"cache": False})

    assert (2, 2) == made.all()
    assert [] == entries(tmp_path)


def test_where_it_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPELESS_CACHE_DIR", str(tmp_path / "chosen"))
    assert tmp_path / "chosen" == Store.of(True).directory
    assert tmp_path / "given" == Store.of(str(tmp_path / "given")).directory
    monkeypatch.setenv("TAPELESS_CACHE_DIR", "")
    assert Store.of(True) is None
    assert Store.of(False) is None
    monkeypatch.delenv("TAPELESS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "tapeless" == Store.of(True).directory
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".cache" / "tapeless" == Store.of(True).directory


@pytest.mark.parametrize("value", ["", 3, None])
def test_the_option_is_checked(value):
    with pytest.raises(BadOption, match="cache must be"):
        Options(cache=value)


# -- nothing stale -------------------------------------------------------------------------------------------------

CHANGES = {
    "a constant": {"factor": 3.0},
    "a constant of another type": {"factor": 2},
    "a shape": {"shape": (4, 3)},
    "a type": {"change": lambda x: x.detach().float().requires_grad_()},
    "strides": {"change": lambda x: x.detach().t().contiguous().t().requires_grad_()},
    "a parameter": {"change": nn.Parameter},
    "not a leaf": {"change": lambda x: x * 1},
    "passes": {"options": {"prepare": "off"}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_program_is_captured(tmp_path, made, change):
    gradient(tmp_path)
    gradient(tmp_path, **change)

    assert 2 == len(made)


def test_requires_grad_is_part_of_the_program(tmp_path, made):
    w = torch.randn(3, dtype=torch.float64)

    def found(x, w):
        as_a_new_process()
        torch.compile(lambda x, w: (x * w).sum(), backend="tapeless", options={"cache": str(tmp_path)})(x, w).backward()
        return w.grad

    x = torch.randn(3, dtype=torch.float64).requires_grad_()

    assert found(x, w) is None
    assert torch.equal(x, found(x, w.clone().requires_grad_()))
    assert 2 == len(made)


@contextlib.contextmanager
def setting(change, to, back):
    change(to)
    try:
        yield
    finally:
        change(back)


CIRCUMSTANCES = {
    "deterministic": lambda: setting(torch.use_deterministic_algorithms, True, False),
    "no gradients": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    "default type": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
    "settings": lambda: torch._functorch.config.patch(functionalize_rng_ops=True),
}


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES.values(), ids=CIRCUMSTANCES)
def test_circumstances_are_part_of_the_program(circumstance):
    before = torch_internals.circumstances()
    with circumstance():
        assert before != torch_internals.circumstances()

    assert before == torch_internals.circumstances()


@pytest.mark.parametrize("what", ["torch", "source"])
def test_another_version_is_another_compiler(tmp_path, made, monkeypatch, what):
    gradient(tmp_path)
    cache.versions.cache_clear()
    if what == "torch":
        monkeypatch.setattr(torch, "__version__", "2.99")
    else:
        original = Path.read_bytes
        changed = lambda self: original(self) + (b"#" if self.name == "pointwise.py" else b"")  # noqa: E731
        monkeypatch.setattr(Path, "read_bytes", changed)
    gradient(tmp_path)
    monkeypatch.undo()
    cache.versions.cache_clear()

    assert 2 == DERIVATIVES.differentiated - made.before


def test_a_rule_of_the_users_is_not_overlooked(tmp_path, made):
    """The derivative that was kept is not what this rule would give, and what it gives is not kept."""
    gradient(tmp_path)
    rule = rules.registry.RULES[torch.ops.aten.sin.default]
    before = dict(rule.vjps), rule.jvp
    try:
        rules.pointwise(torch.ops.aten.sin.default, lambda self: self.cos())
        kept = entries(tmp_path)
        gradient(tmp_path)

        assert (1, 2) == made.all()
        assert kept == entries(tmp_path)
    finally:
        rule.vjps, rule.jvp = before
    gradient(tmp_path)

    assert (1, 2) == made.all()


def test_a_decomposition_of_the_users_is_not_overlooked(tmp_path, made):
    gradient(tmp_path)
    previous = rules.set_provider(None)
    try:
        gradient(tmp_path)

        assert (1, 2) == made.all()
    finally:
        rules.set_provider(previous)


def test_a_pass_of_the_users_is_not_overlooked(tmp_path, made):
    @tapeless.prepare.rewrite(tapeless.prepare.op.sin(*tapeless.prepare.anything("x")))
    def leave_as_it_is(x):
        """Nothing to do."""

    tapeless.prepare.register(leave_as_it_is)
    try:
        for _ in range(2):
            gradient(tmp_path, options={"prepare": "leave_as_it_is"})

        assert 2 == len(made)
    finally:
        del tapeless.prepare.REGISTRY.users["leave_as_it_is"]


def test_checks_run_each_time(tmp_path, made):
    for _ in range(2):
        gradient(tmp_path, options={"check": True})

    assert 2 == len(made)


def test_an_operator_of_the_users_is_not_kept(tmp_path, made):
    @torch.library.custom_op("cache_test::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(lambda x: torch.empty_like(x))
    double.register_autograd(lambda ctx, g: g * 2)
    x = torch.randn(3, requires_grad=True)
    for _ in range(2):
        as_a_new_process()
        torch.compile(lambda x: double(x).sin().sum(), backend="tapeless", options={"cache": str(tmp_path)})(
            x
        ).backward()

    assert (2, 2) == made.all()
    assert [] == entries(tmp_path)


def test_gradient_cuts_are_part_of_a_graph():
    """Two graphs whose printed text is the same: one of them cuts the gradient."""

    def cut(x):
        with torch.no_grad():
            y = x * 2
        return x * y

    contents = []
    for function in (cut, lambda x: x * (x * 2)):
        captured = pipeline.trace(function, (torch.randn(3, requires_grad=True),), {})
        contents.append(
            [line.split(" stack_trace=")[0] + str("no_grad" in line) for line in content(captured.graph).split("\n")]
        )

    assert contents[0] != contents[1]


# -- what can go wrong ---------------------------------------------------------------------------------------------


def damaged(path, how):
    data = path.read_bytes()
    if how == "a bit":
        path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    elif how == "cut off":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.write_bytes(b"something else entirely")


@pytest.mark.parametrize("how", ["a bit", "cut off", "empty", "foreign"])
def test_a_damaged_entry_is_ignored_with_a_warning(tmp_path, made, how):
    first = gradient(tmp_path)
    for path in entries(tmp_path):
        damaged(path, how)
    with pytest.warns(UserWarning, match="ignoring .* damaged entry"):
        assert torch.equal(first, gradient(tmp_path))

    assert (2, 2) == made.all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient(tmp_path)  # they were written anew
    assert (2, 2) == made.all()


def test_nothing_is_unpickled_before_its_checksum_was_seen(tmp_path, made, monkeypatch):
    gradient(tmp_path)
    for path in entries(tmp_path):
        damaged(path, "a bit")
    monkeypatch.setattr(pickled, "loads", lambda *_: pytest.fail("unpickled"))
    with pytest.warns(UserWarning, match="checksum"):
        gradient(tmp_path)


def no_space(*_, **__):
    raise OSError(28, "No space left on device")


def no_permission(*_, **__):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("trouble", ["full", "full at the end", "not a directory", "below a file", "another user's"])
def test_where_nothing_can_be_written_training_goes_on(tmp_path, made, monkeypatch, trouble):
    directory = tmp_path / "cache"
    if trouble == "full":
        monkeypatch.setattr(store.tempfile, "NamedTemporaryFile", no_space)
    elif trouble == "full at the end":
        monkeypatch.setattr(store.os, "replace", no_space)
    elif trouble == "another user's":
        monkeypatch.setattr(store.Path, "read_bytes", no_permission)
        monkeypatch.setattr(store.tempfile, "NamedTemporaryFile", no_permission)
    else:
        directory.write_text("a file stands here")
    if trouble == "below a file":
        directory = directory / "below"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gradient(directory)
        gradient(directory, factor=3.0)

    assert (2, 2) == made.all()
    assert 1 == sum("are not cached" in str(w.message) for w in caught)
    assert 1 == sum("cache" in str(w.message) for w in caught)
    assert not directory.is_dir() or [] == list(directory.iterdir())


def test_the_oldest_entries_go(tmp_path):
    small = Store(tmp_path, limit=10_000)
    for i in range(20):
        small.write(f"{i:02}", bytes(1000))
        os.utime(tmp_path / f"{i:02}.entry", (i, i))
        small.read("00", len)  # what is used stays

    names = [path.stem for path in entries(tmp_path)]
    assert {"00", "19"} <= set(names)
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= 10_000
    assert "01" not in names


def test_readers_never_see_half_of_an_entry(tmp_path):
    shared, wrong = Store(tmp_path), []

    def work(number):
        for i in range(50):
            shared.write("key", bytes([number]) * 20_000)
            found = shared.read("key", bytes)
            if found is None or len(set(found)) != 1:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == wrong
    assert ["key.entry"] == [path.name for path in tmp_path.iterdir()]


# -- graphs as bytes -----------------------------------------------------------------------------------------------


def test_a_graph_comes_back_with_all_that_is_known_about_it():
    captured = pipeline.trace(lambda x: (x[1:].t() * 2).split(2), (torch.randn(4, 3, requires_grad=True),), {})
    mode = torch_internals.FakeTensorMode()
    again = pickled.loads(pickled.dumps(captured.graph), mode)

    assert content(captured.graph) == content(again)
    assert all(node.meta["val"].fake_mode is mode for node in again.find_nodes(op="placeholder"))


def test_a_graph_says_nothing_of_the_program_it_was_found_in(monkeypatch):
    """Of memory formats pickle says where it found them: in a process started with `spawn`, in the program."""
    captured = pipeline.trace(lambda x: x.clone(memory_format=torch.contiguous_format).sin(), (torch.randn(2),), {})
    monkeypatch.setattr(sys, "modules", {"program": sys.modules[__name__], **sys.modules})

    assert "memory_format" in str(captured.graph)
    assert b"program" not in pickled.dumps(captured.graph)


def test_what_has_contents_is_refused():
    captured = pipeline.trace(lambda x: x * torch.tensor([1.0, 2.0]), (torch.randn(2, requires_grad=True),), {})
    for value in (captured.graph, torch.ones(2), nn.Linear(2, 2)):
        with pytest.raises(Indescribable):
            pickled.dumps(value)
