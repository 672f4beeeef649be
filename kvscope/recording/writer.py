"""Turns finished steps into rows: folds the state beside the events, for the steps' columns and the checkpoints.

Runs in the recorder's thread, on that thread's connection. Knows nothing of queues and threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kvscope import events as ev
from kvscope.checkpoint import CheckpointBase, encode_complete, encode_delta
from kvscope.errors import RecordingError
from kvscope.recording.layouts import TOKENS_SAMPLED
from kvscope.recording.rows import encode_events
from kvscope.recording.steady_tokens import SteadyTokens
from kvscope.recording.summary_levels import SummaryLevels
from kvscope.recording.tables import TablesToWrite, insert_rows
from kvscope.state import EngineState, StateError

Step = tuple[int, Sequence[ev.Event]]

WORK_OF_STEP = 100
WORK_OF_EVENT = 5
"""What a step itself and an event of it cost a reader, in scheduled requests."""


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How often checkpoints are written."""

    work: int = 28_000
    """Between two checkpoints, in units of a request that is scheduled: what a reader folds in some 10 ms."""
    blocks: int = 32_768
    """The pool for which that is. A larger one makes each checkpoint dearer, so they come the more seldom."""
    deltas_per_base: int = 10
    """Checkpoints that refer to the same complete one: with more of them, each has more to tell."""


