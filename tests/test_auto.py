"""Backend `auto`: right before, during and after a program is compiled in the background; undisturbed if that fails."""

import copy
import gc
import io
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import tapeless
from comparing import seeded
from models import TwoHeads
from tapeless import pipeline, torch_internals
from tapeless.backends.auto import LIVE as ALONE
from tapeless.backends.auto import Age, Auto, compile_watched
from tapeless.background import products, race
from tapeless.background.compiler import Compiler
from tapeless.background.order import Answer, Failure
from tapeless.background.process import Process
from tapeless.background.race import Race
from tapeless.background.worker import receive, send
from tapeless.runtime import contest, variant
from tapeless.runtime import statistics as statistics_module
from tapeless.runtime.program import LIVE, Program
from tapeless.runtime.statistics import statistics

PATIENCE = 240  # seconds


EARLIER: weakref.WeakSet[Program | Auto] = weakref.WeakSet()


@pytest.fixture(autouse=True)
def alone():
    """Programs of other tests do not count: where a graph breaks, Dynamo keeps its code in spite of the reset."""
    torch._dynamo.reset()
    gc.collect()
    EARLIER.update((*LIVE, *ALONE))


@pytest.fixture
def compiled_wins(monkeypatch):
    monkeypatch.setattr(Race, "compiled_wins", True)


def auto(function, **settings):
    return torch.compile(function, backend="tapeless", options={"backend": "auto"}, **settings)


def until(state, step):
    """Call `step` with 0, 1, … until each program is in the given state."""
    start, number = time.monotonic(), 0
    while True:
        step(number)
        number += 1
        found = [program.backends for program in LIVE if program not in EARLIER]
        if any(found) and all(backend == state for backends in found for backend in backends):
            return number
        assert time.monotonic() - start < PATIENCE, found
        time.sleep(0.02)


def until_alone(step):
    """The same until each graph that stands alone is compiled; how many there are."""
    start, number = time.monotonic(), 0
    while not (found := [graph.state for graph in ALONE if graph not in EARLIER]) or set(found) != {"inductor stays"}:
        step(number)
        number += 1
        assert time.monotonic() - start < PATIENCE, found
        time.sleep(0.02)
    step(number)
    return len(found)


def gradients(model, call, used, number, size=8):
    """Gradients, losses and statistics of one step that sends a gradient to the outputs `used`."""
    model.zero_grad()
    torch.manual_seed(number)
    outputs = call(torch.randn(size, 4, dtype=torch.float64))
    sum(outputs[i].square().sum() for i in used).backward()
    return [p.grad for p in model.parameters()], list(model.buffers()), torch.rand(())


def test_every_step_equals_eager_with_its_random_numbers_and_nones(compiled_wins):
    eager, ours = (seeded(0, TwoHeads).double() for _ in range(2))
    call = auto(ours)

    def step(number, used=(0,)):
        torch.testing.assert_close(gradients(ours, call, used, number), gradients(eager, eager, used, number))

    count = until("inductor stays", step)
    step(count)

    assert eager.second.weight.grad is None and ours.second.weight.grad is None

    step(count + 1, used=(0, 1))  # what it was not compiled for
    step(count + 2, used=(1,))
    step(count + 3, used=(0,))


def test_higher_order_and_single_gradients_of_a_compiled_program(compiled_wins):
    def f(x, w):
        return torch.tanh(x @ w).square().sum()

    call = auto(f)
    x, w = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (4, 2)))
    until("inductor stays", lambda _: torch.autograd.grad(call(x, w), (x, w)))
    (alone,) = torch.autograd.grad(call(x, w), x)
    found = []
    for function in (f, call):
        first = torch.autograd.grad(function(x, w), (x, w), create_graph=True)
        found.append((*first, *torch.autograd.grad(first[0].sin().sum(), (x, w))))

    torch.testing.assert_close(found[0][0], alone)
    torch.testing.assert_close(found[0], found[1])


