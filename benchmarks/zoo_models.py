"""Tiny configurations of many Hugging Face architectures, with random weights and inputs: nothing is downloaded.

An entry names the architecture as `AutoConfig` does, the kind of its inputs, and what its configuration needs beyond
the sizes that its kind shares. Configurations ignore settings they do not know, so one list of sizes serves all.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor, nn

Settings = dict[str, Any]
Inputs = dict[str, Tensor]

UNSET: Any = object()
SEED = 7
BATCH, LENGTH, VOCABULARY = 2, 16, 99
IMAGE, SAMPLES = 32, 800

TOKENS: Settings = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

NO_RANDOMNESS: Settings = dict.fromkeys(
    [
        "activation_dropout",
        "attention_dropout",
        "attention_probs_dropout_prob",
        "attn_pdrop",
        "classifier_dropout_prob",
        "drop_path_rate",
        "drop_rate",
        "dropout",
        "dropout_rate",
        "embd_pdrop",
        "embedding_dropout",
        "feat_proj_dropout",
        "hidden_dropout",
        "hidden_dropout_prob",
        "layerdrop",
        "encoder_layerdrop",
        "decoder_layerdrop",
        "mask_time_prob",
        "mask_feature_prob",
        "resid_pdrop",
    ],
    0.0,
)

SIZES: Settings = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "use_cache": False,
}

GROUPED: Settings = {"num_key_value_heads": 2, "head_dim": 8}

ENCODER_DECODER: Settings = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "decoder_start_token_id": 1,
}

T5_SIZES: Settings = {
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}

IMAGES: Settings = {"image_size": IMAGE, "patch_size": 8, "num_channels": 3}

STAGES: Settings = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}

SOUND: Settings = {
    "conv_dim": [8, 8],
    "conv_kernel": [10, 3],
    "conv_stride": [5, 2],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}


@dataclass(frozen=True)
class Architecture:
    """One entry of the zoo. A setting that is `UNSET` is left to the configuration's own default."""

    name: str
    kind: str
    settings: Settings = field(default_factory=dict)
    dtype: torch.dtype = torch.float64

    def build(self) -> tuple[nn.Module, Inputs]:
        """The model in training mode, and its inputs; the same on every call."""
        torch.manual_seed(SEED)
        model = transformers.AutoModel.from_config(self.config())
        inputs = {key: _cast(value, self.dtype) for key, value in INPUTS[self.kind]().items()}
        return _without_dropout(model).to(self.dtype).train(), inputs

    def config(self) -> transformers.PreTrainedConfig:
        """The tiny configuration."""
        settings = {**TOKENS, **SIZES, **NO_RANDOMNESS, **KIND_SETTINGS[self.kind], **self.settings}
        wanted = {key: value for key, value in settings.items() if value is not UNSET}
        return transformers.AutoConfig.for_model(self.name, **wanted)


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


# What each kind of model is called on


def _tokens() -> Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, LENGTH))


def _text() -> Inputs:
    return {"input_ids": _tokens()}


def _text_to_text() -> Inputs:
    return {"input_ids": _tokens(), "decoder_input_ids": _tokens()}


def _image() -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 3, IMAGE, IMAGE)}


def _large_image() -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 3, 2 * IMAGE, 2 * IMAGE)}


def _text_and_image() -> Inputs:
    return {**_text(), **_image()}


def _sound() -> Inputs:
    return {"input_values": torch.randn(BATCH, SAMPLES)}


def _spectrogram() -> Inputs:
    return {"input_values": torch.randn(BATCH, LENGTH, 16)}


def _spectrogram_to_text() -> Inputs:
    return {"input_features": torch.randn(BATCH, 8, 2 * LENGTH), "decoder_input_ids": _tokens()}


def _text_on_page() -> Inputs:
    corners = torch.randint(0, 500, (BATCH, LENGTH, 2))
    return {**_text(), "bbox": torch.cat([corners, corners + 400], -1)}


