"""Any step, in any order: the state from checkpoints is the state folded from the start."""

from __future__ import annotations

import dataclasses
import gc
import random
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvscope import events as ev
from kvscope.checkpoint import decode_base, decode_checkpoint, encode_complete, encode_delta
from kvscope.errors import RecordingError
from kvscope.recording.writer import CheckpointPolicy
from kvscope.replay import MemoryTimeline, Replay, open_recording
from kvscope.replay.cursor import StateCursor
from kvscope.replay.timeline import StepSummary
from kvscope.state import EngineState, StateError
from tests.recording.runs import BUSY_RUNS, OFTEN, Steps, golden_steps, record, write

LONG_RUN = "rand1021"
"""Long enough for ways of many steps."""


@cache
def folded(name: str) -> list[EngineState]:
    """Returns the state after each step, folded from the start."""
    states, state = [], EngineState()
    for step, events in golden_steps(name):
        state.apply_step(step, events)
        states.append(state.copy())
    return states


def assert_same(found: EngineState, expected: EngineState) -> None:
    """All but the hashes, which checkpoints leave out: those that are known are right. Requests in order of arrival."""
    assert found.block_hashes.items() <= expected.block_hashes.items()
    assert dataclasses.replace(found, block_hashes=expected.block_hashes) == expected
    assert list(found.requests) == list(expected.requests)


@pytest.mark.parametrize("name", BUSY_RUNS)
@pytest.mark.parametrize("deltas", [0, 3, 100])
def test_every_step_in_random_order_has_the_folded_state(tmp_path: Path, name: str, deltas: int) -> None:
    steps, states = golden_steps(name), folded(name)
    policy = CheckpointPolicy(work=250, deltas_per_base=deltas)
    order = [*range(len(steps)), *reversed(range(len(steps)))]
    random.Random(name).shuffle(order)
    with open_recording(record(tmp_path / "run.db", steps, policy)) as replay:
        for step in [*range(len(steps) - 1, -1, -1), *range(len(steps)), *order]:
            moment = replay.at(step)
            assert_same(moment.state, states[step])
            assert [type(event) for event in moment.events] == [type(event) for event in steps[step][1]]
    connection = sqlite3.connect(tmp_path / "run.db")
    complete, others = connection.execute(
        "SELECT sum(base_step IS NULL), sum(base_step >= 0) FROM checkpoints"
    ).fetchone()
    connection.close()
    assert bool(others) == bool(deltas)
    assert complete >= 1


def test_a_checkpoint_is_complete_once_half_the_pool_has_changed_since_the_last_such(tmp_path: Path) -> None:
    steps = golden_steps("rand1021")
    configured = next(event for event in steps[0][1] if isinstance(event, ev.EngineConfigured))
    path = record(tmp_path / "run.db", steps, CheckpointPolicy(work=250, deltas_per_base=1_000))
    connection = sqlite3.connect(path)
    written = connection.execute("SELECT step, base_step FROM checkpoints ORDER BY step").fetchall()
    connection.close()
    base = written[0][0]
    expected: list[tuple[int, int | None]] = [(base, None)]
    for step, _ in written[1:]:
        changed = {
            block_id
            for _, events in steps[base + 1 : step + 1]
            for event in events
            if isinstance(event, ev.BlockCached | ev.BlockEvicted | ev.BlockUncached)
            for block_id in event.block_ids
        }
        is_complete = len(changed) > configured.num_gpu_blocks / 2
        expected.append((step, None if is_complete else base))
        base = step if is_complete else base
    assert written == expected
    assert 1 < sum(of is None for _, of in written) < len(written)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(BUSY_RUNS), st.data())
