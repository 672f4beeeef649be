"""The GPU's runner with the real kernels, in Triton's interpreter: the torch runner's greedy tokens, in float32.

A model of two layers with random weights. A step takes a quarter of a second here, so one run has to show everything:
ragged batches, chunks beside decodes, a prefix hit, preemption, blocks that are used again, padded graphs. A graph
replays what was recorded, on the memory with which it was recorded, and no line of Python between.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.gpu.poisoned import PoisonedQueue
from benchmarks.gpu.seeded_model import TINY, seeded_decoder
from kvscope.engine.model.gpu.device_queue import HostQueue
from kvscope.engine.model.gpu.gpu_model_runner import GPUModelRunner, RunnerLimits
from kvscope.engine.model.model_runner import TorchModelRunner
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunner, SchedulerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler
from tests.engine.model.gpu.replayed_graph import ReplayBackend

CONFIG = SchedulerConfig(
    num_gpu_blocks=9,
    block_size=8,
    max_num_batched_tokens=24,
    max_num_seqs=4,
    max_model_len=64,
    scheduler_reserve_full_isl=False,
)
LIMITS = RunnerLimits(num_blocks=9, block_size=8, max_num_batched_tokens=24, max_num_seqs=4, max_model_len=64)
PROMPT_LENGTHS = (17, 5, 30, 1)
NUM_OUTPUT_TOKENS = 5


def prompts() -> list[list[int]]:
    """Random tokens; the last one begins with the first one's two blocks."""
    generator = torch.Generator().manual_seed(1)
    made: list[list[int]] = [
        torch.randint(0, TINY.vocab_size, (n,), generator=generator).tolist() for n in PROMPT_LENGTHS
    ]
    return [*made, [*made[0][:16], 3]]


def run(
    runner: ModelRunner, before_step: Callable[[], None] = lambda: None
) -> tuple[list[list[int]], list[SchedulerOutput], list[Request]]:
    scheduler = Scheduler(CONFIG)
    sampling = SamplingParams(temperature=0, max_tokens=NUM_OUTPUT_TOKENS)
    requests = [Request(str(index), prompt, sampling) for index, prompt in enumerate(prompts())]
    for request in requests:
        scheduler.add_request(request)
    outputs = []
    while scheduler.has_unfinished_requests():
        output = scheduler.schedule()
        outputs.append(output)
        before_step()
        scheduler.update_from_output(output, runner.execute(output))
    return [request.output_token_ids for request in requests], outputs, requests


def test_greedy_tokens_are_the_torch_runners() -> None:
    decoder = seeded_decoder(TINY, torch.float32, torch.device("cpu"), CONFIG.max_model_len)
    expected, outputs, requests = run(TorchModelRunner(decoder, num_blocks=9, block_size=8))
    counts = [output.num_scheduled_tokens for output in outputs]
    assert [1, 1, 22] in counts, "a chunk beside decodes"
    assert [1, 1, 1] in counts, "three decodes, for which there is a graph of four"
    assert [request.num_preemptions for request in requests] == [0, 0, 1, 0, 1]
    assert [request.num_hit_tokens for request in requests] == [0, 0, 24, 0, 32]

    queue = PoisonedQueue(HostQueue(torch.device("cpu")))
    runner = GPUModelRunner(decoder, LIMITS, queue=queue)
    backend = ReplayBackend()
    runner.capture_graphs(backend)
    tokens, _, _ = run(runner, queue.poison)
    assert tokens == expected
    # The largest was recorded first: 4, 2, 1.
    assert [graph.num_replays for graph in backend.graphs] == [1, 4, 2]
    for cache in (runner.kv_cache.key, runner.kv_cache.value):
        assert not cache[:, 0].any()
