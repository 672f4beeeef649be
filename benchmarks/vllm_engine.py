"""Runs the cases of `kvscope bench engine` on vLLM's CPU build. Run by it, in an interpreter that has vLLM.

Arguments: a Hugging Face folder, "compiled" or "eager". First it prints `{"versions": …}`; then, for each line
`{"prompts": [[…], …], "num_tokens": …, "num_threads": …}` on standard input, a line
`{"step_times_s": […], "num_threads": …}`: when each step's tokens were there, since the requests were submitted, and
the threads that they were computed with. Greedy, no stop tokens, no prefix cache, no text; a step may hold all prompts.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import torch
import vllm
from vllm import LLM, SamplingParams

_ids = itertools.count()
_set_num_threads = torch.set_num_threads
"""vLLM puts a function in its place that does nothing, because it binds threads to cores; here it does not."""


def run(engine: Any, case: dict[str, Any]) -> list[float]:
    """Returns when each step was done, in seconds."""
    params = SamplingParams(temperature=0.0, max_tokens=case["num_tokens"], ignore_eos=True, detokenize=False)
    start = time.perf_counter()
    for prompt in case["prompts"]:
        engine.add_request(str(next(_ids)), {"prompt_token_ids": prompt}, params)
    times = []
    while engine.has_unfinished_requests():
        engine.step()
        times.append(time.perf_counter() - start)
    return times


def main(folder: str, mode: str) -> None:
    """Answers cases until standard input ends."""
    llm = LLM(
        folder,
        dtype="bfloat16",
        max_model_len=2048,
        max_num_batched_tokens=8192,
        max_num_seqs=64,
        enforce_eager=mode == "eager",
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
    )
    versions = {"vllm": vllm.__version__, "torch": torch.__version__, "mode": mode}
    print(json.dumps({"versions": versions}), flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        _set_num_threads(case["num_threads"])
        answer = {"step_times_s": run(llm.llm_engine, case), "num_threads": torch.get_num_threads()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
