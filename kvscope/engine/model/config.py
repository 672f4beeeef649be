"""The shape of a decoder, read from a Hugging Face `config.json` or from GGUF metadata.

Everything that the decoder cannot compute exactly is refused here, by name. Knows nothing of files or weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvscope.errors import ModelError

HF_ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""Class names in `architectures` of a config.json, and the family each belongs to. SmolLM2 is a Llama."""

GGUF_ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
"""Values of `general.architecture`. Mistral files say "llama"."""

_QK_NORM_FAMILIES = ("qwen3",)
_ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary embedding: the base and how it is stretched. `parameters` are the scaling's own, by Hugging Face names."""

    theta: float = 10_000.0
    rope_type: str = "default"
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What a decoder of the family is made of. Names as in Hugging Face's configs, but for `family`."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope: RopeConfig
    tie_word_embeddings: bool = False
    sliding_window: int | None = None
    """Set only where it is smaller than the positions: attention is exact up to this length, and not beyond."""
    dtype: str = "bfloat16"
    """What the weights were published in."""

    @property
    def has_qk_norm(self) -> bool:
        return self.family in _QK_NORM_FAMILIES

    @property
    def max_model_len(self) -> int:
        """The longest sequence that is computed exactly."""
        return min(self.max_position_embeddings, self.sliding_window or self.max_position_embeddings)

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Returns the KV cache's bytes for one token, all layers, keys and values."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * dtype_bytes

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "max_position_embeddings",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ModelError(f"the model's configuration has {name} {value!r}: a whole number above 0 is needed")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ModelError(
                f"the model's configuration has {self.num_attention_heads} attention heads over "
                f"{self.num_key_value_heads} key/value heads: the first must be a multiple of the second"
            )
        if self.head_dim % 2:
            raise ModelError(f"the model's configuration has head_dim {self.head_dim}: rotary embedding needs it even")


def config_from_huggingface(config: Mapping[str, Any], source: str) -> ModelConfig:
    """Reads a `config.json`.

    Raises:
        ModelError: an architecture, quantization or setting that is not supported, or a field that is missing.
    """
    family = _huggingface_family(config, source)
    _refuse_unsupported(config, source)
    head_count = _required(config, "num_attention_heads", source)
    hidden_size = _required(config, "hidden_size", source)
    max_positions = int(config.get("max_position_embeddings") or 2048)
    return ModelConfig(
        family=family,
        vocab_size=_required(config, "vocab_size", source),
        hidden_size=hidden_size,
        intermediate_size=_required(config, "intermediate_size", source),
        num_hidden_layers=_required(config, "num_hidden_layers", source),
        num_attention_heads=head_count,
        num_key_value_heads=config.get("num_key_value_heads") or head_count,
        head_dim=config.get("head_dim") or hidden_size // head_count,
        rms_norm_eps=float(config.get("rms_norm_eps") or 1e-6),
        max_position_embeddings=max_positions,
        rope=_huggingface_rope(config, source),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        sliding_window=_huggingface_sliding_window(config, family, max_positions),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch."),
    )


def config_from_gguf(metadata: Mapping[str, Any], vocab_size: int, source: str) -> ModelConfig:
    """Reads GGUF metadata; `vocab_size` is the number of rows of the embedding.

    Raises:
        ModelError: an architecture or setting that is not supported, or a key that is missing.
    """
    arch = metadata.get("general.architecture")
    if arch not in GGUF_ARCHITECTURES:
        raise ModelError(
            f"{source}: architecture {arch!r} is not supported; supported are {', '.join(GGUF_ARCHITECTURES)}"
        )

    def key(name: str) -> Any:
        return _required(metadata, f"{arch}.{name}", source)

    if metadata.get(f"{arch}.expert_count"):
        raise ModelError(f"{source}: a mixture of experts ({arch}.expert_count) is not supported; take a dense model")
    head_count = key("attention.head_count")
    if not isinstance(head_count, int):
        raise ModelError(f"{source}: head counts that differ from layer to layer are not supported")
    head_dim = metadata.get(f"{arch}.attention.key_length") or key("embedding_length") // head_count
    rotary_dim = metadata.get(f"{arch}.rope.dimension_count", head_dim)
    if rotary_dim != head_dim:
        raise ModelError(f"{source}: rotary embedding over {rotary_dim} of {head_dim} dimensions is not supported")
    max_positions = key("context_length")
    window = metadata.get(f"{arch}.attention.sliding_window")
    return ModelConfig(
        family=arch,
        vocab_size=vocab_size,
        hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"),
        num_hidden_layers=key("block_count"),
        num_attention_heads=head_count,
        num_key_value_heads=metadata.get(f"{arch}.attention.head_count_kv") or head_count,
        head_dim=head_dim,
        # Stored as float32: 9.999999747378752e-06 was written as 1e-05.
        rms_norm_eps=float(f"{key('attention.layer_norm_rms_epsilon'):.6g}"),
        max_position_embeddings=max_positions,
        rope=_gguf_rope(metadata, arch, source),
        sliding_window=window if window and window < max_positions else None,
        dtype="bfloat16",
    )