def test_a_checkpoint_may_refer_to_any_earlier_one(name: str, data: st.DataObject) -> None:
    """Also over a gap in which all blocks changed hands."""
    states = folded(name)
    step = data.draw(st.integers(0, len(states) - 1))
    base_step = data.draw(st.integers(0, step))
    numbers = {f"r{number:02}": number + 1 for number in range(100)}
    names = {number: request_id for request_id, number in numbers.items()}
    config = states[0].config
    assert config is not None
    complete, base = encode_complete(states[base_step], numbers.__getitem__)
    changed = {*states[base_step].cached_from, *states[step].cached_from}
    delta = encode_delta(states[step], numbers.__getitem__, base, changed)
    found = decode_checkpoint(delta, config, lambda _: names, decode_base(complete, config, lambda _: names))
    expected = states[step].copy()
    expected.begin_step(step)  # what belonged to that step alone, and requests that ended in it, are left out
    assert_same(found, expected)


def test_blocks_that_no_table_holds_are_kept() -> None:
    """A connector keeps blocks of an ended request until they are sent."""
    state = folded("rand1000")[20].copy()
    state.begin_step(20)
    held = next(iter(state.free_queue))
    state.free_queue.remove(held)
    state.ref_cnts[held] = 2
    state.num_shared_blocks += 1
    state.num_cached_free_blocks -= held in state.cached_from
    assert state.config is not None
    names = {number + 1: f"r{number:02}" for number in range(100)}
    data, _ = encode_complete(state, lambda request_id: int(request_id[1:]) + 1)
    assert_same(decode_checkpoint(data, state.config, lambda _: names), state)


def test_a_step_outside_names_the_range(tmp_path: Path) -> None:
    steps = golden_steps("rand1000")
    with open_recording(record(tmp_path / "run.db", steps)) as replay:
        for step in (-1, len(steps)):
            with pytest.raises(RecordingError, match=f"no step {step} .* has steps 0 to {len(steps) - 1}"):
                replay.at(step)


@pytest.fixture(scope="module", params=["file", "memory"])
def timeline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MemoryTimeline | object:
    steps = golden_steps("rand1015")
    if request.param == "memory":
        memory = MemoryTimeline(checkpoints=OFTEN)
        write(memory, steps)
        return memory
    return open_recording(record(tmp_path_factory.mktemp("seek") / "run.db", steps))


def test_tokens_of_a_request_at_any_step(timeline: MemoryTimeline) -> None:
    tokens: dict[str, list[int]] = {}
    for step, events in golden_steps("rand1015"):
        for event in events:
            if isinstance(event, ev.RequestArrived):
                tokens[event.request_id] = list(event.prompt_token_ids)
            elif isinstance(event, ev.TokensSampled):
                fresh = iter(event.token_ids)
                for request_id, count in zip(
                    event.request_ids, event.num_tokens or (1,) * len(event.request_ids), strict=True
                ):
                    tokens[request_id] += [next(fresh) for _ in range(count)]
        for request_id, expected in tokens.items():
            assert timeline.token_ids(request_id, step) == expected
    assert timeline.request_ids() == list(tokens)
    for request_id, expected in tokens.items():
        row = timeline.request(request_id)
        assert row is not None
        assert row.num_prompt_tokens + row.num_output_tokens == len(expected)
    with pytest.raises(RecordingError, match="has no request nobody"):
        timeline.token_ids("nobody", 0)
    assert timeline.request("nobody") is None


def test_events_about_one_request(timeline: MemoryTimeline) -> None:
    steps = golden_steps("rand1015")
    for request_id in timeline.request_ids():
        expected = [
            (step, event)
            for step, events in steps
            for event in events
            if request_id in (getattr(event, "request_id", None), getattr(event, "beneficiary_id", None))
        ]
        kinds = [(step, type(event)) for step, event in expected]
        assert [(step, type(event)) for step, event in timeline.request_events(request_id, 0, 10**6)] == kinds
        middle = [entry for entry in kinds if 3 <= entry[0] <= 9]
        assert [(step, type(event)) for step, event in timeline.request_events(request_id, 3, 9)] == middle


def test_events_of_some_kinds(timeline: MemoryTimeline) -> None:
    kinds = (ev.BlockEvicted, ev.RequestFinished)
    found = list(timeline.select_events(kinds, 2, 40))
    assert found == [
        (step, [event for event in events if isinstance(event, kinds)])
        for step, events in golden_steps("rand1015")
        if 2 <= step <= 40
    ]


