"""Runs the cases of `kvscope bench engine` on transformers. Run by it, in an interpreter that has transformers.

Arguments: a Hugging Face folder. The same lines as `vllm_engine.py`. All prompts of a case have one length, so that
the batch needs no padding; a plain loop over the model's forward pass, which is a little quicker than `generate`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache


@torch.inference_mode()
def run(model: Any, case: dict[str, Any]) -> list[float]:
    """Returns when each step was done, in seconds."""
    start = time.perf_counter()
    token_ids = torch.tensor(case["prompts"])
    cache = DynamicCache(config=model.config)
    times = []
    for _ in range(case["num_tokens"]):
        logits = model(input_ids=token_ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        # numpy's: torch's own takes 10 ms for 32 rows of bfloat16 on a CPU.
        token_ids = torch.from_numpy(logits[:, -1].float().numpy().argmax(-1))[:, None]
        times.append(time.perf_counter() - start)
    return times


def main(folder: str) -> None:
    """Answers cases until standard input ends."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    print(json.dumps({"versions": versions}), flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        torch.set_num_threads(case["num_threads"])
        answer = {"step_times_s": run(model, case), "num_threads": torch.get_num_threads()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
