"""What must hold of the views of any run: looked at in every step of golden runs with tight pools."""

from __future__ import annotations

import pytest

from kvscope.analysis.block_table import block_table
from kvscope.analysis.happenings import happenings
from kvscope.analysis.life import life, time_shares
from kvscope.analysis.pool_view import block_facts, pool_view
from kvscope.analysis.request_view import request_facts
from kvscope.analysis.sentences import sentences, step_title
from kvscope.analysis.spans import plain
from kvscope.analysis.step_facts import step_facts
from kvscope.analysis.step_report import step_record
from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.replay import MemoryTimeline
from tests.analysis.reading import read
from tests.builders import CheckedRun
from tests.golden import golden_runs

NAMES = list(golden_runs("random"))[::5]


@pytest.fixture(scope="module", params=NAMES)
def timeline(request: pytest.FixtureRequest) -> MemoryTimeline:
    run = CheckedRun(parse_scenario(golden_runs("random")[request.param]))
    run.run()
    return read(run)


def test_a_life_has_no_gap_and_time_is_spent_once(timeline: MemoryTimeline) -> None:
    for request_id in timeline.request_ids():
        row = timeline.request(request_id)
        assert row is not None
        last = timeline.last_step if row.finished_step is None else row.finished_step
        runs = life(timeline, request_id, 0, timeline.last_step)
        steps = [step for run in runs for step in range(run.first_step, run.last_step + 1)]
        assert steps == list(range(row.arrival_step, last + 1))
        shares = time_shares(timeline, timeline.at(last), request_id)
        num_aborted = int(sum(share.num_steps for share in shares) < len(steps))
        assert sum(share.num_steps for share in shares) + num_aborted == len(steps)
        assert not num_aborted or row.finish_reason == "abort"
        told = [happening.step for happening in happenings(timeline, timeline.at(last), request_id)]
        assert told[0] == row.arrival_step
        assert told[-1] == last


def test_the_pool_and_the_tables_tell_the_same(timeline: MemoryTimeline) -> None:
    for step in range(timeline.first_step, timeline.last_step + 1):
        moment = timeline.at(step)
        view = pool_view(timeline, moment)
        assert view.num_live + view.num_shared == moment.state.num_live_blocks
        assert view.num_cached == moment.state.num_cached_free_blocks
        assert view.num_shared == moment.state.num_shared_blocks
        for request_id in moment.state.running:
            facts = request_facts(timeline, moment, request_id)
            assert facts is not None
            table = block_table(timeline, moment, request_id, range(facts.num_blocks))
            assert [row.ref_cnt for row in table.rows] == [view.ref_cnt[row.block_id] for row in table.rows]
            assert sum(row.num_tokens for row in table.rows) == facts.num_computed_tokens
            assert [row.since_step is not None for row in table.rows] == [True] * facts.num_blocks
            for row in table.rows[:1]:
                block = block_facts(timeline, moment, row.block_id)
                assert block is not None
                assert request_id in [holder.request_id for holder in block.holders]


def test_every_step_can_be_told(timeline: MemoryTimeline) -> None:
    for step in range(timeline.first_step, timeline.last_step + 1):
        moment = timeline.at(step)
        facts = step_facts(moment)
        assert facts.num_scheduled_tokens == moment.state.step_tokens.total
        assert plain(step_title(timeline, moment)).startswith(f"{facts.num_scheduled_tokens} of {facts.token_budget}")
        assert sentences(timeline, moment)
        record = step_record(timeline, step)
        assert [row["request_id"] for row in record["waiting"]] == timeline.at(step).state.waiting
