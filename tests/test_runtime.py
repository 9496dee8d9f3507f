"""A compiled call is an ordinary citizen of autograd: retained graphs, hooks, versions, memory, threads, copies."""

import contextlib
import copy
import gc
import io
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn

from comparing import BACKEND, assert_values, compiled, leaf, seeded, take_gradients
from tapeless.runtime.program import LIVE, MANY

double = torch.float64


class Net(nn.Module):
    def __init__(self, width=4, p=0.0):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, width), nn.LayerNorm(width), nn.Linear(width, 2)
        self.drop = nn.Dropout(p)
        self.double()

    def forward(self, x):
        h = self.drop(self.norm(self.first(x)).tanh())
        return self.second(h), h


def both(build=Net):
    """An eager model and an equal one that is compiled: pairs of (model, what to call)."""
    eager, other = seeded(0, build), seeded(0, build)
    return (eager, eager), (other, torch.compile(other, backend=BACKEND, fullgraph=True))


def batch(seed=0, n=3):
    return seeded(seed, lambda: torch.randn(n, 4, dtype=double))


def product(x, w):
    return (x * w).sum(), (x @ w.t()).tanh()


def same_as_eager(observation, build=Net):
    """The test that `observation(model, call)` gives the same tensors and Nones for eager and compiled."""

    def test():
        expected, actual = (observation(model, call) for model, call in both(build))
        assert_values(list(expected), list(actual))

    test.__name__, test.__doc__ = observation.__name__, observation.__doc__
    return test


def with_dropout(observation):
    return same_as_eager(observation, lambda: Net(p=0.4))


def gradients(model, loss, **options):
    loss.backward(**options)
    return take_gradients(model.parameters())


# --- backward, again and again ----------------------------------------------------------------------------------------


@same_as_eager
def test_retained_graph(model, call):
    out, h = call(batch())
    first = gradients(model, out.sum(), retain_graph=True)
    second = gradients(model, out.square().sum() + h.sum(), retain_graph=True)
    return [*first, *second, *gradients(model, h.sum())]


@same_as_eager
def test_several_calls_before_their_backwards(model, call):
    outs = [call(batch(seed)) for seed in range(3)]
    return gradients(model, outs[1][0].sum()) + gradients(model, outs[2][1].prod() + outs[0][0].sum())


@same_as_eager
def test_output_of_one_call_is_input_of_the_next(model, call):
    _, h = call(batch())
    return gradients(model, call(h * 2)[0].sum())


def test_second_backward_is_refused():
    f = compiled(product)
    out, _ = f(leaf(3, 4), leaf(3, 4))
    out.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()


def test_outputs_may_get_their_gradients_one_after_the_other():
    """Where the program has learned that only the first one gets any."""
    call, x, w, v = (
        compiled(lambda x, w, v: ((x @ w).sin().sum(), (x @ v).cos().sum())),
        *(leaf(4, 4) for _ in range(3)),
    )
    for _ in range(4):
        call(x, w, v)[0].backward()
    first, second = call(x, w, v)
    first.backward()
    v.grad = None
    second.backward()

    torch.testing.assert_close(torch.autograd.grad((x @ v).cos().sum(), v)[0], v.grad)


@pytest.mark.parametrize("changed", ("x", "w"))
def test_change_of_a_saved_tensor_is_noticed(changed):
    x, w = leaf(3, 4) * 1, leaf(3, 4) * 1
    out, _ = compiled(product)(x, w)
    with torch.no_grad():
        (x if changed == "x" else w).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def without_recording(y):
    with torch.no_grad():
        y.mul_(3)


def in_part(y):
    y[0] = 3


