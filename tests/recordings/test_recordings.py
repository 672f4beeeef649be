"""The recordings that come with kvscope: small, whole, and each shows the mechanism that it is named for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope import events as ev
from kvscope.analysis.check import check_recording
from kvscope.analysis.sentences import sentences
from kvscope.replay import Replay, open_recording

FOLDER = Path(__file__).parents[2] / "recordings"
NAMES = ("shared_system_prompt", "long_prompt_among_decodes", "preemption_storm")
MAX_BYTES = 500_000


@pytest.fixture
def recording(request: pytest.FixtureRequest) -> Iterator[Replay]:
    with open_recording(FOLDER / f"{request.param}.db") as timeline:
        yield timeline


def test_every_recording_is_named_here_and_told_in_the_folder() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.db")) == sorted(NAMES)
    told = (FOLDER / "README.md").read_text()
    assert [name for name in NAMES if f"`{name}.db`" not in told] == []


@pytest.mark.parametrize("recording", NAMES, indirect=True)
def test_it_is_small_closed_and_every_invariant_holds(recording: Replay) -> None:
    assert recording.path.stat().st_size < MAX_BYTES
    assert not recording.is_growing
    assert list(check_recording(recording)) == []


@pytest.mark.parametrize("recording", ["shared_system_prompt"], indirect=True)
def test_all_but_the_first_request_hit_the_system_prompt(recording: Replay) -> None:
    rows = [recording.request(request_id) for request_id in recording.request_ids()]
    assert [row.num_hit_tokens for row in rows if row is not None] == [0, 80, 80, 80, 80, 80]
    said = [str(line) for step in range(recording.last_step + 1) for line in sentences(recording, recording.at(step))]
    assert sum("80 tokens hit in 5 blocks of req-1" in line for line in said) == 5


@pytest.mark.parametrize("recording", ["long_prompt_among_decodes"], indirect=True)
def test_the_long_prompt_is_computed_in_chunks_beside_four_decodes(recording: Replay) -> None:
    shares = [
        dict(zip(event.request_ids, event.num_tokens, strict=True))
        for _, events in recording.events(0, recording.last_step)
        for event in events
        if isinstance(event, ev.TokensScheduled)
    ]
    chunks = [share for share in shares if share.get("req-5", 1) > 1]
    full = [share for share in chunks if list(share) == ["req-1", "req-2", "req-3", "req-4", "req-5"]]
    assert len(full) >= 6
    assert all(sum(share.values()) <= 64 for share in shares)
    assert {share["req-5"] for share in full[:-1] if sum(share.values()) == 64} >= {60}


@pytest.mark.parametrize("recording", ["preemption_storm"], indirect=True)
def test_the_last_in_line_lose_their_blocks_again_and_again(recording: Replay) -> None:
    rows = [recording.request(request_id) for request_id in recording.request_ids()]
    preemptions = {row.request_id: row.num_preemptions for row in rows if row is not None}
    assert sum(preemptions.values()) > 10
    assert max(preemptions.values()) >= 2
    assert all(row.finish_reason == "length" for row in rows if row is not None)
