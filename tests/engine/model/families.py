"""Tiny models of every family: configurations, and weights by a formula that two sides can follow.

Knows only numpy: the recorder of the reference values runs where kvscope is not installed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_TOKENS = 96
POSITIONS = (0, 41, NUM_TOKENS - 1)
"""Where logits are compared."""

_VOCAB_SIZE = 32

_COMMON: dict[str, Any] = {
    "vocab_size": _VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
_MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
_QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
_QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}


def _rope(theta: float, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": theta, "rope_type": "default", **parameters}}


FAMILIES: dict[str, dict[str, Any]] = {
    "llama2": _COMMON | _LLAMA | _rope(10_000.0) | {"num_key_value_heads": 4},
    "llama2_linear": _COMMON | _LLAMA | _rope(10_000.0, rope_type="linear", factor=4.0),
    "llama3": _COMMON
    | _LLAMA
    | _rope(
        500_000.0,
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=32,
    ),
    "llama_dynamic": _COMMON | _LLAMA | _rope(10_000.0, rope_type="dynamic", factor=2.0),
    "llama_biases": _COMMON | _LLAMA | _rope(10_000.0) | {"attention_bias": True, "mlp_bias": True},
    "smollm2": _COMMON
    | _LLAMA
    | _rope(100_000.0)
    | {"num_attention_heads": 3, "num_key_value_heads": 1, "tie_word_embeddings": True},
    "mistral": _COMMON | _MISTRAL | _rope(1_000_000.0) | {"head_dim": 24, "sliding_window": None},
    "qwen2": _COMMON | _QWEN2 | _rope(1_000_000.0) | {"tie_word_embeddings": True},
    "qwen25_yarn": _COMMON
    | _QWEN2
    | _rope(1_000_000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32),
    "qwen3": _COMMON | _QWEN3 | _rope(1_000_000.0) | {"head_dim": 16, "attention_bias": False},
}


def token_ids() -> list[int]:
    """Returns the sequence that all families are given."""
    generator = np.random.Generator(np.random.PCG64(7))
    return [int(token_id) for token_id in generator.integers(3, _VOCAB_SIZE, NUM_TOKENS)]


def weights(config: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Returns all weights by Hugging Face's names: each from a generator seeded by its own name."""
    return {name: _values(name, shape) for name, shape in _shapes(config).items()}


def _values(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    values = generator.standard_normal(shape)
    if name.endswith("norm.weight"):
        values = 1 + 0.3 * values
    elif len(shape) == 2:
        values *= 1.5 / shape[1] ** 0.5
    return values.astype(np.float32)


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q_size, kv_size = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    is_qwen2, is_qwen3 = config["model_type"] == "qwen2", config["model_type"] == "qwen3"
    qkv_bias = is_qwen2 or config.get("attention_bias", False)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for index in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{index}."
        linears = {
            "self_attn.q_proj": (q_size, hidden, qkv_bias),
            "self_attn.k_proj": (kv_size, hidden, qkv_bias),
            "self_attn.v_proj": (kv_size, hidden, qkv_bias),
            "self_attn.o_proj": (hidden, q_size, config.get("attention_bias", False)),
            "mlp.gate_proj": (inner, hidden, config.get("mlp_bias", False)),
            "mlp.up_proj": (inner, hidden, config.get("mlp_bias", False)),
            "mlp.down_proj": (hidden, inner, config.get("mlp_bias", False)),
        }
        for name, (rows, columns, has_bias) in linears.items():
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            if has_bias:
                shapes[f"{prefix}{name}.bias"] = (rows,)
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
        if is_qwen3:
            shapes[prefix + "self_attn.q_norm.weight"] = (head_dim,)
            shapes[prefix + "self_attn.k_norm.weight"] = (head_dim,)
    return shapes
