"""What a caller gets of its request: text as it comes, and at the end everything that was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvscope.engine.scheduling.output import TokenLogprobs
from kvscope.events import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """A request that ended. All times in ns."""

    request_id: str
    prompt: str | None
    """The text as it was given, before any template; None where token ids were given."""
    prompt_token_ids: tuple[int, ...]
    output_token_ids: tuple[int, ...]
    text: str
    """Of the output, without special tokens and without the stop string."""
    finish_reason: FinishReason
    stop_reason: str | None
    """The stop string or stop token id that ended it."""
    num_hit_tokens: int
    """Prompt tokens that came from the prefix cache when it was first admitted."""
    num_preemptions: int
    ttft_ns: int | None
    """From the submission, template and tokenization included, to its first token; None where there was none."""
    itl_ns: tuple[int, ...]
    """From each token to the next; tokens of one step come at once."""
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUpdate:
    """What a step added to a request."""

    request_id: str
    new_text: str
    """Whole characters only; may be empty."""
    output: RequestOutput | None = None
    """Given once, when the request has ended."""


OnUpdate = Callable[[RequestUpdate], None]
"""Called on the engine's thread after each step that gave the request a token, and when it ends. Must be quick."""
