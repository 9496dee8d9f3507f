"""A compiled call is an ordinary citizen of autograd: retained graphs, hooks, version checks, memory, threads, copies."""

import contextlib
import copy
import gc
import io
import pickle
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from comparing import BACKEND, Backend, assert_close, assert_values, compiled, leaf, seeded, take_gradients

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


def agree(observation, build=Net):
    """`observation(model, call)` gives the same list of tensors and Nones for eager and compiled."""
    expected, actual = (observation(model, call) for model, call in both(build))
    assert_values(expected, actual)


# --- backward, again and again ----------------------------------------------------------------------------------------


def test_retained_graph():
    def observation(model, call):
        out, h = call(batch())
        out.sum().backward(retain_graph=True)
        first = take_gradients(model.parameters())
        (out.square().sum() + h.sum()).backward(retain_graph=True)
        second = take_gradients(model.parameters())
        h.sum().backward()
        return [*first, *second, *take_gradients(model.parameters())]

    agree(observation)


def test_gradients_accumulate():
    def observation(model, call):
        for seed in range(3):
            call(batch(seed))[0].sum().backward()
        return take_gradients(model.parameters())

    agree(observation)


def test_several_calls_before_their_backwards():
    def observation(model, call):
        outs = [call(batch(seed)) for seed in range(3)]
        outs[1][0].sum().backward()
        found = take_gradients(model.parameters())
        (outs[2][1].prod() + outs[0][0].sum()).backward()
        return found + take_gradients(model.parameters())

    agree(observation)


def test_output_of_one_call_is_input_of_the_next():
    def observation(model, call):
        out, h = call(batch())
        call(h * 2)[0].sum().backward()
        return take_gradients(model.parameters())

    agree(observation)


def test_second_backward_is_refused():
    f = compiled(product)
    out, _ = f(leaf(3, 4), leaf(3, 4))
    out.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()


@pytest.mark.parametrize("changed", ("x", "w"))
def test_change_of_a_saved_tensor_is_noticed(changed):
    x, w = leaf(3, 4) * 1, leaf(3, 4) * 1
    out, _ = compiled(product)(x, w)
    with torch.no_grad():
        (x if changed == "x" else w).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


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


def test_gradient_of_intermediates():
    """What enters a compiled function may itself be computed; gradients stop and pass there as usual."""

    def observation(model, call):
        x = batch().requires_grad_()
        y = x.sin()
        out, h = call(y)
        return [
            *torch.autograd.grad(out.sum(), [y, h], retain_graph=True, allow_unused=True),
            *torch.autograd.grad(h.prod(), [y, x, model.first.weight, model.second.weight], allow_unused=True),
        ]

    agree(observation)


def test_backward_to_some_inputs_only():
    def observation(model, call):
        call(batch())[0].sum().backward(inputs=[model.first.weight])
        return take_gradients(model.parameters())

    agree(observation)


def test_batched_gradients():
    def observation(model, call):
        out, _ = call(batch())
        cotangents = torch.eye(6, dtype=double).view(6, 3, 2)
        return torch.autograd.grad(out, list(model.second.parameters()), cotangents, is_grads_batched=True)

    agree(observation)


# --- hooks ------------------------------------------------------------------------------------------------------------


def test_hooks():
    def observation(model, call):
        seen = []
        model.first.weight.register_hook(lambda g: seen.append(g.clone()))
        model.second.bias.register_hook(lambda g: g * 3)
        model.norm.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        x = batch().requires_grad_()
        out, h = call(x)
        out.register_hook(lambda g: seen.append(g.clone()))
        h.register_hook(lambda g: g * 2)
        h.retain_grad()
        (out.sum() + h.square().sum()).backward()
        return [
            *sorted(seen, key=lambda g: (g.shape, g.sum().item())),
            h.grad,
            x.grad,
            *take_gradients(model.parameters()),
        ]

    agree(observation)


def test_hooks_on_saved_tensors():
    def observation(model, call):
        with torch.autograd.graph.save_on_cpu():
            out, h = call(batch())
        (out.sum() + h.sum()).backward()
        return take_gradients(model.parameters())

    agree(observation)


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


