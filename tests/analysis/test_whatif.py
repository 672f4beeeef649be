"""What-if repeats recordings exactly, predicts what a real run with another setting does, and keeps time."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from kvscope import events as ev
from kvscope.analysis.run_figures import run_figures
from kvscope.analysis.whatif import Reproduction, WhatIfStudy
from kvscope.engine.scheduling.config import Batching
from kvscope.engine.scheduling.output import SchedulerOutput
from kvscope.engine.scheduling.scenario import Scenario, parse_scenario
from kvscope.engine.scheduling.scripted_run import ScriptedRun
from kvscope.errors import UsageError
from kvscope.replay import MemoryTimeline
from tests.analysis.reading import read, read_steps
from tests.builders import ListSink, scenario
from tests.engine.fakes import ListSink as EngineSink
from tests.engine.fakes import scripted_engine
from tests.golden import golden_names, golden_runs

RANDOM = [name for kind, name in golden_names() if kind == "random"]


def recorded(scenario: Scenario) -> MemoryTimeline:
    timeline = MemoryTimeline()
    ScriptedRun(scenario, timeline).run()
    return timeline


def random_scenario(name: str, **settings: Any) -> Scenario:
    workload = golden_runs("random")[name]["workload"]
    return parse_scenario({**workload, "config": {**workload["config"], **settings}, "max_steps": 2000})


@pytest.mark.parametrize("batching", ["unified", "static", "exclusive"])
@pytest.mark.parametrize("name", RANDOM)
def test_the_own_settings_repeat_random_runs_event_for_event(name: str, batching: Batching) -> None:
    timeline = recorded(random_scenario(name, batching=batching))
    assert WhatIfStudy(timeline).reproduce() == Reproduction(timeline.last_step + 1, None)


def without_the_unknown(asked: Scenario) -> Scenario:
    """Leaves aborts and drafts out: what would have been said or drafted later is in no recording."""
    requests = tuple(msgspec.structs.replace(request, cancel_step=None, cancel_mid=False) for request in asked.requests)
    config = dataclasses.replace(asked.config, num_spec_tokens=0, num_lookahead_tokens=None)
    return msgspec.structs.replace(asked, requests=requests, config=config)


@pytest.mark.parametrize("name", RANDOM)
def test_a_smaller_pool_is_predicted_as_a_real_run_with_it_goes(name: str) -> None:
    asked = without_the_unknown(random_scenario(name))
    ample = msgspec.structs.replace(asked, config=dataclasses.replace(asked.config, num_gpu_blocks=1000))
    study = WhatIfStudy(recorded(ample))
    real = ListSink()
    ScriptedRun(asked, real).run()
    predicted = list(study.steps({"num_gpu_blocks": asked.config.num_gpu_blocks}))
    assert run_figures(predicted).preemptions == run_figures(real.steps).preemptions
    assert predicted == real.steps


@pytest.mark.parametrize("batching", ["unified", "static", "exclusive"])
@pytest.mark.parametrize(("name", "other"), list(zip(RANDOM, RANDOM[1:] + RANDOM[:1], strict=True)))
def test_all_settings_of_another_run_at_once_are_predicted_as_a_real_run_goes(
    name: str, other: str, batching: Batching
) -> None:
    asked = without_the_unknown(random_scenario(name))
    longest = max(asked.config.max_model_len, random_scenario(other).config.max_model_len)
    asked = msgspec.structs.replace(asked, config=dataclasses.replace(asked.config, max_model_len=longest))
    config = dataclasses.replace(
        without_the_unknown(random_scenario(other)).config, max_model_len=longest, batching=batching
    )
    real = ListSink()
    ScriptedRun(msgspec.structs.replace(asked, config=config), real).run()
    assert list(WhatIfStudy(recorded(asked)).steps(config.as_settings())) == real.steps


def test_a_pool_that_is_halved_preempts_the_same_victims_in_the_same_steps() -> None:
    def asked(blocks: int) -> MemoryTimeline:
        made = scenario(blocks=blocks, block_size=2, enable_prefix_caching=False)
        made.request("a", "abc", reply="12345").request("b", "def", reply="123").request("c", "ghi", reply="123")
        return read(made.run())

    study = WhatIfStudy(asked(13))
    found = study.run({"num_gpu_blocks": 7})
    assert found.settings == {"num_gpu_blocks": (13, 7)}
    assert (found.comparison.base.preemptions, found.comparison.changed.preemptions) == ([], [(2, "c")])
    assert run_figures(asked(7).events(0, 100)).preemptions == [(2, "c")]
    difference = found.comparison.first_difference
    assert difference is not None
    assert (difference.step, difference.fields) == (2, ("scheduled", "preempted", "stop"))


def test_ends_that_no_rule_of_the_scheduler_knows_are_repeated() -> None:
    """A stop string, an end-of-sequence token, an abort before and one during a step, a refusal."""
    sink = EngineSink()
    aborts = {2: "gone", 3: "late"}

    def abort(output: SchedulerOutput) -> None:
        if output.step in aborts:
            engine.abort(aborts[output.step])

    engine = scripted_engine(
        {"text": b"ab.cdefgh", "eos": b"x$yyyy", "gone": b"gggggggg", "late": b"llllllll"},
        sink=sink,
        before_reply=abort,
    )
    engine.add_request("one", {"stop": [".c"], "max_tokens": 9}, request_id="text")
    engine.add_request("two", {"max_tokens": 6}, request_id="eos")
    engine.add_request("three", {"max_tokens": 8}, request_id="gone")
    with pytest.raises(UsageError):
        engine.add_request("x" * 40, request_id="refused")
    engine.step()
    engine.add_request("four", {"max_tokens": 8}, request_id="late")
    while engine.has_work:
        engine.step()
    ends = [event for event in sink.events(ev.RequestFinished) if isinstance(event, ev.RequestFinished)]
    assert [(event.request_id, event.reason, event.stop) for event in ends] == [
        ("eos", "stop", None),
        ("text", "stop", ".c"),
    ]
    assert len(sink.events(ev.RequestAborted)) == 2
    timeline = read_steps(enumerate(sink.steps))
    assert WhatIfStudy(timeline).reproduce() == Reproduction(len(sink.steps), None)


def test_what_an_aborted_request_would_have_said_is_made_up_and_told() -> None:
    made = scenario(budget=4, seqs=2)
    made.request("a", "abcdefgh", reply="123456", cancel_step=4)
    study = WhatIfStudy(read(made.run()))
    # Steps 0 and 1 compute the prompt, 1 to 3 sample: three tokens are known. With a budget of 8 step 0 samples.
    found = study.run({"max_num_batched_tokens": 8})
    assert found.notes.num_made_up_tokens == {"a": 1}
    assert found.base_notes.num_made_up_tokens == {}
    assert [(pair.num_output_tokens.base, pair.num_output_tokens.changed) for pair in found.comparison.requests] == [
        (3, 4)
    ]


def test_a_shorter_model_len_refuses_and_cuts_short() -> None:
    made = scenario().request("long", "abcdefgh", reply="1").request("short", "abc", reply="123456")
    found = WhatIfStudy(read(made.run())).run({"max_model_len": 6})
    assert (found.notes.refused, found.notes.cut_short) == (["long"], ["short"])
    assert found.comparison.changed.requests["short"].finish_reason == "length"
    assert len(found.comparison.changed.requests["short"].token_steps) == 3


def test_a_larger_model_len_lets_a_request_go_on_with_made_up_tokens() -> None:
    made = scenario(max_model_len=6).request("a", "abc", reply="123456")
    found = WhatIfStudy(read(made.run())).run({"max_model_len": 8})
    assert found.notes.num_made_up_tokens == {"a": 2}


# --- time -------------------------------------------------------------------------------------------------------------

BASE_NS, PREFILL_NS, DECODE_NS = 1_000_000, 10_000, 200_000


def timed(steps: list[tuple[int, Any]], arrival_gap_ns: int = 1000) -> MemoryTimeline:
    """Gives a scripted run a clock: a step takes 1 ms, 10 µs a prefill token and 0.2 ms a decode."""
    columns = run_figures(steps).steps
    clocked, now_ns = [], 0
    for (step, events), prefill, decode in zip(
        steps, columns.num_prefill_tokens, columns.num_decode_tokens, strict=True
    ):
        duration_ns = BASE_NS + PREFILL_NS * prefill + DECODE_NS * decode if prefill or decode else 0
        changed: list[ev.Event] = []
        for event in events:
            if isinstance(event, ev.StepStarted):
                event = msgspec.structs.replace(event, time_ns=now_ns)
            elif isinstance(event, ev.StepFinished):
                event = ev.StepFinished(forward_ns=duration_ns)
            elif isinstance(event, ev.RequestArrived):
                event = msgspec.structs.replace(event, arrival_ns=max(now_ns - arrival_gap_ns, 0))
            changed.append(event)
        clocked.append((step, changed))
        now_ns += duration_ns
    return read_steps(clocked)


def timed_study() -> WhatIfStudy:
    made = scenario(budget=32, max_model_len=64)
    made.request("a", "a" * 20, reply="1" * 12).request("b", "b" * 30, reply="2" * 8, at=3)
    made.request("c", "c" * 9, reply="3" * 5, at=6)
    return WhatIfStudy(timed(made.run().sink.steps))


def test_the_fit_finds_the_law_that_made_the_times() -> None:
    model = timed_study().model
    assert model is not None
    assert [round(value) for value in (model.base_ns, model.prefill_token_ns, model.decode_token_ns)] == [
        BASE_NS,
        PREFILL_NS,
        DECODE_NS,
    ]
    assert abs(model.token_pair_ns) < 0.1
    assert (model.error.num_left_out, round(model.error.largest, 6)) == (0, 0)


def test_by_time_the_own_settings_decide_as_recorded_and_auto_takes_time_only_for_a_change() -> None:
    study = timed_study()
    own = study.run({}, "time")
    assert (own.arrivals, own.comparison.first_difference) == ("time", None)
    assert run_figures(study.steps({}, "time")).requests["c"].arrival_step == 6
    assert study.run({}).arrivals == "steps"
    assert study.run({"max_num_batched_tokens": 16}).arrivals == "time"


def test_by_time_a_slower_step_lets_later_arrivals_in_at_an_earlier_step() -> None:
    """Under a budget of 8 steps are shorter, and c comes at its own time: in a later step than recorded."""
    found = timed_study().run({"max_num_batched_tokens": 8, "max_num_seqs": 8})
    changed = found.comparison.changed
    recorded_ns = found.comparison.base.requests["c"].arrival_ns
    step = changed.requests["c"].arrival_step
    assert step > 6
    assert changed.steps.start_ns[step - 1] < recorded_ns <= changed.steps.start_ns[step]


def test_by_steps_a_timed_run_has_no_clock() -> None:
    changed = run_figures(timed_study().steps({"max_num_seqs": 1}, "steps"))
    assert (changed.is_timed, set(changed.steps.start_ns)) == (False, {0})


def test_times_cannot_be_asked_of_a_scripted_run() -> None:
    study = WhatIfStudy(read(scenario().request("a", "abc").run()))
    with pytest.raises(UsageError, match="needs a run with a clock"):
        study.run({"max_num_seqs": 1}, "time")


def test_a_sweep_runs_every_value_and_marks_the_recorded_one() -> None:
    made = scenario(budget=4, seqs=2).request("a", "abcdefgh", reply="12").request("b", "ijkl", reply="1")
    sweep = WhatIfStudy(read(made.run())).sweep("max_num_batched_tokens", [2, 4, 16], {})
    # 2: four steps a's prompt, then a 1 and b 1, b 2, b 1. 4: two, then a 1 and b 3, b 1. 16: both, then a.
    assert [(row.value, row.is_recorded, row.figures.num_steps) for row in sweep.rows] == [
        (2, False, 7),
        (4, True, 4),
        (16, False, 2),
    ]
