"""train_step: forward, backward and update in one program, equal to eager step by step."""

import copy
import gc
import logging
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import tapeless
from tapeless.training import compiled

optim = torch.optim

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, 0.1),
    "sgd with momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, maximize=True),
    "sgd with dampening": lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.5),
    "adam": lambda p: optim.Adam(p, 1e-2, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, 1e-2, weight_decay=0.1, betas=(0.8, 0.9)),
    "amsgrad": lambda p: optim.AdamW(p, 1e-2, amsgrad=True),
    "adagrad": lambda p: optim.Adagrad(p, 1e-2, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.1),
    "rmsprop": lambda p: optim.RMSprop(p, 1e-3),
    "centered rmsprop": lambda p: optim.RMSprop(p, 1e-3, momentum=0.9, centered=True, weight_decay=0.1, maximize=True),
    "lion": lambda p: tapeless.Lion(p, 1e-3, weight_decay=0.1),
    "an optimizer that steps itself": lambda p: optim.NAdam(p, 1e-3),
}


class Net(nn.Module):
    """A trunk with batch norm, a head in use and one that is not.

    No bias before the norm: its gradient is zero but for rounding, of which Lion would take the sign.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(5, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh())
        self.used, self.unused = nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, x):
        h = self.trunk(x)
        return self.used(h), self.unused(h)


def cross_entropy(model, x, y):
    return F.cross_entropy(model(x)[0], y)


def net(seed=0):
    torch.manual_seed(seed)
    return Net().double()


def batches(count, size=7):
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(size, 5, dtype=torch.float64, generator=generator),
            torch.randint(0, 3, (size,), generator=generator),
        )
        for _ in range(count)
    ]


def eager_step(model, optimizer, x, y, loss=cross_entropy):
    optimizer.zero_grad()
    value = loss(model, x, y)
    value.backward()
    optimizer.step()
    return value.detach()


def assert_equal_states(expected, actual):
    torch.testing.assert_close(actual[0].state_dict(), expected[0].state_dict())
    torch.testing.assert_close(actual[1].state_dict(), expected[1].state_dict())


def pair(make):
    eager, ours = net(), net()
    return (eager, make(eager.parameters())), (ours, make(ours.parameters()))


@pytest.mark.parametrize("backend", ["python", "inductor"])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_equal_to_eager_step_by_step(make, backend):
    eager, ours = pair(make)
    step = tapeless.train_step(ours[0], cross_entropy, ours[1], backend=backend)
    for x, y in batches(4):
        torch.testing.assert_close(step(x, y), eager_step(*eager, x, y))
        assert_equal_states(eager, ours)

    assert all(p.grad is None for p in ours[0].parameters())


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("backend", ["python", "auto", "inductor"])
def test_updated_piece_by_piece(backend, accumulate, monkeypatch):
    """Large models: every few gradients are updated in a call of their own."""
    monkeypatch.setattr(tapeless.training.program, "CHUNK", 40)
    eager, ours = pair(OPTIMIZERS["adamw"])
    step = tapeless.train_step(ours[0], cross_entropy, ours[1], accumulate=accumulate, backend=backend)
    for k, (x, y) in enumerate(batches(4)):
        cross_entropy(eager[0], x, y).backward()
        step(x, y)
        if k % accumulate == accumulate - 1:
            eager[1].step()
            eager[1].zero_grad()
        assert_equal_states(eager, ours)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.1},
        {"momentum": 0.9, "nesterov": True, "maximize": True},
    ],
    ids=["plain", "momentum", "nesterov"],
)
@pytest.mark.parametrize("backend", ["python", "inductor"])
def test_sgd_beside_parameters_of_half_precision(settings, backend):
    """Torch's fused kernel computes nonsense of these, from 16 numbers on."""

    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 7), nn.Linear(7, 5).bfloat16())

    def loss(model, x):
        return model[1](model[0](x).bfloat16()).float().square().mean()

    eager, ours, x = make(), make(), torch.randn(3, 6)
    theirs, mine = (optim.SGD(model.parameters(), 0.1, **settings) for model in (eager, ours))
    step = tapeless.train_step(ours, loss, mine, backend=backend)
    for _ in range(3):
        eager_step(eager, theirs, x, None, lambda model, x, _: loss(model, x))
        step(x)

    for expected, actual in zip(eager.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-2, atol=1e-2)


