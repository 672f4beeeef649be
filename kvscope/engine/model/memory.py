"""How many blocks and threads the engine takes when nobody says: from free memory and the cores there are."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from kvscope.engine.model.config import ModelConfig
from kvscope.errors import ModelError

_SAMPLER_BYTES_PER_LOGIT = 20
"""float32 logits, their softmax, and a running sum in float64, with one copy of float32 between them."""
_GRAPH_BYTES = 16 << 20
"""A recorded graph's own, for some 300 kernels: not measured here; vLLM reports about so much a graph."""
_LIBRARY_BYTES = 256 << 20
"""cuBLAS's workspaces (32 MiB a stream on Hopper), compiled kernels, what the allocator loses between blocks."""
_MAX_DEFAULT_BYTES = 1 << 30
"""A debugger shares the machine with what is being debugged: by default no more than 1 GiB of KV on a CPU."""
_CGROUP = Path("/sys/fs/cgroup")


def free_memory_bytes(device: torch.device) -> int | None:
    """Returns the memory that can be had without swapping; None where the platform does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                left = _cgroup_memory_left()
                return min(int(line.split()[1]) * 1024, 1 << 62 if left is None else left)
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return None


def choose_num_gpu_blocks(
    *,
    kv_bytes_per_token: int,
    block_size: int,
    max_model_len: int,
    free_bytes: int | None,
    is_shared: bool = True,
    step_bytes: int = 0,
) -> int:
    """Returns how many blocks fit, the null block included.

    Memory that is shared with other programs is left alone for the most part: at most a quarter of what is free and
    1 GiB are taken. Of a GPU's, 90 % of what is free, less what a step needs besides (`gpu_step_bytes`).

    Raises:
        ModelError: one sequence of `max_model_len` tokens would not fit.
    """
    block_bytes = kv_bytes_per_token * block_size
    if is_shared:
        budget = min((free_bytes or _MAX_DEFAULT_BYTES * 4) // 4, _MAX_DEFAULT_BYTES)
    else:
        budget = max((free_bytes or 0) * 9 // 10 - step_bytes, 0)
    num_blocks = budget // block_bytes
    needed = 1 + -(-max_model_len // block_size)
    if num_blocks >= needed:
        return num_blocks
    # One whole sequence may take more than the default share, as long as it leaves half of what is free.
    if free_bytes is not None and needed * block_bytes > free_bytes // 2:
        fitting = max(int(free_bytes // 2 // block_bytes - 1) * block_size, 0)
        advice = f"set --max-model-len to at most {fitting}" if fitting else f"set --block-size below {block_size}"
        raise ModelError(
            f"one sequence of {max_model_len} tokens needs {_mib(needed * block_bytes)} of KV cache and "
            f"{_mib(free_bytes // 2)} may be taken; {advice} or take a smaller model"
        )
    return needed


def gpu_step_bytes(
    config: ModelConfig,
    *,
    itemsize: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    num_spec_tokens: int = 0,
    num_graphs: int,
    gathered_bytes: int = 0,
) -> int:
    """Returns what a GPU needs besides weights and KV cache: a step's tensors at their most, graphs, and libraries.

    Counts what lives at once in the widest place of the forward pass (the feed-forward layer), and logits with what
    the torch sampler makes of them, of each request's last token and its drafts. Graphs share one pool, as large as the
    largest one's tensors. `gathered_bytes` are the copies of keys and values that torch's attention makes, and kernels
    do not.
    """
    heads = config.num_attention_heads + 2 * config.num_key_value_heads
    widest = max(3 * config.intermediate_size, (heads + config.num_attention_heads) * config.head_dim)
    per_token = (3 * config.hidden_size + widest) * itemsize
    num_tokens = max_num_batched_tokens + (max_num_seqs if num_graphs else 0)
    per_row = config.vocab_size * (itemsize + _SAMPLER_BYTES_PER_LOGIT)
    num_rows = min(max_num_seqs * (1 + num_spec_tokens), max(max_num_batched_tokens, max_num_seqs))
    tensors = num_tokens * per_token + num_rows * per_row + gathered_bytes
    return tensors + num_graphs * _GRAPH_BYTES + _LIBRARY_BYTES


def check_fits(num_bytes: int, num_blocks: int, free_bytes: int | None) -> None:
    """Raises `ModelError` for a KV cache larger than the free memory: a process that takes it all is killed unheard."""
    if free_bytes is not None and num_bytes > free_bytes:
        raise ModelError(
            f"{num_blocks:,} blocks need {_mib(num_bytes)} of KV cache and {_mib(free_bytes)} are free; "
            f"set --num-gpu-blocks to at most {free_bytes * num_blocks // num_bytes:,}"
        )


def choose_num_threads(*, leaves_a_core: bool = True) -> int:
    """Returns how many threads torch should use: OMP_NUM_THREADS, else all cores, or all but one for a screen.

    Threads wait for each other: with one thread more than there are free cores, a step of SmolLM2 was seen to take a
    second instead of 60 ms.
    """
    if (asked := os.environ.get("OMP_NUM_THREADS", "")).isdigit() and int(asked) > 0:
        return int(asked)
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(num_cores, _cgroup_cores() or num_cores) - leaves_a_core)


def _cgroup_memory_left() -> int | None:
    """Returns the rest of a container's memory; pages of files that were only read count as free, as they are."""
    try:
        limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        parts = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return max(limit - used + int(parts["inactive_file"]), 0)
    except (OSError, ValueError, KeyError):
        return None


def _cgroup_cores() -> int | None:
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return None


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 20):,.0f} MiB"
