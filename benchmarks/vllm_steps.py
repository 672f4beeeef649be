"""Runs scenarios through vLLM's own scheduler and tells its books after every step. Run it where vLLM is installed.

One scenario a line of JSON on standard input (the file format of `kvscope simulate`), one line on standard output with
a list of steps, in the field names of `kvscope dump`; or `{"error": …}` where vLLM raised. No model: outputs and drafts
are the scenario's, and drafts are verified greedily. Synchronous scheduling, one full-attention group.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from typing import Any

os.environ.setdefault("PYTHONHASHSEED", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm.config import CacheConfig, ModelConfig, ParallelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager
from vllm_scheduler import TINY_LLAMA  # beside this file, which is run as a script


def new_scheduler(config: dict[str, Any], model: str) -> Scheduler:
    """Returns vLLM's scheduler with the settings of a scenario."""
    model_config = ModelConfig(
        model=model, dtype="float32", skip_tokenizer_init=True, max_model_len=config["max_model_len"]
    )
    num_spec_tokens = config.get("num_spec_tokens", 0)
    parallel_config = ParallelConfig()
    speculative_config = None
    if num_spec_tokens:
        speculative_config = SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=num_spec_tokens,
            prompt_lookup_min=1,
            prompt_lookup_max=3,
            target_model_config=model_config,
            target_parallel_config=parallel_config,
        )
    vllm_config = VllmConfig(
        scheduler_config=SchedulerConfig(
            max_num_seqs=config["max_num_seqs"],
            max_num_batched_tokens=config["max_num_batched_tokens"],
            max_num_scheduled_tokens=config.get("max_num_scheduled_tokens"),
            max_model_len=config["max_model_len"],
            enable_chunked_prefill=config["enable_chunked_prefill"],
            long_prefill_token_threshold=config["long_prefill_token_threshold"],
            scheduler_reserve_full_isl=config["scheduler_reserve_full_isl"],
            policy=config["policy"],
            watermark=config["watermark"],
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        model_config=model_config,
        cache_config=CacheConfig(
            block_size=config["block_size"], enable_prefix_caching=config["enable_prefix_caching"]
        ),
        parallel_config=parallel_config,
        speculative_config=speculative_config,
    )
    # What starting an engine would choose anew from all of it is what the scenario says.
    vllm_config.scheduler_config.max_num_scheduled_tokens = config.get("max_num_scheduled_tokens")
    vllm_config.cache_config.num_gpu_blocks = config["num_gpu_blocks"]
    spec = FullAttentionSpec(block_size=config["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32)
    scheduler = Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            num_blocks=config["num_gpu_blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=config["block_size"],
        log_stats=False,
    )
    scheduler.num_lookahead_tokens = config.get("num_lookahead_tokens") or 0
    return scheduler


@dataclasses.dataclass
class Script:
    """What a request's model and drafter say."""

    output_token_ids: list[int]
    drafts: list[list[int]]
    num_samplings: int = 0


class Run:
    """One scenario under way, as `kvscope.engine.scheduling.scripted_run` runs it."""

    def __init__(self, scenario: dict[str, Any], model: str) -> None:
        self.config = scenario["config"]
        self.entries = scenario["requests"]
        self.scheduler = new_scheduler(self.config, model)
        self.hasher = get_request_block_hasher(self.config["block_size"], sha256)
        self.scripts: dict[str, Script] = {}

    def step(self, step: int) -> dict[str, Any]:
        """Makes one step and returns its record."""
        scheduler = self.scheduler
        for entry in self.entries:
            if entry["arrival_step"] == step:
                self._arrive(entry)
        self._cancel(step, is_mid=False)
        output = scheduler.schedule()
        record: dict[str, Any] = {
            "num_scheduled_tokens": dict(output.num_scheduled_tokens),
            "scheduled_spec_tokens": {key: list(ids) for key, ids in output.scheduled_spec_decode_tokens.items()},
            "after_schedule": self._books(),
        }
        ids = list(output.num_scheduled_tokens)
        drafts: dict[str, list[int]] = {}
        sampled = [self._sample(request_id, output, drafts) for request_id in ids]
        self._cancel(step, is_mid=True)
        live = {request_id: scheduler.requests[request_id] for request_id in ids if request_id in scheduler.requests}
        num_before = {request_id: request.num_tokens for request_id, request in live.items()}
        scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        if drafts:
            scheduler.update_draft_token_ids(DraftTokenIds(list(drafts), list(drafts.values())))
        record["sampled"] = {
            key: list(request.all_token_ids)[num_before[key] :]
            for key, request in live.items()
            if request.num_tokens > num_before[key]
        }
        record["finished"] = [
            [key, RequestStatus.get_finished_reason(request.status).name]
            for key, request in live.items()
            if request.is_finished()
        ]
        record["after_update"] = self._books()
        return record

    def _arrive(self, entry: dict[str, Any]) -> None:
        params = SamplingParams(
            temperature=0.0, max_tokens=entry["max_tokens"], stop_token_ids=entry.get("stop_token_ids") or []
        )
        self.scripts[entry["id"]] = Script(entry["output_token_ids"], entry.get("drafts") or [])
        self.scheduler.add_request(
            Request(
                request_id=entry["id"],
                prompt_token_ids=list(entry["prompt_token_ids"]),
                sampling_params=params,
                pooling_params=None,
                arrival_time=entry.get("arrival_time", 0.0),
                priority=entry.get("priority", 0),
                cache_salt=entry.get("cache_salt"),
                block_hasher=self.hasher if self.config["enable_prefix_caching"] else None,
            )
        )

    def _cancel(self, step: int, *, is_mid: bool) -> None:
        for entry in self.entries:
            if entry.get("cancel_step") == step and bool(entry.get("cancel_mid")) == is_mid:
                self.scheduler.finish_requests([entry["id"]], RequestStatus.FINISHED_ABORTED)

    def _sample(self, request_id: str, output: Any, drafts: dict[str, list[int]]) -> list[int]:
        request = self.scheduler.requests[request_id]
        if request.num_computed_tokens < request.num_tokens:
            return []
        script = self.scripts[request_id]
        start = request.num_output_tokens
        end = start + 1
        for draft in output.scheduled_spec_decode_tokens.get(request_id, ()):
            if end >= len(script.output_token_ids) or draft != script.output_token_ids[end - 1]:
                break
            end += 1
        num_spec_tokens = self.config.get("num_spec_tokens", 0)
        if num_spec_tokens and script.num_samplings < len(script.drafts):
            drafts[request_id] = list(script.drafts[script.num_samplings][:num_spec_tokens])
        script.num_samplings += 1
        return list(script.output_token_ids[start:end])

    def _books(self) -> dict[str, Any]:
        scheduler = self.scheduler
        pool = scheduler.kv_cache_manager.block_pool
        tables = {key: scheduler.kv_cache_manager.get_block_ids(key)[0] for key in scheduler.requests}
        groups = [list(entry) for entry in pool.cached_block_hash_to_block._cache.values() if isinstance(entry, dict)]
        return {
            "waiting": [request.request_id for request in scheduler.waiting],
            "running": [request.request_id for request in scheduler.running],
            "free_queue": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
            "ref_cnt": {
                str(block.block_id): block.ref_cnt for block in pool.blocks if block.ref_cnt and not block.is_null
            },
            "cached_blocks": sorted(block.block_id for block in pool.blocks if block.block_hash is not None),
            "duplicate_groups": sorted(groups),
            "block_ids": {key: list(table) for key, table in tables.items() if table},
            "num_computed_tokens": {key: request.num_computed_tokens for key, request in scheduler.requests.items()},
            "num_tokens": {key: request.num_tokens for key, request in scheduler.requests.items()},
        }


def run_scenario(scenario: dict[str, Any], num_steps: int, model: str) -> list[dict[str, Any]]:
    """Returns the records of so many steps."""
    with contextlib.redirect_stdout(sys.stderr):
        run = Run(scenario, model)
        return [run.step(step) for step in range(num_steps)]


def main() -> None:
    """Answers scenarios until standard input ends."""
    init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as model:
        with open(os.path.join(model, "config.json"), "w") as file:
            json.dump(TINY_LLAMA, file)
        for line in sys.stdin:
            question = json.loads(line)
            try:
                answer: Any = run_scenario(question["scenario"], question["num_steps"], model)
            except Exception as error:  # vLLM's own: told, so that the run can be looked at
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
