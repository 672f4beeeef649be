"""Runs a model on a GPU: one copy of a step's numbers, one graph or one pass of kernels, one wait for what was sampled.

The same interface as `TorchModelRunner`. Between steps it keeps the requests' block tables on the device, and of a
request nothing else. Steps in which every request has one token are replayed from a graph, padded to its size; all
others run kernel by kernel. Nothing in a step waits for the device before its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kvscope.engine.kernels.attention import AttentionBatch, decode_sizes
from kvscope.engine.model.decoder import Decoder
from kvscope.engine.model.gpu.cuda_graphs import CudaGraphBackend, DecodeGraphs, GraphBackend, capture_sizes
from kvscope.engine.model.gpu.device_queue import DeviceQueue, new_queue
from kvscope.engine.model.gpu.device_sampler import DeviceSampler
from kvscope.engine.model.gpu.kernel_decoder import KernelDecoder
from kvscope.engine.model.gpu.kernel_set import Kernels, TritonKernels
from kvscope.engine.model.gpu.step_batch import DecoderInputs, StepBatch, StepBatcher
from kvscope.engine.model.sampler import Sampler
from kvscope.engine.model.verification import collect_sampled
from kvscope.engine.scheduling.output import ModelRunnerOutput, SchedulerOutput

_MIXED_SPLITS = 8
_MANY_PAIRS = 128
"""From so many (decode, key/value head) pairs on they occupy a GPU of some 100 processors without being cut."""

OnProgress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerLimits:
    """The most that a step may hold; buffers are made for it."""

    num_blocks: int
    block_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    num_spec_tokens: int = 0

    @property
    def max_num_tokens(self) -> int:
        """Most tokens of a step."""
        return min(self.max_num_batched_tokens, self.max_num_seqs * self.max_model_len)

    @property
    def max_num_rows(self) -> int:
        """Most tokens of a step that are sampled: each request's last one, and its drafts."""
        return min(self.max_num_seqs * (1 + self.num_spec_tokens), self.max_num_tokens)


