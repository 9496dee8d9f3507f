"""Transforms of torch around `tapeless.compile`: eager's numbers from programs of our own."""

import pytest
import torch
import torch.nn.functional as F
from torch import func, nn
from torch.utils._pytree import tree_leaves

import tapeless
from comparing import assert_values, seeded
from tapeless.runtime import units


@pytest.fixture
def calls(monkeypatch):
    """The graphs that ran for a layer of transforms."""
    seen, apply = [], units.apply

    def counting(unit, args):
        seen.append(unit)
        return apply(unit, args)

    monkeypatch.setattr(units, "apply", counting)
    return seen


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def mlp():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.ReLU()).double()


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3).eval(), nn.Linear(12, 2)

    def forward(self, x):
        x = x.reshape(-1, 2, 6, 6)
        return self.second(F.max_pool2d(F.gelu(self.norm(self.first(x))), 2).flatten(1))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.inward = nn.Embedding(5, 4), nn.Linear(4, 12)

    def forward(self, x):
        x = self.embedding(torch.tensor([0, 3, 3, 1, 2])) * x.mean() + x.reshape(-1, 5, 4)
        q, k, v = self.inward(x).chunk(3, -1)
        x = x + (q @ k.mT).softmax(-1) @ v
        x = x - x.mean(-1, keepdim=True)  # a layer norm written out: torch's own is wrong in reverse over forward mode
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


MODELS = {
    "mlp": (mlp, lambda: normal(4, 3)),
    "images": (lambda: Images().double(), lambda: normal(2, 72)),
    "words": (lambda: Words().double(), lambda: normal(2, 20)),
}

TRANSFORMS = {
    "grad": lambda f, x: func.grad(f)(x),
    "grad and value": lambda f, x: func.grad_and_value(f)(x),
    "jvp": lambda f, x: func.jvp(f, (x,), (x.cos(),)),
    "vjp": lambda f, x: func.vjp(f, x)[1](torch.ones((), dtype=x.dtype)),
    "jacrev": lambda f, x: func.jacrev(f)(x),
    "jacfwd": lambda f, x: func.jacfwd(f)(x),
    "vmap": lambda f, x: func.vmap(f)(x),
    "vmap of vmap": lambda f, x: func.vmap(func.vmap(f), in_dims=1)(torch.stack([x, x.sin()], 1)),
    "per-sample gradients": lambda f, x: func.vmap(func.grad(f))(x),
    "gradient of a batch": lambda f, x: func.grad(lambda x: func.vmap(f)(x).sin().sum())(x),
    "grad of grad": lambda f, x: func.grad(lambda x: func.grad(f)(x).sin().sum())(x),
    "jvp of grad": lambda f, x: func.jvp(func.grad(f), (x,), (x.cos(),)),
    "grad of jvp": lambda f, x: func.grad(lambda x: func.jvp(f, (x,), (x.cos(),))[1])(x),
    "jvp of jvp": lambda f, x: func.jvp(lambda x: func.jvp(f, (x,), (x.cos(),)), (x,), (x.sin(),)),
}

SMALL = {
    "hessian": lambda f, x: func.hessian(f)(x),
    "reverse over reverse": lambda f, x: func.jacrev(func.jacrev(f))(x),
    "reverse over forward": lambda f, x: func.jacrev(func.jacfwd(f))(x),
    "forward over forward": lambda f, x: func.jacfwd(func.jacfwd(f))(x),
    "Hessians of a batch": lambda f, x: func.vmap(func.hessian(f))(x),
    "third order": lambda f, x: func.grad(lambda x: func.grad(lambda x: func.grad(f)(x).sin().sum())(x).sin().sum())(x),
    "third by all modes": lambda f, x: func.jacfwd(func.jacrev(func.jacfwd(f)))(x[0]),
}


