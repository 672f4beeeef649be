"""What is told of a request and the prefix cache: each admission's hit, and why it was not longer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MissReason = Literal[
    "caching_off",
    "nothing_shared",
    "shorter_than_a_block",
    "all_shared_hit",
    "rest_shorter_than_a_block",
    "last_token_must_be_computed",
    "other_salt",
    "other_adapter",
    "evicted",
    "taken_back",
    "not_computed_yet",
    "never_computed",
]
"""Why the hit is not longer:

- nothing_shared: no request that ran before it, with its salt and adapter, begins as it does;
- shorter_than_a_block: what it shares does not fill one block;
- all_shared_hit: all that it shares was hit, and it fills whole blocks;
- rest_shorter_than_a_block: all whole blocks of what it shares were hit; the text differs inside the next one;
- last_token_must_be_computed: one token is always computed, so a last block that is full is computed anew;
- other_salt: the next block is cached, but for requests with another cache salt;
- other_adapter: the next block is cached, but for requests with another adapter (or none);
- evicted, taken_back: the next block had been cached and was lost;
- not_computed_yet: another request with the same text is still computing it;
- never_computed: another request had the same text, but ended before this block was full of computed tokens.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Another request that ran before and begins with the same tokens."""

    request_id: str
    shared_tokens: int
    same_salt: bool
    cache_salt: str | None
    same_adapter: bool
    lora_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first token that differs from the best match."""

    other_id: str
    token_position: int
    block_index: int
    position_in_block: int
    token_id: int | None
    """None where the request has no more tokens."""
    other_token_id: int | None
    """None where the other one had no more tokens."""
    text: str
    """The request's tokens from a few before the difference on."""
    other_text: str
    alike_behind: int
    """Tokens on end that both have again behind it: the longest such run that begins near it. None of them can hit: a
    block is found by all tokens before it."""
    alike_blocks_behind: int
    """Whole blocks that many tokens would fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The block at which the chain broke off: it had been cached."""

    block_index: int
    block_id: int
    computed_by: str
    published_step: int
    lost_step: int
    lost_for: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """One admission, or for a request that never was admitted its last lookup."""

    step: int
    kind: Literal["new", "resumed", "refused"]
    num_tokens: int
    hit_tokens: int
    hit_blocks: tuple[int, ...]
    publishers: tuple[str, ...]
    """For each hit block the request that had computed it."""
    own_hit_tokens: int
    """In blocks that the request itself had computed, before it was preempted."""
    others_hit_tokens: int
    cap: int
    """The most tokens that can be hit: whole blocks that leave a token to compute."""
    shared_tokens: int
    """With the best match of the same salt and adapter; its own tokens from before a preemption are not counted."""
    best_match: str | None
    matches: tuple[Match, ...]
    """The longest first, of equals the earliest."""
    reason: MissReason
    chain_leaves_at_block: int | None
    """Index of the first block that was not hit; None where no more could be."""
    difference: Difference | None
    lost: Lost | None
    lost_blocks: tuple[Lost, ...]
    """From the block at which the chain broke off: all that had been cached, and were not any more."""
    other_salt_id: str | None
    """With `other_salt` and `other_adapter`: whose cached block it would have hit."""
    other_salt: str | None
    """That one's salt."""
    other_lora_name: str | None
    """That one's adapter."""
    hit_zero_and_correct: bool
    """Nothing was hit, and nothing could be: no block of it had ever been there for it to hit."""
    hits_hold_its_tokens: bool
    """The hit blocks were computed from exactly its tokens, under its salt and adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A block that the request published though another block already had its content."""

    step: int
    block_index: int
    block_id: int
    duplicate_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedAnswer:
    """The prefix cache's part in a request's life."""

    admissions: tuple[Admission, ...]
    own_hit_tokens: int
    others_hit_tokens: int
    duplicates: tuple[Duplicate, ...]