class GPUModelRunner:
    """A `ModelRunner` over a decoder's weights and a paged KV cache, both on one device."""

    def __init__(
        self,
        decoder: Decoder,
        limits: RunnerLimits,
        *,
        sampler: Sampler | None = None,
        kernels: Kernels | None = None,
        queue: DeviceQueue | None = None,
        entropy: bytes | None = None,
    ) -> None:
        self.decoder = decoder
        self.kv_cache = decoder.new_kv_cache(limits.num_blocks, limits.block_size)
        self.graphs: DecodeGraphs | None = None
        """None where every step runs kernel by kernel; see `capture_graphs`."""
        self._limits = limits
        self._queue = queue or new_queue(decoder.device)
        kernels = kernels or TritonKernels()
        self._forward = KernelDecoder(decoder, kernels, self.kv_cache).forward
        self._batcher = StepBatcher(
            max_num_tokens=limits.max_num_batched_tokens,
            max_num_seqs=limits.max_num_seqs,
            max_model_len=limits.max_model_len,
            block_size=limits.block_size,
            queue=self._queue,
        )
        max_num_tokens = max(limits.max_num_batched_tokens, limits.max_num_seqs)
        self._sampler = DeviceSampler(kernels, sampler or Sampler(), self._queue, max_num_tokens, entropy)
        self._forwarded = self._queue.new_mark()
        # What graphs read and write besides the step's numbers: in place before the first is recorded.
        self._hidden = self._queue.static_buffer((limits.max_num_seqs, decoder.config.hidden_size), decoder.dtype)
        self._tables = self._queue.static_buffer(tuple(self._batcher.tables.on_device.shape), torch.int32)

    # --- before the first step ----------------------------------------------------------------------------------------

    @torch.inference_mode()
    def warm_up(self, on_progress: OnProgress = lambda what, fraction: None, *, compiles_decodes: bool = False) -> None:
        """Runs a step of padding of each kind there is, one of them the largest, so that none waits for the compiler.

        compiles_decodes: steps of decodes alone too; `capture_graphs` does it where there will be graphs.
        """
        limits = self._limits
        largest = max(limits.max_num_tokens, 2)
        query_len = max(min(largest, limits.max_model_len), 2)
        # Tokens, requests, tokens of each, longest query, decodes: prompts alone, and a chunk beside a decode.
        passes = [
            (largest, -(-largest // query_len), query_len, query_len, 0),
            (2, min(2, limits.max_num_seqs), 0, 2, 1),
        ]
        if compiles_decodes:
            num_kv_heads = self.decoder.config.num_key_value_heads
            sizes = decode_sizes(self._queue.device, num_kv_heads, limits.max_num_seqs, limits.max_model_len)
            passes += [(size, size, 0, 1, size) for size in sizes]
        with self._queue.selected():
            for index, (num_tokens, num_requests, query_len, max_query_len, num_decodes) in enumerate(passes):
                on_progress("compiling kernels", index / len(passes))
                self._batcher.send_padding(num_tokens, num_requests, query_len)
                hidden = self._run(self._batcher.inputs(num_tokens, num_requests), max_query_len, num_decodes)
                if index == 0:
                    self._sampler.warm_up(self.decoder.lm_head(hidden[: limits.max_num_rows]))
            self._wait()

    @torch.inference_mode()
    def capture_graphs(
        self, backend: GraphBackend | None = None, on_progress: OnProgress = lambda what, fraction: None
    ) -> None:
        """Records a graph for each size of decode batch."""
        with self._queue.selected():
            graphs = DecodeGraphs(
                capture_sizes(self._limits.max_num_seqs), backend or CudaGraphBackend(self.decoder.device)
            )
            graphs.capture(
                lambda size: self._batcher.send_padding(size, size),
                self._run_decodes,
                lambda num_done, num_all: on_progress(f"recording {num_all} CUDA graphs", num_done / num_all),
            )
            self._wait()
        self.graphs = graphs

    def _wait(self) -> None:
        """Waits until all is done, so that an error on the device is raised by whoever made it."""
        self._forwarded.set()
        self._forwarded.wait()

    # --- a step -------------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Computes the scheduled tokens and samples for every request whose tokens are complete."""
        self._batcher.tables.forget(output.finished_request_ids)
        self._batcher.tables.forget(output.preempted_request_ids)
        if not output.requests:
            return ModelRunnerOutput(sampled_token_ids=[])
        started_ns = time.perf_counter_ns()
        with self._queue.selected():
            batch = self._batcher.fill(output, self._graph_size_for, self._sampler.settings)
            hidden = self._compute(batch)
            self._forwarded.set()
            logits = self.decoder.lm_head(hidden)
            token_ids, logprobs = self._sampler.sample(logits, batch.tokens.rows, batch.sampling)
        result = collect_sampled(output, batch.tokens.num_rows, token_ids, logprobs)
        result.sample_ns = self._forwarded.ns_until(self._sampler.sampled)
        result.forward_ns = time.perf_counter_ns() - started_ns - result.sample_ns
        return result

    def _graph_size_for(self, num_requests: int) -> int | None:
        return self.graphs.size_for(num_requests) if self.graphs is not None else None

    def _compute(self, batch: StepBatch) -> torch.Tensor:
        """Returns the hidden states of the tokens that are sampled, `[num_rows, hidden_size]`."""
        if batch.graph_size is not None and self.graphs is not None:
            self.graphs.replay(batch.graph_size)
            hidden = self._hidden[: batch.num_requests]
            return hidden if batch.row_indices is None else hidden.index_select(0, batch.row_indices)
        return self._run(batch.inputs, batch.max_query_len, batch.num_decodes, batch.row_indices)

    def _run(
        self, inputs: DecoderInputs, max_query_len: int, num_decodes: int, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Queues one pass, kernel by kernel; returns the hidden states of these tokens, or of all.

        Launches are cut for the longest sequences there may ever be, with graphs or without: what a kernel is compiled
        for does not change while requests grow.
        """
        tables = self._tables[: len(inputs.table_rows)]
        torch.index_select(self._batcher.tables.on_device, 0, inputs.table_rows, out=tables)
        batch = AttentionBatch(
            query_starts=inputs.query_starts,
            seq_lens=inputs.seq_lens,
            block_tables=tables,
            slot_mapping=inputs.slot_mapping,
            max_query_len=max_query_len,
            max_seq_len=self._limits.max_model_len,
        )
        return self._forward(inputs, batch, self._num_splits(max_query_len, num_decodes), rows)

    def _num_splits(self, max_query_len: int, num_decodes: int) -> int | None:
        """Returns into how many parts decodes' contexts are cut; None leaves it to the kernel, for decodes alone.

        Beside prefill chunks there are two choices, not one for each number of requests: each has its own sum compiled.
        """
        if max_query_len == 1:
            return None
        num_pairs = num_decodes * self.decoder.config.num_key_value_heads
        return _MIXED_SPLITS if 0 < num_pairs < _MANY_PAIRS else 1

    def _run_decodes(self, size: int) -> None:
        """What a graph holds."""
        self._hidden[:size].copy_(self._run(self._batcher.inputs(size, size), 1, size))