def test_schedules_groups_and_frozen_parameters():
    def make(model):
        groups = [{"params": model.trunk.parameters(), "lr": 1e-2}, {"params": model.used.parameters()}]
        optimizer = optim.AdamW(groups, lr=1e-3)
        return optimizer, optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[1e-1, 1e-2], total_steps=8)

    eager, ours = net(), net()
    (a, schedule_a), (b, schedule_b) = make(eager), make(ours)
    step = tapeless.train_step(ours, cross_entropy, b)
    for k, (x, y) in enumerate(batches(6)):
        for model in (eager, ours):
            model.trunk[0].weight.requires_grad_(k >= 3)
        eager_step(eager, a, x, y)
        step(x, y)
        schedule_a.step()
        schedule_b.step()
        assert_equal_states((eager, a), (ours, b))


@pytest.mark.parametrize("name", ["adamw", "adagrad", "rmsprop"])
def test_counters_are_of_the_default_type(name):
    torch.set_default_dtype(torch.float64)
    try:
        eager, ours = pair(OPTIMIZERS[name])
        x, y = batches(1)[0]
        eager_step(*eager, x, y)
        tapeless.train_step(ours[0], cross_entropy, ours[1])(x, y)
    finally:
        torch.set_default_dtype(torch.float32)

    assert_equal_states(eager, ours)


def test_a_state_without_momentum_yet():
    """As plain SGD kept it in earlier versions of torch."""
    eager, ours = pair(OPTIMIZERS["sgd with momentum"])
    for model, optimizer in (eager, ours):
        for p in model.parameters():
            optimizer.state[p]["momentum_buffer"] = None
    step = tapeless.train_step(ours[0], cross_entropy, ours[1])
    for x, y in batches(2):
        eager_step(*eager, x, y)
        step(x, y)

    torch.testing.assert_close(list(ours[0].parameters()), list(eager[0].parameters()))


def test_what_others_keep_beside_the_state():
    eager, ours = pair(OPTIMIZERS["sgd with momentum"])
    for model, optimizer in (eager, ours):
        for p in model.parameters():
            optimizer.state[p]["slow"] = p.detach().clone()
    step = tapeless.train_step(ours[0], cross_entropy, ours[1])
    for x, y in batches(2):
        eager_step(*eager, x, y)
        step(x, y)

    assert_equal_states(eager, ours)


def test_training_goes_on_from_a_state_dict():
    eager, ours = pair(OPTIMIZERS["adamw"])
    step = tapeless.train_step(ours[0], cross_entropy, ours[1])
    data = batches(4)
    for x, y in data[:2]:
        eager_step(*eager, x, y)
        step(x, y)
    ours[1].load_state_dict(copy.deepcopy(eager[1].state_dict()))
    for x, y in data[2:]:
        eager_step(*eager, x, y)
        step(x, y)

    assert_equal_states(eager, ours)


def replaced_head(model, optimizer):
    """By a layer of the same type, which the optimizer does not know."""
    torch.manual_seed(3)
    model.used = nn.Linear(6, 3).double()


def exchanged_groups(model, optimizer):
    """Of one weight with another."""
    first, second = (group["params"] for group in optimizer.param_groups)
    first[0], second[0] = second[0], first[0]


@pytest.mark.parametrize("change", [replaced_head, exchanged_groups])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_what_the_optimizer_trains_is_asked_at_each_step(name, change):
    def groups(model):
        return [{"params": list(model.trunk.parameters())}, {"params": list(model.used.parameters()), "lr": 0.3}]

    eager, ours = ((model, OPTIMIZERS[name](groups(model))) for model in (net(), net()))
    step = tapeless.train_step(ours[0], cross_entropy, ours[1])
    for k, (x, y) in enumerate(batches(4)):
        if k == 2:
            change(*eager)
            change(*ours)
        eager_step(*eager, x, y)
        step(x, y)
        assert_equal_states(eager, ours)


