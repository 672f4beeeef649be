"""A step that is run again from what stood before it decides as it did: on runs of vLLM's own scenarios."""

from __future__ import annotations

from kvscope import events as ev
from kvscope.analysis.recorded_settings import scheduler_config
from kvscope.analysis.text import cell_width
from kvscope.analysis.why import explain, overview
from kvscope.analysis.why.layout import as_text
from kvscope.analysis.why.report import report
from kvscope.analysis.why.standing import standing_before
from kvscope.engine.scheduling.restored import restored_scheduler
from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.engine.scheduling.scripted_run import ScriptedRun
from kvscope.replay import MemoryTimeline
from tests.golden import golden_runs

EVERY = 8
"""Of the random runs every so many."""


def _recorded(name: str, golden: object) -> MemoryTimeline:
    timeline = MemoryTimeline(name)
    ScriptedRun(parse_scenario(golden), timeline).run()
    return timeline


def _runs() -> dict[str, object]:
    random = golden_runs("random")
    return {**golden_runs("scenarios"), **{name: random[name] for name in sorted(random)[::EVERY]}}


def test_a_restored_step_schedules_what_the_recorded_one_did() -> None:
    num_steps = num_preempting = num_drafting = 0
    for name, golden in _runs().items():
        timeline = _recorded(name, golden)
        assert timeline.config is not None
        config = scheduler_config(timeline.config)
        for step in range(timeline.last_step + 1):
            standing = standing_before(timeline, step)
            assert standing is not None
            scheduler = restored_scheduler(config, standing)
            output = scheduler.schedule()
            events = timeline.at(step).events
            (scheduled,) = (event for event in events if isinstance(event, ev.TokensScheduled))
            place = f"{name}, step {step}"
            assert [request.request_id for request in output.requests] == list(scheduled.request_ids), place
            assert output.num_scheduled_tokens == list(scheduled.num_tokens), place
            drafts = {key: tuple(tokens) for key, tokens in output.scheduled_spec_tokens.items()}
            assert drafts == scheduled.draft_token_ids, place
            preempted = [event.request_id for event in events if isinstance(event, ev.RequestPreempted)]
            assert output.preempted_request_ids == preempted, place
            (ended,) = (event for event in events if isinstance(event, ev.AdmissionEnded))
            verdict = scheduler.head_verdict
            assert (verdict.reason if verdict is not None else "empty") == ended.reason, place
            num_steps, num_preempting = num_steps + 1, num_preempting + bool(preempted)
            num_drafting += bool(drafts)
        timeline.close()
    assert num_steps > 500
    assert num_preempting > 20
    assert num_drafting > 20


def test_the_answers_on_every_request_agree_with_the_overview_and_fit_80_columns() -> None:
    """The overview counts events, the answers follow states: two ways to the same figures."""
    for name, golden in _runs().items():
        timeline = _recorded(name, golden)
        rows = {row.request_id: row for row in overview(timeline).requests}
        for request_id in timeline.request_ids():
            answer, row = explain(timeline, request_id), rows[request_id]
            assert answer.missed is not None
            told = answer.request
            assert (told.waited_steps, told.waited_steps_in_all) == (row.waited_steps, row.waited_steps_in_all), name
            assert (told.preemptions, told.resumes) == (row.preemptions, row.resumes), name
            assert told.recomputed_tokens == row.recomputed_tokens, name
            hits = (answer.missed.own_hit_tokens, answer.missed.others_hit_tokens)
            assert hits == (row.own_hit_tokens, row.others_hit_tokens), name
            assert all(admission.hits_hold_its_tokens for admission in answer.missed.admissions), name
            for gap in answer.slow.gaps:
                parts = gap.own_steps + gap.preempted_steps + gap.recompute_steps + gap.skipped_steps
                assert parts == gap.steps, f"{name}: {gap}"
            assert max(map(cell_width, as_text(report(answer)).splitlines())) <= 80
        timeline.close()
