"""Named training workloads: what is trained, on which inputs, and which part of it is compiled.

`build(name)` gives a `Workload` with freshly seeded weights and inputs, so that every variant starts from the same
point. Dropout is zero everywhere, so that gradients can be compared.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import networks

Loss = Callable[..., Tensor]
SEED = 1234


@dataclass(frozen=True)
class Workload:
    """A training problem. `loss(network, *inputs)` is a scalar; `network` is `model` or its compiled form.

    `compiled` says what a variant compiles: "loss" is the forward with its loss as one function, "model" is the
    module alone, so that the compiled graph sees only the cotangents that the loss sends.
    """

    model: nn.Module
    loss: Loss
    inputs: tuple[Tensor, ...]
    compiled: Literal["loss", "model"] = "loss"
    name: str = ""
    order: int = 1


MAKERS: dict[str, Callable[[], Workload]] = {}
SECOND_ORDER: list[str] = []


def workload(maker: Callable[[], Workload]) -> Callable[[], Workload]:
    """Enter a workload under its function's name."""
    MAKERS[maker.__name__] = maker
    return maker


def second_order(maker: Callable[[], Workload]) -> Callable[[], Workload]:
    """Enter a workload whose loss itself contains a derivative."""
    SECOND_ORDER.append(maker.__name__)
    return workload(maker)


def build(name: str, dtype: torch.dtype = torch.float32) -> Workload:
    """The named workload in training mode; floating-point weights and inputs have the given dtype."""
    torch.manual_seed(SEED)
    made = MAKERS[name]()
    inputs = tuple(_cast(value, dtype) for value in made.inputs)
    return replace(
        made, model=made.model.to(dtype).train(), inputs=inputs, name=name, order=2 if name in SECOND_ORDER else 1
    )


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    if not value.is_floating_point():
        return value
    return value.detach().to(dtype).requires_grad_(value.requires_grad)


# Losses


