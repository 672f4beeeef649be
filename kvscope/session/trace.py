"""Traces of real traffic: when requests came, how long they were, and which of their prompts begin alike.

No trace has texts. Prompts are made up so that they share what the trace says they shared: of a Mooncake trace, every
512 tokens with the same id; of an Azure trace nothing.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kvscope.errors import UsageError

TOKENS_A_HASH_ID = 512
_FILLING = list(range(1_000, 1_000 + TOKENS_A_HASH_ID - 2))
"""What follows the two tokens that tell one id from the others: by the chain of hashes they tell all behind them."""
_MAX_HASH_ID = (1 << 32) - 1
_MAX_TOKENS = 1 << 26
"""Of a prompt: four times what the longest models take."""
_MAX_SPAN_S = 100 * 366 * 86_400
"""Nanoseconds since the first arrival are recorded in 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request. Times are in seconds from the first one's arrival."""

    arrival_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    hash_ids: tuple[int, ...]
    """One for each 512 tokens of the prompt, the last for what is left of it."""

    @property
    def arrival_ns(self) -> int:
        return round(self.arrival_s * 1e9)

    def prompt(self) -> list[int]:
        """Returns token ids below 65,536: equal ids give equal tokens, up to and including theirs."""
        tokens: list[int] = []
        for hash_id in self.hash_ids:
            tokens += (hash_id & 0xFFFF, hash_id >> 16)
            tokens += _FILLING
        del tokens[self.num_prompt_tokens :]
        return tokens


class _MooncakeLine(msgspec.Struct, frozen=True):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


def is_trace(path: Path) -> bool:
    """Returns True for the endings that traces have."""
    return path.suffix.lower() in (".jsonl", ".csv")


def load_trace(path: Path, max_requests: int | None = None) -> list[TraceRequest]:
    """Returns a trace's requests by arrival. Raises `UsageError` with the line that cannot be read."""
    read = _mooncake if path.suffix.lower() == ".jsonl" else _azure
    requests: list[TraceRequest] = []
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            for request in read(lines):
                requests.append(_checked(request))
                if len(requests) == max_requests:
                    break
    except OSError as error:
        raise UsageError(f"cannot read the trace {path}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"{path}: request {len(requests) + 1} cannot be read ({error}); a trace has Mooncake's lines of JSON "
            "(timestamp, input_length, output_length, hash_ids) or Azure's columns (TIMESTAMP, ContextTokens, "
            "GeneratedTokens)"
        ) from error
    if not requests:
        raise UsageError(f"{path} has no request")
    first_s, last_s = (pick(request.arrival_s for request in requests) for pick in (min, max))
    if last_s - first_s > _MAX_SPAN_S:
        raise UsageError(f"{path}: its requests arrive over {last_s - first_s:,.0f} s, at most {_MAX_SPAN_S:,} can be")
    shifted = [dataclasses.replace(request, arrival_s=request.arrival_s - first_s) for request in requests]
    return sorted(shifted, key=lambda request: request.arrival_s)


def _mooncake(lines: Iterable[str]) -> Iterator[TraceRequest]:
    decoder = msgspec.json.Decoder(_MooncakeLine)
    for line in lines:
        if line.strip():
            found = decoder.decode(line)
            yield TraceRequest(
                arrival_s=found.timestamp / 1e3,
                num_prompt_tokens=found.input_length,
                num_output_tokens=found.output_length,
                hash_ids=tuple(found.hash_ids),
            )


def _azure(lines: Iterable[str]) -> Iterator[TraceRequest]:
    next_id = 0
    for row in csv.DictReader(lines):
        num_prompt_tokens = int(row["ContextTokens"])
        if num_prompt_tokens > _MAX_TOKENS:
            raise ValueError(f"{num_prompt_tokens:,} prompt tokens, at most {_MAX_TOKENS:,}")
        num_ids = -(-num_prompt_tokens // TOKENS_A_HASH_ID)
        yield TraceRequest(
            arrival_s=datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp(),
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=int(row["GeneratedTokens"]),
            hash_ids=tuple(range(next_id, next_id + num_ids)),
        )
        next_id += num_ids


def _checked(request: TraceRequest) -> TraceRequest:
    """Returns the request. Raises `ValueError` where it cannot be one."""
    if request.num_prompt_tokens < 1 or request.num_output_tokens < 1:
        raise ValueError(f"{request.num_prompt_tokens} prompt and {request.num_output_tokens} output tokens")
    if not math.isfinite(request.arrival_s):
        raise ValueError(f"it arrives at {request.arrival_s}")
    if len(request.hash_ids) != -(-request.num_prompt_tokens // TOKENS_A_HASH_ID):
        raise ValueError(f"{len(request.hash_ids)} hash_ids for {request.num_prompt_tokens} prompt tokens")
    if not all(0 <= hash_id <= _MAX_HASH_ID for hash_id in request.hash_ids):
        raise ValueError(f"a hash id is not in 0…{_MAX_HASH_ID}")
    return request
