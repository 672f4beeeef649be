"""The kernels that the model runner calls, as one object: Triton's, or what stands in for them in a test.

Importing this module needs triton. Meanings and shapes are those of `kvscope.engine.kernels`.
"""

from __future__ import annotations

from typing import Protocol

import torch

from kvscope.engine.kernels.activation import silu_and_mul
from kvscope.engine.kernels.attention import AttentionBatch, paged_attention
from kvscope.engine.kernels.norm import rms_norm
from kvscope.engine.kernels.rotary import rotate_and_cache
from kvscope.engine.kernels.sampling import SamplingRows, sample


class Kernels(Protocol):
    """What a step needs. Nothing here may wait for the device or read a tensor's values on the host."""

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, *, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As `kernels.norm.rms_norm`."""
        ...

    def rotate_and_cache(
        self,
        qkv: torch.Tensor,
        positions: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        *,
        num_heads: int,
        qk_norm: torch.Tensor | None = None,
        eps: float = 1e-6,
    ) -> torch.Tensor:
        """As `kernels.rotary.rotate_and_cache`."""
        ...

    def paged_attention(
        self,
        query: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        batch: AttentionBatch,
        *,
        scale: float,
        num_splits: int | None = None,
    ) -> torch.Tensor:
        """As `kernels.attention.paged_attention`."""
        ...

    def silu_and_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """As `kernels.activation.silu_and_mul`."""
        ...

    def sample(self, logits: torch.Tensor, rows: SamplingRows | None) -> torch.Tensor:
        """As `kernels.sampling.sample`."""
        ...


class TritonKernels:
    """`kvscope.engine.kernels`."""

    rms_norm = staticmethod(rms_norm)
    rotate_and_cache = staticmethod(rotate_and_cache)
    paged_attention = staticmethod(paged_attention)
    silu_and_mul = staticmethod(silu_and_mul)
    sample = staticmethod(sample)