class Writer:
    """Writes batches of steps, each in one transaction."""

    def __init__(self, connection: sqlite3.Connection, checkpoints: CheckpointPolicy | None = None) -> None:
        self._connection = connection
        self._policy = checkpoints or CheckpointPolicy()
        self._tables = TablesToWrite()
        self._state: EngineState | None = EngineState()
        """None once an event contradicted the state: the events go on, what is derived from them ends."""
        self._steady_tokens = SteadyTokens(self._state)
        self._summaries = SummaryLevels()
        self._last_step = -1
        self._work = 0
        self._base: tuple[int, CheckpointBase] | None = None
        self._num_deltas = 0
        self._changed_blocks: set[int] = set()
        """Published, evicted or un-published since the base."""
        self._awaiting_first_token: set[str] = set()
        self._event_rows: list[tuple[object, ...]] = []
        self._step_rows: list[tuple[object, ...]] = []
        self._sampled_rows: list[tuple[object, ...]] = []
        self._summary_rows: list[tuple[object, ...]] = []
        self._checkpoint_rows: list[tuple[object, ...]] = []
        self._meta: dict[str, str] = {}

    def write(self, steps: Sequence[Step]) -> None:
        """Writes the steps in one transaction. Raises `RecordingError` where a step does not follow its predecessor."""
        for step, events in steps:
            if step != self._last_step + 1:
                raise RecordingError(f"step {step} was recorded after step {self._last_step}; steps have no gaps")
            self._add_step(step, events)
            self._last_step = step
        self._flush()

    def finish(self) -> None:
        """Writes what only the end of the recording tells."""
        if self._state is not None:
            self._steady_tokens.catch_up()
            for request_id in self._tables.facts:
                request = self._state.requests.get(request_id)
                facts = self._tables.changed(request_id)
                if request is not None and facts is not None:
                    facts.num_output_tokens = request.num_output_tokens
        self._meta |= {"num_steps": str(self._last_step + 1), "closed": "1"}
        self._flush()

    def _add_step(self, step: int, events: Sequence[ev.Event]) -> None:
        self._tables.begin_step(step)
        rows = list(encode_events(self._tables, events))
        self._event_rows += [(step, *row) for row in rows]
        if any(row.kind == TOKENS_SAMPLED and row.data is not None for row in rows):
            self._meta["has_unpacked_samples"] = "1"
        sampled = self._tables.clock.sampled
        if sampled is not None:
            self._sampled_rows.append((step, *sampled))
        self._fold(step, events)
        happenings = self._note_facts(events)
        self._add_step_row(step, happenings, len(events))
        self._checkpoint(len(events))

    def _fold(self, step: int, events: Sequence[ev.Event]) -> None:
        if self._state is not None:
            try:
                self._state.begin_step(step)
                for event in events:
                    self._steady_tokens.apply(event)
            except StateError as error:
                self._meta["state_error"] = error.message
                self._state = None

    # --- facts of requests --------------------------------------------------------------------------------------------

    def _note_facts(self, events: Sequence[ev.Event]) -> tuple[int, int, int, int, int]:
        """Notes what the events say of requests; returns preemptions, evicted blocks, hits, ends, failures."""
        num_preemptions = num_evicted = num_hits = num_finished = num_failed = 0
        for event in events:
            match event:
                case ev.BlockAllocated():
                    pass  # the frequent ones first
                case ev.BlockCached() | ev.BlockUncached():
                    self._changed_blocks.update(event.block_ids)
                case ev.BlockEvicted():
                    num_evicted += len(event.block_ids)
                    self._changed_blocks.update(event.block_ids)
                case ev.TokensSampled():
                    if self._awaiting_first_token:
                        self._note_first_tokens(event)
                case ev.RequestArrived():
                    self._awaiting_first_token.add(event.request_id)
                case ev.RequestAdmitted():
                    self._note_admission(event)
                case ev.PrefixCacheHit():
                    num_hits += 1
                    facts = self._tables.changed(event.request_id)
                    if facts is not None:
                        facts.num_hit_tokens += event.num_hit_tokens
                        facts.num_own_hit_tokens += event.num_own_hit_tokens
                case ev.RequestPreempted():
                    num_preemptions += 1
                    facts = self._tables.changed(event.request_id)
                    if facts is not None:
                        facts.num_preemptions += 1
                        facts.num_lost_tokens += event.num_lost_tokens
                case ev.RequestFinished():
                    num_finished += 1
                    self._note_end(event.request_id, event.reason, event.num_output_tokens, event.stop)
                case ev.RequestAborted():
                    num_finished += 1
                    self._note_end(event.request_id, "abort", self._num_output_tokens(event.request_id), None)
                case ev.RequestRejected():
                    self._tables.reject(event)
                case ev.StepFailed():
                    num_failed += 1
                case ev.EngineConfigured():
                    self._meta["config"] = msgspec.json.encode(event).decode()
                case _:
                    pass
        return num_preemptions, num_evicted, num_hits, num_finished, num_failed

    def _note_first_tokens(self, event: ev.TokensSampled) -> None:
        has_tokens = event.request_ids
        if event.num_tokens is not None:
            has_tokens = tuple(key for key, count in zip(event.request_ids, event.num_tokens, strict=False) if count)
        for request_id in self._awaiting_first_token.intersection(has_tokens):
            self._awaiting_first_token.remove(request_id)
            facts = self._tables.changed(request_id)
            if facts is not None:
                facts.first_token_step = self._tables.step
                facts.first_token_ns = self._tables.clock.end_ns

    def _note_admission(self, event: ev.RequestAdmitted) -> None:
        facts = self._tables.changed(event.request_id)
        started = self._tables.clock.started
        if facts is not None:
            facts.first_admitted_step = self._tables.step
            facts.first_admitted_ns = None if started is None else started.time_ns

    def _note_end(self, request_id: str, reason: str, num_output_tokens: int | None, stop: str | None) -> None:
        self._awaiting_first_token.discard(request_id)
        facts = self._tables.changed(request_id)
        if facts is not None:
            facts.finish_reason, facts.stop = reason, stop
            facts.finished_step, facts.finished_ns = self._tables.step, self._tables.clock.end_ns
            facts.num_output_tokens = num_output_tokens
            del self._tables.facts[request_id]

    def _num_output_tokens(self, request_id: str) -> int | None:
        request = None if self._state is None else self._state.requests.get(request_id)
        return None if request is None else request.num_output_tokens

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _add_step_row(self, step: int, happenings: tuple[int, int, int, int, int], num_events: int) -> None:
        started, finished = self._tables.clock.started, self._tables.clock.finished
        state = self._state
        if state is None:
            derived: tuple[int | None, ...] = (None,) * 9
        else:
            tokens = state.step_tokens
            derived = (
                tokens.total,
                tokens.prefill,
                tokens.decode,
                tokens.draft,
                len(state.running),
                len(state.waiting),
                state.num_live_blocks,
                state.num_free_blocks,
                state.num_cached_free_blocks,
            )
        budget = None if started is None else started.token_budget
        durations: tuple[int | None, ...] = (None,) * 5
        step_ns = 0
        if finished is not None:
            step_ns = finished.schedule_ns + finished.forward_ns + finished.sample_ns + finished.update_ns
            durations = (
                finished.schedule_ns,
                finished.forward_ns,
                finished.sample_ns,
                finished.update_ns,
                finished.record_ns,
            )
        time_ns = None if started is None else started.time_ns
        self._step_rows.append((step, budget, *derived, *happenings, time_ns, *durations, num_events))
        total, prefill, decode, draft, num_running, num_waiting, used, _, cached = (value or 0 for value in derived)
        is_stalled = int(total == 0 and num_waiting > 0)
        figures = (prefill, decode, draft, budget or 0, used, cached, num_running, num_waiting, step_ns)
        self._summary_rows += self._summaries.add(step, (*figures, *happenings, is_stalled))

    def _checkpoint(self, num_events: int) -> None:
        state = self._state
        if state is None or state.config is None:
            return
        self._work += WORK_OF_STEP + num_events * WORK_OF_EVENT + len(state.running)
        if self._work < self._policy.work * max(state.config.num_gpu_blocks / self._policy.blocks, 1.0):
            return
        self._work = 0
        self._steady_tokens.catch_up()
        # Once most of the pool has changed, to tell what did takes twice the time of telling all.
        is_like_base = 2 * len(self._changed_blocks) <= state.config.num_gpu_blocks
        if self._base is not None and self._num_deltas < self._policy.deltas_per_base and is_like_base:
            base_step, base = self._base
            data = encode_delta(state, self._tables.number_of, base, self._changed_blocks)
            self._num_deltas += 1
            self._checkpoint_rows.append((state.step, base_step, data))
        else:
            data, base = encode_complete(state, self._tables.number_of)
            self._checkpoint_rows.append((state.step, None, data))
            self._base, self._num_deltas = (state.step, base), 0
            self._changed_blocks.clear()

    def _flush(self) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        self._tables.flush(connection)
        insert_rows(connection, "events", self._event_rows)
        insert_rows(connection, "steps", self._step_rows)
        insert_rows(connection, "sampled_tokens", self._sampled_rows)
        insert_rows(connection, "summaries", self._summary_rows)
        insert_rows(connection, "checkpoints", self._checkpoint_rows)
        for key, value in self._meta.items():
            connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))
        connection.execute("COMMIT")
        for rows in (
            self._event_rows,
            self._step_rows,
            self._sampled_rows,
            self._summary_rows,
            self._checkpoint_rows,
        ):
            rows.clear()
        self._meta.clear()
