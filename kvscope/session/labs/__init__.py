"""Labs: claims about LLM serving, each held against real runs that are recorded."""

from __future__ import annotations

from difflib import get_close_matches

from kvscope.errors import UsageError
from kvscope.session.labs.admission import RESERVATION, WATERMARK
from kvscope.session.labs.batching import BATCH_SIZE, EXCLUSIVE_BATCHING, STATIC_BATCHING
from kvscope.session.labs.caching import BLOCK_SIZE, PREFIX_CACHING
from kvscope.session.labs.lab import Lab
from kvscope.session.labs.prefill import CHUNKED_PREFILL

LABS = (
    STATIC_BATCHING,
    EXCLUSIVE_BATCHING,
    CHUNKED_PREFILL,
    BATCH_SIZE,
    PREFIX_CACHING,
    BLOCK_SIZE,
    WATERMARK,
    RESERVATION,
)


def lab_named(name: str) -> Lab:
    """Returns the lab. Raises `UsageError` with the nearest name where there is none."""
    by_name = {lab.name: lab for lab in LABS}
    if name not in by_name:
        nearest = get_close_matches(name, by_name, n=1, cutoff=0.0)[0]
        raise UsageError(f"there is no lab {name!r}: did you mean {nearest}? `kvscope lab` lists them")
    return by_name[name]
