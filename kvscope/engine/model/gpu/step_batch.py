"""What a step's kernels are told: made of the scheduler's output on the host, in one buffer, for one copy.

Three sections: what the decoder reads (padded where a graph will read it), what sampling reads, and what changed in the
block tables. Tokens keep the scheduler's order. Knows no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kvscope.engine.model.gpu.block_tables import BlockTables
from kvscope.engine.model.gpu.device_queue import DeviceQueue
from kvscope.engine.model.gpu.step_buffer import Field, Section, StepBuffer, Values
from kvscope.engine.model.sampler import SamplingRow
from kvscope.engine.model.step_tokens import StepTokens, read_tokens, token_places
from kvscope.engine.scheduling.output import SchedulerOutput

_MAX_ROW_WORDS = 12
"""Enough for what is said of a sampled row: its token and its settings."""
_MAX_GAP_WORDS = 64
"""Enough for the gaps between those fields."""
PADDING_SLOT = -1
"""A token with this slot writes no keys and values."""

SamplingValues = Callable[[Sequence[SamplingRow]], Sequence[tuple[Values, torch.dtype]]]
"""What sampling on the device has to be told of a step's rows: fields, and their kinds."""


@dataclass(frozen=True, slots=True)
class DecoderInputs:
    """Views of the step's numbers, at the same addresses for the same padded sizes."""

    token_ids: torch.Tensor
    """int32 `[num_tokens]`; 0 for padding."""
    positions: torch.Tensor
    """int64 `[num_tokens]`; 0 for padding."""
    slot_mapping: torch.Tensor
    """int64 `[num_tokens]`: block * block_size + offset, where keys and values go; -1 for padding."""
    query_starts: torch.Tensor
    """int32 `[num_requests + 1]`: where each request's tokens begin; padding has none."""
    seq_lens: torch.Tensor
    """int32 `[num_requests]`: tokens that each request's last one sees; 0 for padding."""
    table_rows: torch.Tensor
    """int32 `[num_requests]`: each request's row in the block tables; 0 for padding."""


def decoder_section(num_tokens: int, num_requests: int) -> Section:
    """Returns where the decoder's fields lie, for padded sizes."""
    return Section(
        0,
        (
            (num_tokens, torch.int32),
            (num_tokens, torch.int64),
            (num_tokens, torch.int64),
            (num_requests + 1, torch.int32),
            (num_requests, torch.int32),
            (num_requests, torch.int32),
        ),
    )


@dataclass(slots=True)
class StepBatch:
    """A step that is on its way to the device."""

    num_requests: int
    graph_size: int | None
    """The padded size, where each request has one token and a graph holds them all."""
    max_query_len: int
    num_decodes: int
    """Requests with one token."""
    inputs: DecoderInputs
    """Of the padded size where there is a graph."""
    tokens: StepTokens
    row_indices: torch.Tensor | None
    """int32 `[num_rows]` on the device: the token of each sampled row; None where every token is sampled, in order."""
    sampling: list[torch.Tensor]
    """What `SamplingValues` gave, on the device."""


class StepBatcher:
    """Fills the buffer and the block tables of one runner."""

    def __init__(
        self,
        *,
        max_num_tokens: int,
        max_num_seqs: int,
        max_model_len: int,
        block_size: int,
        queue: DeviceQueue,
    ) -> None:
        num_columns = -(-max_model_len // block_size)
        self.tables = BlockTables(max_num_seqs, num_columns, queue.device)
        self._block_size = block_size
        # Padding adds no more requests than there may be; sampled rows (drafts!) are at most the tokens.
        max_num_tokens = max(max_num_tokens, max_num_seqs)
        largest = decoder_section(max_num_tokens, max_num_seqs)
        per_row: Field = (max_num_tokens * _MAX_ROW_WORDS + _MAX_GAP_WORDS, torch.int32)
        entries: Field = (max_num_seqs * num_columns, torch.int32)
        self.buffer = StepBuffer(Section(largest.end, (per_row, entries, entries)).end, queue)

    def inputs(self, num_tokens: int, num_requests: int) -> DecoderInputs:
        """Returns where a step of this padded size will be on the device."""
        return DecoderInputs(*decoder_section(num_tokens, num_requests).views(self.buffer.on_device))

    def send_padding(self, num_tokens: int, num_requests: int, query_len: int = 0) -> None:
        """Sends a step that writes nothing and reads only the null block, to compile and to record with.

        query_len: tokens of each request, of the last one what is left, as if they were prompts; with 0 all are
            padding.
        """
        query_starts = np.minimum(np.arange(num_requests + 1) * query_len, num_tokens)
        section = decoder_section(num_tokens, num_requests)
        values: tuple[Values, ...] = ([], [], [], query_starts, np.diff(query_starts), [])
        section.fill(self.buffer.to_fill(), values, (0, 0, PADDING_SLOT, 0, 0, 0))
        self.buffer.send(section.end)

    def fill(
        self, output: SchedulerOutput, graph_size_for: Callable[[int], int | None], sampling_values: SamplingValues
    ) -> StepBatch:
        """Sends a step's numbers, and applies the tables' changes among them.

        graph_size_for: the padded size for so many requests of one token each, None for no padding.
        """
        tokens, places = read_tokens(output), token_places(output)
        num_tokens, num_requests = len(tokens.token_ids), len(output.requests)
        update = self.tables.update(output.requests)
        positions = places.positions
        blocks = self.tables.mirror[np.repeat(update.rows, places.query_lens), positions // self._block_size]
        slots = blocks.astype(np.int64) * self._block_size + positions % self._block_size

        graph_size = graph_size_for(num_requests) if num_tokens == num_requests else None
        section = decoder_section(graph_size or num_tokens, graph_size or num_requests)
        words = self.buffer.to_fill()
        padding = (0, 0, PADDING_SLOT, num_tokens, 0, 0)
        values_of_tokens = (tokens.token_ids, positions, slots, places.query_starts, places.seq_lens, update.rows)
        section.fill(words, values_of_tokens, padding)
        is_every_token = len(tokens.indices) == num_tokens
        values: list[tuple[Values, torch.dtype]] = [] if is_every_token else [(tokens.indices, torch.int32)]
        values += sampling_values(tokens.rows)
        values += [(update.indices, torch.int32), (update.block_ids, torch.int32)]
        rest = Section(section.end, tuple((len(value), dtype) for value, dtype in values))
        rest.fill(words, [value for value, _ in values])
        self.buffer.send(rest.end)

        *views, indices, block_ids = rest.views(self.buffer.on_device)
        self.tables.apply(indices, block_ids)
        return StepBatch(
            num_requests=num_requests,
            graph_size=graph_size,
            max_query_len=int(places.query_lens.max()),
            num_decodes=int((places.query_lens == 1).sum()),
            inputs=self.inputs(graph_size or num_tokens, graph_size or num_requests),
            tokens=tokens,
            row_indices=None if is_every_token else views.pop(0),
            sampling=views,
        )
