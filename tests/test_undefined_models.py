"""Hugging Face base models return more than a loss touches: the Nones and the numbers are eager's all the same."""

import copy

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    ConvNextConfig,
    ConvNextModel,
    ViTConfig,
    ViTModel,
)

from comparing import seeded

SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
TEXT = {**SMALL, "vocab_size": 19, "max_position_embeddings": 16, "attn_implementation": "eager"}
IMAGE = {"image_size": 8, "patch_size": 4, "num_channels": 3}

MODELS = {
    "bert": lambda: BertModel(BertConfig(**TEXT)),
    "albert": lambda: AlbertModel(AlbertConfig(**TEXT, embedding_size=8)),
    "vit": lambda: ViTModel(ViTConfig(**SMALL, **IMAGE, attn_implementation="eager")),
    "convnext": lambda: ConvNextModel(ConvNextConfig(num_stages=2, patch_size=2, hidden_sizes=[4, 8], depths=[1, 1])),
}


def inputs_of(name):
    torch.manual_seed(1)
    if name in ("bert", "albert"):
        return {"input_ids": torch.randint(19, (2, 5))}
    return {"pixel_values": torch.randn(2, 3, 8, 8, dtype=torch.float64)}


def wanted(out, what):
    found = out[what]
    return found[1] if isinstance(found, tuple) else found


def gradients(model, call, name, what, extra):
    model.zero_grad()
    projected = wanted(call(**inputs_of(name), **extra), what)
    torch.manual_seed(2)
    (projected * torch.randn_like(projected)).sum().backward()
    return {name: p.grad for name, p in model.named_parameters()}


OUTPUTS = ("last_hidden_state", "pooler_output", "hidden_states", "attentions")
CASES = [(name, what) for name in MODELS for what in OUTPUTS if (name, what) != ("convnext", "attentions")]


@pytest.mark.parametrize(("name", "what"), CASES)
def test_loss_on_one_output(name, what):
    eager = seeded(0, lambda: MODELS[name]().double().eval())
    model = copy.deepcopy(eager)
    call = torch.compile(model, backend="tapeless")
    extra = {f"output_{what}": True} if what in ("hidden_states", "attentions") else {}
    for _ in range(2):
        expected = gradients(eager, eager, name, what, extra)
        actual = gradients(model, call, name, what, extra)

        assert {n for n, g in expected.items() if g is None} == {n for n, g in actual.items() if g is None}
        for parameter, gradient in expected.items():
            if gradient is not None:
                torch.testing.assert_close(actual[parameter], gradient, rtol=1e-9, atol=1e-11)
