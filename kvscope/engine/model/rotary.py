"""Rotary position embedding: the angles for every position, with the scalings that the supported models use.

Sources: Su et al., RoFormer (2104.09864); Llama 3.1's frequency scaling (Meta, `apply_scaling`); Peng et al., YaRN
(2309.00071), sections 3.2 to 3.4, with the ramp's ends rounded outwards.
"""

from __future__ import annotations

import math

import torch

from kvscope.engine.model.config import ModelConfig, RopeConfig


def rotary_tables(
    config: ModelConfig, num_positions: int, frequency_divisors: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns cosines and sines, each float32 `[num_positions, head_dim // 2]`.

    `frequency_divisors` `[head_dim // 2]` divide the unscaled frequencies (GGUF's `rope_freqs.weight`).
    """
    frequencies, magnitude = _frequencies(config.rope, config.head_dim)
    if frequency_divisors is not None:
        frequencies = frequencies / frequency_divisors.to(frequencies.dtype)
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)
    return angles.cos() * magnitude, angles.sin() * magnitude


def apply_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates each head's dimension pairs (i, i + head_dim/2) by its token's angles.

    x: `[num_tokens, num_heads, head_dim]`; cos: `[num_tokens, 1, head_dim]` (halves repeated);
    sin: `[num_tokens, 1, head_dim // 2]`. Returns a new contiguous tensor.
    """
    half = x.shape[-1] // 2
    out = x * cos
    out[..., :half].addcmul_(x[..., half:], sin, value=-1)
    out[..., half:].addcmul_(x[..., :half], sin)
    return out


def _frequencies(rope: RopeConfig, head_dim: int) -> tuple[torch.Tensor, float]:
    """Returns each pair's angle per position, float32 `[head_dim // 2]`, and the factor of cos and sin."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    match rope.rope_type:
        case "linear":
            return frequencies / float(rope.parameters["factor"]), 1.0
        case "llama3":
            return _llama3_frequencies(frequencies, rope), 1.0
        case "yarn":
            return _yarn_frequencies(frequencies, rope, head_dim)
        case _:
            # "dynamic" changes nothing within max_position_embeddings, and longer sequences are refused.
            return frequencies, 1.0


def _llama3_frequencies(frequencies: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    """Slow frequencies are divided by `factor`, fast ones kept, those between blended by how often they turn."""
    factor = float(rope.parameters["factor"])
    low = float(rope.parameters["low_freq_factor"])
    high = float(rope.parameters["high_freq_factor"])
    turns = float(rope.parameters["original_max_position_embeddings"]) * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * frequencies + (1 - kept) * frequencies / factor


def _yarn_frequencies(frequencies: torch.Tensor, rope: RopeConfig, head_dim: int) -> tuple[torch.Tensor, float]:
    parameters = rope.parameters
    factor = float(parameters["factor"])
    original = float(parameters["original_max_position_embeddings"])

    def pair_that_turns(turns: float) -> float:
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    first = pair_that_turns(float(parameters.get("beta_fast") or 32.0))
    last = pair_that_turns(float(parameters.get("beta_slow") or 1.0))
    if parameters.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    pairs = torch.arange(head_dim // 2, dtype=torch.float32)
    stretched = ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)
    blended = frequencies * (1 - stretched) + frequencies / factor * stretched
    return blended, _yarn_magnitude(rope, factor)


def _yarn_magnitude(rope: RopeConfig, factor: float) -> float:
    if (given := rope.parameters.get("attention_factor")) is not None:
        return float(given)

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    mscale, all_dim = rope.parameters.get("mscale"), rope.parameters.get("mscale_all_dim")
    return scale(float(mscale)) / scale(float(all_dim)) if mscale and all_dim else scale(1.0)
