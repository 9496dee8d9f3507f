"""Small versions of well-known architectures, each with inputs and a scalar loss to train on.

`build(name)` gives a `Case`. The same seed gives the same weights and inputs, so two builds can be trained side by
side, one in eager and one compiled. Sizes are as small as the architecture allows: what counts is the operators.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

Inputs = dict[str, Tensor]
Builder = Callable[[float], tuple[nn.Module, Inputs]]

SEED = 20
BATCH, LENGTH, IMAGE = 2, 7, 16
VOCABULARY, WIDTH, HEADS, LAYERS = 61, 16, 2, 2

ARCHITECTURES: dict[str, Builder] = {}
WITH_DROPOUT: list[str] = []


@dataclass(frozen=True)
class Case:
    """A model in training mode with the keyword inputs it is called on."""

    model: nn.Module
    inputs: Inputs

    def output(self, network: Callable) -> Tensor:
        """The first output of `network`, which is `model` or its compiled form; the others stay unused."""
        output = network(**self.inputs)
        return output if isinstance(output, Tensor) else output[0]


def loss_of(output: Tensor) -> Tensor:
    """The output projected on a fixed random direction.

    A mean square would be degenerate after a final normalization: its gradient is zero but for rounding.
    """
    generator = torch.Generator().manual_seed(SEED)
    direction = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return (output * direction.to(output.dtype)).sum() / math.sqrt(output.numel())


def build(name: str, dtype: torch.dtype = torch.float64, dropout: float = 0.0) -> Case:
    """The named architecture with freshly seeded weights and inputs."""
    torch.manual_seed(SEED)
    model, inputs = ARCHITECTURES[name](dropout)
    return Case(model.to(dtype), {key: _cast(value, dtype) for key, value in inputs.items()})


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def architecture(*, dropout: bool) -> Callable[[Builder], Builder]:
    """Enter a builder under its own name; `dropout` says whether its model draws random numbers in training."""

    def enter(builder: Builder) -> Builder:
        ARCHITECTURES[builder.__name__] = builder
        if dropout:
            WITH_DROPOUT.append(builder.__name__)
        return builder

    return enter


def _tokens(vocabulary: int = VOCABULARY) -> Tensor:
    return torch.randint(0, vocabulary, (BATCH, LENGTH))


def _image() -> Tensor:
    return torch.randn(BATCH, 3, IMAGE, IMAGE)


# Models written in plain torch.nn


@architecture(dropout=True)
def deep_mlp(dropout: float) -> tuple[nn.Module, Inputs]:
    """Twelve hidden layers."""
    hidden = [layer for _ in range(12) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(dropout))]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, 10)), {"input": torch.randn(8, WIDTH)}


class ResidualBlock(nn.Module):
    """Two normalized convolutions around a shortcut, which is projected when the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels_out)
        self.second = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels_out)
        self.shortcut = self._shortcut(channels_in, channels_out, stride)

    @staticmethod
    def _shortcut(channels_in: int, channels_out: int, stride: int) -> nn.Module:
        if stride == 1 and channels_in == channels_out:
            return nn.Identity()
        projection = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
        return nn.Sequential(projection, nn.BatchNorm2d(channels_out))

    def forward(self, image: Tensor) -> Tensor:
        """Add what the two convolutions make of the image to its shortcut."""
        hidden = F.relu(self.first_norm(self.first(image)))
        return F.relu(self.second_norm(self.second(hidden)) + self.shortcut(image))


@architecture(dropout=False)
def resnet(dropout: float) -> tuple[nn.Module, Inputs]:
    """Stem, three stages of residual blocks, pooled head: a ResNet whose BatchNorm updates its statistics."""
    stem = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    blocks = [ResidualBlock(8, 8, 1), ResidualBlock(8, 12, 2), ResidualBlock(12, 16, 2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)]
    return nn.Sequential(*stem, *blocks, *head), {"input": torch.randn(4, 3, 32, 32)}


@architecture(dropout=True)
def transformer_encoder(dropout: float) -> tuple[nn.Module, Inputs]:
    """`nn.TransformerEncoder` as it comes."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout, batch_first=True)
    return nn.TransformerEncoder(layer, LAYERS), {"src": torch.randn(BATCH, LENGTH, WIDTH)}


class Recurrent(nn.Module):
    """Two stacked recurrent cells driven by a Python loop over time."""

    def __init__(self, cell: type[nn.GRUCell] | type[nn.LSTMCell], dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.cells = nn.ModuleList(cell(WIDTH, WIDTH) for _ in range(LAYERS))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores for the next token at every position."""
        states: list = [None] * len(self.cells)
        outputs = [self._advance(value, states) for value in self.embedding(tokens).unbind(1)]
        return self.head(torch.stack(outputs, 1))

    def _advance(self, value: Tensor, states: list) -> Tensor:
        for index, cell in enumerate(self.cells):
            states[index] = cell(value, states[index])
            hidden = states[index][0] if isinstance(cell, nn.LSTMCell) else states[index]
            value = self.dropout(hidden)
        return value


@architecture(dropout=True)
def gru_cells(dropout: float) -> tuple[nn.Module, Inputs]:
    """`nn.GRUCell` in a loop."""
    return Recurrent(nn.GRUCell, dropout), {"tokens": _tokens()}


@architecture(dropout=True)
def lstm_cells(dropout: float) -> tuple[nn.Module, Inputs]:
    """`nn.LSTMCell` in a loop."""
    return Recurrent(nn.LSTMCell, dropout), {"tokens": _tokens()}


