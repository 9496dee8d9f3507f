"""What is made of weights alone is kept where no derivative is asked: and never after somebody has written to them."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tapeless
from tapeless.errors import BadOption
from tapeless.options import Options
from tapeless.pipeline import preparation, trace
from tapeless.runtime import kept


class Network(nn.Module):
    """Batch norms to fold, convolutions and products to pack, linear maps to fuse."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.query, self.key, self.value = (nn.Linear(8 * 16, 8 * 16) for _ in range(3))
        self.stem[1].running_mean.uniform_(-1, 1)
        self.stem[1].running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = self.stem(x).flatten(1)
        return F.softmax(self.query(y) * self.key(y), -1) * self.value(y)


EVERYTHING = "fold_batch_norm!, pack_convolutions!, pack_linears!, fuse_parallel_linears!"


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Network().eval()


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(5, 3, 6, 6)


@pytest.fixture
def made(monkeypatch):
    """A list that grows whenever something is made of weights."""
    calls = []
    plain = kept.Kept.__init__

    def counting(self, weights, make, *rest):
        plain(self, weights, lambda args: calls.append(1) or make(args), *rest)

    monkeypatch.setattr(kept.Kept, "__init__", counting)
    return calls


def inference(model, **options):
    compiled = torch.compile(
        model, backend="tapeless", options={"prepare": EVERYTHING, "backend": "python", "cache": False, **options}
    )

    def call(*args):
        with torch.no_grad():
            return compiled(*args)

    return call


def optimize(model, optimizer):
    model(torch.randn(4, 3, 6, 6)).square().sum().backward()
    optimizer(model.parameters()).step()
    model.zero_grad()


def swap(model):
    model.query.weight.data, model.key.weight.data = model.key.weight.data, model.query.weight.data


def write_by_numpy(model):
    model.stem[0].weight.detach().numpy()[:] = 0.5


def from_file(model, other):
    model.load_state_dict(other.state_dict())


def scale_row(model):
    with torch.no_grad():
        model.value.weight[3, 4:7].mul_(3)


def under_inference_mode(model):
    with torch.inference_mode():
        model.stem[1].running_mean.add_(1)


WRITES = {
    "in place": lambda m: nn.init.normal_(m.stem[0].weight),
    "through .data": lambda m: m.query.weight.data.mul_(-1),
    "through .data, permuted": lambda m: m.query.weight.data.copy_(m.query.weight.data.flip(0)),
    "a few elements": scale_row,
    "by another .data": lambda m: setattr(m.key.weight, "data", torch.randn(128, 128)),
    "two swapped": swap,
    "a bias": lambda m: m.value.bias.detach().zero_(),
    "statistics": lambda m: m.stem[1].running_var.mul_(2),
    "statistics in inference mode": under_inference_mode,
    "SGD": lambda m: optimize(m, lambda p: torch.optim.SGD(p, lr=0.1)),
    "SGD, one by one": lambda m: optimize(m, lambda p: torch.optim.SGD(p, lr=0.1, foreach=False)),
    "AdamW, fused": lambda m: optimize(m, lambda p: torch.optim.AdamW(p, lr=0.1, fused=True)),
    "load_state_dict": lambda m: from_file(m, Network()),
    "load_state_dict, assigned": lambda m: m.load_state_dict(Network().state_dict(), assign=True),
    "NumPy": write_by_numpy,
    "another parameter": lambda m: setattr(m.query, "weight", nn.Parameter(torch.randn(128, 128))),
    "out=": lambda m: torch.add(m.key.bias.data, 1, out=m.key.bias.data),
    "foreach": lambda m: torch._foreach_mul_([p.data for p in m.parameters()], 0.5),
    "its storage": lambda m: m.query.weight.untyped_storage().copy_(torch.randn(128, 128).untyped_storage()),
    "moved": lambda m: m.double().float(),
    "shared": lambda m: m.share_memory() and m.query.weight.data.mul_(2),
    "training": lambda m: m.train()(torch.randn(4, 3, 6, 6)) is None or m.eval(),
}


