"""Runs a bfloat16 model on a CPU: oneDNN's products, and kvscope's own kernels for everything between them.

The same interface as `TorchModelRunner`, which is its oracle. A step's numbers come from the scheduler's output by
array operations; of a request nothing is kept between steps but its KV.
"""

from __future__ import annotations

import itertools
import time

import numpy as np
import torch

from kvscope.engine.model.cpu.native_kernels import NativeKernels, RaggedBatch
from kvscope.engine.model.decoder import Decoder
from kvscope.engine.model.fused_decoder import Attend, forward
from kvscope.engine.model.sampler import Sampler
from kvscope.engine.model.step_tokens import StepTokens, read_tokens, token_places
from kvscope.engine.model.verification import collect_sampled
from kvscope.engine.scheduling.output import ModelRunnerOutput, SchedulerOutput

_MIN_NUM_ROWS = 4
"""A smaller batch is padded. oneDNN's product of one row waits for its own sums: on a Zen 4 core one of four rows reads
the same weights in four fifths of the time. Not measured at start: the number of rows moves last digits, and what was
seen once should be seen again."""


class NativeModelRunner:
    """A `ModelRunner` over a decoder's weights and a paged KV cache of `num_blocks` blocks."""

    def __init__(self, decoder: Decoder, *, num_blocks: int, block_size: int, sampler: Sampler | None = None) -> None:
        self.decoder = decoder
        self.kv_cache = decoder.new_kv_cache(num_blocks, block_size)
        self.sampler = sampler or Sampler()
        self._cos, self._sin = (table.contiguous() for table in decoder.rotary)

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Computes the scheduled tokens and samples for every request whose tokens are complete."""
        if not output.requests:
            return ModelRunnerOutput(sampled_token_ids=[])
        started_ns = time.perf_counter_ns()
        tokens = read_tokens(output)
        logits = self._forward(output, tokens)
        forwarded_ns = time.perf_counter_ns()
        token_ids, logprobs = self.sampler.sample(logits, tokens.rows) if tokens.rows else ([], [])
        result = collect_sampled(output, tokens.num_rows, token_ids, logprobs)
        result.forward_ns = forwarded_ns - started_ns
        result.sample_ns = time.perf_counter_ns() - forwarded_ns
        return result

    def _forward(self, output: SchedulerOutput, tokens: StepTokens) -> torch.Tensor:
        """Returns logits `[num_rows, vocab_size]` of the rows to be sampled."""
        num_tokens, num_rows = len(tokens.token_ids), len(tokens.indices)
        padding = [0] * max(_MIN_NUM_ROWS - num_tokens, 0)
        batch = _ragged_batch(output, self.kv_cache.block_size, len(padding))
        token_ids = torch.tensor(tokens.token_ids + padding, dtype=torch.int64)
        rows = None
        if num_rows < num_tokens:
            padding = [0] * (_MIN_NUM_ROWS - num_rows) if num_rows else []
            rows = torch.tensor(tokens.indices + padding, dtype=torch.int64)
        kernels = NativeKernels(torch.get_num_threads())
        hidden = forward(self.decoder, kernels, self._attend(kernels, batch), token_ids, rows)
        return self.decoder.lm_head(hidden)[:num_rows]

    def _attend(self, kernels: NativeKernels, batch: RaggedBatch) -> Attend:
        """Returns a step's attention, over this runner's cache."""
        config, cache = self.decoder.config, self.kv_cache

        def attend(layer: int, qkv: torch.Tensor, qk_norm: torch.Tensor | None) -> torch.Tensor:
            key, value = cache.key[layer], cache.value[layer]
            query = kernels.rotate_and_cache(
                qkv,
                batch,
                self._cos,
                self._sin,
                key,
                value,
                num_heads=config.num_attention_heads,
                qk_norm=qk_norm,
                eps=config.rms_norm_eps,
            )
            scale = config.head_dim**-0.5
            return kernels.paged_attention(query, key, value, batch, scale=scale).view(len(qkv), -1)

        return attend


def _ragged_batch(output: SchedulerOutput, block_size: int, num_padding: int) -> RaggedBatch:
    """Returns the step's batch; tokens of padding belong to no sequence and are written nowhere."""
    places = token_places(output)
    num_seqs, positions = len(output.requests), places.positions
    table_lens = np.fromiter((len(request.block_ids) for request in output.requests), np.int64, num_seqs)
    table_starts = np.cumsum(table_lens) - table_lens
    block_ids = np.fromiter(
        itertools.chain.from_iterable(request.block_ids for request in output.requests), np.int32, int(table_lens.sum())
    )
    blocks = block_ids[np.repeat(table_starts, places.query_lens) + positions // block_size]
    slots = blocks.astype(np.int64) * block_size + positions % block_size
    if num_padding:
        positions, slots = np.pad(positions, (0, num_padding)), np.pad(slots, (0, num_padding), constant_values=-1)
    return RaggedBatch(
        positions=torch.from_numpy(positions),
        slot_mapping=torch.from_numpy(slots),
        query_starts=torch.from_numpy(places.query_starts.astype(np.int32)),
        seq_lens=torch.from_numpy(places.seq_lens.astype(np.int32)),
        block_ids=torch.from_numpy(block_ids),
        table_starts=torch.from_numpy(table_starts),
    )
