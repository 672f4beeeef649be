"""Samples a step's rows on the device; those with settings that only the torch sampler knows, with that.

Which of the two samples a row depends on its own settings alone: a request with a seed gets the same tokens in any
company. (They are other tokens than the torch sampler's: the kernel draws from the same distribution by another rule.)
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence

import torch

from kvscope.engine.kernels.sampling import SamplingRows
from kvscope.engine.model.gpu.device_queue import DeviceQueue
from kvscope.engine.model.gpu.kernel_set import Kernels
from kvscope.engine.model.gpu.step_buffer import Values
from kvscope.engine.model.sampler import Sampler, SamplingRow
from kvscope.engine.scheduling.output import TokenLogprobs
from kvscope.engine.scheduling.request import SamplingParams

_LARGEST_TOP_K = 2**31 - 1
"""What the kernel can be told; no vocabulary is larger."""


class DeviceSampler:
    """Samples with one wait for the device, which every step ends with."""

    def __init__(
        self, kernels: Kernels, sampler: Sampler, queue: DeviceQueue, max_num_rows: int, entropy: bytes | None = None
    ) -> None:
        """entropy: stands for the seed of requests that have none; random by default."""
        self._kernels = kernels
        self._sampler = sampler
        self._token_ids = queue.host_buffer(max_num_rows, torch.int64)
        self.sampled = queue.new_mark()
        """The end of the last step's work."""
        self._entropy = os.urandom(16) if entropy is None else entropy
        self._seed_without = functools.lru_cache(maxsize=4096)(self._new_seed)

    def warm_up(self, logits: torch.Tensor) -> None:
        """Queues what a step may sample with, for rows `[num_rows, vocab_size]` of anything."""
        num_rows, device = len(logits), logits.device
        self._kernels.sample(logits, None)
        rows = SamplingRows(
            temperatures=torch.ones(num_rows, device=device),
            top_ks=torch.full((num_rows,), 20, dtype=torch.int32, device=device),
            top_ps=torch.full((num_rows,), 0.9, device=device),
            min_ps=torch.zeros(num_rows, device=device),
            seeds=torch.zeros(num_rows, dtype=torch.int64, device=device),
            indices=torch.zeros(num_rows, dtype=torch.int64, device=device),
        )
        self._kernels.sample(logits, rows)

    def settings(self, rows: Sequence[SamplingRow]) -> list[tuple[Values, torch.dtype]]:
        """Returns what the kernel is told of the rows, all of them; nothing where all that it samples are greedy."""
        if all(row.request.sampling.is_greedy or needs_torch(row.request.sampling) for row in rows):
            return []
        params = [row.request.sampling for row in rows]
        return [
            ([sampling.temperature for sampling in params], torch.float32),
            ([min(sampling.top_k, _LARGEST_TOP_K) for sampling in params], torch.int32),
            ([sampling.top_p for sampling in params], torch.float32),
            ([sampling.min_p for sampling in params], torch.float32),
            ([self._seed(row) for row in rows], torch.int64),
            ([row.num_output_tokens for row in rows], torch.int64),
        ]

    def sample(
        self, logits: torch.Tensor, rows: Sequence[SamplingRow], settings: Sequence[torch.Tensor]
    ) -> tuple[list[int], list[TokenLogprobs | None]]:
        """Returns each row's token, and its logprobs where the request wants them. Waits for the device.

        logits: `[num_rows, vocab_size]`; settings: what `settings` gave, on the device.
        """
        token_ids = self._token_ids[: len(rows)]
        others = [index for index, row in enumerate(rows) if needs_torch(row.request.sampling)]
        if len(others) < len(rows):
            drawn = self._kernels.sample(logits, _sampling_rows(settings))
            token_ids.copy_(drawn, non_blocking=True)
        theirs = self._sampler.sample(logits[others], [rows[index] for index in others]) if others else ([], [])
        self.sampled.set()
        self.sampled.wait()
        result: list[int] = token_ids.tolist()
        logprobs: list[TokenLogprobs | None] = [None] * len(rows)
        for index, token_id, entry in zip(others, *theirs, strict=True):
            result[index], logprobs[index] = token_id, entry
        return result, logprobs

    def _seed(self, row: SamplingRow) -> int:
        seed = row.request.sampling.seed
        return _as_int64(seed) if seed is not None else self._seed_without(row.request.request_id)

    def _new_seed(self, request_id: str) -> int:
        digest = hashlib.blake2b(self._entropy + request_id.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


def needs_torch(sampling: SamplingParams) -> bool:
    """True for penalties, min_tokens and logprobs: the kernel knows none of them."""
    return (
        sampling.logprobs is not None
        or sampling.min_tokens > 0
        or sampling.repetition_penalty != 1.0
        or sampling.presence_penalty != 0.0
        or sampling.frequency_penalty != 0.0
    )


def _sampling_rows(settings: Sequence[torch.Tensor]) -> SamplingRows | None:
    if not settings:
        return None
    temperatures, top_ks, top_ps, min_ps, seeds, indices = settings
    return SamplingRows(
        temperatures=temperatures, top_ks=top_ks, top_ps=top_ps, min_ps=min_ps, seeds=seeds, indices=indices
    )


def _as_int64(seed: int) -> int:
    """Wraps any integer; different seeds below 2**64 stay different."""
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)
