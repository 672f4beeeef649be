"""The statistics count steps that are alike together, and tell early ones: both must be what a look at each gives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise

import pytest

from kvscope import events as ev
from kvscope.analysis.latencies import Gaps, all_gaps
from kvscope.analysis.percentiles import Counted, distribution, histogram, whole_histogram
from kvscope.analysis.request_figures import TokenSteps
from kvscope.analysis.run_figures import run_figures
from kvscope.analysis.stats import RunStatistics, read_statistics
from kvscope.replay.timeline import Timeline
from tests.analysis.reading import read, read_steps
from tests.analysis.runs import preempting, sharing
from tests.builders import scenario


def long_decodes() -> Timeline:
    """Requests that decode side by side for long, begin one after another and end apart."""
    made = scenario(blocks=400, max_model_len=400, budget=16)
    for index, name in enumerate("abcd"):
        made = made.request(name, "p" * (5 + 9 * index), reply="x" * (30 + 25 * index), at=7 * index)
    return read(made.run(1_000))


TIMELINES: dict[str, Callable[[], Timeline]] = {
    "long": long_decodes,
    "preempting": lambda: read(preempting()),
    "sharing": lambda: read(sharing()),
}


@pytest.mark.parametrize("name", TIMELINES)
def test_what_is_counted_together_is_what_each_step_says(name: str) -> None:
    timeline = TIMELINES[name]()
    figures = run_figures(timeline.events(0, timeline.last_step))
    tokens: defaultdict[str, list[int]] = defaultdict(list)
    computed: dict[str, int] = {}
    prompts: dict[str, int] = {}
    columns = []
    for step, events in timeline.events(0, timeline.last_step):
        decode = prefill = pairs = 0
        for event in events:
            match event:
                case ev.RequestArrived():
                    prompts[event.request_id] = len(event.prompt_token_ids)
                case ev.RequestAdmitted() | ev.RequestResumed():
                    computed[event.request_id] = event.num_hit_tokens
                case ev.RequestPreempted():
                    computed[event.request_id] = 0
                case ev.TokensScheduled():
                    for request_id, num in zip(event.request_ids, event.num_tokens, strict=True):
                        before = computed[request_id]
                        pairs += sum(range(before + 1, before + num + 1))
                        is_decode = before >= prompts[request_id] + len(tokens[request_id]) - 1
                        decode, prefill = decode + num * is_decode, prefill + num * (not is_decode)
                        computed[request_id] = before + num
                case ev.TokensSampled():
                    for request_id in event.request_ids:
                        tokens[request_id].append(step)
                case _:
                    pass
        columns.append((prefill, decode, pairs))
    steps = figures.steps
    assert list(zip(steps.num_prefill_tokens, steps.num_decode_tokens, steps.num_token_pairs, strict=True)) == columns
    assert {key: list(request.token_steps) for key, request in figures.requests.items()} == dict(tokens)
    assert {key: request.num_computed_tokens for key, request in figures.requests.items()} == computed
    gaps = Counter(later - earlier for of_one in tokens.values() for earlier, later in pairwise(of_one))
    found: Counter[int] = Counter()
    for gap, number in all_gaps(read_statistics(timeline).requests).items():
        found[gap] += number
    assert found == gaps


def test_a_step_that_schedules_but_samples_nothing_is_computed_all_the_same() -> None:
    steps = list(long_decodes().events(0, 60))
    step, events = steps[60]
    cut = [*steps[:60], (step, [event for event in events if not isinstance(event, ev.TokensSampled)])]
    whole, short = run_figures(steps), run_figures(read_steps(cut).events(0, 60))
    computed = [{key: one.num_computed_tokens for key, one in run.requests.items()} for run in (whole, short)]
    assert computed[0] == computed[1]
    lacks = {key: len(one.token_steps) - len(short.requests[key].token_steps) for key, one in whole.requests.items()}
    assert lacks == {"a": 0, "b": 1, "c": 1, "d": 1}


def test_a_step_that_schedules_nothing_parts_what_is_counted_together() -> None:
    steps = list(long_decodes().events(0, 60))
    nothing: list[ev.Event] = [ev.StepStarted(step=50, token_budget=16), ev.StepFinished()]
    moved = [*steps[:50], (50, nothing), *((step + 1, events) for step, events in steps[50:])]
    before, after = run_figures(steps), run_figures(moved)
    assert {key: list(one.token_steps) for key, one in after.requests.items()} == {
        key: [step + (step >= 50) for step in one.token_steps] for key, one in before.requests.items()
    }


def test_gaps_in_ns_are_those_between_the_ends_of_the_steps() -> None:
    steps = TokenSteps()
    for step in (2, 3, 4, 7, 7, 8):
        steps.append(step)
    gaps = Gaps(steps, [0, 10, 25, 45, 70, 100, 135], 2)
    assert (list(gaps), len(gaps), list(steps.stretches())) == ([10, 15, 75, 0, 35], 5, [(2, 3), (7, 1), (7, 2)])


def test_counted_values_have_the_percentiles_and_bars_of_all_of_them() -> None:
    counted = Counted([30, 10, 20, 10], [2, 3, 4, 1])
    each = [10] * 4 + [20] * 4 + [30] * 2
    assert [counted[rank] for rank in range(-1, len(counted))] == [30, *each]
    assert distribution(counted) == distribution(each)
    assert (histogram(counted, 4), whole_histogram(counted, 4)) == (histogram(each, 4), whole_histogram(each, 4))
    assert (distribution(Counted([], [])), histogram(Counted([], []), 4)) == (None, [])


def test_early_statistics_are_those_of_the_steps_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.analysis.stats.EARLY_STEPS", 20)
    monkeypatch.setattr("kvscope.analysis.stats.SUMMARIES_AT_ONCE", 7)
    timeline = long_decodes()
    told: list[tuple[int, object, object]] = []

    def early(found: RunStatistics) -> None:
        told.append((found.throughput.num_steps, found.latencies, found.occupancy))

    read_statistics(timeline, early)
    assert [num_steps for num_steps, _, _ in told] == [20, 32, 51, 81]
    for num_steps, latencies, occupancy in told:
        so_far = read_statistics(read_steps(timeline.events(0, num_steps - 1)))
        assert (latencies, occupancy) == (so_far.latencies, so_far.occupancy)
