"""The tables of a recording, and the version of the format.

A recording is one SQLite file. `steps` has one row a step, `requests` one a request, `events` one narrow row an event
(read them through the views of `views`, which have real column names). The rest serves these: lists of requests and
token ids are stored once and packed (see `packing`), `summaries` are the timeline's columns at wider zooms,
`checkpoints` make a seek cheap and may be deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvscope.recording.layouts import KIND_NAMES, LAST_FREQUENT_KIND
from kvscope.recording.views import create_views

if TYPE_CHECKING:
    from sqlite_utils import Database

FORMAT_VERSION: Final = 2
APPLICATION_ID: Final = 0x6B767363
"""`kvsc`, in SQLite's header: tells a recording from any other database."""

HAPPENINGS: Final = ("num_preemptions", "num_evicted_blocks", "num_hits", "num_finished", "num_failed")
"""Columns of `steps` that summaries add up."""

STEP_COLUMNS: Final[dict[str, type]] = {
    "step": int,
    "token_budget": int,
    "num_scheduled_tokens": int,
    "num_prefill_tokens": int,
    "num_decode_tokens": int,
    "num_draft_tokens": int,
    "num_running": int,
    "num_waiting": int,
    "num_used_blocks": int,  # held by requests
    "num_free_blocks": int,  # in the free queue
    "num_cached_blocks": int,  # of the free ones: still hittable
    "num_preemptions": int,
    "num_evicted_blocks": int,
    "num_hits": int,
    "num_finished": int,
    "num_failed": int,
    "time_ns": int,
    "schedule_ns": int,
    "forward_ns": int,
    "sample_ns": int,
    "update_ns": int,
    "record_ns": int,
    "num_events": int,
}

REQUEST_COLUMNS: Final[dict[str, type]] = {
    "number": int,
    "request_id": str,
    "prompt": str,
    "num_prompt_tokens": int,
    "max_tokens": int,
    "priority": int,
    "cache_salt": str,
    "lora_name": str,  # the adapter
    "sampling": str,  # JSON of the settings that differ from their defaults
    "stop_token_ids": str,  # JSON
    "arrival_step": int,
    "arrival_time": float,
    "arrival_ns": int,
    "template_ns": int,
    "tokenize_ns": int,
    "first_admitted_step": int,
    "first_admitted_ns": int,
    "first_token_step": int,
    "first_token_ns": int,
    "finished_step": int,
    "finished_ns": int,
    "finish_reason": str,
    "stop": str,
    "num_output_tokens": int,  # NULL until it ended
    "num_hit_tokens": int,  # of all its admissions
    "num_own_hit_tokens": int,  # of these, in blocks that it had computed itself
    "num_preemptions": int,
    "num_lost_tokens": int,
}

SUMMARY_COLUMNS: Final[dict[str, type]] = {
    "num_steps": int,  # 10, 100, 1000, …
    "first_step": int,
    "num_prefill_tokens": int,
    "num_decode_tokens": int,
    "num_draft_tokens": int,
    "token_budget": int,
    "num_used_blocks": int,
    "num_cached_blocks": int,
    "num_running": int,
    "num_waiting": int,
    "step_ns": int,
    "num_preemptions": int,
    "num_evicted_blocks": int,
    "num_hits": int,
    "num_finished": int,
    "num_failed": int,
    "num_stalled": int,
}

SUMMARY_LEVELS: Final = (10, 100, 1_000, 10_000, 100_000, 1_000_000)


def create_tables(database: Database) -> None:
    """Makes an empty recording: tables, indexes and views."""
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.table("meta").create({"key": str, "value": str}, pk="key")
    database.table("steps").create(STEP_COLUMNS, pk="step")
    database.table("requests").create(REQUEST_COLUMNS, pk="number")
    database.table("requests").create_index(["request_id"])
    database.table("prompt_tokens").create({"request": int, "token_ids": bytes}, pk="request")
    database.table("request_lists").create(
        {"id": int, "first_request": int, "num_requests": int, "offsets": str}, pk="id"
    )
    database.table("sampled_tokens").create(
        {"step": int, "request_list": int, "num_tokens": str, "token_ids": bytes}, pk="step"
    )
    database.table("tokens").create({"token_id": int, "bytes": bytes}, pk="token_id")
    database.table("event_kinds").create({"kind": int, "name": str}, pk="kind")
    database.table("event_kinds").insert_all({"kind": kind, "name": name} for kind, name in sorted(KIND_NAMES.items()))
    # Clustered by (step, seq): a table of its own kind that sqlite-utils cannot declare.
    database.execute(
        "CREATE TABLE events (step INTEGER, seq INTEGER, kind INTEGER, request INTEGER, block INTEGER, "
        "a INTEGER, b INTEGER, data TEXT, hashes BLOB, PRIMARY KEY (step, seq)) WITHOUT ROWID"
    )
    database.execute(f"CREATE INDEX events_by_kind ON events (kind) WHERE kind > {LAST_FREQUENT_KIND}")
    columns = ", ".join(f"{name} INTEGER" for name in SUMMARY_COLUMNS)
    database.execute(f"CREATE TABLE summaries ({columns}, PRIMARY KEY (num_steps, first_step)) WITHOUT ROWID")
    database.table("checkpoints").create({"step": int, "base_step": int, "state": bytes}, pk="step")
    create_views(database)
