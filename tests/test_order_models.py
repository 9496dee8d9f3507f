"""Forward mode and Hessians of whole models through compiled code, equal to eager; transforms of torch around them."""

import functools

import pytest
import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F
from torch import func, nn
from torch.utils._pytree import tree_leaves

import tapeless
from comparing import assert_values, compiled, leaf, seeded


class Classifier(nn.Module):
    """A convolutional network with batch norm, pooled to two scores."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Tanh(), nn.AvgPool2d(2))
        self.head = nn.Linear(3, 2)
        self.double()

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def mlp():
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)).double()


def cnn(train, statistics=True):
    model = Classifier()
    model.body[1].running_mean.normal_()
    if not statistics:
        model.body[1].running_mean = model.body[1].running_var = model.body[1].num_batches_tracked = None
    return model.train(train)


class Bert(nn.Module):
    """A tiny BERT from embeddings to the first hidden state; its attention is one fused operator or written out."""

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


WRITTEN_OUT = {
    "bert": functools.partial(Bert, "eager")
}  # eager's fused attention has neither forward mode nor second order


def observe(build, shape, look, compile):
    """What `look` sees of a new model, its input and a direction; its buffers afterwards."""
    model = seeded(0, build)
    x, v = seeded(1, lambda: (leaf(*shape), leaf(*shape).detach()))
    return [*look(compile(model), model, x, v), *model.buffers()]


def agree(name, expected_look, look=None):
    build, shape = MODELS[name]
    expected = observe(WRITTEN_OUT.get(name, build), shape, expected_look, lambda model: model)

    assert_values(expected, observe(build, shape, look or expected_look, compiled))


# --- forward mode -----------------------------------------------------------------------------------------------------


@by_name
def test_dual_tensors(name):
    """The gradient of the tangent is that of ⟨∂y/∂x, v⟩, from two reverse passes: eager's is wrong through norms."""

    def gradients(total, model, x):
        return torch.autograd.grad(total, [x, *model.parameters()], allow_unused=True)

    def pushed(call, x, v):
        with forward.dual_level():
            return forward.unpack_dual(call(forward.make_dual(x, v)))

    def look(call, model, x, v):
        primal, tangent = pushed(call, x, v)
        return primal, tangent, *gradients(tangent.sum(), model, x)

    def expected(call, model, x, v):
        primal, tangent = pushed(call, x, v)
        state = {n: b.clone() for n, b in model.named_buffers()}
        (slope,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        found = gradients((slope * v).sum(), model, x)
        for n, b in model.named_buffers():
            b.copy_(state[n])
        return primal, tangent, *found

    agree(name, expected, look)


@by_name
def test_dual_parameters(name):
    """Tangents on what is closed over, none on the input; nothing requires a gradient."""

    def look(compile, model, x):
        parameters = {n: p.detach() for n, p in model.named_parameters()}
        directions = seeded(2, lambda: {n: torch.randn_like(p) for n, p in parameters.items()})
        apply = compile(lambda parameters, x: func.functional_call(model, parameters, (x,)))
        with forward.dual_level():
            duals = {n: forward.make_dual(p, directions[n]) for n, p in parameters.items()}
            return forward.unpack_dual(apply(duals, x.detach()))

    agree(
        name,
        lambda call, model, x, v: look(lambda f: f, model, x),
        lambda call, model, x, v: look(compiled, model, x),
    )


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


HESSIANS = {
    **MODELS,
    "cnn, training": (functools.partial(cnn, True, statistics=False), (2, 2, 4, 4)),
    "bert": (Bert, (1, 2, 8)),
}


@pytest.mark.parametrize("way", (forward_over_reverse, reverse_over_forward, by_transform))
@by_name
def test_hessian(name, way):
    build, shape = HESSIANS[name]
    x = seeded(1, lambda: leaf(*shape))

    def scalar(model):
        return lambda x: model(x).sin().sum()

    expected = func.hessian(scalar(seeded(0, WRITTEN_OUT.get(name, build))))(x.detach()).reshape(-1, *shape)
    program = scalar(seeded(0, build))

    assert_values([expected], [way(program if way is by_transform else compiled(program), x)])


def test_gradient_penalty_of_fused_attention():
    """BERT with the fused kernel under a penalty on embeddings: eager needs the math kernel for that."""

    def look(call, model, x, v):
        (slope,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
        penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
        return penalty, *torch.autograd.grad(penalty, list(model.parameters()), allow_unused=True)

    agree("bert", look)


# --- transforms of torch around a compiled function -------------------------------------------------------------------


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


@pytest.mark.parametrize("name", TRANSFORMS)
def test_under_a_transform_of_torch(name):
    """Under plain `torch.compile` Dynamo steps aside and the function runs in eager: the same numbers."""
    model, x = seeded(0, lambda: (mlp(), leaf(2, 3).detach()))
    transform = TRANSFORMS[name]
    expected = tree_leaves(transform(lambda x: loss(model, x), x))

    for compile in (tapeless.compile, functools.partial(torch.compile, backend="tapeless")):
        assert_values(expected, tree_leaves(transform(compile(lambda x: loss(model, x)), x)))


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
