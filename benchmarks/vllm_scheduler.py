"""Times vLLM's own scheduler on the cases of `kvscope bench scheduler`. Run by it, in an interpreter that has vLLM.

One case a line of JSON on standard input, one line `{"median_us": …}` for each on standard output. No model is loaded:
the configuration of a tiny one is written to a temporary folder, and every sampled token is 7.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

os.environ.setdefault("PYTHONHASHSEED", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

TINY_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "float32",
}


def new_scheduler(case: dict[str, Any], model: str) -> Scheduler:
    """Returns vLLM's synchronous scheduler with one full-attention group, statistics off."""
    num_seqs = case["num_running"] + case["num_admissions"]
    config = VllmConfig(
        scheduler_config=SchedulerConfig(
            max_num_seqs=num_seqs,
            max_num_batched_tokens=case["token_budget"],
            max_model_len=4096,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        model_config=ModelConfig(model=model, dtype="float32", skip_tokenizer_init=True),
        cache_config=CacheConfig(block_size=case["block_size"], enable_prefix_caching=True),
    )
    config.cache_config.num_gpu_blocks = case["num_blocks"]
    spec = FullAttentionSpec(block_size=case["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32)
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=case["num_blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=case["block_size"],
        log_stats=False,
    )


def time_case(case: dict[str, Any], model: str) -> float:
    """Returns the median of schedule and update, in µs of CPU time."""
    scheduler = new_scheduler(case, model)
    hasher = get_request_block_hasher(case["block_size"], sha256)

    def add(request_id: str, tokens: list[int], max_tokens: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        scheduler.add_request(
            Request(
                request_id=request_id,
                prompt_token_ids=tokens,
                sampling_params=params,
                pooling_params=None,
                block_hasher=hasher,
            )
        )

    def own_tokens(index: int) -> list[int]:
        size = case["num_prompt_tokens"]
        return list(range(10_000 + index * size, 10_000 + (index + 1) * size))

    for index in range(case["num_running"]):
        add(f"decode-{index}", own_tokens(index), 3000)
    times = []
    for step in range(case["num_steps"] + case["num_warm_up_steps"]):
        for index in range(case["num_admissions"]):
            shared = list(range(case["num_shared_tokens"]))
            add(f"hit-{step}-{index}", shared + own_tokens(1_000_000 + step * 8 + index), 1)
        start = time.thread_time_ns()
        output = scheduler.schedule()
        scheduled = time.thread_time_ns()
        request_ids = list(output.num_scheduled_tokens)
        model_output = ModelRunnerOutput(
            req_ids=request_ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(request_ids)},
            sampled_token_ids=[
                [] if scheduler.requests[request_id].is_prefill_chunk else [7] for request_id in request_ids
            ],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        executed = time.thread_time_ns()
        scheduler.update_from_output(output, model_output)
        times.append(scheduled - start + time.thread_time_ns() - executed)
    return statistics.median(times[case["num_warm_up_steps"] :]) / 1000


def main() -> None:
    """Answers cases until standard input ends."""
    init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as model:
        with open(os.path.join(model, "config.json"), "w") as file:
            json.dump(TINY_LLAMA, file)
        for line in sys.stdin:
            print(json.dumps({"median_us": time_case(json.loads(line), model)}), flush=True)


if __name__ == "__main__":
    main()