def agree(transform, f, compiled, x, calls):
    expected = tree_leaves(transform(f, x))
    assert not calls
    assert_values(expected, tree_leaves(transform(compiled, x)))
    assert calls


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("model", MODELS)
def test_transform(model, name, calls):
    network, x = seeded(0, lambda: tuple(make() for make in MODELS[model]))

    def f(x):
        return network(x).square().sum()

    agree(TRANSFORMS[name], f, tapeless.compile(f), x, calls)


@pytest.mark.parametrize("name", SMALL)
def test_higher_order(name, calls):
    network, x = seeded(0, lambda: (mlp(), normal(2, 3)))

    def f(x):
        return (network(x).exp().sum() + x.prod()).sin()

    agree(SMALL[name], f, tapeless.compile(f), x, calls)


@pytest.mark.parametrize("model", MODELS)
def test_by_the_parameters_of_a_compiled_module(model, calls):
    network, x = seeded(0, lambda: tuple(make() for make in MODELS[model]))
    compiled = tapeless.compile(network)
    parameters = {name: p.detach() for name, p in network.named_parameters()}

    def per_sample(module):
        def fit(parameters, x):
            return func.functional_call(module, parameters, (x,)).square().sum()

        return func.vmap(func.grad(fit), in_dims=(None, 0))(parameters, x)

    agree(lambda module, _: per_sample(module), network, compiled, x, calls)
    assert all(isinstance(p, nn.Parameter) for p in network.parameters())


def test_ensemble(calls):
    """A batch of parameters, the same input."""
    networks = seeded(0, lambda: [mlp() for _ in range(3)])
    parameters, _ = func.stack_module_state(networks)  # type: ignore[arg-type]
    parameters, x = {name: p.detach() for name, p in parameters.items()}, normal(4, 3)
    compiled = tapeless.compile(networks[0])

    def run(module, x):
        return func.vmap(lambda p, x: func.functional_call(module, p, (x,)), in_dims=(0, None))(parameters, x)

    agree(run, networks[0], compiled, x, calls)


def test_outer_autograd(calls):
    """Parameters that the function closes over learn through the transforms around it."""
    network, x = seeded(0, lambda: (mlp(), normal(4, 3)))

    def f(x):
        return network(x).square().sum()

    def learn(f, x):
        loss = func.vmap(func.grad(f))(x).square().sum() + func.vmap(f)(x).sum()
        return torch.autograd.grad(loss, list(network.parameters()))

    agree(learn, f, tapeless.compile(f), x, calls)


def test_linearize():
    """Torch traces the function, which it does with what is not compiled."""
    network, x = seeded(0, lambda: (mlp(), normal(4, 3)))
    found = [func.linearize(f, x)[1](x.cos()) for f in (network, tapeless.compile(network))]
    assert_values(found[:1], found[1:])


def test_structures_keywords_and_integers(calls):
    def f(batch, index, *, scale, unused=None):
        rows = batch["x"][index] * scale
        return {"sum": rows.sin().sum(), "count": index.sum(), "rows": rows}, ("f", None)

    batch, index = {"x": normal(4, 3)}, torch.tensor([0, 2])
    compiled = tapeless.compile(f)

    def look(f, batch):
        def value(batch):
            out, rest = f(batch, index, scale=2.0)
            assert rest == ("f", None)
            return out["sum"], out

        return func.grad(value, has_aux=True)(batch)

    agree(look, f, compiled, batch, calls)


def test_outputs_that_are_inputs_or_views(calls):
    def f(x):
        return x, x.t(), x.t(), x[0] * 2

    agree(lambda f, x: func.jacrev(f)(x), f, tapeless.compile(f), normal(2, 3), calls)


def test_one_trace_per_signature():
    compiled, x = tapeless.compile(lambda x: x.sin().sum()), normal(3)
    func.grad(compiled)(x)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for _ in range(3):
        func.grad(compiled)(x)
        func.vmap(func.grad(compiled))(torch.stack([x, x]))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


