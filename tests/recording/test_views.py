"""Plain SQL over a recording: every view says what the events say."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from sqlite_utils import Database

from kvscope import events as ev
from kvscope.recording.views import view_name
from tests.recording.runs import BUSY_RUNS, Steps, golden_steps, record

KINDS: tuple[type[ev.Event], ...] = get_args(ev.Event)
BATCHES = (ev.TokensScheduled, ev.TokensSampled)
IN_OTHER_COLUMNS = {"step", "prompt_token_ids", "sampling", "stop_token_ids"}

RARE: Steps = (
    (
        0,
        [
            ev.EngineConfigured(
                model="m",
                device="cpu",
                dtype="float32",
                settings={},
                num_gpu_blocks=9,
                block_size=4,
                watermark_blocks=0,
            ),
            ev.TokenTextRecorded(token_ids=(7, 70_000), token_bytes=(b"a", b"\xff")),
            ev.RequestRejected(request_id="r", reason="max_model_len", have=9, limit=8, message="too long"),
            ev.BlockCached(
                request_id="r", first_index=1, block_ids=(3, 4), block_hashes=(1, 1 << 63), duplicate_of=(0, 2)
            ),
            ev.BlockCached(request_id="r", first_index=3, block_ids=(5,), block_hashes=(5,), duplicate_of=(2,)),
            ev.BlockUncached(request_id="r", block_ids=(3, 4), reason="preempted"),
            ev.BlockEvicted(request_id="r", block_ids=(3, 4), block_hashes=(1, 1 << 63)),
            ev.BlockAllocated(request_id="r", block_ids=(3, 4, 5)),
            ev.BlockEvicted(request_id="r", block_ids=(6,), block_hashes=((1 << 64) - 1,)),
            ev.BlockAllocated(request_id="r", block_ids=(6,)),
            ev.BlockCached(request_id="s", first_index=0, block_ids=(6,), block_hashes=(255,)),
            ev.BlockAllocated(request_id="s", block_ids=(7,)),
            ev.TokensSampled(request_ids=("r", "s", "t"), token_ids=(70_000, 1, 2, 3), num_tokens=(2, 0, 2)),
            ev.DraftsProposed(request_id="r", draft_token_ids=(-1, 55_293, 1_000_000)),
            ev.KVTransferStarted(request_id="r", direction="load", block_ids=(1, 2), num_tokens=8),
            ev.KVTransferFinished(request_id="r", direction="send", failed_block_ids=()),
            ev.StepFailed(phase="forward", error_type="E", message="it's", traceback="t"),
        ],
    ),
)


def rows_of_events(steps: Steps, kind: type[ev.Event]) -> list[dict[str, Any]]:
    """Returns what the kind's view should hold, by the events themselves."""
    rows: list[dict[str, Any]] = []
    for step, events in steps:
        for seq, event in enumerate(events):
            if type(event) is not kind:
                continue
            if isinstance(event, ev.TokensScheduled):
                rows += [
                    {"step": step, "seq": seq, "request_id": name, "num_tokens": count}
                    for name, count in zip(event.request_ids, event.num_tokens, strict=True)
                ]
            elif isinstance(event, ev.TokensSampled):
                counts = event.num_tokens or (1,) * len(event.request_ids)
                names = [name for name, count in zip(event.request_ids, counts, strict=True) for _ in range(count)]
                rows += [
                    {"step": step, "request_id": name, "token_id": token_id}
                    for name, token_id in zip(names, event.token_ids, strict=True)
                ]
            else:
                fields = msgspec.structs.asdict(event)
                rows.append({"step": step, "seq": seq, **{name: plain(name, value) for name, value in fields.items()}})
    return rows


def plain(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return [f"{number:016x}" for number in value] if name == "block_hashes" else list(value)
    return int(value) if isinstance(value, bool) else value


def rows_of_view(path: Path, kind: type[ev.Event]) -> list[dict[str, Any]]:
    order = "step" if kind is ev.TokensSampled else "step, seq"
    database = Database(sqlite3.connect(path))
    rows = list(database.query(f"SELECT * FROM {view_name(kind)} ORDER BY {order}"))
    database.conn.close()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str) and value.startswith(("[", "{")):
                row[name] = json.loads(value)
    return rows


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Steps]]:
    folder = tmp_path_factory.mktemp("views")
    runs = [("rare", RARE), *((name, golden_steps(name)) for name in BUSY_RUNS)]
    return [(record(folder / f"{name}.db", steps), steps) for name, steps in runs]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_view_of_a_kind_holds_its_events(kind: type[ev.Event], recordings: list[tuple[Path, Steps]]) -> None:
    num_rows = 0
    for path, steps in recordings:
        expected, found = rows_of_events(steps, kind), rows_of_view(path, kind)
        assert len(found) == len(expected)
        for row, event in zip(found, expected, strict=True):
            for name, value in event.items():
                if name == "token_bytes" or (kind is ev.RequestArrived and name in IN_OTHER_COLUMNS - {"step"}):
                    continue
                if kind is ev.EngineConfigured and name == "eos_token_ids":
                    value = list(value)
                assert row[name] == value, (path.name, name, row)
        num_rows += len(found)
    assert num_rows > 0


def test_prompt_tokens_come_out_of_the_arrivals_view(recordings: list[tuple[Path, Steps]]) -> None:
    path, steps = recordings[1]
    expected = [list(event.prompt_token_ids) for _, es in steps for event in es if isinstance(event, ev.RequestArrived)]
    assert [row["prompt_token_ids"] for row in rows_of_view(path, ev.RequestArrived)] == expected


def test_a_view_of_one_step_reads_that_step_only(recordings: list[tuple[Path, Steps]]) -> None:
    """Without this a question about one step of a million would read them all."""
    connection = sqlite3.connect(recordings[1][0])
    for kind in KINDS:
        plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT * FROM {view_name(kind)} WHERE step = 3").fetchall()
        tables = [row[3] for row in plan if row[3] in ("SCAN e", "SCAN s", "SCAN l", "SCAN r")]
        assert not tables, (kind, plan)
    connection.close()


def test_a_rare_kind_is_found_without_reading_all_events(recordings: list[tuple[Path, Steps]]) -> None:
    connection = sqlite3.connect(recordings[1][0])
    plan = connection.execute("EXPLAIN QUERY PLAN SELECT * FROM prefix_cache_hit").fetchall()
    connection.close()
    assert any("events_by_kind" in row[3] for row in plan), plan


def test_steps_have_the_figures_of_the_budget_and_the_pool(recordings: list[tuple[Path, Steps]]) -> None:
    path, steps = recordings[1]
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT step, num_scheduled_tokens, token_budget, num_events FROM steps").fetchall()
    blocks = connection.execute("SELECT DISTINCT num_used_blocks + num_free_blocks FROM steps").fetchall()
    connection.close()
    expected = []
    for step, events in steps:
        scheduled = next(sum(event.num_tokens) for event in events if isinstance(event, ev.TokensScheduled))
        budget = next(event.token_budget for event in events if isinstance(event, ev.StepStarted))
        expected.append((step, scheduled, budget, len(events)))
    assert found == expected
    config = steps[0][1][0]
    assert isinstance(config, ev.EngineConfigured)
    assert blocks == [(config.num_gpu_blocks - 1,)]
