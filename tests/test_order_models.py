"""Forward mode and Hessians of whole models through compiled code, equal to eager; transforms of torch around them."""

import functools

import pytest
import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F
from torch import func, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import tapeless
from comparing import assert_values, compiled, leaf, seeded


class Classifier(nn.Module):
    """A convolutional network with batch norm, pooled to two scores."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.SiLU(), nn.AvgPool2d(2))
        self.head = nn.Linear(3, 2)
        self.double()

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def mlp():
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)).double()


def cnn(train):
    model = Classifier()
    model.body[1].running_mean.normal_()
    return model.train(train)


class Bert(nn.Module):
    """A tiny BERT from embeddings to the first hidden state, whose attention is one fused operator."""

    def __init__(self, attention="sdpa"):
        super().__init__()
        transformers = pytest.importorskip("transformers")
        config = transformers.BertConfig(
            vocab_size=11,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=4,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation=attention,
        )
        self.model = transformers.BertModel(config, add_pooling_layer=False).double()

    def forward(self, embeddings):
        return self.model(inputs_embeds=embeddings).last_hidden_state[:, 0]


MODELS = {
    "mlp": (mlp, (2, 3)),
    "cnn, training": (functools.partial(cnn, True), (2, 2, 4, 4)),
    "cnn, evaluation": (functools.partial(cnn, False), (2, 2, 4, 4)),
    "bert": (Bert, (1, 3, 8)),
}
by_name = pytest.mark.parametrize("name", MODELS)


def written_out():
    """Eager with the math kernel: the fused one has no forward mode and no second derivative there."""
    return sdpa_kernel(SDPBackend.MATH)


def observe(name, look, compile):
    """What `look` sees of a new model, its input and a direction; its buffers afterwards."""
    build, shape = MODELS[name]
    model = seeded(0, build)
    x, v = seeded(1, lambda: (leaf(*shape), leaf(*shape).detach()))
    return [*look(compile(model), model, x, v), *model.buffers()]


def agree(name, look, compile=compiled):
    with written_out():
        expected = observe(name, look, lambda model: model)

    assert_values(expected, observe(name, look, compile))


# --- forward mode -----------------------------------------------------------------------------------------------------


@by_name
def test_dual_tensors(name):
    def look(call, model, x, v):
        with forward.dual_level():
            out = call(forward.make_dual(x, v))
            primal, tangent = forward.unpack_dual(out)
            return primal, tangent, *torch.autograd.grad(tangent.sum(), [x, *model.parameters()], allow_unused=True)

    agree(name, look)


@by_name
def test_dual_parameters(name):
    """Tangents on what is closed over, none on the input; nothing requires a gradient."""

    def look(call, model, x, v):
        parameters = {n: p.detach() for n, p in model.named_parameters()}
        directions = seeded(2, lambda: {n: torch.randn_like(p) for n, p in parameters.items()})
        with forward.dual_level():
            duals = {n: forward.make_dual(p, directions[n]) for n, p in parameters.items()}
            return forward.unpack_dual(func.functional_call(model, duals, (x.detach(),)))

    def look_compiled(call, model, x, v):
        loss = compiled(lambda parameters, x: func.functional_call(model, parameters, (x,)))
        parameters = {n: p.detach() for n, p in model.named_parameters()}
        directions = seeded(2, lambda: {n: torch.randn_like(p) for n, p in parameters.items()})
        with forward.dual_level():
            return forward.unpack_dual(
                loss({n: forward.make_dual(p, directions[n]) for n, p in parameters.items()}, x.detach())
            )

    with written_out():
        expected = observe(name, look, lambda model: model)

    assert_values(expected, observe(name, look_compiled, lambda model: model))


# --- Hessians ---------------------------------------------------------------------------------------------------------


def forward_over_reverse(f, x):
    def row(v):
        with forward.dual_level():
            dual = forward.make_dual(x, v)
            (g,) = torch.autograd.grad(f(dual), dual)
            return forward.unpack_dual(g).tangent

    return torch.stack([row(v.view_as(x)) for v in torch.eye(x.numel(), dtype=x.dtype)])


def reverse_over_forward(f, x):
    def row(v):
        with forward.dual_level():
            moved = forward.unpack_dual(f(forward.make_dual(x, v))).tangent
            return torch.autograd.grad(moved, x)[0]

    return torch.stack([row(v.view_as(x)) for v in torch.eye(x.numel(), dtype=x.dtype)])


def by_transform(f, x):
    return tapeless.hessian(f)(x.detach()).reshape(-1, *x.shape)


@pytest.mark.parametrize("way", (forward_over_reverse, reverse_over_forward, by_transform))
@by_name
def test_hessian(name, way):
    build, shape = MODELS[name]
    if name == "bert":
        shape = (1, 2, 8)
    x = seeded(1, lambda: leaf(*shape))

    def scalar(model):
        return lambda x: model(x).sin().sum()

    with written_out():
        expected = func.hessian(scalar(seeded(0, build)))(x.detach()).reshape(-1, *shape)
    program = scalar(seeded(0, build))

    assert_values([expected], [way(program if way is by_transform else compiled(program), x)])


def test_gradient_penalty_of_fused_attention():
    """BERT with the fused kernel under a penalty on embeddings: eager needs the math kernel for that."""

    def look(call, model, x, v):
        (slope,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
        penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
        return penalty, *torch.autograd.grad(penalty, list(model.parameters()), allow_unused=True)

    agree("bert", look)


# --- transforms of torch around a compiled function ---------------------------------------------------------------------


def loss(model, x):
    return model(x).square().sum()


TRANSFORMS = {
    "grad": lambda f, x: func.grad(f)(x),
    "jvp": lambda f, x: func.jvp(f, (x,), (x.cos(),)),
    "vjp": lambda f, x: func.vjp(f, x)[1](torch.ones((), dtype=x.dtype)),
    "jacrev": lambda f, x: func.jacrev(f)(x),
    "jacfwd": lambda f, x: func.jacfwd(f)(x),
    "hessian": lambda f, x: func.hessian(f)(x),
    "vmap": lambda f, x: func.vmap(f)(x),
    "per-sample gradients": lambda f, x: func.vmap(func.grad(f))(x),
}


@pytest.mark.parametrize("compile", (tapeless.compile, compiled), ids=("tapeless.compile", "torch.compile"))
@pytest.mark.parametrize("name", TRANSFORMS)
def test_under_a_transform_of_torch(name, compile):
    model, x = seeded(0, lambda: (mlp(), leaf(2, 3).detach()))
    program = functools.partial(loss, model)

    assert_values(
        [t for t in torch.utils._pytree.tree_leaves(TRANSFORMS[name](program, x))],
        [t for t in torch.utils._pytree.tree_leaves(TRANSFORMS[name](compile(lambda x: loss(model, x)), x))],
    )


def test_per_sample_gradients_of_parameters():
    """Written inside the compiled function, where they are part of one graph; and outside, by `tapeless.grad`."""
    model, x, y = seeded(0, lambda: (mlp(), leaf(5, 3).detach(), leaf(5, 2).detach()))
    parameters = {n: p.detach() for n, p in model.named_parameters()}

    def fit(parameters, x, y):
        return F.mse_loss(func.functional_call(model, parameters, (x,)), y)

    def per_sample(grad):
        return func.vmap(grad(fit), in_dims=(None, 0, 0))

    expected = list(per_sample(func.grad)(parameters, x, y).values())
    inside = tapeless.compile(lambda p, x, y: per_sample(func.grad)(p, x, y), fullgraph=True)

    assert_values(expected, list(per_sample(tapeless.grad)(parameters, x, y).values()))
    assert_values(expected, list(inside(parameters, x, y).values()))