def test_beyond_torch(calls):
    """Forward mode, and second derivatives, of fused attention: torch has neither."""
    q, k, v = (normal(1, 2, 5, 4) for _ in range(3))

    def f(q):
        return F.scaled_dot_product_attention(q, k, v).square().sum()

    def written_out(q):
        return ((q @ k.mT / 2).softmax(-1) @ v).square().sum()

    agree(lambda f, q: func.jvp(func.grad(f), (q,), (q.cos(),)), written_out, tapeless.compile(f), q, calls)


# --- left to eager ----------------------------------------------------------------------------------------------------


class Cubed(torch.autograd.Function):
    """A derivative of one's own, which is not that of the forward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 10 * g * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx, tangent):
        return 10 * tangent


def cut(x):
    with torch.no_grad():
        scale = x.exp()
    return (x * scale + x.detach() * x.sin()).sum()


def broken(x):
    torch._dynamo.graph_break()
    return x.sin().sum()


EAGER = {
    "no_grad and detach": cut,
    "a derivative of one's own": lambda x: Cubed.apply(x).sin().sum(),
    "a graph break": broken,
}


@pytest.mark.parametrize("transform", ["grad", "jvp", "per-sample gradients", "gradient of a batch", "jvp of grad"])
@pytest.mark.parametrize("name", EAGER)
def test_left_to_eager(name, transform):
    f, x = EAGER[name], normal(2, 3)
    if name == "a derivative of one's own" and "jvp" in transform:
        pytest.skip("torch's own jvp of it is another function")
    expected = tree_leaves(TRANSFORMS[transform](f, x))
    assert_values(expected, tree_leaves(TRANSFORMS[transform](tapeless.compile(f), x)))


def test_jvp_of_what_formats_a_message_while_it_is_traced(calls):
    """The meta kernel of `lerp_`, in `quantile`, prints its tensors."""
    f, x, t = lambda x: x.quantile(0.3, -1), normal(2, 5), normal(2, 5)
    assert_values(func.jvp(f, (x,), (t,)), func.jvp(tapeless.compile(f), (x,), (t,)))


def test_random_numbers_follow_the_transform(calls):
    compiled, x = tapeless.compile(lambda x: F.dropout(x)), torch.ones(4, 50)
    assert not func.vmap(compiled, randomness="different")(x).eq(func.vmap(compiled, randomness="same")(x)[0]).all()
    with pytest.raises(RuntimeError, match="randomness"):
        func.vmap(compiled)(x)
    assert not calls


def test_running_statistics_follow_eager():
    """Writing to a buffer from inside a transform is eager's to allow or to refuse."""
    network, x = nn.BatchNorm1d(3).double(), normal(4, 3)
    compiled = tapeless.compile(network)

    def f(module):
        return func.grad(lambda x: module(x).square().sum())(x)

    for module in (network, compiled):
        with pytest.raises(RuntimeError):
            f(module)


def test_closing_over_values_of_a_transform(calls):
    def f(f_, x):
        return func.grad(lambda x: func.grad(lambda y: f_(x, y))(x).sum())(x)

    def product(x, y):
        return (x * y.sin()).sum()

    def closing(compile):
        return lambda x: func.grad(lambda a: func.grad(compile(lambda y: (a * y.sin()).sum()))(x).sum())(x)

    x = normal(3)
    assert_values([closing(lambda f: f)(x)], [closing(tapeless.compile)(x)])
    agree(f, product, tapeless.compile(product), x, calls)


def test_inside_another_compiled_function():
    def f(x):
        return (x.sin() * x.exp()).sum()

    x = normal(3)
    inner = tapeless.compile(f)
    outer = tapeless.compile(lambda x: func.grad(inner)(x) * 2, fullgraph=True)
    assert_values([2 * func.grad(f)(x)], [outer(x)])
    assert_values([2 * func.hessian(f)(x)], [func.jacrev(outer)(x)])
