"""The native runner beside the torch runner, on the families' weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kvscope.engine.model.cpu.native_kernels import NativeKernels
from kvscope.engine.model.cpu.native_model_runner import NativeModelRunner
from kvscope.engine.model.loader import Model, load_model
from kvscope.engine.model.model_runner import TorchModelRunner
from kvscope.engine.model.sampler import Sampler, SamplingRow
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import TokenLogprobs
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler
from tests.engine.model.families import FAMILIES
from tests.engine.model.test_decoder import write_folder

SIZES = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32}


class Spy(Sampler):
    """Keeps the logits it is shown."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.logits: list[torch.Tensor] = []

    def sample(self, logits: torch.Tensor, rows: list[SamplingRow]) -> tuple[list[int], list[TokenLogprobs | None]]:  # type: ignore[override]
        self.logits.append(logits.double())
        return [7] * len(rows), [None] * len(rows)


def all_logits(runner: TorchModelRunner | NativeModelRunner, spy: Spy) -> torch.Tensor:
    """Three prompts in chunks of 24 tokens among decodes, five tokens each, the same for every model."""
    config = SchedulerConfig(num_gpu_blocks=64, block_size=8, max_num_batched_tokens=24, max_model_len=128)
    scheduler = Scheduler(config)
    for i, length in enumerate((3, 50, 17)):
        sampling = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
        scheduler.add_request(Request(str(i), [(i * 11 + j * 7) % 32 for j in range(length)], sampling))
    while scheduler.has_unfinished_requests():
        output = scheduler.schedule()
        scheduler.update_from_output(output, runner.execute(output))
    return torch.cat(spy.logits)


def run(model: Model, kind: type[TorchModelRunner | NativeModelRunner]) -> torch.Tensor:
    spy = Spy()
    runner = kind(model.decoder, num_blocks=64, block_size=8, sampler=spy)
    logits = all_logits(runner, spy)
    for cache in (runner.kv_cache.key, runner.kv_cache.value):
        assert not cache[:, 0].any(), "something was written to the null block"
        assert cache[:, 1:].any()
    return logits


@pytest.mark.parametrize("family", ["llama3", "llama_biases", "smollm2", "qwen2", "qwen3"])
def test_it_is_as_near_to_float32_as_torchs_bfloat16(family: str, kernels: NativeKernels, tmp_path: Path) -> None:
    folder = str(write_folder(tmp_path, FAMILIES[family] | SIZES))
    exact = run(load_model(folder, dtype="float32"), TorchModelRunner)
    rounded = load_model(folder, dtype="bfloat16")
    torchs, natives = ((run(rounded, kind) - exact).abs().mean() for kind in (TorchModelRunner, NativeModelRunner))
    assert len(exact) == 15
    assert float(natives) < 1.2 * float(torchs)
    assert float(natives) < 0.03 * float(exact.abs().mean())
