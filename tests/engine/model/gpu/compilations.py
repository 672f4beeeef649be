"""Runs a GPU's steps as far as Triton's launcher, and prints what would be compiled, before the first step and later.

    python -m tests.engine.model.gpu.compilations graphs|eager

The launcher looks at every argument as on a GPU: types, integers that are 1 or divisible by 16, pointers' alignment. A
hook of Triton's hears of each launch that finds nothing compiled for these, and keeps it from being compiled. So no
kernel runs, and what steps sample means nothing. Must run in a process of its own, without TRITON_INTERPRET.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from benchmarks.gpu.poisoned import RecordingBackend
from benchmarks.gpu.seeded_model import TINY, seeded_decoder
from kvscope.engine.model.gpu.gpu_model_runner import GPUModelRunner, RunnerLimits
from kvscope.engine.scheduling.output import SchedulerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams

LIMITS = RunnerLimits(
    num_blocks=8, block_size=8, max_num_batched_tokens=256, max_num_seqs=20, max_model_len=8192, num_spec_tokens=3
)
GREEDY = SamplingParams(temperature=0)
RANDOM = SamplingParams(temperature=1, top_k=5, seed=1)


class Compilations:
    """What would be compiled: a kernel, for types, constants and what is known of numbers and pointers."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.kernels: list[str] = []

    def __call__(self, **launch: Any) -> bool:
        key = f"{launch['fn'].name} {launch['key']}"
        if key not in self.keys:
            self.keys.add(key)
            self.kernels.append(launch["fn"].name)
        return True


def step(runner: GPUModelRunner, work: list[tuple[int, int, int]], sampling: SamplingParams, step_index: int) -> None:
    """work: of each request its length, its tokens in this step, and how many of them are drafts."""
    requests, drafts = [], {}
    for index, (seq_len, count, num_drafts) in enumerate(work):
        request = Request(f"{step_index}-{index}", [1] * (seq_len - num_drafts), sampling)
        request.num_computed_tokens = seq_len
        request.block_ids = [1] * -(-seq_len // LIMITS.block_size)
        requests.append(request)
        if num_drafts:
            drafts[request.request_id] = [1] * num_drafts
        assert count > num_drafts
    counts = [count for _, count, _ in work]
    runner.execute(SchedulerOutput(step_index, requests, counts, scheduled_spec_tokens=drafts))
    runner.execute(SchedulerOutput(step_index, [], [], finished_request_ids=[r.request_id for r in requests]))


def serve(runner: GPUModelRunner) -> None:
    """Decodes in every number, chunks of many lengths alone and beside decodes, drafts."""
    numbers = random.Random(0)
    steps = [
        [(numbers.randint(1, 8192), 1, 0) for _ in range(num_requests)]
        for num_requests in range(1, LIMITS.max_num_seqs + 1)
    ]
    for num_tokens, num_decodes in itertools.product((2, 15, 16, 17, 100, 236), (0, 1, 2, 15, 16, 19)):
        decodes = [(numbers.randint(1, 8192), 1, 0) for _ in range(num_decodes)]
        steps.append([(num_tokens + numbers.randint(0, 7000), num_tokens, 0), *decodes])
    steps += [[(30, 1 + num_drafts, num_drafts), (20, 1, 0)] for num_drafts in (1, 2, 3)]
    for index, (work, sampling) in enumerate(itertools.product(steps, (GREEDY, RANDOM))):
        step(runner, work, sampling, index)


def main(has_graphs: bool) -> None:
    compilations = Compilations()
    triton.knobs.runtime.jit_cache_hook = compilations
    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
        )
    )
    decoder = seeded_decoder(TINY, torch.bfloat16, torch.device("cpu"), LIMITS.max_model_len)
    runner = GPUModelRunner(decoder, LIMITS)
    runner.warm_up(compiles_decodes=not has_graphs)
    if has_graphs:
        runner.capture_graphs(RecordingBackend())
    before = list(compilations.kernels)
    serve(runner)
    print(json.dumps({"before": before, "later": compilations.kernels[len(before) :]}))


if __name__ == "__main__":
    main(sys.argv[1] == "graphs")