@pytest.mark.parametrize("write", [lambda y: y.mul_(3), without_recording, lambda y: y.detach().mul_(3), in_part])
@pytest.mark.parametrize("view", [lambda y: y.view(-1), lambda y: y.mT, lambda y: y[1:]])
def test_a_view_of_an_intermediate_may_be_written_to(view, write):
    """The last of what many models do is a view; nobody else has what it shows."""
    x = leaf(3, 4)

    def gradient(f):
        y, z = f(x)
        write(y)
        return torch.autograd.grad(y.sin().sum() + z.sum(), x)

    def program(x):
        return view(x.sin() * 2), x * x

    torch.testing.assert_close(gradient(compiled(program)), gradient(program))


def test_writing_to_a_view_of_what_is_saved_is_noticed():
    x = leaf(3, 4)
    y = compiled(lambda x: x.exp().mT)(x)
    without_recording(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_change_of_an_output_that_backward_needs_is_noticed():
    x = leaf(3, 4)
    out = compiled(lambda x: x.exp())(x)
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_change_of_a_tensor_that_backward_does_not_need_is_fine():
    x, w = leaf(3) * 1, leaf(3)
    out = compiled(lambda x, w: (x + w).sin().sum())(x, w)
    with torch.no_grad():
        x.zero_()
    out.backward()

    assert w.grad is not None


@same_as_eager
def test_gradient_of_what_enters(model, call):
    """What enters a compiled function may itself be computed; gradients stop and pass there as usual."""
    x = batch().requires_grad_()
    y = x.sin()
    out, h = call(y)
    wrt = [y, x, model.first.weight, model.second.weight]
    one = torch.autograd.grad(out.sum(), wrt, retain_graph=True)
    return [*one, *torch.autograd.grad(h.prod(), wrt, allow_unused=True)]


@same_as_eager
def test_gradient_of_a_returned_intermediate(model, call):
    """`out` was computed from `h`, and both are returned: eager knows the one's gradient in the other."""
    out, h = call(batch())
    return torch.autograd.grad(out.square().sum(), [h, model.second.weight], allow_unused=True)


@same_as_eager
def test_hook_on_a_returned_intermediate(model, call):
    out, h = call(batch())
    h.register_hook(lambda g: g * 2)
    h.retain_grad()
    return [*gradients(model, out.sum() + h.square().sum()), h.grad]


@same_as_eager
def test_backward_to_some_inputs_only(model, call):
    call(batch())[0].sum().backward(inputs=[model.first.weight])
    return take_gradients(model.parameters())


def test_backward_computes_what_is_asked_for_of_many():
    """Above some number of parameters one question stands for all; a part of them is asked for one by one."""
    ways = seeded(0, lambda: [nn.Parameter(torch.randn(3, dtype=double)) for _ in range(2 * MANY)])
    call = compiled(lambda ways, x: [(way * x).sin() for way in ways])
    outs = call(ways, torch.ones(3, dtype=double))
    program = next(p for p in LIVE if len(p.tensor_inputs) == 1 + len(ways))
    loss = torch.stack(outs).sum()
    (part,) = torch.autograd.grad(loss, ways[3], retain_graph=True)
    loss.backward(inputs=ways[:2], retain_graph=True)
    loss.backward()

    assert_values([way.cos() for way in ways], [way.grad / (1 + (k < 2)) for k, way in enumerate(ways)])
    assert_values([ways[3].cos()], [part])
    assert [1, 2, len(ways)] == sorted(sum(wanted) for (_, _, wanted), _ in program.specialized_backwards())


def test_a_tensor_left_over_from_a_transform():
    kept = []
    torch.func.grad(lambda x: (kept.append(x), x.sum())[1])(torch.ones(3, dtype=double))
    w = leaf(3)
    out = compiled(lambda x, w: (x * w).tanh())(kept[0], w)
    out.sum().backward()

    assert_values([1 - w.tanh() ** 2], [w.grad])
    assert_values([w.tanh()], [out])


@same_as_eager
def test_batched_gradients(model, call):
    out, _ = call(batch())
    cotangents = torch.eye(6, dtype=double).view(6, 3, 2)
    return torch.autograd.grad(out, list(model.second.parameters()), cotangents, is_grads_batched=True)


# --- hooks ------------------------------------------------------------------------------------------------------------


@same_as_eager
def test_hooks(model, call):
    seen = {}
    model.first.weight.register_hook(lambda g: seen.update(weight=g.clone()))
    model.second.bias.register_hook(lambda g: g * 3)
    model.norm.weight.register_post_accumulate_grad_hook(lambda p: seen.update(norm=p.grad.clone()))
    x = batch().requires_grad_()
    out, _ = call(x)
    out.register_hook(lambda g: seen.update(out=g.clone()))
    out.register_hook(lambda g: g * 2)
    out.retain_grad()
    return [*gradients(model, out.square().sum()), seen["weight"], seen["norm"], seen["out"], out.grad, x.grad]


@same_as_eager
def test_hooks_on_saved_tensors(model, call):
    with torch.autograd.graph.save_on_cpu():
        out, h = call(batch())
    return gradients(model, out.sum() + h.sum())


def test_saved_tensors_pass_through_hooks():
    packed = []

    def pack(t):
        packed.append(t)
        return len(packed) - 1

    x, w = leaf(3, 4), leaf(3, 4)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda i: packed[i] * 0):
        compiled(lambda x, w: (x * w).sum())(x, w).backward()

    assert packed
    assert not x.grad.any()
    assert not w.grad.any()