def test_what_is_saved_is_overwritten_only_if_nobody_else_holds_it(compiled_wins):
    def f(x, w):
        return torch.tanh(x @ w).square().sum()

    call, kept = auto(f), []
    x, w = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (4, 2)))
    until("inductor stays", lambda _: torch.autograd.grad(call(x, w), (x, w)))
    expected = torch.autograd.grad(f(x, w), (x, w))
    loss = call(x, w)

    for again in (True, True, False):
        torch.testing.assert_close(torch.autograd.grad(loss, (x, w), retain_graph=again), expected)

    def keep(t):
        kept.append((t, t.clone()))
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        loss = call(x, w)
    torch.testing.assert_close(torch.autograd.grad(loss, (x, w)), expected)

    assert kept
    for held, before in kept:
        assert torch.equal(before, held)


def test_what_it_was_called_with_is_let_go_by_the_last_backward(compiled_wins):
    """Where a graph is one of several, that is a result of another one."""
    call, w = auto(lambda x, w: (x @ w).tanh().sum()), torch.randn(4, 4, requires_grad=True)

    def step(number, retain=False):
        x = torch.randn(3, 4, requires_grad=True) * 2
        loss, held = call(x, w), weakref.ref(x)
        loss.backward(retain_graph=retain)
        del x
        return held, loss

    until("inductor stays", step)
    held, loss = step(0, retain=True)
    assert held() is not None

    loss.backward()
    assert held() is None


def test_gradients_are_added_up_one_by_one(compiled_wins):
    """Of gradients that are the same numbers Inductor returns one buffer, seen in several shapes."""

    def f(x, y, z):
        return (x + y.view(3, 4) + z.t()).sin().sum()

    call, leaves = auto(f), [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (12,), (4, 3))]
    until("inductor stays", lambda _: torch.autograd.grad(call(*leaves), leaves))
    once = torch.autograd.grad(f(*leaves), leaves)
    for _ in range(3):
        call(*leaves).backward()

    torch.testing.assert_close([x.grad for x in leaves], [3 * g for g in once])


def test_what_is_negated_only_as_it_is_read(compiled_wins):
    """Kernels read memory, in which the numbers are not negated: gradients that arrive are made plain before."""

    def f(x, w):
        return (x * w).sin().sum(), x.sum()

    call = auto(f)
    x, w = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in "xw")

    def step(_):
        found = []
        for function in (f, call):
            z = torch.complex(*function(x, w)).conj()  # whose gradient is the imaginary part of a conjugate
            found.append(torch.autograd.grad((z * z * (1 + 2j)).imag, (x, w)))
        torch.testing.assert_close(found[1], found[0])

    step(until("inductor stays", step))


def test_an_input_that_is_negated_as_it_is_read_stays_with_python():
    call, w = auto(lambda x, w: (x * w).sin().sum()), torch.randn(3, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, dtype=torch.complex128).conj().imag

    def step(_):
        torch.testing.assert_close(torch.autograd.grad(call(x, w), w)[0], x * (x * w).cos())

    step(until("python stays", step))


def test_each_graph_of_a_program_of_higher_order(compiled_wins):
    """Energies, and forces that are derivatives of these: a backward that is differentiated in its turn.

    Before that the program was used at first order, and compiled for it.
    """
    eager, ours = (seeded(0, lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))).double() for _ in "ab")
    call = auto(ours)

    def found(model, network, number):
        x = seeded(number, lambda: torch.randn(6, 4, dtype=torch.float64)).requires_grad_()
        energy = network(x).sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return torch.autograd.grad(energy + force.square().sum(), list(model.parameters()))

    def step(number):
        torch.testing.assert_close(found(ours, call, number), found(eager, eager, number))

    until("inductor stays", lambda number: call(seeded(number, lambda: torch.randn(6, 4).double())).sum().backward())
    assert until_alone(step) >= 2  # the forward, and the backward that gets gradients of what is between


def test_a_watched_graph_called_with_other_strides(compiled_wins):
    graph = make_fx(lambda x: [x.sin() * 2 + x.cos()], tracing_mode="fake")(torch.randn(5, 3)).graph
    run = compile_watched(graph)
    until_alone(lambda _: run([torch.randn(5, 3)]))
    for x in (torch.randn(5, 3), torch.randn(3, 5).T):
        torch.testing.assert_close(run([x]), [x.sin() * 2 + x.cos()])


