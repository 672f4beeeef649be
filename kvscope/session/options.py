"""What a user chose for an engine: everything that an engine process needs to know, as one record."""

from __future__ import annotations

from typing import Any

import msgspec

from kvscope.engine.scheduling.request import SamplingParams

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_SAMPLING = SamplingParams(temperature=0.0, max_tokens=256)
"""Greedy: what was seen once can be seen again."""

GENERATION_CONFIGS = ("vllm", "auto")
"""vLLM's words: "vllm" leaves the model's generation_config.json aside, "auto" takes its sampling settings."""


KERNELS = ("triton", "native", "torch")
"""Whose kernels may be asked for."""


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """An engine to be. Fields that are None or missing are chosen when the model is known."""

    model: str = DEFAULT_MODEL
    dtype: str | None = None
    device: str | None = None
    kernels: str | None = None
    """One of `KERNELS`; by default Triton's on a GPU, kvscope's own on a CPU, where they run."""
    enforce_eager: bool = False
    """No CUDA graphs."""
    leaves_a_core: bool = True
    """On a CPU one core is left to a screen that runs beside the engine."""
    settings: dict[str, Any] = {}
    """Scheduler settings by their vLLM names."""
    sampling: dict[str, Any] = {}
    """Sampling settings for requests that do not say otherwise, over `DEFAULT_SAMPLING`."""
    generation_config: str = "vllm"
    """Where defaults for these come from: one of `GENERATION_CONFIGS`."""
    recording: str | None = None
    """Path of the file to write; None records nothing."""
    replaces_recording: bool = False
    """An existing file at `recording` is replaced."""
    may_take_another_name: bool = False
    """`recording` was made up: where another run has made that file meanwhile, this one's gets a number."""
    linger_s: float = 3.0
    """How long an engine process with nothing to do waits for a client."""
