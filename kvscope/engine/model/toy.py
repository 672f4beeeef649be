"""The built-in toy model: tiny, seeded, no download, a byte tokenizer.

It goes through the same decoder as the real models. Its weights are random, scaled so that what it says hangs on the
whole context: attention scores are sharp and what attention adds is large, so that one wrong block in the KV cache
changes its words. Only small letters, space and end-of-text have rows in the output matrix: every other token's logit
is 0, so that it speaks in letters, and the best of few candidates is far ahead of the second.

Any model with continuous weights comes close to a tie now and then: over 30,000 random contexts the smallest gap seen
here was 1e-5. So the toy computes in float64 by default, where another order of summation moves its logits by some
1e-14: no scheduling can flip its greedy tokens. (float32 moves them by 3e-5 at most.)
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from kvscope.engine.model.config import ModelConfig, RopeConfig
from kvscope.engine.model.tokenizer import Tokenizer, byte_tokenizer

TOY_NAME = "toy"
_SEED = 3
_END_OF_TEXT_SCALE = 0.7
"""Makes the end of a text rarer than a letter, so that answers are some ten words long."""


def toy_tokenizer() -> Tokenizer:
    """Returns the byte tokenizer."""
    return byte_tokenizer()


def toy_config() -> ModelConfig:
    """Returns the toy's shape: 2 layers, 4 heads over 2 key/value heads, 261 tokens, 4,096 positions."""
    return ModelConfig(
        family="llama",
        vocab_size=261,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        rms_norm_eps=1e-5,
        max_position_embeddings=4096,
        rope=RopeConfig(theta=10_000.0, parameters={}),
        dtype="float64",
    )


class ToyWeights:
    """The seeded weights as a `WeightSource`."""

    description = "the built-in toy model"

    def __init__(self, seed: int = _SEED) -> None:
        config = toy_config()
        hidden, inner = config.hidden_size, config.intermediate_size
        kv_size = config.num_key_value_heads * config.head_dim
        generator = np.random.Generator(np.random.PCG64(seed))

        def random(rows: int, columns: int, gain: float) -> torch.Tensor:
            values = generator.standard_normal((rows, columns), dtype=np.float32) * (gain / columns**0.5)
            return torch.from_numpy(values)

        self._weights = {
            "model.embed_tokens.weight": random(config.vocab_size, hidden, hidden**0.5),
            "model.norm.weight": torch.ones(hidden),
        }
        for index in range(config.num_hidden_layers):
            prefix = f"model.layers.{index}."
            self._weights |= {
                prefix + "input_layernorm.weight": torch.ones(hidden),
                prefix + "post_attention_layernorm.weight": torch.ones(hidden),
                prefix + "self_attn.q_proj.weight": random(hidden, hidden, 1.5),
                prefix + "self_attn.k_proj.weight": random(kv_size, hidden, 1.5),
                prefix + "self_attn.v_proj.weight": random(kv_size, hidden, 1.0),
                prefix + "self_attn.o_proj.weight": random(hidden, hidden, 3.0),
                prefix + "mlp.gate_proj.weight": random(inner, hidden, 1.0),
                prefix + "mlp.up_proj.weight": random(inner, hidden, 1.0),
                prefix + "mlp.down_proj.weight": random(hidden, inner, 2.0),
            }
        self._weights["lm_head.weight"] = _speaking_rows(random(config.vocab_size, hidden, 4.0))

    def names(self) -> Iterable[str]:
        return self._weights

    def tensor(self, name: str) -> torch.Tensor:
        return self._weights[name]


def _speaking_rows(head: torch.Tensor) -> torch.Tensor:
    """Zeroes the rows of all tokens but small letters, space and end-of-text."""
    spoken = torch.zeros(len(head), 1)
    spoken[[ord(" "), *range(ord("a"), ord("z") + 1)]] = 1
    spoken[list(byte_tokenizer().eos_token_ids)] = _END_OF_TEXT_SCALE
    return head * spoken