INPUTS: dict[str, Callable[[], Inputs]] = {
    "text": _text,
    "causal": _text,
    "text to text": _text_to_text,
    "T5": _text_to_text,
    "page": _text_on_page,
    "image": _image,
    "staged image": _large_image,
    "text and image": _text_and_image,
    "sound": _sound,
    "spectrogram": _spectrogram,
    "spectrogram to text": _spectrogram_to_text,
}

KIND_SETTINGS: dict[str, Settings] = {
    "text": {},
    "causal": GROUPED,
    "text to text": ENCODER_DECODER,
    "T5": T5_SIZES,
    "page": {"max_2d_position_embeddings": 1024},
    "image": IMAGES,
    "staged image": STAGES,
    "text and image": {},
    "sound": SOUND,
    "spectrogram": {"max_length": LENGTH, "num_mel_bins": 16, "patch_size": 4, "time_stride": 4, "frequency_stride": 4},
    "spectrogram to text": {**ENCODER_DECODER, "num_mel_bins": 8, "max_source_positions": LENGTH},
}


def _experts(**settings: Any) -> Settings:
    return {"num_experts_per_tok": 2, "moe_intermediate_size": 32, **settings}


DEEPSEEK: Settings = {
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "head_dim": 8,
    "num_key_value_heads": 4,
}

GPT_SIZES: Settings = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}

WINDOWED: Settings = {
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [1, 1],
    "num_heads": [2, 2],
    "window_size": 4,
    "num_attention_heads": UNSET,
    "num_hidden_layers": UNSET,
}