def test_gradients_that_the_program_calls_for(recwarn):
    """Dynamo breaks the graph there, looks on as the backward runs, and must not trace how it is timed."""
    eager, ours = (seeded(0, lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))).double() for _ in "ab")

    def penalty(model, x):
        between = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(model(between).sum(), between, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean() + model(x).mean()

    call = auto(penalty)

    def step(number):
        torch.manual_seed(number)
        x = torch.randn(6, 4, dtype=torch.float64)
        found = [torch.autograd.grad(f(m, x), list(m.parameters())) for f, m in ((penalty, eager), (call, ours))]
        torch.testing.assert_close(found[1], found[0])

    start, number = time.monotonic(), 0
    while time.monotonic() - start < 3 or not statistics().is_settled:
        step(number)
        number += 1
        assert time.monotonic() - start < PATIENCE

    assert not [str(w.message) for w in recwarn if "trace" in str(w.message) or "Inductor" in str(w.message)]


def test_convolutions_in_layouts_of_their_own(compiled_wins):
    def network():
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU())

    eager, ours = (seeded(0, network).double() for _ in range(2))
    call = auto(ours)

    def step(number):
        x = seeded(number, lambda: torch.randn(2, 3, 9, 9, dtype=torch.float64))
        found = [
            torch.autograd.grad(f(x).square().sum(), list(m.parameters())) for f, m in ((eager, eager), (call, ours))
        ]
        torch.testing.assert_close(*found)

    step(until("inductor stays", step))


def test_sizes_that_vary(compiled_wins):
    model = seeded(0, lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU())).double()
    call = auto(model, dynamic=True)

    def step(number, sizes=(3, 5, 17, 2)):
        x = torch.randn(sizes[number % len(sizes)], 4, dtype=torch.float64, requires_grad=True)
        expected = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])

        torch.testing.assert_close(expected, torch.autograd.grad(call(x).square().sum(), [x, *model.parameters()]))

    count = until("inductor stays", step)
    for number in range(count, count + 4):
        step(number)
    step(0, sizes=(1,))  # traced anew, or refused by the guards of what was compiled


def test_an_order_is_written_from_the_graphs_that_run(monkeypatch):
    """Whoever writes it holds the interpreter, for which the program waits: nothing is made a second time."""
    orders = []
    monkeypatch.setattr(contest.COMPILER, "submit", lambda write, *_: orders.append(write))
    monkeypatch.setattr(Age, "is_over", True)
    call = auto(lambda x, w: (x @ w).tanh().square().sum())
    x, w = (torch.randn(3, 3, requires_grad=True) for _ in "xw")
    for _ in range(4):
        call(x, w).backward()
    monkeypatch.setattr(variant, "copy_graph", None)
    (write,) = orders
    order = write()

    assert "tanh" in order.forward and "tanh_backward" in order.backward


def test_what_a_program_checks_and_numbers_that_it_makes_tensors_of(compiled_wins):
    """Neither keeps a program from being compiled; what is checked is checked there too."""

    def f(x, labels):
        scores = torch.where(labels.unsqueeze(-1) > 1, x, torch.tensor(-0.5, dtype=x.dtype))
        return (scores.softmax(-1) * torch.nn.functional.one_hot(labels, 3)).sum(-1)

    call, x = auto(f), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)

    def step(number):
        labels = (torch.arange(4) + number) % 3
        found = [torch.autograd.grad(g(x, labels).square().sum(), x) for g in (f, call)]
        torch.testing.assert_close(found[1], found[0])

    step(until("inductor stays", step))
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        call(x, torch.full((4,), 3))


def test_the_faster_one_stays(monkeypatch):
    monkeypatch.setattr(Race, "compiled_wins", False)
    call = auto(lambda x: (x.sin() * x).sum())
    x = torch.randn(4, requires_grad=True)
    until("python stays", lambda _: call(x).backward())

    assert statistics().is_settled


