"""On what the check runs: a GPU with the shapes of a real model, or a CPU with toy shapes, to try the check itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.gpu.poisoned import RecordingBackend
from benchmarks.gpu.seeded_model import QWEN3_0_6B, TINY
from kvscope.engine.model.config import ModelConfig
from kvscope.engine.model.decoder import Decoder
from kvscope.engine.model.gpu.device_queue import DeviceQueue
from kvscope.engine.model.gpu.gpu_model_runner import GPUModelRunner, RunnerLimits

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Setup:
    """A device, and how large everything is on it."""

    device: torch.device
    is_dry: bool

    @property
    def config(self) -> ModelConfig:
        return TINY if self.is_dry else QWEN3_0_6B

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """A CPU's interpreter has no quick bfloat16, and is there to run the code, not to look for rounding."""
        return (torch.float32,) if self.is_dry else (torch.bfloat16, torch.float16, torch.float32)

    @property
    def dtype(self) -> torch.dtype:
        """What the engine computes in."""
        return torch.float32 if self.is_dry else torch.bfloat16

    @property
    def batches(self) -> tuple[int, ...]:
        return (1, 2) if self.is_dry else (1, 32, 256)

    def pick(self, real: int, dry: int) -> int:
        """Returns a size."""
        return dry if self.is_dry else real

    def generator(self, seed: int = 0) -> torch.Generator:
        """Returns a source of random numbers on the device."""
        return torch.Generator(self.device).manual_seed(seed)

    def wait(self) -> None:
        """Waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def new_runner(self, decoder: Decoder, limits: RunnerLimits, *, queue: DeviceQueue | None = None) -> GPUModelRunner:
        """Returns a runner that has compiled its kernels and recorded its graphs."""
        runner = GPUModelRunner(decoder, limits, queue=queue)
        if not self.is_dry:
            runner.warm_up()
        runner.capture_graphs(RecordingBackend() if self.is_dry else None)
        return runner
