"""Which way a model's steps are computed, and why not a quicker one.

On a GPU Triton's kernels with CUDA graphs, on a CPU kvscope's own in C ("native"), and torch's operations on both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from kvscope.engine.kernels import unavailable_reason
from kvscope.engine.model.config import ModelConfig
from kvscope.engine.model.cpu import native_kernels
from kvscope.errors import EngineError

KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
KERNEL_HEAD_DIMS = (64, 80, 96, 128)
KERNEL_BLOCK_SIZES = (8, 16, 32, 64)
KERNEL_MAX_HEADS_PER_KV_HEAD = 32


@dataclass(frozen=True, slots=True)
class ExecutionPath:
    """How steps are computed."""

    device: str
    kernels: Literal["triton", "native", "torch"]
    has_graphs: bool = False
    reason: str = ""
    """Why it is not the quickest that the device could have; empty where it is."""

    @property
    def label(self) -> str:
        """Returns the kernels in a word, as they are recorded."""
        return "triton+graphs" if self.has_graphs else self.kernels

    def __str__(self) -> str:
        if self.kernels == "torch":
            text = f"{self.device}, torch's kernels"
        elif self.kernels == "native":
            text = f"{self.device}, kvscope's own kernels"
        else:
            text = f"{self.device}, Triton's kernels, {'CUDA graphs' if self.has_graphs else 'no CUDA graphs'}"
        return f"{text} ({self.reason})" if self.reason else text


def choose_path(
    device: torch.device,
    problem: str | None,
    *,
    kernels: str | None = None,
    enforce_eager: bool = False,
) -> ExecutionPath:
    """Returns the way for a device.

    problem: what keeps the device's quickest kernels from running (`problem_of`), None where nothing does.
    kernels: "triton", "native" or "torch" where it was asked for.

    Raises:
        EngineError: kernels were asked for that cannot be had.
    """
    if kernels == "torch":
        return ExecutionPath(str(device), "torch", reason="asked for")
    quickest: Literal["triton", "native"] = "native" if device.type == "cpu" else "triton"
    if kernels not in (None, quickest):
        problem = f"they do not run on {device}"
    if problem is not None:
        if kernels is not None:
            raise EngineError(f"--kernels {kernels}: {problem}; take --kernels torch")
        return ExecutionPath(str(device), "torch", reason=problem)
    if quickest == "native":
        return ExecutionPath(str(device), "native")
    return ExecutionPath(
        str(device), "triton", has_graphs=not enforce_eager, reason="enforce_eager" if enforce_eager else ""
    )


def problem_of(device: torch.device, config: ModelConfig, dtype: torch.dtype, block_size: int) -> str | None:
    """Returns what keeps a device's quickest kernels from running this model, None where nothing does."""
    if device.type == "cpu":
        return native_kernels.problem_of(config, dtype)
    return unavailable_reason(device) or unsupported_shape(config, dtype, block_size)


def unsupported_shape(config: ModelConfig, dtype: torch.dtype, block_size: int) -> str | None:
    """Returns what of a model and its cache the kernels were not written for, None where they fit."""
    if dtype not in KERNEL_DTYPES:
        return f"the kernels have no {str(dtype).removeprefix('torch.')}"
    if config.head_dim not in KERNEL_HEAD_DIMS:
        return f"the kernels have no head_dim {config.head_dim}, only {_listed(KERNEL_HEAD_DIMS)}"
    heads = config.num_attention_heads // config.num_key_value_heads
    if heads > KERNEL_MAX_HEADS_PER_KV_HEAD:
        most = KERNEL_MAX_HEADS_PER_KV_HEAD
        return f"the kernels have no {heads} heads to a key/value head, at most {most}"
    if block_size not in KERNEL_BLOCK_SIZES:
        return f"the kernels have no block_size {block_size}, only {_listed(KERNEL_BLOCK_SIZES)}"
    return None


def _listed(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