@pytest.mark.parametrize("mode", (torch.no_grad, torch.inference_mode))
def test_without_gradients(mode):
    def observation(model, call):
        with mode():
            out, h = call(batch())
        assert not out.requires_grad
        assert out.is_inference() is (mode is torch.inference_mode)
        return [out.clone(), h.clone()]

    agree(observation)


def test_modes_alternate():
    def observation(model, call):
        found = []
        for mode in (contextlib.nullcontext, torch.no_grad, contextlib.nullcontext, torch.inference_mode) * 2:
            with mode():
                out = call(batch())[0].sum()
            if out.requires_grad:
                out.backward()
            found += [out.detach().clone(), *take_gradients(model.parameters())]
        return found

    agree(observation)


def test_train_and_eval():
    def observation(model, call):
        found = []
        for training in (True, False, True):
            model.train(training)
            out = seeded(5, lambda: call(batch())[0])
            out.sum().backward()
            found += [out, *take_gradients(model.parameters())]
        return found

    agree(observation, lambda: Net(p=0.5))


def test_requires_grad_toggled():
    def observation(model, call):
        found = []
        for step in range(6):
            model.first.requires_grad_(step % 2 == 0)
            model.second.weight.requires_grad_(step % 3 != 1)
            out, h = call(batch(step).requires_grad_(step > 3))
            out.sum().backward()
            found += take_gradients(model.parameters())
        return found

    agree(observation)


def test_compiled_inside_an_eager_model():
    def observation(model, call):
        x = batch()
        for _ in range(2):
            x = F.pad(call(x.relu())[0], (1, 1)) + x
        x.square().sum().backward()
        return take_gradients(model.parameters())

    agree(observation)


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


@pytest.mark.parametrize("steps", (1, 4))
@pytest.mark.parametrize("backward", (True, False))
def test_no_reference_cycles(backward, steps):
    f, w = compiled(product), leaf(3, 4)
    with without_garbage_collection():
        for _ in range(steps):
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


# --- threads and copies -----------------------------------------------------------------------------------------------


def test_two_threads():
    (_, eager), (model, call) = both(lambda: Net(p=0.0))
    parameters = list(model.parameters())
    expected = [
        list(torch.autograd.grad(eager(batch(s))[s % 2].sum(), list(eager.parameters()), allow_unused=True))
        for s in range(40)
    ]
    found, errors = {}, []

    def work(seeds):
        try:
            for s in seeds:
                x = batches[s]
                found[s] = list(torch.autograd.grad(call(x)[s % 2].sum(), parameters, allow_unused=True))
        except Exception as error:
            errors.append(error)

    batches = [batch(s) for s in range(40)]
    threads = [threading.Thread(target=work, args=(range(start, 40, 2),)) for start in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    for s in range(40):
        assert_values(expected[s], found[s], f"batch {s}: gradient")


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


def test_loading_weights_between_steps():
    def observation(model, call):
        call(batch())[0].sum().backward()
        model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()})
        out, _ = call(batch())
        out.sum().backward()
        return [out, *take_gradients(model.parameters())]

    agree(observation)


def test_new_parameters_between_steps():
    def observation(model, call):
        call(batch())[0].sum().backward()
        model.second = seeded(9, lambda: nn.Linear(4, 2).double())
        out, _ = call(batch())
        out.sum().backward()
        return [out, *take_gradients(model.parameters())]

    agree(observation)


def test_two_models_of_one_class_share_nothing():
    backend = Backend()
    models = [seeded(s, Net) for s in range(2)]
    calls = [compiled(m, backend) for m in models]
    for model, call in zip(models, calls, strict=True):
        out, expected = call(batch())[0], model(batch())[0]
        assert_close(expected, out)
        out.sum().backward()
        assert all(p.grad is not None for p in model.parameters())


def test_optimizer_trains_like_eager():
    def observation(model, call):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        for step in range(20):
            out, h = seeded(step, lambda: call(batch(step)))
            (out.square().mean() + h.abs().mean()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach() for p in model.parameters()]

    agree(observation, lambda: Net(p=0.3))