@pytest.mark.parametrize("backend", ["python", "inductor"])
def test_clipped_gradients(backend):
    eager, ours = pair(OPTIMIZERS["sgd"])
    step = tapeless.train_step(ours[0], cross_entropy, ours[1], clip_norm=0.01, backend=backend)
    for x, y in batches(3):
        eager[1].zero_grad()
        cross_entropy(eager[0], x, y).backward()
        nn.utils.clip_grad_norm_(eager[0].parameters(), 0.01)
        eager[1].step()
        step(x, y)

    assert_equal_states(eager, ours)


@pytest.mark.parametrize("name", ["sgd with momentum", "adamw", "lion"])
def test_the_clipped_gradient_of_a_number_keeps_its_type(name):
    """The norm is of the widest type of all gradients."""

    def make():
        torch.manual_seed(0)
        model = nn.Linear(4, 3).double()
        model.scale = nn.Parameter(torch.tensor(1.5))
        return model

    def loss(model, x):
        return (model(x) * model.scale.double()).square().mean()

    eager, ours, x = make(), make(), torch.randn(2, 4, dtype=torch.float64)
    theirs, mine = (OPTIMIZERS[name](model.parameters()) for model in (eager, ours))
    step = tapeless.train_step(ours, loss, mine, clip_norm=0.1)
    for _ in range(3):
        theirs.zero_grad()
        loss(eager, x).backward()
        nn.utils.clip_grad_norm_(eager.parameters(), 0.1)
        theirs.step()
        step(x)
        assert_equal_states((eager, theirs), (ours, mine))


@pytest.mark.parametrize("backend", ["python", "inductor"])
@pytest.mark.parametrize("name", ["adamw", "an optimizer that steps itself"])
def test_accumulated_gradients(name, backend):
    eager, ours = pair(OPTIMIZERS[name])
    step = tapeless.train_step(ours[0], cross_entropy, ours[1], accumulate=3, backend=backend)
    for k, (x, y) in enumerate(batches(7)):
        cross_entropy(eager[0], x, y).backward()
        step(x, y)
        if k % 3 == 2:
            eager[1].step()
            eager[1].zero_grad()
        assert_equal_states(eager, ours)


def either_head(model, x, y):
    """Even batches train one head, odd ones the other."""
    trunk = model.trunk(x)
    return F.cross_entropy(model.used(trunk) if model.even else model.unused(trunk), y % 2)


@pytest.mark.parametrize("backend", ["python", "inductor"])
@pytest.mark.parametrize("clip", [None, 0.1], ids=["", "clipped"])
@pytest.mark.parametrize("name", ["adamw", "an optimizer that steps itself"])
def test_accumulated_gradients_of_which_the_last_call_has_none(name, clip, backend):
    """They are those of another head, and of a weight that was frozen in the meantime."""
    eager, ours = pair(OPTIMIZERS[name])
    step = tapeless.train_step(ours[0], either_head, ours[1], accumulate=2, clip_norm=clip, backend=backend)
    for k, (x, y) in enumerate(batches(5)):
        for model in (eager[0], ours[0]):
            model.even = k % 2 == 0
            model.trunk[0].weight.requires_grad_(k != 3)
        either_head(eager[0], x, y).backward()
        step(x, y)
        if k % 2 == 1:
            if clip is not None:
                nn.utils.clip_grad_norm_(eager[0].parameters(), clip)
            eager[1].step()
            eager[1].zero_grad()
        assert_equal_states(eager, ours)


