"""Every setting of an engine and of a request in a sentence, and settings written in one line.

Knows names and meanings; what a setting may be is decided where it is checked (`kvscope.engine.settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODEL_HELP = {
    "model": "A name of `kvscope models list`, a folder, a GGUF file, or a hub id.",
    "dtype": "bfloat16 or float32; by default what suits the device.",
    "device": "cpu or cuda; by default cuda where there is one.",
    "kernels": "triton, native or torch; by default triton on a GPU and native on a CPU, where they can be had.",
}
SCHEDULER_HELP = {
    "num_gpu_blocks": "Blocks in the pool, the null block included; by default chosen from memory.",
    "block_size": "Tokens a block.",
    "max_num_batched_tokens": "Token budget of a step.",
    "max_num_seqs": "Most running requests.",
    "max_model_len": "Most tokens of a request, prompt and output; by default the model's, at most 8192.",
    "enable_prefix_caching": "Keep and find cached prefixes.",
    "enable_chunked_prefill": "Let a prompt be computed in several steps.",
    "policy": "fcfs or priority.",
    "watermark": "Fraction of the pool that admission leaves free while anything runs.",
    "scheduler_reserve_full_isl": "Admit a request only if all its tokens fit, not only its first chunk.",
    "long_prefill_token_threshold": "Most tokens of one request in a step while others are there; 0 is off.",
    "max_num_scheduled_tokens": "Most scheduled tokens of a step, where lower than the budget.",
    "batching": "unified; to compare with: static (batches run to their end), exclusive (a step is prefill or decode).",
}
SAMPLING_HELP = {
    "temperature": "0 is greedy.",
    "top_p": "Sample from the most likely tokens that together reach this probability.",
    "top_k": "Sample from so many most likely tokens; 0 is off.",
    "min_p": "Drop tokens below this share of the most likely one's probability.",
    "repetition_penalty": "1 is off.",
    "presence_penalty": "0 is off.",
    "frequency_penalty": "0 is off.",
    "seed": "Makes sampling repeatable.",
    "stop": "A string that ends the answer; may be given several times.",
    "stop_token_ids": "A token id that ends the answer; may be given several times.",
    "ignore_eos": "Do not end at the model's end-of-sequence token.",
    "max_tokens": "Most tokens of an answer.",
    "min_tokens": "Tokens before any stop is looked at.",
    "logprobs": "Give so many top logprobs with each token.",
}
WITHOUT_OPTION = {
    "num_spec_tokens": "the model runner has no drafter",
    "num_lookahead_tokens": "of use only with drafts",
    "connector": "there is no other engine to load from",
    "kv_load_failure_policy": "of use only with a connector",
}
"""Scheduler settings that a live engine cannot have, and why; `simulate` takes them from its scenario."""


def settings_line(settings: Mapping[str, Any], separator: str = ", ") -> str:
    """Returns `name value` for each setting, in their order; several values as a list."""
    return separator.join(f"{name} {value_text(value)}" for name, value in settings.items())


def value_text(value: Any) -> str:
    """Returns a value as it can be typed: `true`, `0.7`, `a, b`; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def sampling_in_use(sampling: Mapping[str, Any], neutral: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that matter: how tokens are chosen, how many, and whatever is not neutral."""
    return {name: value for name, value in sampling.items() if name in _ALWAYS_SAID or value != neutral.get(name)}


_ALWAYS_SAID = ("temperature", "max_tokens")
