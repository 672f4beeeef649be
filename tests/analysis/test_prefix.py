"""Prefix lookups while one walks through a run: what is kept between two looks must never show."""

from __future__ import annotations

from random import Random

import pytest

from kvscope.analysis import published
from kvscope.analysis.prefix import hit_block_ids
from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.replay import MemoryTimeline
from kvscope.replay.timeline import Moment
from tests.analysis.reading import read
from tests.builders import CheckedRun
from tests.golden import golden_runs


def _hits_by_tokens(timeline: MemoryTimeline, moment: Moment, request_id: str) -> list[int]:
    """Looks the request's tokens up block by block, from nothing but token ids and who computed which block."""
    state = moment.state
    assert state.config is not None
    size = state.config.block_size

    def start(owner: str, num_blocks: int) -> tuple[object, ...]:
        request = timeline.request(owner)
        assert request is not None
        return (request.cache_salt, request.lora_name, *timeline.token_ids(owner, moment.step)[: num_blocks * size])

    by_content: dict[tuple[object, ...], int] = {}
    for block_id, (owner, index) in state.cached_from.items():
        group = state.duplicate_groups.get(block_id, {block_id: None})
        by_content[start(owner, index + 1)] = next(iter(group))
    hits: list[int] = []
    for num_blocks in range(1, (state.requests[request_id].num_tokens - 1) // size + 1):
        found = by_content.get(start(request_id, num_blocks))
        if found is None:
            break
        hits.append(found)
    return hits


@pytest.mark.parametrize("num_near_steps", [24, 0], ids=["by events", "by comparing"])
def test_a_walk_back_and_forth_finds_what_a_look_at_the_tokens_finds(
    num_near_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "_NEAR_STEPS", num_near_steps)
    chance = Random(11)
    num_hits = num_lookups = num_duplicates = 0
    for golden in golden_runs("random").values():
        run = CheckedRun(parse_scenario(golden))
        run.run()
        timeline = read(run)
        step = timeline.last_step // 2
        for _ in range(16):
            step = min(max(step + chance.choice((-30, -7, -1, -1, 0, 1, 1, 7, 30)), 0), timeline.last_step)
            moment = timeline.at(step)
            num_duplicates += len(moment.state.duplicate_groups)
            for request_id in moment.state.waiting:
                hits = hit_block_ids(timeline, moment, request_id)
                assert hits == _hits_by_tokens(timeline, moment, request_id), (golden["name"], step, request_id)
                num_lookups += 1
                num_hits += len(hits)
    assert num_hits > 200
    assert num_lookups > 500
    assert num_duplicates > 20
