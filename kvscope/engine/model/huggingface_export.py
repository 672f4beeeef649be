"""Writes a loaded model's weights as a Hugging Face folder, so that other engines can run the very same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from kvscope.engine.model.config import HF_ARCHITECTURES, ModelConfig
from kvscope.engine.model.decoder import WeightSource


def write_huggingface_folder(config: ModelConfig, source: WeightSource, folder: Path, dtype: torch.dtype) -> None:
    """Writes `config.json` and `model.safetensors`; no tokenizer. The folder must exist."""
    weights = {name: source.tensor(name).to(dtype).contiguous() for name in source.names()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = _settings(config, str(dtype).removeprefix("torch."))
    settings["attention_bias"] = any(name.endswith("q_proj.bias") for name in weights)
    settings["mlp_bias"] = any(name.endswith("gate_proj.bias") for name in weights)
    (folder / "config.json").write_text(json.dumps(settings, indent=1))


def _settings(config: ModelConfig, dtype: str) -> dict[str, Any]:
    architecture = next(name for name, family in HF_ARCHITECTURES.items() if family == config.family)
    return {
        "architectures": [architecture],
        "model_type": config.family,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope.theta,
        "rope_parameters": {
            "rope_type": config.rope.rope_type,
            "rope_theta": config.rope.theta,
            **config.rope.parameters,
        },
        "tie_word_embeddings": config.tie_word_embeddings,
        "dtype": dtype,
        "torch_dtype": dtype,
    }
