"""Products by oneDNN in what Inductor compiles: chosen by measurement, right in every layout, never beyond float32."""

import threading

import pytest
import torch
from torch import nn

from comparing import seeded
from tapeless import torch_internals
from tapeless.background import products

pytestmark = pytest.mark.skipif(not torch_internals.can_multiply(), reason="oneDNN does not multiply here")
aten = torch.ops.aten


@pytest.fixture
def onednn_wins(monkeypatch, tmp_path):
    """Whatever suits goes to oneDNN, and it is counted how often that is."""
    asked = []

    def ratio(*kind):
        asked.append(kind)
        return 0.5

    monkeypatch.setattr(products, "_ratio", ratio)
    monkeypatch.setattr(products, "FEWEST", 1)
    monkeypatch.setattr(torch_internals, "inductor_directory", lambda: str(tmp_path))
    products._findings.cache_clear()
    yield asked
    products._findings.cache_clear()


def decomposed(function, *args):
    mode = torch_internals.fake_mode_of([])
    fakes = [mode.from_tensor(arg) for arg in args]
    module = torch_internals.decompose_for_inductor(lambda *xs: [function(*xs)], fakes)
    products.prefer_faster_products(module)
    return module


def calls(function, *args):
    return [node.target for node in decomposed(function, *args).graph.nodes if node.op == "call_function"]


def ours(function, *args):
    known = (torch.ops.tapeless.product.default, torch.ops.tapeless.added_product.default)
    return any(call in known for call in calls(function, *args))


def compiled(function):
    return torch.compile(function, backend="tapeless", options={"backend": "inductor"})


def test_what_goes_to_onednn(onednn_wins):
    a, b = torch.randn(8, 4), torch.randn(4, 6)

    assert ours(torch.mm, a, b)
    assert ours(torch.mm, b.T, a.T)
    assert ours(torch.bmm, torch.randn(3, 8, 4), torch.randn(3, 6, 4).mT)
    assert ours(torch.addmm, torch.randn(6), a, b)
    assert ours(torch.addmm, torch.randn(8, 6), a, b)


def test_what_does_not(onednn_wins):
    a, b = torch.randn(8, 4), torch.randn(4, 6)

    assert not ours(torch.mm, a.double(), b.double())
    assert not ours(torch.mm, a.bfloat16(), b.bfloat16())
    assert not ours(torch.mm, torch.randn(8, 8)[:, ::2], b)
    assert not ours(torch.mm, torch.randn(4).expand(8, 4), b)
    assert not ours(torch.mm, torch.randn(0, 4), b)
    assert not ours(torch.mm, torch.randn(8, 0), torch.randn(0, 6))
    assert not ours(torch.mm, torch.randn(1, 4), b)
    assert not ours(lambda c, a, b: torch.addmm(c, a, b, beta=0), torch.randn(8, 6), a, b)
    assert not ours(lambda c, a, b: torch.addmm(c, a, b, alpha=2), torch.randn(8, 6), a, b)
    with torch.backends.mkldnn.flags(enabled=False):
        assert not ours(torch.mm, a, b)


def test_small_products_are_not_even_timed(monkeypatch):
    monkeypatch.setattr(products, "_ratio", None)

    assert not ours(torch.mm, torch.randn(64, 64), torch.randn(64, 64))


def test_a_clear_win_is_demanded_and_found_once_on_a_machine(onednn_wins, monkeypatch):
    a, b = torch.randn(8, 4), torch.randn(4, 6)
    for found, expected in ((0.99, False), (0.9, True)):
        monkeypatch.setattr(products, "_ratio", lambda *kind, found=found: onednn_wins.append(kind) or found)
        products._findings.cache_clear()
        a = torch.cat([a, a])  # another kind of product

        assert expected == ours(torch.mm, a, b)
        products._findings.cache_clear()  # another process

        assert expected == ours(torch.mm, a, b)

    assert 2 == len(onednn_wins)


def test_a_large_product_is_taken_for_a_part_of_it():
    assert [512, 1024, 512] == products._part([512, 1024, 512])
    assert products.MOST >= 8 * 500 * products._part([8, 500, 1_000_000])[-1] > products.MOST / 2


def test_a_product_is_timed():
    for sizes in ([20, 30, 40], [3, 20, 30, 40]):
        for a, b in ((False, False), (True, False), (False, True)):
            assert products._ratio(sizes, a, b) > 0


def gradients(model, call, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(call(x).square().sum(), [x, *model.parameters()])


def network():
    return nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24), nn.LayerNorm(24), nn.Linear(24, 8))


def test_gradients_equal_eagers(onednn_wins):
    model, x = seeded(0, network), torch.randn(32, 24)
    call = compiled(model)
    for _ in range(3):
        torch.testing.assert_close(gradients(model, call, x), gradients(model, model, x), rtol=1e-4, atol=1e-5)

    assert onednn_wins


def test_what_is_no_number_stays_where_it_is(onednn_wins):
    """Each row has its own: neither what was in memory before nor a neighbour's infinity gets into a result."""
    model, x = seeded(0, lambda: nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 8))), torch.randn(32, 24)
    x[3, 5], x[7] = float("nan"), float("inf")
    call = compiled(model)

    torch.testing.assert_close(call(x), model(x), equal_nan=True, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        gradients(model, call, x), gradients(model, model, x), equal_nan=True, rtol=1e-4, atol=1e-5
    )


def test_the_same_graph_twice_and_results_that_are_kept(onednn_wins):
    model = seeded(0, network)
    call, kept = compiled(model), []
    for step in range(4):
        x = seeded(step, lambda: torch.randn(32, 24))
        out = call(x)
        for again in (True, False):
            found = torch.autograd.grad(out.square().sum(), list(model.parameters()), retain_graph=again)
        kept.append((x, out, found))
    for x, out, found in kept:
        expected = model(x)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            found, torch.autograd.grad(expected.square().sum(), list(model.parameters())), rtol=1e-4, atol=1e-5
        )


def test_several_threads(onednn_wins):
    model = seeded(0, network)
    call, found = compiled(model), {}
    xs = {k: torch.randn(32, 24) for k in range(4)}
    gradients(model, call, xs[0])

    def work(k):
        found[k] = [gradients(model, call, xs[k]) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(k,)) for k in xs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, x in xs.items():
        torch.testing.assert_close(found[k], [gradients(model, model, x)] * 5, rtol=1e-4, atol=1e-5)


def test_onednn_switched_off_later(onednn_wins):
    model, x = seeded(0, network), torch.randn(32, 24)
    call = compiled(model)
    gradients(model, call, x)
    with torch.backends.mkldnn.flags(enabled=False):
        torch.testing.assert_close(gradients(model, call, x), gradients(model, model, x), rtol=1e-4, atol=1e-5)