def classification(network: Callable, inputs: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of one label per sample."""
    return F.cross_entropy(network(inputs), labels)


def next_token(network: Callable, tokens: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of one label per position."""
    return F.cross_entropy(network(tokens).flatten(0, 1), targets.flatten())


def own_loss(network: Callable, *inputs: Tensor) -> Tensor:
    """The loss that the network computes itself."""
    return network(*inputs)


def first_head(network: Callable, x: Tensor, labels: Tensor) -> Tensor:
    """Only head 0 reaches the loss: the other outputs get no cotangent."""
    return F.cross_entropy(network(x)[0], labels)


def all_heads(network: Callable, x: Tensor, labels: Tensor) -> Tensor:
    """Every head reaches the loss."""
    return torch.stack([F.cross_entropy(scores, labels) for scores in network(x)]).mean()


# Inputs


def _tokens(vocabulary: int, batch: int, length: int) -> Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def _shifted(vocabulary: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Tokens and, at each position, the one that follows."""
    tokens = _tokens(vocabulary, batch, length + 1)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _same(vocabulary: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Tokens as their own labels: the causal models of transformers shift them inside."""
    tokens = _tokens(vocabulary, batch, length)
    return tokens, tokens.clone()


def _images(batch: int, size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))


def _vectors(batch: int, width: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, width), torch.randint(0, 10, (batch,))


# First order, plain torch


@workload
def mlp_deep() -> Workload:
    """Twenty hidden layers: products and little else."""
    return Workload(networks.perceptron([256] * 21 + [10], nn.ReLU), classification, _vectors(128, 256))


@workload
def mlp_small() -> Workload:
    """Three layers of 64: over before an optimizer written in Python has begun."""
    return Workload(networks.perceptron([64, 64, 64, 64, 10], nn.ReLU), classification, _vectors(32, 64))


@workload
def tfm_plain() -> Workload:
    """A GPT whose attention is written out."""
    model = networks.CausalTransformer(vocabulary=8192, width=256, heads=4, layers=4, length=128)
    return Workload(model, next_token, _shifted(8192, 8, 128))


@workload
def cnn_plain() -> Workload:
    """Convolutions without normalization."""
    return Workload(networks.ConvolutionNetwork(), classification, _images(8, 64))


@workload
def lstm() -> Workload:
    """`nn.LSTM`, around which Dynamo breaks the graph."""
    return Workload(networks.RecurrentLanguageModel(1024, 256), next_token, _shifted(1024, 16, 64))


@workload
def gru_cell_loop() -> Workload:
    """Many small operators in a long chain."""
    return Workload(networks.CellLanguageModel(1024, 256), next_token, _shifted(1024, 16, 32))


@workload
def four_heads() -> Workload:
    """Three heads of four run without reaching the loss."""
    return Workload(networks.Heads(4), first_head, _vectors(128, 256), compiled="model")


@workload
def eight_heads_one_used() -> Workload:
    """Seven heads of eight run without reaching the loss."""
    return Workload(networks.Heads(8), first_head, _vectors(128, 256), compiled="model")


@workload
def eight_heads_all_used() -> Workload:
    """The same network with every cotangent defined."""
    return Workload(networks.Heads(8), all_heads, _vectors(128, 256), compiled="model")


def _layers(count: int) -> Workload:
    """A narrow GPT of so many layers: what grows with depth."""
    model = networks.CausalTransformer(vocabulary=256, width=64, heads=4, layers=count, length=64)
    return Workload(model, next_token, _shifted(256, 4, 64))


DEPTHS = {f"layers_{count}": count for count in (2, 4, 8, 16, 32)}
MAKERS.update({name: partial(_layers, count) for name, count in DEPTHS.items()})


# First order, from the configurations of transformers


class LossOf(nn.Module):
    """A model of transformers called by position; returns the loss it computes."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        """The model's own loss."""
        return self.model(**dict(zip(self.names, inputs, strict=True))).loss


def _classifier(model: nn.Module, inputs: tuple[Tensor, Tensor]) -> Workload:
    return Workload(LossOf(model, "pixel_values", "labels"), own_loss, inputs)


def _language_model(model: nn.Module, inputs: tuple[Tensor, Tensor]) -> Workload:
    return Workload(LossOf(model, "input_ids", "labels"), own_loss, inputs)


@workload
def resnet18() -> Workload:
    """BatchNorm in training mode."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=10,
        problem_type="single_label_classification",
    )
    return _classifier(ResNetForImageClassification(config), _images(8, 64))


@workload
def resnet18_frozen() -> Workload:
    """Fine-tuning: normalization by fixed statistics, and only the last stage and the head learn."""
    made = resnet18()
    for name, parameter in made.model.named_parameters():
        learns = "stages.3" in name or "classifier" in name
        parameter.requires_grad_(learns and "normalization" not in name)
    return replace(made, model=networks.FixedStatistics(made.model))


@workload
def vit_small() -> Workload:
    """A vision transformer on 8×8 patches."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=4 * 384,
        image_size=64,
        patch_size=8,
        num_labels=10,
        problem_type="single_label_classification",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return _classifier(ViTForImageClassification(config), _images(8, 64))


@workload
def bert_small() -> Workload:
    """Masked language model."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=8192,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=4 * 256,
        max_position_embeddings=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return _language_model(BertForMaskedLM(config), (_tokens(8192, 8, 128), _tokens(8192, 8, 128)))


@workload
def gpt2_small() -> Workload:
    """Causal language model with a tied head."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=8192,
        n_embd=256,
        n_layer=4,
        n_head=4,
        n_positions=128,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # without it transformers logs a warning inside forward, which breaks the graph
    return _language_model(model, _same(8192, 8, 128))


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=704,
        max_position_embeddings=128,
        attention_dropout=0.0,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


@workload
def llama_tiny() -> Workload:
    """Rotary positions, gated feed-forward, root-mean-square norms."""
    return _language_model(_llama(), _same(8192, 8, 128))


@workload
def llama_lora() -> Workload:
    """The same network frozen, with low-rank corrections of query and value: most weights need no gradient."""
    model = _llama().requires_grad_(False)
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.q_proj = networks.LowRankLinear(attention.q_proj)
        attention.v_proj = networks.LowRankLinear(attention.v_proj)
    return _language_model(model, _same(8192, 8, 128))


# Second order


def _residual(solution: Tensor, slope: Tensor, curvature: Tensor) -> Tensor:
    """How far a solution u(x, t) is from Burgers' equation u_t + u u_x = 0.01 u_xx, plus its size."""
    residual = slope[:, 1] + solution[:, 0] * slope[:, 0] - 0.01 * curvature[:, 0]
    return residual.square().mean() + solution.square().mean()


def burgers(network: Callable, points: Tensor) -> Tensor:
    """The residual with derivatives from `torch.autograd.grad`."""
    solution = network(points)
    (slope,) = torch.autograd.grad(solution.sum(), points, create_graph=True)
    (curvature,) = torch.autograd.grad(slope[:, 0].sum(), points, create_graph=True)
    return _residual(solution, slope, curvature)


def burgers_functional(network: Callable, points: Tensor) -> Tensor:
    """The same residual with derivatives from `torch.func.grad`."""
    slope_of = torch.func.grad(lambda at: network(at).sum())
    curvature_of = torch.func.grad(lambda at: slope_of(at)[:, 0].sum())
    return _residual(network(points), slope_of(points), curvature_of(points))


@second_order
def pinn() -> Workload:
    """Physics-informed network; three derivatives deep, counting the training step's own."""
    points = torch.rand(2048, 2).requires_grad_()
    return Workload(networks.perceptron([2, *[128] * 5, 1], nn.Tanh), burgers, (points,))


@second_order
def pinn_func() -> Workload:
    """The same in the functional spelling, which Dynamo can trace."""
    return Workload(networks.perceptron([2, *[128] * 5, 1], nn.Tanh), burgers_functional, (torch.rand(2048, 2),))


def gradient_penalty(network: Callable, real: Tensor, fake: Tensor, mixture: Tensor) -> Tensor:
    """The critic's loss of a Wasserstein GAN, with the penalty on the slope between real and fake images."""
    between = (mixture * real + (1 - mixture) * fake).detach().requires_grad_()
    (slope,) = torch.autograd.grad(network(between).sum(), between, create_graph=True)
    penalty = (slope.flatten(1).norm(2, 1) - 1).square().mean()
    return network(fake).mean() - network(real).mean() + 10 * penalty


@second_order
def wgan_gp() -> Workload:
    """A convolutional critic with gradient penalty."""
    inputs = torch.randn(32, 3, 32, 32), torch.randn(32, 3, 32, 32), torch.rand(32, 1, 1, 1)
    return Workload(networks.Critic(), gradient_penalty, inputs)


def energy_and_forces(
    network: Callable, species: Tensor, positions: Tensor, energies: Tensor, forces: Tensor
) -> Tensor:
    """Forces are the negative gradient of the energy, and both are fitted."""
    energy = network(species, positions)
    (slope,) = torch.autograd.grad(energy.sum(), positions, create_graph=True)
    return F.mse_loss(energy, energies) + F.mse_loss(-slope, forces)


@second_order
def force_field() -> Workload:
    """A machine-learned force field on eight molecules of 24 atoms."""
    positions = (torch.rand(8, 24, 3) * 6).requires_grad_()
    inputs = torch.randint(0, 5, (8, 24)), positions, torch.randn(8), torch.randn(8, 24, 3)
    return Workload(networks.ForceField(), energy_and_forces, inputs)


NAMES = tuple(MAKERS)