@pytest.mark.parametrize("backend", ["python", "inductor"])
def test_a_call_that_raises_does_not_count(backend):
    eager, ours = pair(OPTIMIZERS["adamw"])
    step = tapeless.train_step(ours[0], cross_entropy, ours[1], accumulate=2, backend=backend)
    first, second = batches(2)
    cross_entropy(eager[0], *first).backward()
    step(*first)
    with pytest.raises((IndexError, RuntimeError)):
        step(second[0], second[1] + 7)
    cross_entropy(eager[0], *second).backward()
    eager[1].step()
    step(*second)

    assert_equal_states(eager, ours)


@pytest.mark.parametrize("name", ["adamw", "an optimizer that steps itself"])
def test_hooks_on_the_gradients_of_parameters(name):
    def hook(model):
        model.used.weight.register_hook(lambda g: g * 3)
        model.used.bias.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad.sign()))

    eager, ours = pair(OPTIMIZERS[name])
    step = tapeless.train_step(ours[0], cross_entropy, ours[1], clip_norm=0.1)
    for k, (x, y) in enumerate(batches(4)):
        if k == 2:
            hook(eager[0])
            hook(ours[0])
        eager[1].zero_grad()
        cross_entropy(eager[0], x, y).backward()
        nn.utils.clip_grad_norm_(eager[0].parameters(), 0.1)
        eager[1].step()
        step(x, y)
        assert_equal_states(eager, ours)


def test_hooks_on_gradients_that_are_added_up_are_refused():
    model = net()
    model.used.weight.register_hook(lambda g: g * 2)
    step = tapeless.train_step(model, cross_entropy, optim.SGD(model.parameters(), 0.1), accumulate=2)
    with pytest.raises(tapeless.errors.Unsupported, match="hook"):
        step(*batches(1)[0])


def test_gradients_that_somebody_left_are_not_taken_for_those_of_the_step():
    eager, ours = pair(OPTIMIZERS["an optimizer that steps itself"])
    for p in ours[0].parameters():
        p.grad = torch.ones_like(p)
    x, y = batches(1)[0]
    tapeless.train_step(ours[0], cross_entropy, ours[1])(x, y)
    eager_step(*eager, x, y)

    assert_equal_states(eager, ours)


def test_an_optimizer_that_asks_for_the_loss_is_refused():
    model = net()
    with pytest.raises(tapeless.errors.Unsupported, match="LBFGS"):
        tapeless.train_step(model, cross_entropy, optim.LBFGS(model.parameters()))


def test_other_batch_sizes_and_modes():
    eager, ours = pair(OPTIMIZERS["adamw"])
    step = tapeless.train_step(ours[0], cross_entropy, ours[1])
    for size, training in ((7, True), (4, True), (9, False), (7, True)):
        eager[0].train(training)
        ours[0].train(training)
        for x, y in batches(1, size):
            torch.testing.assert_close(step(x, y), eager_step(*eager, x, y))

    assert_equal_states(eager, ours)


def test_a_loss_module_a_loss_of_the_models_own_and_results_beside_the_loss():
    x, y = batches(1)[0]
    sequential = nn.Sequential(nn.Linear(5, 3)).double()
    twin = copy.deepcopy(sequential)
    by_module = tapeless.train_step(sequential, nn.CrossEntropyLoss(), optim.SGD(sequential.parameters(), 0.1))

    torch.testing.assert_close(by_module(x, y), F.cross_entropy(twin(x), y).detach())

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = copy.deepcopy(twin)

        def forward(self, x, y):
            scores = self.inner(x)
            return F.cross_entropy(scores, y), scores

    own = Own()
    expected = own(x, y)
    loss, scores = tapeless.train_step(own, None, optim.SGD(own.parameters(), 0.1))(x, y)

    torch.testing.assert_close((loss, scores), tuple(t.detach() for t in expected))
    assert not loss.requires_grad
    assert not scores.requires_grad


@dataclass
class Report:
    """Dynamo makes the values of such an object results of the graph, before what the function returns."""

    size: torch.Tensor
    loss: torch.Tensor


def returning_a_report(model, x, y):
    scores = model(x)[0]
    report = Report(scores.square().sum(), F.cross_entropy(scores, y))
    return report.loss, report