def brute_summary(steps: Steps, states: list[EngineState], first: int, width: int) -> StepSummary:
    """Returns a column of the timeline, worked out from the events and states of its steps."""
    columns = list(zip(steps, states, strict=True))[first : first + width]
    events = [event for (_, of_step), _ in columns for event in of_step]
    of = [state for _, state in columns]
    return StepSummary(
        first_step=first,
        num_steps=len(columns),
        num_prefill_tokens=max(state.step_tokens.prefill for state in of),
        num_decode_tokens=max(state.step_tokens.decode for state in of),
        num_draft_tokens=max(state.step_tokens.draft for state in of),
        token_budget=max(state.token_budget for state in of),
        num_live_blocks=max(state.num_live_blocks for state in of),
        num_cached_blocks=max(state.num_cached_free_blocks for state in of),
        num_running=max(len(state.running) for state in of),
        num_waiting=max(len(state.waiting) for state in of),
        step_ns=0,
        num_preemptions=sum(isinstance(event, ev.RequestPreempted) for event in events),
        num_evicted_blocks=sum(len(event.block_ids) for event in events if isinstance(event, ev.BlockEvicted)),
        num_hits=sum(isinstance(event, ev.PrefixCacheHit) for event in events),
        num_finished=sum(isinstance(event, ev.RequestFinished | ev.RequestAborted) for event in events),
        num_stalled=sum(state.step_tokens.total == 0 and bool(state.waiting) for state in of),
    )


