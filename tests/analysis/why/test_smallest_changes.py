"""What `why` promises of a setting's smallest change, held against the run itself.

The first promise: the step run again with this one setting changed, and nothing else, admits the request (or leaves it
running, where it was preempted in this step); one less does not. Here the run is repeated with its own scheduler up to
the step, the setting is changed on that scheduler, and the step is run: nothing of how `why` restores a step is used.

The second: the whole run, repeated with this setting, does not have the request waiting at the step; one less has.
Here the scenario itself is run with the setting. (A repeated run that comes further than the recorded one has to make
tokens up, and says so: these are not held against the scenario, which knows all tokens.)

KVSCOPE_RANDOM_RUNS sets the number of random runs.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from kvscope import events as ev
from kvscope.analysis.recorded_settings import scheduler_config
from kvscope.analysis.why import explain, instant
from kvscope.analysis.why.changes import Change, smallest_changes
from kvscope.analysis.why.instant import num_shares
from kvscope.analysis.why.standing import standing_before
from kvscope.analysis.why.trials import StepRerun, WholeRerun
from kvscope.analysis.workload import read_workload
from kvscope.engine.scheduling.scenario import Scenario
from kvscope.engine.scheduling.scripted_run import ScriptedRun
from kvscope.engine.scheduling.waiting_queue import waiting_queue
from kvscope.replay import MemoryTimeline
from kvscope.state import EngineState
from tests.analysis.reading import read
from tests.analysis.why.random_runs import random_scenario
from tests.builders import ListSink, scenario

NUM_RUNS = int(os.environ.get("KVSCOPE_RANDOM_RUNS", "25"))
MAX_WAITS_OF_A_RUN = 4


def _run_to(scenario: Scenario, step: int) -> tuple[ScriptedRun, ListSink]:
    sink = ListSink()
    run = ScriptedRun(scenario, sink)
    while run.next_step < step:
        run.run_step()
    return run, sink


def _change_setting(run: ScriptedRun, setting: str, value: Any) -> None:
    """Changes a setting of a scheduler that is under way, with all that was derived from it."""
    scheduler = run.scheduler
    manager, pool = scheduler.kv_cache_manager, scheduler.kv_cache_manager.pool
    scheduler.config = dataclasses.replace(scheduler.config, **{setting: value})
    manager._watermark_blocks = scheduler.config.watermark_blocks
    manager._reserves_full_sequence = scheduler.config.scheduler_reserve_full_isl
    for block_id in range(len(pool.ref_cnts), scheduler.config.num_gpu_blocks):
        pool.ref_cnts.append(0)
        pool.computed_by.append(None)
        pool.free_queue[block_id] = None
    if setting == "policy":
        queue = waiting_queue(value)
        for request in sorted(scheduler.waiting, key=lambda request: request.arrival_time):
            queue.add(request)
        scheduler.waiting = queue


def _runs_after_change(scenario: Scenario, step: int, request_id: str, setting: str, value: Any) -> bool:
    """Repeats the run up to the step, changes the setting there; True if the request runs when admission stops."""
    run, sink = _run_to(scenario, step)
    _change_setting(run, setting, value)
    is_running = any(request.request_id == request_id for request in run.scheduler.running)
    run.run_step()
    for event in sink.steps[-1][1]:
        match event:
            case ev.RequestAdmitted() | ev.RequestResumed() if event.request_id == request_id:
                is_running = True
            case ev.RequestPreempted() if event.request_id == request_id:
                is_running = False
            case ev.TokensScheduled():
                break
            case _:
                pass
    return is_running


def _does_not_wait_in_changed_run(scenario: Scenario, step: int, request_id: str, setting: str, value: Any) -> bool:
    """Runs the scenario with the setting; True if the request does not wait when the step's admission stops."""
    config = dataclasses.replace(scenario.config, **{setting: value})
    _, sink = _run_to(msgspec.structs.replace(scenario, config=config), step + 1)
    state = EngineState()
    for at, events in sink.steps:
        state.begin_step(at)
        for event in events:
            state.apply(event)
            if at == step and isinstance(event, ev.TokensScheduled):
                return request_id not in state.waiting
    raise AssertionError("the step was never run")