def leaving_a_report(model, x, y):
    loss, model.report = returning_a_report(model, x, y)
    return loss


def the_report_itself(model, x, y):
    return returning_a_report(model, x, y)[1]


@pytest.mark.parametrize("loss", [returning_a_report, leaving_a_report, the_report_itself])
def test_objects_made_beside_the_loss(loss):
    eager, ours = pair(OPTIMIZERS["sgd"])
    step = tapeless.train_step(ours[0], loss, ours[1])
    for x, y in batches(2):
        step(x, y)
        eager_step(*eager, x, y)
        assert_equal_states(eager, ours)


LOG = logging.getLogger(__name__)


def logged(model, x, y):
    LOG.warning("a batch of %d", len(x))
    return cross_entropy(model, x, y)


def test_what_is_logged_is_no_part_of_a_step():
    """Models of libraries warn of their settings where the loss is computed."""
    eager, ours = pair(OPTIMIZERS["sgd"])
    step = tapeless.train_step(ours[0], logged, ours[1])
    for x, y in batches(2):
        step(x, y)
        eager_step(*eager, x, y)
        assert_equal_states(eager, ours)


def penalized(model, x, y):
    leaf = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(model(leaf)[0].square().sum(), leaf, create_graph=True)
    return cross_entropy(model, x, y) + (slope.norm(dim=1) - 1).square().mean()


def test_a_gradient_penalty():
    """The leaf is the loss's own; nobody else can ask for its gradient."""
    eager, ours = pair(lambda parameters: optim.Adam(parameters, 1e-2))
    step = tapeless.train_step(ours[0], penalized, ours[1])
    for x, y in batches(4):
        torch.testing.assert_close(step(x, y), eager_step(*eager, x, y, penalized))
        assert_equal_states(eager, ours)


def test_weight_decay_leaves_an_unused_head_alone():
    model = net()
    before = {name: p.clone() for name, p in model.unused.named_parameters()}
    step = tapeless.train_step(model, cross_entropy, optim.AdamW(model.parameters(), 0.1, weight_decay=0.5))
    for x, y in batches(2):
        step(x, y)

    assert all(torch.equal(before[name], p) for name, p in model.unused.named_parameters())


@pytest.mark.parametrize("name", ["sgd with momentum", "adamw", "rmsprop"])
@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_parameters_without_numbers(name):
    """Which are all at the same place in memory: none."""

    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 0)).double()

    def loss(model, x, y):
        return F.cross_entropy(model[0](x), y) + model(x).sum()

    eager, ours = make(), make()
    theirs, mine = (OPTIMIZERS[name](model.parameters()) for model in (eager, ours))
    step = tapeless.train_step(ours, loss, mine)
    for x, y in batches(3):
        torch.testing.assert_close(step(x, y), eager_step(eager, theirs, x, y, loss))
        assert_equal_states((eager, theirs), (ours, mine))