@pytest.mark.parametrize("name", WRITES)
def test_after_a_write_weights_are_made_again(name, network, x, made):
    call = inference(network)
    for _ in range(3):
        call(x)
    before = len(made)
    for _ in range(2):
        with torch.enable_grad():
            WRITES[name](network)
        expected = network(x).detach()
        torch.testing.assert_close(call(x), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(call(x), expected, rtol=1e-4, atol=1e-5)

    assert 1 == before
    assert (len(made) > before) == (name != "shared")  # with other processes, whose writes nobody sees


def test_what_is_kept_is_kept(network, x, made):
    call = inference(network)
    for _ in range(5):
        torch.testing.assert_close(call(x), network(x).detach(), rtol=1e-4, atol=1e-5)
        str(network.query.weight), copy.deepcopy(network), network.query.weight.sum().item()  # reading is no write

    assert 1 == len(made)


def test_nothing_is_kept_if_that_is_not_wanted(network, x, made):
    call = inference(network, keep=False)
    torch.testing.assert_close(call(x), network(x).detach(), rtol=1e-4, atol=1e-5)

    assert [] == made
    with pytest.raises(BadOption, match="keep must be"):
        Options(keep="some")  # type: ignore[arg-type]


def test_memory_that_others_write_to_is_not_watched(network, x, made):
    """An array that was there before the first call: nothing tells when it is written to."""
    array = network.stem[0].weight.detach().numpy()
    call = inference(network)
    for value in (0.5, 0.25, -1.0):
        array[:] = value
        torch.testing.assert_close(call(x), network(x).detach(), rtol=1e-4, atol=1e-5)

    assert [] == made


def test_memory_of_others_is_not_watched(x, made):
    array = torch.randn(8, 3, 3, 3).numpy()
    layer = nn.Conv2d(3, 8, 3)
    layer.weight = nn.Parameter(torch.from_numpy(array))
    call = inference(layer)
    for value in (0.5, 0.25):
        array[:] = value
        torch.testing.assert_close(call(x), layer(x).detach(), rtol=1e-4, atol=1e-5)

    assert [] == made


def test_two_programs_keep_what_they_made_of_one_weight(network, x):
    """The second marks the memory after the write, before the first has looked."""
    first, second = inference(network), inference(nn.Sequential(network, nn.Tanh()))
    for _ in range(3):
        expected = network(x).detach()
        torch.testing.assert_close(second(x), expected.tanh(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(first(x), expected, rtol=1e-4, atol=1e-5)
        network.query.weight.data.mul_(2)
        network.stem[0].weight.data.neg_()


def test_weights_that_change_all_the_time_are_not_kept(network, x, made):
    call = inference(network)
    for _ in range(20):
        network.query.weight.data.mul_(1.1)
        torch.testing.assert_close(call(x), network(x).detach(), rtol=1e-4, atol=1e-5)
    often = len(made)
    for _ in range(20):
        torch.testing.assert_close(call(x), network(x).detach(), rtol=1e-4, atol=1e-5)

    assert kept.PATIENCE + 1 == often
    assert often + 1 == len(made)  # they change no more


def test_eval_train_eval(network, x):
    """pytorch#108863, with everything that is kept; steps in between by an optimizer and through `.data`."""
    eager, compiled = (
        copy.deepcopy(network),
        torch.compile(network, backend="tapeless", options={"prepare": EVERYTHING, "cache": False}),
    )
    for mode in ("eval", "eval", "train", "eval", "eval", "train", "eval"):
        outputs = []
        for model, called in ((eager, eager), (network, compiled)):
            model.train(mode == "train")
            with torch.set_grad_enabled(mode == "train"):
                outputs.append(called(x))
            if mode == "train":
                outputs[-1].square().sum().backward()
                torch.optim.SGD(model.parameters(), lr=0.05).step()
                model.key.weight.data.mul_(1.5)
                model.zero_grad()
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)


def test_what_is_returned_is_not_kept():
    scale = nn.Parameter(torch.ones(3))

    def f(x):
        doubled = scale * 2
        return x * (scale + 1), doubled, doubled.expand(2, 3), x + doubled

    compiled = torch.compile(f, backend="tapeless", options={"backend": "python"})
    with torch.no_grad():
        for _ in range(3):
            results = compiled(torch.ones(3))
            torch.testing.assert_close(list(results), list(f(torch.ones(3))))
            for result in results:
                result.untyped_storage().fill_(7)


def test_what_is_larger_than_its_weights_is_not_kept(made):
    row, column = nn.Parameter(torch.randn(1, 2000)), nn.Parameter(torch.randn(2000, 1))
    compiled = torch.compile(lambda x: x @ (row * column), backend="tapeless", options={"backend": "python"})
    x = torch.randn(3, 2000)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), x @ (row * column), rtol=1e-4, atol=1e-3)

    assert [] == made