def _huggingface_family(config: Mapping[str, Any], source: str) -> str:
    architectures = config.get("architectures") or []
    for architecture in architectures:
        if architecture in HF_ARCHITECTURES:
            return HF_ARCHITECTURES[architecture]
    model_type = config.get("model_type")
    if not architectures and model_type in HF_ARCHITECTURES.values():
        return str(model_type)
    named = ", ".join(architectures) or model_type or "none named"
    raise ModelError(
        f"{source}: architecture {named} is not supported; supported are {', '.join(HF_ARCHITECTURES)} "
        "(Llama 2/3, SmolLM2, Mistral, Qwen2/2.5, Qwen3)"
    )


def _refuse_unsupported(config: Mapping[str, Any], source: str) -> None:
    if quantization := config.get("quantization_config"):
        method = quantization.get("quant_method", "unnamed") if isinstance(quantization, Mapping) else quantization
        raise ModelError(
            f"{source}: quantization {method!r} is not supported; take the unquantized weights or a GGUF file"
        )
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ModelError(f"{source}: activation {activation!r} is not supported; supported is 'silu'")
    rope = config.get("rope_parameters") or {}
    partial = config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise ModelError(f"{source}: partial_rotary_factor {partial} is not supported; supported is 1.0")
    if (pretraining_tp := config.get("pretraining_tp", 1)) != 1:
        raise ModelError(f"{source}: pretraining_tp {pretraining_tp} is not supported; supported is 1")


def _huggingface_rope(config: Mapping[str, Any], source: str) -> RopeConfig:
    # transformers 5 writes one `rope_parameters`; before that there were `rope_theta` and `rope_scaling`.
    parameters = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = float(parameters.pop("rope_theta", None) or config.get("rope_theta") or 10_000.0)
    rope_type = parameters.pop("rope_type", None) or parameters.pop("type", None) or "default"
    parameters.pop("type", None)
    if rope_type == "yarn":
        parameters.setdefault("original_max_position_embeddings", config.get("max_position_embeddings"))
    return _checked_rope(RopeConfig(theta=theta, rope_type=str(rope_type), parameters=parameters), source)


def _gguf_rope(metadata: Mapping[str, Any], arch: str, source: str) -> RopeConfig:
    # llama3's stretching is stored as a tensor of divisors, rope_freqs.weight: the loader hands it to the decoder.
    prefix = f"{arch}.rope.scaling."
    rope_type = metadata.get(prefix + "type") or "none"
    theta = float(metadata.get(f"{arch}.rope.freq_base") or 10_000.0)
    if rope_type == "none":
        return RopeConfig(theta=theta, parameters={})
    parameters: dict[str, Any] = {"factor": metadata.get(prefix + "factor")}
    if rope_type == "yarn":
        parameters["original_max_position_embeddings"] = metadata.get(prefix + "original_context_length")
    return _checked_rope(RopeConfig(theta=theta, rope_type=str(rope_type), parameters=parameters), source)


_ROPE_PARAMETERS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
}


def _checked_rope(rope: RopeConfig, source: str) -> RopeConfig:
    if rope.rope_type not in _ROPE_TYPES:
        raise ModelError(
            f"{source}: rope scaling {rope.rope_type!r} is not supported; supported are {', '.join(_ROPE_TYPES)}"
        )
    for name in _ROPE_PARAMETERS[rope.rope_type]:
        value = rope.parameters.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ModelError(
                f"{source}: rope scaling {rope.rope_type!r} needs {name} above 0, the configuration has {value!r}"
            )
    return rope


def _huggingface_sliding_window(config: Mapping[str, Any], family: str, max_positions: int) -> int | None:
    window = config.get("sliding_window")
    # Qwen configs name a window that is switched off, or used only by layers beyond max_window_layers.
    is_off = family in ("qwen2", "qwen3") and not config.get("use_sliding_window", False)
    if not window or is_off or family == "llama":
        return None
    return int(window) if window < max_positions else None


def _required(mapping: Mapping[str, Any], key: str, source: str) -> Any:
    value = mapping.get(key)
    if value is None:
        raise ModelError(f"{source}: {key} is missing; the file is incomplete, or not a model of this kind")
    return value
