"""The networks of the workloads that need nothing but torch."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def perceptron(widths: Sequence[int], activation: type[nn.Module]) -> nn.Sequential:
    """Linear layers of the given widths with an activation between them, none after the last."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


class CausalBlock(nn.Module):
    """One transformer block with attention written out: products, mask, softmax."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attention and feed-forward, each added to its input."""
        x = x + self.output(self._attention(self.attention_norm(x)))
        return x + self.down(F.gelu(self.up(self.feed_norm(x)), approximate="tanh"))

    def _attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads)
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).tril().logical_not()
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return (weights @ value).transpose(1, 2).reshape(batch, length, width)


class CausalTransformer(nn.Module):
    """A GPT in plain torch: token and position embeddings, blocks, untied head."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(CausalBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores for the next token at every position."""
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ConvolutionStage(nn.Module):
    """A strided convolution that halves the image, then residual 3×3 convolutions."""

    def __init__(self, channels_in: int, channels: int, depth: int = 3) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels_in, channels, 3, stride=2, padding=1)
        self.residuals = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """Half the size, `channels` channels."""
        x = F.relu(self.reduce(x))
        for convolution in self.residuals:
            x = F.relu(x + convolution(x))
        return x


class ConvolutionNetwork(nn.Module):
    """A residual network without any normalization."""

    def __init__(self, channels: Sequence[int] = (64, 128, 256)) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels[0], 3, padding=1)
        pairs = zip((channels[0], *channels), channels, strict=False)
        self.stages = nn.Sequential(*(ConvolutionStage(before, after) for before, after in pairs))
        self.head = nn.Linear(channels[-1], 10)

    def forward(self, image: Tensor) -> Tensor:
        """Scores for ten classes."""
        return self.head(self.stages(F.relu(self.stem(image))).mean((2, 3)))


class RecurrentLanguageModel(nn.Module):
    """Embedding, two layers of `nn.LSTM`, head."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.recurrence = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores for the next token at every position."""
        return self.head(self.recurrence(self.embedding(tokens))[0])


class CellLanguageModel(nn.Module):
    """The recurrence spelled out: one `nn.GRUCell` in a Python loop over time."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(vocabulary, width), nn.GRUCell(width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores for the next token at every position."""
        return self.head(torch.stack(list(self._states(self.embedding(tokens))), 1))

    def _states(self, x: Tensor) -> Iterator[Tensor]:
        state = torch.zeros_like(x[:, 0])
        for position in range(x.shape[1]):
            state = self.cell(x[:, position], state)
            yield state


class Heads(nn.Module):
    """A trunk shared by several heads, all of which run and are returned."""

    def __init__(self, heads: int, width: int = 256, depth: int = 6) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())))
        self.heads = nn.ModuleList(perceptron([width, width, 10], nn.GELU) for _ in range(heads))

    def forward(self, x: Tensor) -> list[Tensor]:
        """The scores of every head."""
        shared = self.trunk(x)
        return [head(shared) for head in self.heads]


class LowRankLinear(nn.Module):
    """LoRA: a frozen linear layer plus a trainable product of two thin matrices."""

    def __init__(self, frozen: nn.Linear, rank: int = 8, strength: float = 16.0) -> None:
        super().__init__()
        self.frozen, self.scale = frozen, strength / rank
        self.narrow = nn.Parameter(torch.randn(rank, frozen.in_features) * 0.02)
        self.widen = nn.Parameter(torch.randn(frozen.out_features, rank) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """The frozen result and its correction."""
        return self.frozen(x) + (x @ self.narrow.t()) @ self.widen.t() * self.scale


class FixedStatistics(nn.Module):
    """A network whose batch norms keep to the statistics they have, in training too."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the network makes of the inputs."""
        return self.network(*inputs)

    def train(self, mode: bool = True) -> Self:
        """Training mode for everything but the norms."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


class Critic(nn.Module):
    """The critic of a small Wasserstein GAN on 32×32 images."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        widths = [3, channels, 2 * channels, 4 * channels]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * widths[-1], 1))

    def forward(self, image: Tensor) -> Tensor:
        """One score per image."""
        return self.layers(image)


class ForceField(nn.Module):
    """Energy of molecules from messages between all pairs of atoms, after SchNet."""

    centers: Tensor

    def __init__(
        self, width: int = 64, basis: int = 20, layers: int = 3, species: int = 5, cutoff: float = 5.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(species, width)
        self.filters = nn.ModuleList(perceptron([basis, width, width], nn.SiLU) for _ in range(layers))
        self.updates = nn.ModuleList(perceptron([width, width, width], nn.SiLU) for _ in range(layers))
        self.readout = perceptron([width, width, 1], nn.SiLU)
        self.cutoff = cutoff
        self.register_buffer("centers", torch.linspace(0, cutoff, basis))

    def forward(self, species: Tensor, positions: Tensor) -> Tensor:
        """One energy per molecule."""
        expanded, weights = self._geometry(positions)
        atoms = self.embedding(species)
        for make_filter, update in zip(self.filters, self.updates, strict=True):
            messages = make_filter(expanded) * weights[..., None] * atoms[:, None]
            atoms = atoms + update(messages.sum(2))
        return self.readout(atoms).sum((1, 2))

    def _geometry(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Distances on a radial basis, and the smooth cutoff that weighs each pair."""
        difference = positions[:, :, None] - positions[:, None]
        itself = torch.eye(positions.shape[1], dtype=positions.dtype, device=positions.device)
        distance = (difference.pow(2).sum(-1) + itself).sqrt()
        fade = 0.5 * (torch.cos(distance * (math.pi / self.cutoff)) + 1)
        weights = fade * (distance < self.cutoff) * (1 - itself)
        return torch.exp(-4 * (distance[..., None] - self.centers) ** 2), weights