@pytest.mark.parametrize("width", [1, 2, 5, 10, 20, 50, 100, 1000])
def test_timeline_columns_at_every_zoom(timeline: MemoryTimeline, width: int) -> None:
    steps, states = golden_steps("rand1015"), folded("rand1015")
    for first, num_columns in ((0, 1000), (0, 2), (2 * width, 2), (width // 2, 3)):
        begin = first // width * width
        starts = [at for at in range(begin, begin + num_columns * width, width) if at < len(steps)]
        expected = [brute_summary(steps, states, at, width) for at in starts]
        assert timeline.summaries(first, num_columns, width) == expected


def test_long_recordings_have_every_level() -> None:
    """1,234 steps: the last column of each zoom is made up of narrower summaries."""
    memory = MemoryTimeline()
    for step in range(1234):
        failed: list[ev.Event] = [ev.StepFailed(phase="forward", error_type="E", message="")] if step % 7 == 0 else []
        memory.write_step(step, [*failed, ev.StepFinished(forward_ns=step)])
    for width in (1, 10, 20, 100, 500, 1000, 2000):
        found = memory.summaries(0, 10_000, width)
        assert [row.first_step for row in found] == list(range(0, 1234, width))
        assert [row.step_ns for row in found] == [min(at + width, 1234) - 1 for at in range(0, 1234, width)]
        assert sum(row.num_failed for row in found) == len(range(0, 1234, 7))
        assert sum(row.num_steps for row in found) == 1234
    memory.close()


def test_the_text_of_tokens(timeline: MemoryTimeline) -> None:
    memory = MemoryTimeline()
    memory.write_step(0, [ev.TokenTextRecorded(token_ids=(5, 9), token_bytes=(b"a", b"\xf0\x9f"))])
    assert memory.token_bytes([9, 5, 7, 5]) == [b"\xf0\x9f", b"a", None, b"a"]
    memory.write_step(1, [ev.TokenTextRecorded(token_ids=(7,), token_bytes=(b"later",))])
    assert memory.token_bytes([7]) == [b"later"]
    memory.close()
    assert timeline.token_bytes([1]) == [None]


@pytest.mark.parametrize("deltas", [0, 3])
def test_walks_of_all_kinds_have_the_folded_state(tmp_path: Path, deltas: int) -> None:
    """Back and forth by steps and tens: what is kept for the way back is used, or not, and is never wrong."""
    steps, states = golden_steps(LONG_RUN), folded(LONG_RUN)
    chance = random.Random(3)
    policy = CheckpointPolicy(work=2000, deltas_per_base=deltas)
    with open_recording(record(tmp_path / "run.db", steps, policy)) as replay:
        step = len(steps) - 1
        for _ in range(400):
            assert_same(replay.at(step).state, states[step])
            by = chance.choice((-1, -1, -1, 1, -10, 10, -3, -30))
            step = min(max(step + by, 0), len(steps) - 1) or len(steps) - 1


class CountingSource:
    """Counts how often a recording is asked."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.num_checkpoints = self.num_reads = 0

    def steps(self, first_step: int, last_step: int) -> Iterator[tuple[int, Sequence[ev.Event]]]:
        self.num_reads += 1
        return self._replay.steps(first_step, last_step)

    def checkpoint_step_before(self, step: int) -> int:
        return self._replay.checkpoint_step_before(step)

    def state_at_checkpoint(self, step: int) -> EngineState:
        self.num_checkpoints += 1
        return self._replay.state_at_checkpoint(step)


@pytest.mark.parametrize("by", [1, 10])
def test_a_step_back_that_was_prepared_reads_nothing(tmp_path: Path, by: int) -> None:
    """From the end to the start: only what prepares it asks the recording, and leaves the moment before as it was."""
    steps, states = golden_steps(LONG_RUN), folded(LONG_RUN)
    with open_recording(record(tmp_path / "run.db", steps, CheckpointPolicy(work=3000))) as replay:
        source = CountingSource(replay)
        cursor = StateCursor(source)
        step = len(steps) - 1
        state, _ = cursor.at(step)
        while step >= by:
            cursor.prepare(step - by)
            assert_same(state, states[step])
            asked = (source.num_checkpoints, source.num_reads)
            cursor.prepare(step - by)
            state, _ = cursor.at(step - by)
            assert (source.num_checkpoints, source.num_reads) == asked
            step -= by
            assert_same(state, states[step])
        assert source.num_checkpoints > 3


def test_steps_back_in_one_stretch_decode_its_checkpoint_once(tmp_path: Path) -> None:
    """A walk from the end to the start, back and forth on the way: copies serve what lies between two checkpoints."""
    steps, states = golden_steps(LONG_RUN), folded(LONG_RUN)
    with open_recording(record(tmp_path / "run.db", steps, CheckpointPolicy(work=3000))) as replay:
        source = CountingSource(replay)
        cursor = StateCursor(source)
        stretches = {replay.checkpoint_step_before(step) for step in range(len(steps))}
        for step in range(len(steps) - 1, 0, -1):
            for there in (step, step - 1):
                assert_same(cursor.at(there)[0], states[there])
        assert source.num_checkpoints <= len(stretches) + 1


def test_the_first_step_back_after_following_decodes_nothing(tmp_path: Path) -> None:
    """Forwards by a few steps, as who follows an engine, and back by one from wherever that led."""
    steps, states = golden_steps(LONG_RUN), folded(LONG_RUN)
    with open_recording(record(tmp_path / "run.db", steps, CheckpointPolicy(work=3000))) as replay:
        source = CountingSource(replay)
        cursor = StateCursor(source)
        cursor.at(20)
        decoded = source.num_checkpoints
        for step in range(25, len(steps), 5):
            assert_same(cursor.at(step)[0], states[step])
            assert_same(cursor.at(step - 1)[0], states[step - 1])
            assert_same(cursor.at(step)[0], states[step])
        assert source.num_checkpoints == decoded


def test_a_reading_thread_leaves_the_collector_as_the_main_thread_has_it(tmp_path: Path) -> None:
    """A screen that takes the collector over while another thread is in the midst of a seek has it off afterwards."""
    steps = golden_steps(LONG_RUN)

    class TakenOver(CountingSource):
        def state_at_checkpoint(self, step: int) -> EngineState:
            gc.disable()  # as the main thread does meanwhile
            return super().state_at_checkpoint(step)

    with open_recording(record(tmp_path / "run.db", steps, CheckpointPolicy(work=3000))) as replay:
        cursor = StateCursor(TakenOver(replay))
        assert gc.isenabled()
        try:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(cursor.at, len(steps) - 1).result()
            assert not gc.isenabled()
        finally:
            gc.enable()


def test_preparing_passes_over_damage_and_steps_outside(tmp_path: Path) -> None:
    steps, states = golden_steps(LONG_RUN), folded(LONG_RUN)
    path = record(tmp_path / "run.db", steps, CheckpointPolicy(work=3000))
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM events WHERE step = 7 AND seq = 1")
    connection.commit()
    connection.close()
    with open_recording(path) as replay:
        state = replay.at(len(steps) - 1).state
        for step in (-1, 7, len(steps)):
            replay.prepare(step)
        assert_same(state, states[-1])
        with pytest.raises(RecordingError, match="step 7 holds"):
            replay.at(7)


def test_damage_is_met_only_where_one_goes(tmp_path: Path) -> None:
    """Every step on this side of the damage has its state; one step further and it is named."""
    steps, states = golden_steps(LONG_RUN), folded(LONG_RUN)
    path = record(tmp_path / "run.db", steps, CheckpointPolicy(work=3000))
    with open_recording(path) as replay:
        checkpoint = replay.checkpoint_step_before(len(steps) - 1)
    assert checkpoint > 20
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM events WHERE step = ? AND seq = 1", (checkpoint - 1,))
    connection.commit()
    connection.close()
    with open_recording(path) as replay:
        for step in range(len(steps) - 1, checkpoint, -1):
            assert_same(replay.at(step).state, states[step])
        with pytest.raises(RecordingError, match=f"step {checkpoint - 1} holds"):
            replay.at(checkpoint)


def test_a_block_that_was_lost_stays_lost_over_a_checkpoint() -> None:
    """A request gives up a block that only it held, as if another held it too: it never comes back."""
    state = folded("rand1000")[20].copy()
    state.begin_step(20)
    loser = next(request for request in state.requests.values() if request.block_ids)
    lost, *freed = [block_id for block_id in loser.block_ids if state.ref_cnts[block_id] == 1]
    still_held = [block_id for block_id in loser.block_ids if block_id not in freed]
    state.apply(
        ev.BlockReleased(
            request_id=loser.request_id, freed_to_head=tuple(freed), freed_to_tail=(), still_held=tuple(still_held)
        )
    )
    assert state.lost_blocks == {lost}
    assert [state.is_free(block_id) for block_id in (lost, *freed)] == [False] + [True] * len(freed)
    assert state.config is not None
    names = {number + 1: f"r{number:02}" for number in range(100)}
    data, _ = encode_complete(state, lambda request_id: int(request_id[1:]) + 1)
    found = decode_checkpoint(data, state.config, lambda _: names)
    assert found.lost_blocks == {lost}
    for books in (state, found):
        touched = ev.BlockTouched(request_id=loser.request_id, block_ids=(lost,), ref_cnts=(1,))
        with pytest.raises(StateError, match=f"block {lost} is hit, but stands neither"):
            books.apply(touched)


def test_a_checkpoint_whose_owners_have_no_names_is_damaged() -> None:
    """The row of a request that computed a published block is missing."""
    state = folded("rand1000")[20]
    assert state.config is not None
    live = {request_id for request_id in state.requests if request_id not in state.ended_ids}
    owner = next(origin for _, (origin, _) in state.cached_from.items() if origin not in live)
    data, _ = encode_complete(state, lambda request_id: int(request_id[1:]) + 1)
    names = {number + 1: f"r{number:02}" for number in range(100) if f"r{number:02}" != owner}
    with pytest.raises(RecordingError, match=f"a checkpoint of the recording is damaged .{int(owner[1:]) + 1}"):
        decode_checkpoint(data, state.config, lambda _: names)
