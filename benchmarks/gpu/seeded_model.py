"""Models with seeded random weights: no file, no network, the shapes of a real model.

Gains are chosen so that attention is sharp (a wrong block changes what is said) and the residual stream stays level
over all layers. The output matrix is not tied to the embedding, as Qwen3-0.6B's is: with random weights that would
repeat the last token for ever. A step reads as many bytes as the real model's.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kvscope.engine.model.config import ModelConfig, RopeConfig
from kvscope.engine.model.decoder import Decoder, build_decoder

QWEN3_0_6B = ModelConfig(
    family="qwen3",
    vocab_size=151_936,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    rms_norm_eps=1e-6,
    max_position_embeddings=40_960,
    rope=RopeConfig(theta=1_000_000.0, parameters={}),
)
TINY = ModelConfig(
    family="qwen3",
    vocab_size=499,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=64,
    rms_norm_eps=1e-6,
    max_position_embeddings=256,
    rope=RopeConfig(theta=10_000.0, parameters={}),
)
"""For runs without a GPU."""

_GAINS = {
    "q_proj": 1.5,
    "k_proj": 1.5,
    "v_proj": 1.0,
    "o_proj": 1.0,
    "gate_proj": 1.0,
    "up_proj": 1.0,
    "down_proj": 1.0,
}
_HEAD_GAIN = 4.0
_QK_NORM = 1.5


class SeededWeights:
    """A `WeightSource` whose weights are made when they are asked for, on the device that will hold them."""

    def __init__(
        self, config: ModelConfig, device: torch.device, *, rounded_to: torch.dtype = torch.float32, seed: int = 0
    ) -> None:
        """rounded_to: what the weights are made for; a decoder in a wider dtype then computes with the same numbers."""
        self.description = "seeded weights"
        self._config = config
        self._device = device
        self._rounded_to = rounded_to
        self._generator = torch.Generator(device).manual_seed(seed)
        hidden, head_dim = config.hidden_size, config.head_dim
        q_size, kv_size = config.num_attention_heads * head_dim, config.num_key_value_heads * head_dim
        inner = config.intermediate_size
        self._shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (config.vocab_size, hidden),
            "model.norm.weight": (hidden,),
            "lm_head.weight": (config.vocab_size, hidden),
        }
        for index in range(config.num_hidden_layers):
            prefix = f"model.layers.{index}."
            self._shapes |= {
                prefix + "input_layernorm.weight": (hidden,),
                prefix + "post_attention_layernorm.weight": (hidden,),
                prefix + "self_attn.q_proj.weight": (q_size, hidden),
                prefix + "self_attn.k_proj.weight": (kv_size, hidden),
                prefix + "self_attn.v_proj.weight": (kv_size, hidden),
                prefix + "self_attn.o_proj.weight": (hidden, q_size),
                prefix + "mlp.gate_proj.weight": (inner, hidden),
                prefix + "mlp.up_proj.weight": (inner, hidden),
                prefix + "mlp.down_proj.weight": (hidden, inner),
            }
            if config.has_qk_norm:
                self._shapes |= {
                    prefix + "self_attn.q_norm.weight": (head_dim,),
                    prefix + "self_attn.k_norm.weight": (head_dim,),
                }

    def names(self) -> Iterable[str]:
        return self._shapes

    def tensor(self, name: str) -> torch.Tensor:
        shape = self._shapes[name]
        if len(shape) == 1:
            return torch.full(shape, _QK_NORM if name.endswith(("q_norm.weight", "k_norm.weight")) else 1.0)
        made = torch.randn(shape, generator=self._generator, device=self._device)
        if name != "model.embed_tokens.weight":
            kind = name.split(".")[-2]
            made.mul_((_HEAD_GAIN if kind == "lm_head" else _GAINS[kind]) / shape[1] ** 0.5)
        return made.to(self._rounded_to)


def seeded_decoder(
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    max_model_len: int,
    *,
    rounded_to: torch.dtype | None = None,
) -> Decoder:
    """Returns a decoder with seeded weights, rounded to its dtype or to another one that is narrower."""
    with torch.inference_mode():
        return build_decoder(
            config,
            SeededWeights(config, device, rounded_to=rounded_to or dtype),
            dtype=dtype,
            device=device,
            max_model_len=max_model_len,
        )
