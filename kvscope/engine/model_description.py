"""What an engine says of its model: to whoever records it, and to whoever checks a request against it."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.events import EngineConfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """A model as it runs here."""

    name: str
    device: str = "cpu"
    dtype: str = ""
    kernels: str = ""
    """Whose kernels compute the steps, in a word; empty where nobody says."""
    kv_bytes_per_token: int = 0
    vocab_size: int | None = None
    """Token ids go up to one less; None where that is not known, as of a scripted model."""
    eos_token_ids: tuple[int, ...] = ()
    """Tokens that end a request, unless it ignores them."""
    started_at: str = ""
    """Wall clock, ISO 8601 with offset; empty for a scripted run."""
    engine_version: str = ""

    def configured(self, config: SchedulerConfig) -> EngineConfigured:
        """Returns model and settings as the first step of a run records them."""
        return EngineConfigured(
            model=self.name,
            device=self.device,
            dtype=self.dtype,
            kernels=self.kernels,
            settings=config.as_settings(),
            num_gpu_blocks=config.num_gpu_blocks,
            block_size=config.block_size,
            watermark_blocks=config.watermark_blocks,
            kv_bytes_per_token=self.kv_bytes_per_token,
            started_at=self.started_at,
            engine_version=self.engine_version,
            eos_token_ids=self.eos_token_ids,
        )