# --- modes ------------------------------------------------------------------------------------------------------------


@same_as_eager
def test_inference_mode(model, call):
    with torch.inference_mode():
        out, h = call(batch())
    assert out.is_inference()
    assert not out.requires_grad
    return [out.clone(), h.clone()]


@same_as_eager
def test_modes_alternate(model, call):
    found = []
    for mode in (contextlib.nullcontext, torch.no_grad, contextlib.nullcontext, torch.inference_mode) * 2:
        with mode():
            out = call(batch())[0].sum()
        if out.requires_grad:
            out.backward()
        found += [out.detach().clone(), *take_gradients(model.parameters())]
    return found


@with_dropout
def test_train_and_eval(model, call):
    found = []
    for training in (True, False, True):
        model.train(training)
        out = seeded(5, lambda: call(batch())[0])
        out.sum().backward()
        found += [out, *take_gradients(model.parameters())]
    return found


@same_as_eager
def test_requires_grad_toggled(model, call):
    found = []
    for step in range(6):
        model.first.requires_grad_(step % 2 == 0)
        model.second.weight.requires_grad_(step % 3 != 1)
        out, _ = call(batch(step).requires_grad_(step > 3))
        out.sum().backward()
        found += take_gradients(model.parameters())
    return found


# --- memory -----------------------------------------------------------------------------------------------------------


def resident_megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def live_tensors():
    return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())


@contextlib.contextmanager
def without_garbage_collection():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_a_thousand_steps_hold_memory_flat():
    def step(t):
        x = torch.randn(64, 64)
        out = f(x, w)
        if t % 3:  # some forwards are never followed by a backward
            out[t % 2].sum().backward()
            w.grad = None

    def body(x, w):
        y = (x @ w).tanh() * x
        return y.sum(1), (y * y).exp()

    f, w = compiled(body), torch.randn(64, 64, requires_grad=True)
    for t in range(50):
        step(t)
    gc.collect()
    tensors, megabytes = live_tensors(), resident_megabytes()
    for t in range(1000):
        step(t)
    gc.collect()

    assert live_tensors() <= tensors
    assert resident_megabytes() - megabytes < 8  # one leaked 64x64 float per step would be 16


@pytest.mark.parametrize("backward", (True, False))
def test_no_reference_cycles(backward):
    f, w = compiled(product), leaf(3, 4)
    with without_garbage_collection():
        for _ in range(3):
            x = leaf(3, 4) * 1
            out, other = f(x, w)
            if backward:
                out.backward()
            alive = [weakref.ref(t) for t in (x, out, other)]
            del x, out, other

            assert [r() for r in alive] == [None] * 3