def _one_less(change: Change, num_gpu_blocks: int) -> Any:
    """Returns the value that lies one step nearer to the recorded one."""
    if change.setting == "watermark":
        assert change.watermark_blocks is not None
        return (change.watermark_blocks + 1.5) / num_gpu_blocks
    assert change.difference is not None
    return change.value - (1 if change.difference > 0 else -1)


def _recorded(scenario: Scenario) -> MemoryTimeline:
    timeline = MemoryTimeline()
    ScriptedRun(scenario, timeline).run()
    return timeline


def _waits(timeline: MemoryTimeline, seed: int) -> list[tuple[int, str]]:
    """Returns some of the steps in which somebody waited at their end, with who."""
    found = [
        (step, request_id) for step in range(timeline.last_step + 1) for request_id in timeline.at(step).state.waiting
    ]
    return random.Random(seed).sample(found, min(len(found), MAX_WAITS_OF_A_RUN))


def _check(change: Change, num_gpu_blocks: int, admits: Callable[[Any], bool], where: str) -> None:
    assert admits(change.value), f"{where}: {change} does not admit"
    if change.difference is not None:
        one_less = _one_less(change, num_gpu_blocks)
        assert not admits(one_less), f"{where}: {change.setting} {one_less} admits too"


def _try_run(seed: int) -> Counter[str]:
    """Checks every change that is stated for some waits of a run. Returns how often each setting helped."""
    scenario = random_scenario(seed)
    timeline = _recorded(scenario)
    assert timeline.config is not None
    config = scheduler_config(timeline.config)
    workload = read_workload(timeline.events(0, timeline.last_step))
    checked: Counter[str] = Counter()
    for step, request_id in _waits(timeline, seed):
        standing = standing_before(timeline, step)
        assert standing is not None
        where = f"{scenario.name}, {request_id} at step {step}"
        changes = smallest_changes(StepRerun(config, standing, request_id))
        assert changes, f"{where}: run again as it was, the step admits"
        for change in changes:
            if change.helps:
                runs = partial(_runs_after_change, scenario, step, request_id, change.setting)
                _check(change, config.num_gpu_blocks, runs, where)
            checked[f"step {change.setting} {'helps' if change.helps else 'no'}"] += 1
        changes = smallest_changes(WholeRerun(workload, step, request_id))
        assert changes, f"{where}: repeated as it was, it does not wait"
        for change in changes:
            if change.helps and change.is_exact:
                runs = partial(_does_not_wait_in_changed_run, scenario, step, request_id, change.setting)
                _check(change, config.num_gpu_blocks, runs, where)
            known = "" if change.is_exact else ", tokens made up"
            checked[f"run {change.setting} {'helps' if change.helps else 'no'}{known}"] += 1
    timeline.close()
    return checked


@pytest.mark.timeout(1800)
def test_the_smallest_change_admits_and_one_less_does_not() -> None:
    checked: Counter[str] = Counter()
    for seed in range(NUM_RUNS):
        checked += _try_run(seed)
    for setting in ("num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens"):
        assert checked[f"step {setting} helps"] > 0, f"no random run tried {setting}: {checked}"
        assert checked[f"run {setting} helps"] > 0, f"no random run tried {setting}: {checked}"
    print(*sorted(checked.items()), sep="\n")


def test_a_long_run_is_repeated_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """a runs in steps 0 to 2 and b waits for its sequence: up to step 1 the run has two steps with one request each."""
    made = scenario(seqs=1).request("a", "abc", reply="123").request("b", "def", reply="1")
    timeline = read(made.run())
    assert num_shares(timeline, 1) == 4
    monkeypatch.setattr(instant, "MAX_REPEATED_SHARES", 3)
    unasked = explain(timeline, "b", 1).waiting.instant
    assert unasked is not None
    assert (unasked.num_shares_not_repeated, unasked.changes_from_start) == (4, ())
    asked = explain(timeline, "b", 1, repeats_any_run=True).waiting.instant
    assert asked is not None
    assert asked.num_shares_not_repeated == 0
    assert [(change.setting, change.value) for change in asked.changes_from_start if change.helps] == [
        ("max_num_seqs", 2)
    ]
