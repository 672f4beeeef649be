"""What of a step is sampled, and what of the sampled tokens stands: the same for every model runner.

Drafts are verified: each position is sampled as if there were none, and drafts are accepted as long as they equal what
was sampled. Knows requests and lists of tokens, no tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.engine.scheduling.output import ModelRunnerOutput, SchedulerOutput, TokenLogprobs
from kvscope.engine.scheduling.request import Request


def tokens_to_feed(request: Request, num_computed_tokens: int, num_tokens: int, drafts: Sequence[int]) -> Sequence[int]:
    """Returns the tokens at positions `[num_computed_tokens, num_computed_tokens + num_tokens)`, drafts at the end."""
    own = request.all_token_ids[num_computed_tokens : num_computed_tokens + num_tokens]
    if len(own) == num_tokens:
        return own
    # A draft of -1 only holds a place: whatever is fed there, it is never accepted.
    return [*own, *(max(draft, 0) for draft in drafts)]


def collect_sampled(
    output: SchedulerOutput,
    num_rows: Sequence[int],
    token_ids: Sequence[int],
    logprobs: Sequence[TokenLogprobs | None],
) -> ModelRunnerOutput:
    """Returns what each request got of the sampled rows.

    num_rows: of each request; 0 where its tokens are not complete, else 1 and one for each of its drafts.
    token_ids, logprobs: of all rows, one request's behind the other's.
    """
    result = ModelRunnerOutput(sampled_token_ids=[])
    first = 0
    for request, count in zip(output.requests, num_rows, strict=True):
        drafts = output.scheduled_spec_tokens.get(request.request_id, ())
        accepted = _accept(list(token_ids[first : first + count]), drafts)
        result.sampled_token_ids.append(accepted)
        if request.sampling.logprobs is not None and accepted:
            result.logprobs[request.request_id] = _present(logprobs[first : first + len(accepted)])
        first += count
    return result


def _accept(sampled: list[int], drafts: Sequence[int]) -> list[int]:
    """Returns the sampled tokens up to the first that differs from the draft at its place, that one included."""
    for num_accepted, draft in enumerate(drafts):
        if num_accepted < len(sampled) and sampled[num_accepted] != draft:
            return sampled[: num_accepted + 1]
    return sampled


def _present(logprobs: Sequence[TokenLogprobs | None]) -> list[TokenLogprobs]:
    return [entry for entry in logprobs if entry is not None]