# Models of the transformers library, from configurations with random weights


@architecture(dropout=True)
def bert(dropout: float) -> tuple[nn.Module, Inputs]:
    """Its pooler does not reach the loss: eager leaves the gradients of the pooler at None."""
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    padding = torch.tensor([[1] * LENGTH, [1] * (LENGTH - 2) + [0, 0]])
    return transformers.BertModel(config), {"input_ids": _tokens(), "attention_mask": padding}


@architecture(dropout=True)
def gpt2(dropout: float) -> tuple[nn.Module, Inputs]:
    """With the language-model head, whose weight is tied to the embedding."""
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=LENGTH,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": _tokens()}


@architecture(dropout=True)
def vit(dropout: float) -> tuple[nn.Module, Inputs]:
    """Patches of an image; like BERT it has a pooler that the loss does not use."""
    config = transformers.ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        image_size=IMAGE,
        patch_size=4,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return transformers.ViTModel(config), {"pixel_values": _image()}


@architecture(dropout=True)
def llama(dropout: float) -> tuple[nn.Module, Inputs]:
    """Rotary positions, grouped keys and values, root-mean-square norms that compute in float32.

    Written-out attention: the fused one is called with `is_causal` in eager and with a mask in a captured graph,
    and the float32 inside the norms would turn that last-bit difference into one of 1e-8.
    """
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=LENGTH,
        attention_dropout=dropout,
        use_cache=False,
        attn_implementation="eager",
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": _tokens()}


@architecture(dropout=True)
def t5(dropout: float) -> tuple[nn.Module, Inputs]:
    """Encoder and decoder with learned relative positions."""
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=8,
        d_ff=2 * WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        dropout_rate=dropout,
        use_cache=False,
        decoder_start_token_id=0,
    )
    inputs = {"input_ids": _tokens(), "decoder_input_ids": _tokens()}
    return transformers.T5ForConditionalGeneration(config), inputs


@architecture(dropout=False)
def mamba(dropout: float) -> tuple[nn.Module, Inputs]:
    """A selective state space, scanned step by step; it has no dropout."""
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        state_size=4,
        time_step_rank=2,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    return transformers.MambaModel(config), {"input_ids": _tokens()}


@architecture(dropout=True)
def convnext(dropout: float) -> tuple[nn.Module, Inputs]:
    """Depthwise convolutions; in training whole samples of a block are dropped."""
    config = transformers.ConvNextConfig(
        hidden_sizes=[4, 8], depths=[1, 2], num_stages=2, patch_size=2, drop_path_rate=dropout
    )
    return transformers.ConvNextModel(config), {"pixel_values": _image()}


def _whisper(dropout: float) -> tuple[Any, Inputs]:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=2 * WIDTH,
        decoder_ffn_dim=2 * WIDTH,
        num_mel_bins=8,
        max_source_positions=LENGTH + 1,
        max_target_positions=LENGTH,
        dropout=dropout,
        attention_dropout=dropout,
        activation_dropout=dropout,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    sound = torch.randn(BATCH, config.num_mel_bins, 2 * config.max_source_positions)
    return transformers.WhisperModel(config), {"input_features": sound, "decoder_input_ids": _tokens()}


@architecture(dropout=True)
def whisper(dropout: float) -> tuple[nn.Module, Inputs]:
    """Sound in, text out. LayerDrop compares a random number even when it is off: Dynamo breaks the graph there."""
    return _whisper(dropout)


@architecture(dropout=True)
def whisper_in_one_graph(dropout: float) -> tuple[nn.Module, Inputs]:
    """The same without LayerDrop, which belongs to the two stacks and not to their layers."""
    model, inputs = _whisper(dropout)
    model.encoder.training = model.decoder.training = False
    return model, inputs


class TwoHeads(nn.Module):
    """A trunk with batch norm and dropout, and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.GELU(), nn.Dropout(0.3))
        self.first, self.second = nn.Linear(6, 2), nn.Linear(6, 3)

    def forward(self, x):
        h = self.trunk(x)
        return self.first(h), self.second(h).softmax(-1)


class SchNet(nn.Module):
    """An energy from pairs of atoms: continuous-filter convolutions, summed where messages arrive."""

    def __init__(self, species: int = 3, width: int = 8, rounds: int = 2, basis: int = 6, cutoff: float = 4.0) -> None:
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("centers", torch.linspace(0, cutoff, basis))
        self.embedding = nn.Embedding(species, width)
        self.filters = nn.ModuleList(
            nn.Sequential(nn.Linear(basis, width), nn.Softplus(), nn.Linear(width, width)) for _ in range(rounds)
        )
        self.before = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(rounds))
        self.after = nn.ModuleList(nn.Sequential(nn.Softplus(), nn.Linear(width, width)) for _ in range(rounds))
        self.head = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, 1))

    def forward(self, species: Tensor, between: Tensor, i: Tensor, j: Tensor) -> Tensor:
        distance = between.norm(dim=1, keepdim=True)
        fade = torch.where(distance < self.cutoff, (torch.pi * distance / self.cutoff).cos() + 1, 0.0) / 2
        radial = torch.exp(-((distance - self.centers) ** 2))
        atoms = self.embedding(species)
        for filters, before, after in zip(self.filters, self.before, self.after, strict=True):
            messages = before(atoms)[j] * filters(radial) * fade
            atoms = atoms + after(torch.zeros_like(atoms).index_add(0, i, messages))
        return self.head(atoms).sum()
