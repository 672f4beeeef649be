"""A step's tokens as kernels take them, one request's behind the other's: which they are, where, and which are sampled.

Read from the scheduler's output, in its order. Knows neither block tables nor devices: how slots follow from tables is
each runner's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvscope.engine.model.sampler import SamplingRow
from kvscope.engine.model.verification import tokens_to_feed
from kvscope.engine.scheduling.output import SchedulerOutput


@dataclass(slots=True)
class StepTokens:
    """A step's tokens, and which of them are sampled."""

    token_ids: list[int] = field(default_factory=list)
    num_rows: list[int] = field(default_factory=list)
    """Of each request: 0 where its tokens are not complete, else 1 and one for each of its drafts."""
    rows: list[SamplingRow] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    """Of each row, its token."""


def read_tokens(output: SchedulerOutput) -> StepTokens:
    """Returns the tokens to feed, and what is sampled: the last token of complete requests, and each draft."""
    step = StepTokens()
    token_ids = step.token_ids
    for request, count in zip(output.requests, output.num_scheduled_tokens, strict=True):
        end = request.num_computed_tokens
        drafts = output.scheduled_spec_tokens.get(request.request_id, ())
        if count == 1 and not drafts:
            token_ids.append(request.all_token_ids[end - 1])
        else:
            token_ids += tokens_to_feed(request, end - count, count, drafts)
        if end < len(request.all_token_ids):
            step.num_rows.append(0)
            continue
        step.num_rows.append(1 + len(drafts))
        first = len(token_ids) - 1 - len(drafts)
        for num_before in range(1 + len(drafts)):
            step.rows.append(SamplingRow(request, drafts[:num_before]))
            step.indices.append(first + num_before)
    return step


@dataclass(frozen=True, slots=True)
class TokenPlaces:
    """Where a step's tokens stand in their sequences; int64 all."""

    query_lens: NDArray[np.int64]
    """`[num_requests]`: tokens of each request."""
    query_starts: NDArray[np.int64]
    """`[num_requests + 1]`: where each request's begin."""
    seq_lens: NDArray[np.int64]
    """`[num_requests]`: each request's length with them."""
    positions: NDArray[np.int64]
    """`[num_tokens]`."""


def token_places(output: SchedulerOutput) -> TokenPlaces:
    """Returns where the step's tokens stand."""
    num_requests = len(output.requests)
    query_lens = np.asarray(output.num_scheduled_tokens, dtype=np.int64)
    query_starts = np.zeros(num_requests + 1, dtype=np.int64)
    np.cumsum(query_lens, out=query_starts[1:])
    seq_lens = np.fromiter((request.num_computed_tokens for request in output.requests), np.int64, num_requests)
    positions = np.arange(query_starts[-1]) + np.repeat(seq_lens - query_starts[1:], query_lens)
    return TokenPlaces(query_lens, query_starts, seq_lens, positions)
