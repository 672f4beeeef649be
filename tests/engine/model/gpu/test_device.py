"""Where a step's tensors lie: on torch's device for tensors without numbers ("meta"), which is not the host.

An operation over tensors of both raises, and so does whatever reads a number on the host.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch

from benchmarks.gpu.poisoned import RecordingBackend
from benchmarks.gpu.seeded_model import TINY, SeededWeights
from kvscope.engine.kernels.launch import Launch
from kvscope.engine.model.attention import Span, build_metadata, order_spans
from kvscope.engine.model.decoder import Decoder, build_decoder
from kvscope.engine.model.gpu.device_queue import HostQueue
from kvscope.engine.model.gpu.gpu_model_runner import GPUModelRunner, RunnerLimits
from kvscope.engine.scheduling.output import SchedulerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams

DEVICE = torch.device("meta")
LIMITS = RunnerLimits(num_blocks=9, block_size=8, max_num_batched_tokens=24, max_num_seqs=4, max_model_len=64)
ATTENTION = ["rotate_and_cache_kernel", "attention_kernel"]
SPLIT_ATTENTION = [*ATTENTION, "sum_splits_kernel"]
FEED_FORWARD = ["rms_norm_kernel", "silu_and_mul_kernel", "rms_norm_kernel"]


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    weights = SeededWeights(TINY, torch.device("cpu"))
    return build_decoder(TINY, weights, dtype=torch.bfloat16, device=DEVICE, max_model_len=64)


def request(num_tokens: int, num_computed_tokens: int, sampling: SamplingParams) -> Request:
    made = Request(request_id=f"of {num_tokens}", prompt_token_ids=[1] * num_tokens, sampling=sampling)
    made.num_computed_tokens = num_computed_tokens
    made.block_ids = [1, 2]
    return made


@pytest.mark.parametrize(
    ("num_scheduled_tokens", "attention"),
    [([1, 1], ATTENTION), ([1, 9], SPLIT_ATTENTION)],
    ids=["graph", "kernel by kernel"],
)
def test_nothing_of_a_step_lies_elsewhere_or_is_read_before_its_end(
    decoder: Decoder, num_scheduled_tokens: list[int], attention: list[str]
) -> None:
    launches: list[Launch] = []
    requests = [request(5, 5, SamplingParams(temperature=1, top_k=3)), request(9, 9, SamplingParams(temperature=0))]

    def keep(launch: Launch) -> None:
        launches.append(launch)

    with patch.object(Launch, "run", keep):
        runner = GPUModelRunner(decoder, LIMITS, queue=HostQueue(DEVICE))
        runner.warm_up()
        runner.capture_graphs(RecordingBackend())
        launches.clear()
        # What was sampled is copied to the host, which is not possible here: by then all has been queued.
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
            runner.execute(SchedulerOutput(0, requests, num_scheduled_tokens))

    expected = ["rms_norm_kernel", *2 * [*attention, *FEED_FORWARD], "sample_kernel"]
    assert [launch.kernel.__name__ for launch in launches] == expected
    tensors = [value for launch in launches for value in launch.arguments.values() if isinstance(value, torch.Tensor)]
    assert {tensor.device for tensor in tensors} == {DEVICE}


def test_the_torch_path_computes_there_too(decoder: Decoder) -> None:
    """Decodes of two lengths, a prompt and a chunk of one."""
    cache = decoder.new_kv_cache(40, 8)
    blocks = iter(range(1, 40))
    spans = [
        Span(computed, count, [next(blocks) for _ in range(-(-(computed + count) // 8))])
        for computed, count in ((4, 1), (60, 1), (0, 12), (9, 7))
    ]
    metadata = build_metadata([spans[index] for index in order_spans(spans)], cache)
    token_ids = torch.zeros(21, dtype=torch.int64, device=DEVICE)

    logits = decoder.logits(decoder.forward(token_ids, token_ids, cache, metadata))

    assert (logits.device, list(logits.shape)) == (DEVICE, [21, TINY.vocab_size])