@pytest.mark.parametrize(
    ("plain", "compiled", "over", "wins"),
    [
        ([9, 9, 5, 6, 5], [9, 9, 3, 4, 4], True, True),  # clear
        ([9, 9, 3, 3, 3], [9, 9, 7, 5, 6], True, False),
        ([9, 9, 5, 4, 5], [9, 9, 3, 4, 3], False, True),  # one call of each took the same
        ([9, 9, 5, 4, 5, 6, 5], [9, 9, 3, 4, 3, 9, 3], True, True),
        ([1, 1, 5, 5], [1, 1, 3, 3], False, True),
        ([1e-5] * 7, [9e-6] * 6 + [2e-5], False, True),  # soon over
    ],
)
def test_a_race_is_over_when_it_is_clear(plain, compiled, over, wins):
    found = Race(*(watches(times) for times in (plain, compiled)))

    assert (over, wins) == (found.is_over, found.compiled_wins)


@pytest.mark.parametrize(
    ("before", "compiled", "over", "wins"),
    [
        ([9, 9, 5, 6, 5], [9, 9, 3, 4], True, True),  # by far
        ([9, 9, 5, 6, 5], [9, 9, 3], False, True),  # not known yet: it is its turn again
        ([9, 9, 5, 6, 5], [9, 9, 7, 8], True, False),  # slower than the other one ever was
        ([9, 9, 5, 6, 5], [9, 9, 4.8, 4.8], False, False),  # which was slowed down then: they take turns
        ([9, 9, 5], [9, 9, 3, 3], False, False),  # seldom called before
    ],
)
def test_what_was_faster_before_counts(before, compiled, over, wins):
    found = Race(watches([]), watches(compiled), watches(before))

    assert over == found.is_over
    if over:
        assert wins == found.compiled_wins
    elif wins:
        assert [True, True, True] == [found.is_turn_of_compiled() for _ in range(3)]
    else:
        assert [True, False, True] == [found.is_turn_of_compiled() for _ in range(3)]


def watches(times):
    watch = race.Stopwatch(list)
    watch.times.extend(times)
    return [watch]


def test_a_program_without_gradients(compiled_wins):
    model = seeded(0, lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))).double()
    call, x = auto(model), torch.randn(3, 4, dtype=torch.float64)
    expected, start = model(x).detach(), time.monotonic()
    while ["inductor stays"] != [graph.state for graph in ALONE if graph not in EARLIER]:
        with torch.no_grad():
            torch.testing.assert_close(expected, call(x))
        assert time.monotonic() - start < PATIENCE
        time.sleep(0.02)
    with torch.no_grad():
        torch.testing.assert_close(expected, call(x))


