"""Runs a bfloat16 model on a CPU: oneDNN's products, and kvscope's own kernels for everything between them.

The same interface as `TorchModelRunner`, which is its oracle. A step's numbers come from the scheduler's output by
array operations; of a request nothing is kept between steps but its KV.
"""

from __future__ import annotations

import itertools
import time

import numpy as np
import torch
from torch.nn.functional import embedding

from kvscope.engine.model.attention import PagedKVCache
from kvscope.engine.model.cpu.native_kernels import NativeKernels, RaggedBatch
from kvscope.engine.model.decoder import Decoder
from kvscope.engine.model.gpu.step_batch import SampledRows, read_requests
from kvscope.engine.model.sampler import Sampler
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
        sampled = read_requests(output)
        logits = self._forward(output, sampled)
        forwarded_ns = time.perf_counter_ns()
        token_ids, logprobs = self.sampler.sample(logits, sampled.rows) if sampled.rows else ([], [])
        result = collect_sampled(output, sampled.num_rows, token_ids, logprobs)
        result.forward_ns = forwarded_ns - started_ns
        result.sample_ns = time.perf_counter_ns() - forwarded_ns
        return result

    def _forward(self, output: SchedulerOutput, sampled: SampledRows) -> torch.Tensor:
        """Returns logits `[num_rows, vocab_size]` of the rows to be sampled."""
        num_tokens, num_rows = len(sampled.token_ids), len(sampled.indices)
        padding = [0] * max(_MIN_NUM_ROWS - num_tokens, 0)
        batch = _ragged_batch(output, self.kv_cache.block_size, len(padding))
        token_ids = torch.tensor(sampled.token_ids + padding, dtype=torch.int64)
        rows = None
        if num_rows < num_tokens:
            padding = [0] * (_MIN_NUM_ROWS - num_rows) if num_rows else []
            rows = torch.tensor(sampled.indices + padding, dtype=torch.int64)
        return forward(self.decoder, self.kv_cache, token_ids, batch, rows, self._cos, self._sin)[:num_rows]


def forward(
    decoder: Decoder,
    cache: PagedKVCache,
    token_ids: torch.Tensor,
    batch: RaggedBatch,
    rows: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> torch.Tensor:
    """Writes the tokens' keys and values and returns logits `[num_rows, vocab_size]`.

    The same order of operations as `Decoder.forward`. Behind the last layer's attention only the sampled rows go on.

    token_ids: int64 `[num_tokens]`; rows: int64 `[num_rows]`, the tokens to be sampled, None for all;
    cos, sin: float32 `[num_positions, head_dim // 2]`.
    """
    config, kernels = decoder.config, NativeKernels(torch.get_num_threads())
    eps, scale, last = config.rms_norm_eps, config.head_dim**-0.5, len(decoder.layers) - 1
    following_norms = [*(layer.input_norm for layer in decoder.layers[1:]), decoder.final_norm]
    hidden = embedding(token_ids, decoder.embedding_weight)
    normed = kernels.rms_norm(hidden, decoder.layers[0].input_norm, eps)
    for index, (layer, following_norm) in enumerate(zip(decoder.layers, following_norms, strict=True)):
        key, value = cache.key[index], cache.value[index]
        query = kernels.rotate_and_cache(
            layer.qkv(normed),
            batch,
            cos,
            sin,
            key,
            value,
            num_heads=config.num_attention_heads,
            qk_norm=layer.qk_norm,
            eps=eps,
        )
        attended = kernels.paged_attention(query, key, value, batch, scale=scale).view(len(query), -1)
        if index == last and rows is not None:
            attended, hidden = attended.index_select(0, rows), hidden.index_select(0, rows)
        normed = kernels.rms_norm(layer.attention_out(attended), layer.post_attention_norm, eps, residual=hidden)
        out = layer.down(kernels.silu_and_mul(layer.gate_up(normed)))
        normed = kernels.rms_norm(out, following_norm, eps, residual=hidden)
    return decoder.lm_head(normed)


def _ragged_batch(output: SchedulerOutput, block_size: int, num_padding: int) -> RaggedBatch:
    """Returns the step's batch; tokens of padding belong to no sequence and are written nowhere."""
    query_lens = np.asarray(output.num_scheduled_tokens, dtype=np.int64)
    num_seqs = len(query_lens)
    seq_lens = np.fromiter((request.num_computed_tokens for request in output.requests), np.int64, num_seqs)
    query_starts = np.zeros(num_seqs + 1, dtype=np.int64)
    np.cumsum(query_lens, out=query_starts[1:])
    table_lens = np.fromiter((len(request.block_ids) for request in output.requests), np.int64, num_seqs)
    table_starts = np.cumsum(table_lens) - table_lens
    block_ids = np.fromiter(
        itertools.chain.from_iterable(request.block_ids for request in output.requests), np.int32, int(table_lens.sum())
    )
    positions = np.arange(query_starts[-1]) + np.repeat(seq_lens - query_starts[1:], query_lens)
    blocks = block_ids[np.repeat(table_starts, query_lens) + positions // block_size]
    slots = blocks.astype(np.int64) * block_size + positions % block_size
    if num_padding:
        positions, slots = np.pad(positions, (0, num_padding)), np.pad(slots, (0, num_padding), constant_values=-1)
    return RaggedBatch(
        positions=torch.from_numpy(positions),
        slot_mapping=torch.from_numpy(slots),
        query_starts=torch.from_numpy(query_starts.astype(np.int32)),
        seq_lens=torch.from_numpy(seq_lens.astype(np.int32)),
        block_ids=torch.from_numpy(block_ids),
        table_starts=torch.from_numpy(table_starts),
    )