@pytest.mark.parametrize("backend", ["python", "inductor"])
@pytest.mark.parametrize("name", ["sgd", "adamw", "adagrad", "lion"])
def test_what_was_computed_before_a_step_is_not_differentiated_after_it(name, backend):
    """As in eager, where the optimizer writes to what autograd saved."""
    model = net().eval()
    step = tapeless.train_step(model, cross_entropy, OPTIMIZERS[name](model.parameters()), backend=backend)
    (x, y), (leaf, _) = batches(2)
    earlier = cross_entropy(model, leaf.requires_grad_(), y)
    step(x, y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        earlier.backward()


class Images(nn.Module):
    """Weights in two memory formats, whose gradients a compiler may lay out as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3)
        self.second.to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.second(self.first(x).relu()).square().mean()


@pytest.mark.parametrize("backend", ["python", "inductor"])
def test_gradients_are_laid_out_as_their_parameters(backend):
    torch.manual_seed(0)
    eager = Images().double()
    ours, x = copy.deepcopy(eager), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    theirs, mine = (optim.AdamW(model.parameters(), 0.1) for model in (eager, ours))
    step = tapeless.train_step(ours, None, mine, backend=backend)
    for _ in range(3):
        torch.testing.assert_close(step(x), eager_step(eager, theirs, x, None, lambda model, x, _: model(x)))

    assert_equal_states((eager, theirs), (ours, mine))


class Product(torch.autograd.Function):
    """Its backward returns what it saved, as it is."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return (a * b).sum()

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return b, a


@pytest.mark.parametrize("backend", ["python", "inductor"])
@pytest.mark.parametrize("clip", [None, 0.1], ids=["", "clipped"])
@pytest.mark.parametrize("name", ["sgd", "adamw", "an optimizer that steps itself"])
def test_parameters_that_a_backward_returns(name, clip, backend):
    torch.manual_seed(0)
    eager = Factors().double()
    ours = copy.deepcopy(eager)
    theirs, mine = (OPTIMIZERS[name](model.parameters()) for model in (eager, ours))

    def loss(model):
        return Product.apply(model.a, model.b)

    step = tapeless.train_step(ours, loss, mine, clip_norm=clip, backend=backend)
    for _ in range(3):
        theirs.zero_grad()
        loss(eager).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(eager.parameters(), clip)
        theirs.step()
        step()
        assert_equal_states((eager, theirs), (ours, mine))


class Mirrored(nn.Module):
    """The second weight is also read through another tensor on the same memory, which nobody trains."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(5, 5) for _ in range(3))
        self.double()
        self.register_buffer("mirror", self.second.weight.data, persistent=False)

    def forward(self, x):
        mirrored = torch.tanh(torch.tanh(self.first(x)) @ self.mirror)
        return (self.third(torch.tanh(self.second(mirrored))),)


@pytest.mark.parametrize("chunk", [1, 4 * 2**20])
@pytest.mark.parametrize("backend", ["python", "inductor"])
def test_a_weight_is_updated_when_it_is_read_no_more_by_any_name(backend, chunk, monkeypatch):
    monkeypatch.setattr(tapeless.training.program, "CHUNK", chunk)
    torch.manual_seed(0)
    eager = Mirrored()
    torch.manual_seed(0)
    ours = Mirrored()
    theirs, mine = (OPTIMIZERS["sgd with momentum"](model.parameters()) for model in (eager, ours))
    step = tapeless.train_step(ours, cross_entropy, mine, backend=backend)
    for x, y in batches(3):
        eager_step(eager, theirs, x, y)
        step(x, y)
        assert_equal_states((eager, theirs), (ours, mine))


FUSED = ("sgd with momentum", "adamw", "adagrad", "centered rmsprop")


@pytest.mark.parametrize("name", FUSED)
def test_weights_that_change_their_layout_while_they_are_trained(name):
    """What the optimizer keeps for them lies in memory as they did before."""
    torch.manual_seed(0)
    eager = Images().double()
    ours = copy.deepcopy(eager)
    theirs, mine = (OPTIMIZERS[name](model.parameters()) for model in (eager, ours))
    step, x = tapeless.train_step(ours, None, mine), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    for k in range(4):
        if k == 2:
            eager.first.to(memory_format=torch.channels_last)
            ours.first.to(memory_format=torch.channels_last)
        eager_step(eager, theirs, x, None, lambda model, x, _: model(x))
        step(x)
        assert_equal_states((eager, theirs), (ours, mine))


class Columns(nn.Module):
    """A weight with gaps between its rows: part of a larger block."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 24, dtype=torch.float64).view(3, 8)[:, :4])

    def forward(self, x):
        return (x @ self.weight.t()).square().mean()


@pytest.mark.parametrize("name", FUSED)
def test_weights_with_gaps(name):
    eager, ours = Columns(), Columns()
    theirs, mine = (OPTIMIZERS[name](model.parameters()) for model in (eager, ours))
    step, x = tapeless.train_step(ours, None, mine), torch.randn(2, 4, dtype=torch.float64)
    for _ in range(3):
        eager_step(eager, theirs, x, None, lambda model, x, _: model(x))
        step(x)
        assert_equal_states((eager, theirs), (ours, mine))


class Factors(nn.Module):
    """Parameters that are each other's gradients, and parameters whose gradients are one and the same."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Parameter(torch.randn(3, 3)) for _ in range(4))

    def forward(self, x):
        return ((self.a * self.b.t()) + self.c + self.d).sum() + 0 * x.sum()


@pytest.mark.parametrize("backend", ["python", "inductor"])
@pytest.mark.parametrize("name", ["sgd with momentum", "an optimizer that steps itself"])
def test_gradients_that_share_memory(name, backend):
    torch.manual_seed(0)
    eager = Factors().double()
    ours, x = copy.deepcopy(eager), torch.ones(2, dtype=torch.float64)
    theirs, mine = (OPTIMIZERS[name](model.parameters()) for model in (eager, ours))
    step = tapeless.train_step(ours, None, mine, clip_norm=0.5, backend=backend)
    for _ in range(3):
        theirs.zero_grad()
        eager(x).backward()
        nn.utils.clip_grad_norm_(eager.parameters(), 0.5)
        theirs.step()
        step(x)

    assert_equal_states((eager, theirs), (ours, mine))


@pytest.mark.parametrize("backend", ["python", "inductor"])
def test_parameters_that_are_each_others_gradients(backend):
    torch.manual_seed(0)
    eager = Factors().double()
    ours, x = copy.deepcopy(eager), torch.ones(2, dtype=torch.float64)
    theirs, mine = (optim.SGD(model.parameters(), 0.5) for model in (eager, ours))
    step = tapeless.train_step(ours, None, mine, backend=backend)
    for _ in range(3):
        step(x)
        eager_step(eager, theirs, x, None, lambda model, x, _: model(x))

    assert_equal_states((eager, theirs), (ours, mine))


@pytest.mark.parametrize("backend", ["python", "inductor"])
def test_a_head_that_the_loss_does_not_read_is_not_computed(backend):
    model = net()
    step = tapeless.train_step(model, cross_entropy, optim.SGD(model.parameters(), 0.1), backend=backend)
    step(*batches(1)[0])

    assert 1 == str(step).count("torch.addmm(")


def test_options_are_those_of_compile():
    model = net()
    with pytest.raises(tapeless.errors.BadOption, match="unknown option color"):
        tapeless.train_step(model, cross_entropy, optim.SGD(model.parameters(), 0.1), color="blue")


def test_a_hook_on_the_optimizer_is_called():
    model = net()
    optimizer = optim.SGD(model.parameters(), 0.1)
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    tapeless.train_step(model, cross_entropy, optimizer)(*batches(1)[0])

    assert [1] == seen


def test_a_hook_on_all_optimizers_is_called():
    model, seen = net(), []
    optimizer = optim.SGD(model.parameters(), 0.1)
    step = tapeless.train_step(model, cross_entropy, optimizer)
    handle = register_optimizer_step_post_hook(lambda *_: seen.append(1))
    step(*batches(1)[0])
    handle.remove()

    assert [1] == seen


def test_a_step_that_torch_would_not_compile_is_refused():
    """In eager there would be a loss, and nothing trained."""
    model = net()
    step = tapeless.train_step(model, cross_entropy, optim.SGD(model.parameters(), 0.1))
    with torch.compiler.set_stance("force_eager"), pytest.raises(tapeless.errors.Unsupported, match="set_stance"):
        step(*batches(1)[0])


def test_nothing_that_a_step_was_called_with_is_held():
    model = net()
    step = tapeless.train_step(model, cross_entropy, optim.SGD(model.parameters(), 0.1))
    data = batches(2)
    freed = [weakref.ref(x) for x, _ in data]
    while data:
        step(*data.pop())
    gc.collect()

    assert [None, None] == [x() for x in freed]


def test_threads_take_turns(monkeypatch):
    """A call that begins while another ends does not hide that the other one trained."""
    eager, ours = pair(OPTIMIZERS["sgd"])
    step = tapeless.train_step(ours[0], cross_entropy, ours[1])
    x, y = batches(1)[0]
    step(x, y)
    inner, trained, begun = step._call, threading.Event(), threading.Event()

    def first(*batch):
        found = inner(*batch)
        trained.set()
        begun.wait(0.5)
        return found

    def second(*batch):
        begun.set()
        time.sleep(0.2)
        return inner(*batch)

    calls = iter((first, second))
    monkeypatch.setattr(step, "_call", lambda *batch: next(calls)(*batch))
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(step, x, y)
        trained.wait()
        other = pool.submit(step, x, y)
        losses = [one.result(), other.result()]
    expected = [eager_step(*eager, x, y) for _ in range(3)]

    torch.testing.assert_close(losses, expected[1:])
    assert_equal_states(eager, ours)


def test_the_program_is_printed_and_runs_as_printed():
    model = net()
    step = tapeless.train_step(model, cross_entropy, optim.AdamW(model.parameters()))
    step(*batches(1)[0])

    assert "_fused_adamw_" in str(step)
    compile(str(step), "step.py", "exec")


def test_of_a_compiled_step_the_update_is_printed_apart():
    model = net()
    step = tapeless.train_step(model, cross_entropy, optim.AdamW(model.parameters()), backend="inductor")
    step(*batches(1)[0])
    compute, update = str(step).split("def update(args):")

    assert "def train_step(args):" in compute
    assert "_fused_adamw_" in update
    assert "_fused_adamw_" not in compute


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda model, x, y: model(x)[0], "shape"),
        (lambda model, x, y: (x * 2).sum(), "no parameter"),
        (lambda model, x, y: {"size": model(x)[0].sum(), "loss": cross_entropy(model, x, y)}, "no tensor"),
        (lambda model, x, y: (1.0, cross_entropy(model, x, y)), "no tensor"),
        (lambda model, x, y: cross_entropy(model, x, y).detach(), "requires no gradient"),
        (lambda model, x, y: cross_entropy(model, x, y) * 1j, "complex"),
    ],
)
def test_a_loss_that_cannot_be_trained_is_refused(loss, words):
    model = net()
    step = tapeless.train_step(model, loss, optim.SGD(model.parameters(), 0.1))
    with pytest.raises(Exception, match=words):
        step(*batches(1)[0])


class Recurrent(nn.Module):
    """A recurrent layer, which Dynamo traces only when it is told to."""

    def __init__(self, kind, **settings) -> None:
        super().__init__()
        self.layer, self.head = kind(4, 3, batch_first=True, **settings), nn.LazyLinear(2)

    def forward(self, x):
        return self.head(self.layer(x)[0])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind):
    torch.manual_seed(0)
    x, y = torch.randn(2, 5, 4, dtype=torch.float64), torch.randn(2, 5, 2, dtype=torch.float64)
    eager = Recurrent(kind, num_layers=2, bidirectional=True).double()
    eager(x)
    ours = copy.deepcopy(eager)
    theirs = optim.SGD(eager.parameters(), 0.1)
    step = tapeless.train_step(
        ours, lambda m, x, y: F.mse_loss(m(x), y), optim.SGD(ours.parameters(), 0.1), backend="python"
    )
    for _ in range(3):
        theirs.zero_grad()
        expected = F.mse_loss(eager(x), y)
        expected.backward()
        theirs.step()

        torch.testing.assert_close(expected, step(x, y))
    torch.testing.assert_close(list(eager.parameters()), list(ours.parameters()))
    assert not torch._dynamo.config.allow_rnn


def test_the_last_small_gradient_is_held():
    """Of gradients that are parts of a large block, or large, none."""
    block = torch.zeros(4, 8)
    parts, large = list(block), torch.zeros(compiled.SMALL)

    assert compiled._last_in_memory([parts[0], parts[3], parts[1], large])[0] is parts[3]
    assert [] == compiled._last_in_memory([large, large[:2]])