def test_deterministic_mode_stays_with_python():
    call = auto(lambda x: x.sin().sum())
    x = torch.randn(4, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        until("python stays", lambda _: call(x).backward())
    finally:
        torch.use_deterministic_algorithms(False)

    assert statistics().is_settled


def test_programs_may_be_compiled_while_they_are_counted(monkeypatch):
    """By another thread; here, by whoever looks at one."""
    program, described = tapeless.compile(lambda x: x.sin()), statistics_module.of_program
    program(torch.ones(3, requires_grad=True)).sum().backward()
    monkeypatch.setattr(statistics_module, "of_program", lambda found: LIVE.add(copy.copy(found)) or described(found))

    assert len(statistics().programs) >= 1


# -- what can go wrong -----------------------------------------------------------------------------------------------


@pytest.fixture
def own_compiler(monkeypatch):
    """A compiler for this test alone, started in the environment that the test makes."""
    compiler = Compiler()
    for module in (contest, pipeline):
        monkeypatch.setattr(module, "COMPILER", compiler)
    monkeypatch.setattr(race, "_WARNED", set())
    yield compiler
    compiler.stop()


@pytest.mark.skipif(not torch_internals.can_multiply(), reason="oneDNN does not multiply float32 here")
def test_products_by_onednn(own_compiler, compiled_wins, monkeypatch, tmp_path):
    """The other process finds what was faster on the disk; what anybody keeps of a step stays as it was."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    products._findings.cache_clear()
    for kind in ("128x128x256nt", "128x256x128nt", "128x128x256nn", "128x128x256tn", "256x128x128tn"):
        products._Findings.here().keep(kind, 0.5)
    multiply, multiplied, kept = torch_internals.products._multiply, [], []
    monkeypatch.setattr(torch_internals.products, "_multiply", lambda *a: multiplied.append(a[2].shape) or multiply(*a))
    model = seeded(0, lambda: nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)))
    call = auto(model)

    def keep(saved):
        kept.append((saved, saved.clone()))
        return saved

    def step(number):
        x = seeded(number, lambda: torch.randn(128, 128))
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
            out = call(x)
        found = torch.autograd.grad(out.square().mean(), list(model.parameters()))
        expected = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        del kept[:-20]
        kept.extend((value, value.clone()) for value in (out.detach(), *found))

    count = until("inductor stays", step)
    for number in range(3):
        step(count + number)

    assert len(multiplied) >= 3
    assert all(torch.equal(before, held) for held, before in kept)


class Customer:
    def ready(self, answer):
        self.answer = answer


def trains_on_after_one_warning(match):
    """Each step is right, one warning is given, and the program stays with generated Python."""
    call = auto(lambda x: (x.sin() * x).sum())

    def step(number):
        x = torch.full((3,), float(number), requires_grad=True)
        call(x).backward()
        torch.testing.assert_close(x.detach().cos() * x.detach() + x.detach().sin(), x.grad)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = until("python stays", step)
        step(count)

    assert 1 == len([w for w in caught if match in str(w.message)]), [str(w.message) for w in caught]


def test_the_compiler_is_killed(own_compiler):
    customer = Customer()
    own_compiler.submit(lambda: "no order at all", customer)
    while own_compiler._process is None:
        time.sleep(0.01)
    os.kill(own_compiler._process.pid, signal.SIGKILL)

    trains_on_after_one_warning("the compiler in the background ended")


def test_there_is_no_cxx(own_compiler, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    trains_on_after_one_warning("Inductor failed")


def test_the_cxx_compiler_knows_less_than_the_processor(own_compiler, compiled_wins, monkeypatch, tmp_path):
    """It is not asked before; what it refuses is compiled for other instructions."""
    older = tmp_path / "g++"
    older.write_text('#!/bin/sh\ncase "$*" in *-mavx512vnni*) exit 1;; esac\nexec g++ "$@"\n')
    older.chmod(0o755)
    monkeypatch.setenv("CXX", str(older))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    call = auto(lambda x: (x.sin() * x).sum())
    x = torch.ones(3, requires_grad=True)

    until("inductor stays", lambda _: call(x).backward())


def test_the_process_is_there_before_anything_is_ordered(own_compiler):
    call = auto(lambda x: (x.sin() * x).sum())
    call(torch.ones(3, requires_grad=True))
    start = time.monotonic()
    while own_compiler._process is None:
        assert time.monotonic() - start < PATIENCE
        time.sleep(0.01)


def test_the_process_can_yield_to_the_program_and_be_ended_with_its_compilers():
    process = Process()
    try:
        assert os.getsid(0) == os.getsid(process.pid)  # where Linux compares priorities
        assert process.pid == os.getpgid(process.pid)
    finally:
        process.end()


def test_modules_in_the_current_folder_are_not_those_of_the_process(monkeypatch, tmp_path):
    (tmp_path / "queue.py").write_text("raise ValueError('what the program does not import, nobody does')")
    monkeypatch.chdir(tmp_path)
    process = Process()
    answer = process.ask(None)
    process.end()

    assert isinstance(answer, Answer)


def test_what_is_no_folder_among_those_of_modules(monkeypatch, tmp_path):
    """Python passes over it in silence."""
    monkeypatch.setattr(sys, "path", [tmp_path, *sys.path, None])
    process = Process()
    answer = process.ask(None)
    process.end()

    assert isinstance(answer, Answer)


def test_a_process_that_cannot_be_started(own_compiler, monkeypatch):
    monkeypatch.setattr(sys, "executable", None)
    own_compiler.expect()

    trains_on_after_one_warning("TypeError")


def test_an_answer_of_which_half_arrived():
    """The process was killed as it sent it."""
    stream = io.BytesIO()
    send(stream, "an answer")
    for length in (0, 4, 8, len(stream.getvalue()) - 1):
        with pytest.raises(EOFError):
            receive(io.BytesIO(stream.getvalue()[:length]))


def test_the_disk_is_full(own_compiler, monkeypatch, tmp_path):
    def little_can_be_written():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    popen = partial(subprocess.Popen, preexec_fn=little_can_be_written)
    monkeypatch.setattr("tapeless.background.process.subprocess.Popen", popen)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    trains_on_after_one_warning("File too large")


def test_nothing_is_compiled_for_a_program_that_is_gone(own_compiler, monkeypatch):
    asked, gate = [], threading.Event()

    def answer(order):
        gate.wait()
        asked.append(order)
        return Failure("no order at all")

    monkeypatch.setattr(own_compiler, "_ask", answer)
    first, gone, last = Customer(), Customer(), Customer()
    own_compiler.submit(lambda: "first", first)
    own_compiler.submit(lambda: "gone", gone)
    own_compiler.submit(lambda: "last", last)
    del gone
    gate.set()
    start = time.monotonic()
    while not hasattr(last, "answer"):
        assert time.monotonic() - start < PATIENCE
        time.sleep(0.05)

    assert ["first", "last"] == asked


def test_an_order_that_cannot_be_written(own_compiler):
    """Who ordered it is told, and the next one is served."""
    customers = Customer(), Customer()

    def write():
        raise ValueError("no words")

    for customer in customers:
        own_compiler.submit(write, customer)
    start = time.monotonic()
    while not hasattr(customers[1], "answer"):
        assert time.monotonic() - start < PATIENCE
        time.sleep(0.05)

    assert [Failure("ValueError: no words")] * 2 == [customer.answer for customer in customers]


PROGRAM = """
import os, sys, time, torch
from tapeless.runtime import contest
from tapeless.runtime.program import LIVE, Program
call = torch.compile(lambda x: (x.sin() * x).sum(), backend="tapeless", options={"backend": "auto"})
while contest.COMPILER._process is None:
    call(torch.ones(3, requires_grad=True)).backward()
    time.sleep(0.01)
if sys.argv[2] == "forks" and os.fork() == 0:
    time.sleep(40)
    os._exit(0)
print(contest.COMPILER._process.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("how", ["ends", "is killed", "is killed but forks"])
def test_nothing_runs_on_when_the_program(how):
    seconds = "600" if "killed" in how else "0"
    command = [sys.executable, "-c", PROGRAM, seconds, how.split()[-1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        worker = int(program.stdout.readline())
        if "killed" in how:
            program.kill()
    deadline = time.monotonic() + 30
    while _is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.1)

    assert not _is_running(worker)


def _is_running(process):
    """Is it there, and not merely waiting for somebody to take note of its end?"""
    try:
        return "Z" != Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


# -- what another process compiled -----------------------------------------------------------------------------------

LATER = """
import sys, time, torch
from tapeless.background.process import Process
from tapeless.runtime.statistics import statistics

asked = []
ask = Process.ask
Process.ask = lambda self, order: asked.append(order is not None) or ask(self, order)

def f(x, w):
    return torch.tanh(x @ w).sin().square().sum()

call = torch.compile(f, backend="tapeless", options={"backend": "auto", "cache": sys.argv[1]})
x, w = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_(), torch.linspace(0, 1, 8).view(4, 2).requires_grad_()
end = time.monotonic() + 240
while time.monotonic() < end and "stays" not in str(statistics()):
    found = torch.autograd.grad(call(x, w), (x, w))
torch.testing.assert_close(found, torch.autograd.grad(f(x, w), (x, w)))
print(sum(asked))
"""


def test_what_was_compiled_before_is_found(tmp_path):
    """Not asked for again; compiled again where Inductor's kernels are gone, or the entry is damaged."""

    def orders_in_a_new_process(kernels):
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / kernels)}
        command = [sys.executable, "-W", "ignore", "-c", LATER, str(tmp_path / "cache")]
        return int(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)

    assert [1, 0, 1] == [orders_in_a_new_process(kernels) for kernels in ("first", "first", "second")]

    for entry in (tmp_path / "cache").iterdir():
        entry.write_bytes(entry.read_bytes()[:-10])

    assert 1 == orders_in_a_new_process("first")


def test_a_race_of_microseconds_ends():
    found = Race(watches([3e-6] * 10_000), watches([3e-6] * 10_000))

    assert found.is_over