def test_saved_tensors_are_released_by_backward():
    f, w = compiled(lambda x, w: (x * w).sum()), leaf(3, 4)
    for _ in range(3):
        x = torch.randn(3, 4, dtype=double)
        out, alive = f(x, w), weakref.ref(x)
        del x
        assert alive() is not None
        out.backward(retain_graph=True)
        assert alive() is not None
        out.backward()

        assert alive() is None


def test_nothing_is_kept_without_gradients():
    f, w = compiled(product), leaf(3, 4)
    with torch.no_grad(), without_garbage_collection():
        x = torch.randn(3, 4, dtype=double)
        out, alive = f(x, w), weakref.ref(x)
        del x

        assert alive() is None
        assert out[0].grad_fn is None


ADDED = {
    "a view": (lambda x, y: (x + y.view(3, 4)).sin(), (3, 4), (12,)),
    "a transposed one": (lambda x, y: (x + y.t()).sin(), (4, 1), (1, 4)),
    "the same and a view": (lambda x, y, z: (x + y + z[0]).sin(), (3, 4), (3, 4), (1, 3, 4)),
    "two views": (lambda x, y: (x.view(12) + y.view(12)).sin(), (3, 4), (2, 6)),  # eager adds to both, twice
    "parts that overlap": (lambda x, y: (z := x + y.view(3, 4)[:2], z.sin())[1], (2, 4), (12,)),
    "parts": (lambda x, y: torch.cat([x, y]).sin(), (3, 4), (2, 4)),
}


@pytest.mark.parametrize("name", ADDED)
def test_gradients_are_added_up_one_by_one(name):
    """The gradients of what is added are the same numbers; what is added to one of them is not added to the other."""
    function, *shapes = ADDED[name]
    call, leaves = compiled(function), [leaf(*shape) for shape in shapes]
    once = torch.autograd.grad(function(*leaves).sum(), leaves)
    for _ in range(3):
        call(*leaves).sum().backward()

    assert_values([3 * g for g in once], [x.grad for x in leaves], "gradient")


def test_parts_of_one_gradient_are_not_copied():
    x, y = leaf(3, 4), leaf(2, 4)
    compiled(lambda x, y: torch.cat([x, y]).sin())(x, y).sum().backward()

    assert x.grad.untyped_storage().data_ptr() == y.grad.untyped_storage().data_ptr()


# --- threads and copies -----------------------------------------------------------------------------------------------


def test_two_threads():
    """Each thread uses the other output every time, so masks of undefined cotangents change under way."""
    (eager, _), (model, call) = both()
    batches = [batch(s) for s in range(40)]
    found, errors = {}, []

    def gradient(f, parameters, s):
        return torch.autograd.grad(f(batches[s])[s // 2 % 2].sum(), list(parameters), allow_unused=True)

    def work(seeds):
        try:
            found.update({s: gradient(call, model.parameters(), s) for s in seeds})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(range(start, 40, 2),)) for start in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    for s in range(40):
        assert_values(list(gradient(eager, eager.parameters(), s)), list(found[s]), f"batch {s}: gradient")


def test_deepcopy():
    (eager, _), (model, call) = both()
    call(batch())[0].sum().backward()
    model.zero_grad()
    twin = copy.deepcopy(call)
    with torch.no_grad():
        model.first.weight.zero_()
    twin(batch())[0].sum().backward()
    eager(batch())[0].sum().backward()

    assert_values(take_gradients(eager.parameters()), take_gradients(twin.parameters()), "gradient")
    assert model.first.weight.grad is None


def test_pickle():
    (eager, _), (model, _) = both()
    model.compile(backend=BACKEND)
    model(batch())[0].sum().backward()
    model.zero_grad()
    for restored in (pickle.loads(pickle.dumps(model)), reloaded(model)):
        assert_values(list(eager(batch())), list(restored(batch())), "output")


def reloaded(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = Net()
    fresh.load_state_dict(torch.load(file))
    return fresh
