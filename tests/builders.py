"""Small scenarios for tests: letters as tokens, scripted replies, everything checked after every step.

run = scenario(blocks=9, block_size=4).request("a", "system prompt", reply="xyz").run()
assert run.table("a") == [1, 2, 3, 4]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from kvscope import events as ev
from kvscope.analysis.check import Checker
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.scenario import Scenario, ScenarioRequest
from kvscope.engine.scheduling.scheduler import Scheduler
from kvscope.engine.scheduling.scripted_run import ScriptedRun
from kvscope.replay.dump import StepRecord, dump_steps
from kvscope.state import EngineState

E = TypeVar("E")


class ListSink:
    """Keeps what was written."""

    is_recording = True

    def __init__(self) -> None:
        self.steps: list[tuple[int, Sequence[ev.Event]]] = []

    def write_step(self, step: int, events: Sequence[ev.Event]) -> None:
        self.steps.append((step, list(events)))


def assert_shadow(scheduler: Scheduler, state: EngineState) -> None:
    """The state that the events give is the engine's own, book for book."""
    pool = scheduler.kv_cache_manager.pool
    assert state.running == [request.request_id for request in scheduler.running]
    assert state.waiting == [request.request_id for request in scheduler.waiting]
    assert list(state.free_queue) == list(pool.free_queue)
    assert state.ref_cnts == pool.ref_cnts
    assert state.block_hashes == {
        block_id: int.from_bytes(block_hash[:8], "big") for block_id, block_hash in pool.block_hashes.items()
    }
    assert {block_id: owner for block_id, (owner, _) in state.cached_from.items()} == {
        block_id: owner for block_id, owner in enumerate(pool.computed_by) if owner is not None
    }
    groups = {id(group): list(group) for group in state.duplicate_groups.values()}
    assert sorted(groups.values()) == sorted(
        list(entry) for entry in pool.cached_blocks.values() if isinstance(entry, dict)
    )
    assert state.num_cached_free_blocks == sum(block_id in pool.block_hashes for block_id in pool.free_queue)
    assert state.num_shared_blocks == sum(count > 1 for count in pool.ref_cnts)
    assert set(state.requests) - set(state.ended_ids) == set(scheduler.requests)
    for request_id, request in scheduler.requests.items():
        shadow = state.requests[request_id]
        assert dataclasses.asdict(shadow) | {
            "status": request.status.name,
            "num_tokens": request.num_tokens,
            "num_computed_tokens": request.num_computed_tokens,
            "block_ids": request.block_ids,
            "num_cached_blocks": request.num_cached_blocks or 0,
            "draft_token_ids": tuple(request.spec_token_ids),
            "num_preemptions": request.num_preemptions,
        } == dataclasses.asdict(shadow)


class CheckedRun(ScriptedRun):
    """A scripted run that holds its events against the engine and every invariant after each step."""

    def __init__(self, scenario: Scenario) -> None:
        self.sink = ListSink()
        super().__init__(scenario, self.sink)
        self.checker = Checker()

    def run_step(self) -> None:
        super().run_step()
        assert self.checker.check_step(*self.sink.steps[-1]) == []
        assert_shadow(self.scheduler, self.checker.books.state)

    def dump(self) -> list[StepRecord]:
        return list(dump_steps(self.sink.steps))

    def events(self, step: int, kind: type[E]) -> list[E]:
        """Returns the step's events of one kind."""
        return [event for event in self.sink.steps[step][1] if isinstance(event, kind)]

    def all_events(self, kind: type[E]) -> list[tuple[int, E]]:
        return [(step, event) for step, events in self.sink.steps for event in events if isinstance(event, kind)]

    def table(self, request_id: str) -> list[int]:
        return self.scheduler.requests[request_id].block_ids

    @property
    def free_queue(self) -> list[int]:
        return list(self.scheduler.kv_cache_manager.pool.free_queue)


def tokens(text: str) -> tuple[int, ...]:
    """One token a letter."""
    return tuple(map(ord, text))


class ScenarioBuilder:
    """Collects requests in the order of their arrival."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._requests: list[ScenarioRequest] = []

    def request(
        self, request_id: str, prompt: str, *, reply: str = "", at: int = 0, drafts: Sequence[str] = (), **fields: Any
    ) -> ScenarioBuilder:
        """Adds a request that wants as many tokens as its reply has (one, "." without)."""
        reply = reply or "."
        self._requests.append(
            ScenarioRequest(
                id=request_id,
                arrival_step=at,
                arrival_time=float(len(self._requests)) if "arrival_time" not in fields else fields.pop("arrival_time"),
                prompt_token_ids=tokens(prompt),
                max_tokens=fields.pop("max_tokens", len(reply)),
                output_token_ids=tokens(reply),
                drafts=tuple(map(tokens, drafts)),
                **fields,
            )
        )
        return self

    def start(self) -> CheckedRun:
        """Returns the run before its first step."""
        scenario = Scenario(name="built", config=self._config, requests=tuple(self._requests))
        return CheckedRun(scenario)

    def run(self, max_steps: int | None = None) -> CheckedRun:
        """Runs to the end, or so many steps."""
        run = self.start()
        run.run(max_steps)
        return run


def scenario(
    *, blocks: int = 32, block_size: int = 4, budget: int = 64, seqs: int = 8, **settings: Any
) -> ScenarioBuilder:
    """Returns an empty scenario; `blocks` counts the null block, further settings have their vLLM names."""
    settings.setdefault("max_model_len", 128)
    return ScenarioBuilder(
        SchedulerConfig(
            num_gpu_blocks=blocks,
            block_size=block_size,
            max_num_batched_tokens=budget,
            max_num_seqs=seqs,
            **settings,
        )
    )
