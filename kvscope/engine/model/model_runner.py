"""Runs the torch model on what the scheduler decided: one forward pass for all of a step's tokens.

Keeps nothing of a request between steps but its KV: tokens and block tables come with each step from the scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from kvscope.engine.model.attention import Span, build_metadata, order_spans
from kvscope.engine.model.decoder import Decoder
from kvscope.engine.model.sampler import Sampler, SamplingRow
from kvscope.engine.model.verification import collect_sampled, tokens_to_feed
from kvscope.engine.scheduling.output import ModelRunnerOutput, SchedulerOutput


class TorchModelRunner:
    """A `ModelRunner` over a decoder and a paged KV cache of `num_blocks` blocks."""

    def __init__(self, decoder: Decoder, *, num_blocks: int, block_size: int, sampler: Sampler | None = None) -> None:
        self.decoder = decoder
        self.kv_cache = decoder.new_kv_cache(num_blocks, block_size)
        self.sampler = sampler or Sampler()

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Computes the scheduled tokens and samples for every request whose tokens are complete."""
        if not output.requests:
            return ModelRunnerOutput(sampled_token_ids=[])
        started_ns = time.perf_counter_ns()
        logits, rows, num_rows = self._forward(output)
        self._wait_for_device()
        forwarded_ns = time.perf_counter_ns()
        token_ids, logprobs = self.sampler.sample(logits, rows) if rows else ([], [])
        result = collect_sampled(output, num_rows, token_ids, logprobs)
        result.forward_ns = forwarded_ns - started_ns
        result.sample_ns = time.perf_counter_ns() - forwarded_ns
        return result

    def _forward(self, output: SchedulerOutput) -> tuple[torch.Tensor, list[SamplingRow], list[int]]:
        """Returns logits `[num_rows, vocab_size]`, what each row is of, and the number of rows of each request."""
        spans = [
            Span(request.num_computed_tokens - count, count, request.block_ids)
            for request, count in zip(output.requests, output.num_scheduled_tokens, strict=True)
        ]
        order = order_spans(spans)
        fed: list[Sequence[int]] = [
            tokens_to_feed(
                request,
                span.num_computed_tokens,
                span.num_tokens,
                output.scheduled_spec_tokens.get(request.request_id, []),
            )
            for request, span in zip(output.requests, spans, strict=True)
        ]
        ends = dict(zip(order, np.cumsum([spans[i].num_tokens for i in order]).tolist(), strict=True))
        rows, num_rows, row_indices = self._rows_to_sample(output, ends)
        metadata = build_metadata([spans[i] for i in order], self.kv_cache)
        token_ids = np.concatenate([np.asarray(fed[i], dtype=np.int64) for i in order])
        positions = np.concatenate(
            [np.arange(spans[i].num_computed_tokens, spans[i].seq_len, dtype=np.int64) for i in order]
        )
        device = self.decoder.device
        hidden = self.decoder.forward(
            torch.from_numpy(token_ids).to(device), torch.from_numpy(positions).to(device), self.kv_cache, metadata
        )
        return self.decoder.logits(hidden[torch.tensor(row_indices, device=device, dtype=torch.int64)]), rows, num_rows

    @staticmethod
    def _rows_to_sample(
        output: SchedulerOutput, ends: dict[int, int]
    ) -> tuple[list[SamplingRow], list[int], list[int]]:
        """Only the last token of complete requests needs logits, and each draft.

        ends: by index of the request, where its tokens end in the concatenation.
        """
        rows: list[SamplingRow] = []
        num_rows: list[int] = []
        row_indices: list[int] = []
        for index, request in enumerate(output.requests):
            if request.num_computed_tokens < request.num_tokens:
                num_rows.append(0)
                continue
            drafts = output.scheduled_spec_tokens.get(request.request_id, [])
            num_rows.append(1 + len(drafts))
            first = ends[index] - 1 - len(drafts)
            for num_before in range(1 + len(drafts)):
                rows.append(SamplingRow(request, drafts[:num_before]))
                row_indices.append(first + num_before)
        return rows, num_rows, row_indices

    def _wait_for_device(self) -> None:
        if self.decoder.device.type == "cuda":
            torch.cuda.synchronize(self.decoder.device)