ZOO = (
    # Text, read in both directions
    Architecture("albert", "text", {"embedding_size": 16}),
    Architecture("bert", "text"),
    Architecture("big_bird", "text", {"attention_type": "original_full"}),
    Architecture("camembert", "text"),
    Architecture("convbert", "text", {"embedding_size": 32}),
    Architecture("deberta", "text", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    Architecture("deberta-v2", "text", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    Architecture("distilbert", "text", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    Architecture("electra", "text", {"embedding_size": 16}),
    Architecture("ernie", "text"),
    Architecture("esm", "text", {"mask_token_id": 3}),
    Architecture("fnet", "text"),
    Architecture(
        "funnel",
        "text",
        {
            "d_model": 32,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 64,
            "block_sizes": [1, 1],
            "architectures": ["FunnelModel"],
            "num_hidden_layers": UNSET,
        },
    ),
    Architecture("layoutlm", "page"),
    Architecture("megatron-bert", "text"),
    Architecture("mobilebert", "text", {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32}),
    Architecture("modernbert", "text", {"cls_token_id": 1, "sep_token_id": 2, "local_attention": 8}),
    Architecture("mpnet", "text"),
    Architecture("nystromformer", "text", {"num_landmarks": 4, "segment_means_seq_len": LENGTH}),
    Architecture("rembert", "text", {"input_embedding_size": 16, "output_embedding_size": 16}),
    Architecture("roberta", "text"),
    Architecture("roformer", "text"),
    Architecture("squeezebert", "text", {"embedding_size": 32}),
    Architecture("xlm-roberta", "text"),
    Architecture(
        "xlnet", "text", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "max_position_embeddings": UNSET}
    ),
    # Text, read forwards
    Architecture("bloom", "causal", {"n_layer": 2, "n_head": 4}),
    Architecture("codegen", "causal", {**GPT_SIZES, "rotary_dim": 4}),
    Architecture("cohere", "causal"),
    Architecture("falcon", "causal", {"head_dim": UNSET, "num_key_value_heads": UNSET}),
    Architecture("gemma", "causal"),
    Architecture("gemma2", "causal", {"sliding_window": 8}),
    Architecture("gemma3_text", "causal", {"sliding_window": 8}),
    Architecture("glm", "causal"),
    Architecture("gpt2", "causal", GPT_SIZES),
    Architecture("gpt_bigcode", "causal", GPT_SIZES),
    Architecture("gpt_neo", "causal", {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}),
    Architecture("gpt_neox", "causal"),
    Architecture("gptj", "causal", {**GPT_SIZES, "rotary_dim": 4}),
    Architecture("granite", "causal"),
    Architecture("llama", "causal"),
    Architecture("mamba", "causal", {"state_size": 4, "time_step_rank": 2}),
    Architecture("mamba2", "causal", {"state_size": 4, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8}),
    Architecture("mistral", "causal"),
    Architecture("mpt", "causal", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}),
    Architecture("olmo2", "causal"),
    Architecture("opt", "causal", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    Architecture("phi", "causal"),
    Architecture("phi3", "causal"),
    Architecture("qwen2", "causal"),
    Architecture("qwen3", "causal"),
    Architecture("recurrent_gemma", "causal", {"lru_width": 32, "attention_window_size": 8, "num_hidden_layers": 3}),
    Architecture("rwkv", "causal", {"attention_hidden_size": 32}),
    Architecture("stablelm", "causal"),
    Architecture("starcoder2", "causal"),
    # Mixtures of experts
    Architecture("deepseek_v2", "causal", _experts(n_shared_experts=1, **DEEPSEEK), torch.float32),
    Architecture("deepseek_v3", "causal", _experts(**DEEPSEEK), torch.float32),
    Architecture("ernie4_5_moe", "causal", _experts(moe_num_experts=4, moe_k=2), torch.float32),
    Architecture("glm4_moe", "causal", _experts(n_routed_experts=4, first_k_dense_replace=1), torch.float32),
    Architecture("gpt_oss", "causal", _experts(num_local_experts=4), torch.float32),
    Architecture("granitemoe", "causal", _experts(num_local_experts=4), torch.float32),
    Architecture("mixtral", "causal", _experts(num_local_experts=4), torch.float32),
    Architecture("olmoe", "causal", _experts(num_experts=4), torch.float32),
    Architecture("phimoe", "causal", _experts(num_local_experts=4), torch.float32),
    Architecture("qwen2_moe", "causal", _experts(num_experts=4, shared_expert_intermediate_size=32), torch.float32),
    Architecture("qwen3_moe", "causal", _experts(num_experts=4), torch.float32),
    # Text to text
    Architecture("bart", "text to text"),
    Architecture("marian", "text to text"),
    Architecture("pegasus", "text to text"),
    Architecture("mt5", "T5"),
    Architecture("switch_transformers", "T5", {"num_experts": 2, "num_sparse_encoder_layers": 1}),
    Architecture("t5", "T5"),
    # Images
    Architecture("beit", "image"),
    Architecture("deit", "image"),
    Architecture("dinov2", "image"),
    Architecture("vit", "image"),
    Architecture("swin", "image", WINDOWED),
    Architecture("swinv2", "image", WINDOWED),
    Architecture("convnext", "staged image"),
    Architecture("convnextv2", "staged image"),
    Architecture("mobilenet_v2", "staged image", {"depth_multiplier": 0.25}),
    Architecture(
        "poolformer",
        "staged image",
        {
            "num_encoder_blocks": 2,
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "padding": [2, 1],
        },
    ),
    Architecture("regnet", "staged image", {"embedding_size": 8, "groups_width": 8, "num_hidden_layers": UNSET}),
    Architecture("resnet", "staged image", {"embedding_size": 8, "layer_type": "basic"}),
    Architecture(
        "segformer",
        "staged image",
        {
            "num_encoder_blocks": 2,
            "sr_ratios": [2, 1],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
        },
    ),
    # Sound
    Architecture("audio-spectrogram-transformer", "spectrogram"),
    Architecture("hubert", "sound"),
    Architecture("wav2vec2", "sound"),
    Architecture("whisper", "spectrogram to text"),
    # Text and images
    Architecture(
        "clip",
        "text and image",
        {
            "projection_dim": 16,
            "text_config": {**TOKENS, **SIZES, "projection_dim": 16},
            "vision_config": {**SIZES, **IMAGES, "projection_dim": 16},
        },
    ),
)

BY_NAME = {architecture.name: architecture for architecture in ZOO}
