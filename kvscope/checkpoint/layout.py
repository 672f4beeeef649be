"""How a checkpoint lies in its bytes: packed by msgspec and zlib.

The pool is one sequence of block ids (all block tables by arrival, then what is held outside of tables, then the free
queue); beside it, place by place, run who computed the block and at which index of its table. A complete checkpoint
holds these. Others refer to a complete one, their base: runs copied from its sequence, and what was published or
evicted since; figures of requests are differences. What follows from the rest is left out: reference counts (how
many tables hold a block). Left out too: what belongs to one step alone, requests that have ended, block hashes.

Requests are stored as numbers; who reads them back gives the names.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

import msgspec

from kvscope.state import RequestStatus

STATUSES: tuple[RequestStatus, ...] = get_args(RequestStatus)

FIGURES = (
    "arrival_step",
    "num_prompt_tokens",
    "max_tokens",
    "priority",
    "num_tokens",
    "num_computed_tokens",
    "num_cached_blocks",
    "num_prefill_tokens",
    "num_hit_tokens",
    "num_own_hit_tokens",
    "num_preemptions",
    "num_lost_tokens",
    "waiting_since_step",
)
STEPS = ("first_admitted_step", "admitted_step", "first_token_step")
"""Figures that may be None: stored as one more, 0 for None."""

NUM_FIGURES = 2 + len(FIGURES) + len(STEPS)
"""Status and length of the block table come before them."""

NO_OWNER = 0
"""Stands where a block is not published; requests are numbered from 1."""


class KnownRequest(NamedTuple):
    """A request as the base has it."""

    figures: list[int]
    """Status, number of blocks, `FIGURES`, `STEPS`."""
    arrival_time: float
    cache_salt: str | None
    lora_name: str | None


class NewRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the figures cannot hold, of a request that the base does not know."""

    arrival_time: float
    cache_salt: str | None
    lora_name: str | None = None


class Checkpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is packed."""

    step: int
    token_budget: int
    requests: list[int]
    """Numbers, by arrival, each as the difference to the one before."""
    new_requests: list[NewRequest]
    columns: list[list[int]]
    """Figures by column, as differences to the base's request, else to 0."""
    drafts: dict[int, list[int]]
    """By place in `requests`."""
    waiting: list[int]
    """Places in `requests`."""
    running: list[int]
    blocks: bytes
    """Complete: the block ids. Else: where runs begin in the base's blocks. In the form of `planes`, like the next."""
    run_lengths: list[int] | None
    """None in a complete one. Negative: backwards."""
    owners: bytes
    indexes: bytes
    """Complete: for each of `blocks` the number of the request that computed it, `NO_OWNER` where it is not published,
    and its index in that request's table; the indexes as differences. Else empty."""
    extra_references: list[tuple[int, int]]
    """Block and count, of blocks that are referenced beyond the tables that hold them."""
    num_orphans: int
    """How many of these stand in no table, between the tables and the free queue."""
    changed_places: list[int]
    """Where owner or index may differ from what the copied runs say; differences, like the next two."""
    changed_owners: list[int]
    changed_indexes: list[int]
    duplicate_groups: list[list[int]]