def test_programs_that_write_to_weights_keep_nothing_of_them(made):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            return x * self.count.exp()

    counter = Counter()
    call = inference(counter)
    for n in (1, 2, 3):
        torch.testing.assert_close(call(torch.ones(2)), torch.tensor([n, n]).float().exp())

    assert [] == made


def test_tangents_at_inference(network, x):
    """Nothing requires a gradient, but a tangent arrives: the packed kernels have no derivative."""
    network.requires_grad_(False)
    compiled = torch.compile(network, backend="tapeless", options={"prepare": EVERYTHING, "cache": False})
    tangents = []
    for function in (compiled, network):
        function(x)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            tangents.append(torch.autograd.forward_ad.unpack_dual(function(dual)).tangent)

    torch.testing.assert_close(*tangents, rtol=1e-4, atol=1e-5)


def test_under_transforms(network, x):
    compiled = tapeless.compile(network, prepare=EVERYTHING)
    with torch.no_grad():
        for _ in range(2):
            actual = torch.func.vmap(compiled)(x.unsqueeze(1))
            torch.testing.assert_close(actual.squeeze(1), network(x), rtol=1e-4, atol=1e-5)
            network.query.weight.data.mul_(2)


def test_in_and_out_of_inference_mode(network, x, made):
    compiled = torch.compile(network, backend="tapeless", options={"prepare": EVERYTHING, "cache": False})
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(compiled(x), network(x), rtol=1e-4, atol=1e-5)
    network(x).sum().backward()  # nothing of it became a tensor that autograd refuses

    assert all(p.grad is not None for p in network.parameters())


def test_several_threads(network, x):
    call, wrong = inference(network), []
    expected = network(x).detach()
    call(x)

    def work():
        for _ in range(20):
            if not torch.allclose(call(x), expected, rtol=1e-4, atol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == wrong


def test_from_the_cache(network, x, tmp_path, made):
    for _ in range(2):
        torch._dynamo.reset()
        call = inference(network, cache=str(tmp_path))
        torch.testing.assert_close(call(x), network(x).detach(), rtol=1e-4, atol=1e-5)
        network.query.weight.data.mul_(2)
        torch.testing.assert_close(call(x), network(x).detach(), rtol=1e-4, atol=1e-5)

    assert 4 == len(made)
    assert list(tmp_path.rglob("*"))


def test_not_a_number_stays_one(network, x):
    """oneDNN's convolution with relu built in makes 0 of it."""
    x[0, 0, 0, 0] = float("nan")

    torch.testing.assert_close(inference(network)(x), network(x).detach(), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_only_without_derivatives(network, x):
    with torch.no_grad():
        captured = trace(network, (x,), {})
    _, report = preparation(captured, Options(prepare=EVERYTHING, check=True))
    _, trained = preparation(trace(network, (x,), {}), Options(prepare=EVERYTHING, check=True))

    assert {"pack_convolutions", "pack_linears"} <= set(report.applied)
    assert not {"pack_convolutions", "pack_linears"} & set(trained.applied)
