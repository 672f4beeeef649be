"""Random runs with tiny pools: after every step the events give the engine's state, and every invariant holds."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvscope.analysis.check import Checker
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.progress import ProgressWatch, Stuck
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler
from kvscope.engine.scheduling.scripted_runner import Script, ScriptedRunner
from kvscope.engine.scheduling.token_plan import PlannedRequest, unified_token_plan
from kvscope.events import EngineConfigured
from tests.builders import assert_shadow, scenario

MAX_OUTPUT = 12
LETTERS = st.integers(0, 1)
"""Two tokens only: prefixes meet often, and drafts come true."""


@st.composite
def configs(draw: st.DrawFn) -> SchedulerConfig:
    """Pools that preempt, budgets that chunk, every setting."""
    block_size = draw(st.sampled_from([1, 2, 4]))
    num_seqs = draw(st.integers(1, 5))
    max_model_len = draw(st.integers(8, 40))
    is_chunking = draw(st.booleans())
    budget = draw(st.integers(num_seqs, 24))
    return SchedulerConfig(
        num_gpu_blocks=draw(st.integers(3, 24)),
        block_size=block_size,
        max_num_batched_tokens=budget if is_chunking else max(budget, max_model_len),
        max_num_seqs=num_seqs,
        max_model_len=max_model_len,
        enable_prefix_caching=draw(st.booleans()) or draw(st.booleans()),
        enable_chunked_prefill=is_chunking,
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1, 0.3])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 3, 7])),
        num_spec_tokens=draw(st.sampled_from([0, 0, 1, 3])),
        num_lookahead_tokens=draw(st.sampled_from([None, None, 1, 3])),
    )


class SchedulerMachine(RuleBasedStateMachine):
    """Requests come, are aborted before and during steps, and in the end each has finished or is to blame."""

    @initialize(config=configs())
    def start(self, config: SchedulerConfig) -> None:
        self.config = config
        self.scheduler = Scheduler(config, is_recording=True)
        self.runner = ScriptedRunner(config.num_spec_tokens)
        self.watch = ProgressWatch(self.scheduler)
        self.checker = Checker()
        self.all_requests: list[Request] = []
        self.stuck: Stuck | None = None

    @rule(
        prompt=st.lists(LETTERS, min_size=1, max_size=30),
        reply=st.lists(LETTERS, min_size=MAX_OUTPUT, max_size=MAX_OUTPUT),
        drafts=st.lists(st.lists(LETTERS, max_size=4), max_size=MAX_OUTPUT),
        max_tokens=st.integers(1, MAX_OUTPUT),
        priority=st.integers(0, 2),
        stop=st.sampled_from([(), (), (1,)]),
        salt=st.sampled_from([None, None, "a", "b"]),
        adapter=st.sampled_from([None, None, None, "a"]),
    )
    def add(
        self,
        prompt: list[int],
        reply: list[int],
        drafts: list[list[int]],
        max_tokens: int,
        priority: int,
        stop: tuple[int, ...],
        salt: str | None,
        adapter: str | None,
    ) -> None:
        request_id = f"r{len(self.all_requests)}"
        request = Request(
            request_id,
            prompt[: self.config.max_model_len - 1],
            SamplingParams(max_tokens=max_tokens, stop_token_ids=stop),
            arrival_time=float(len(self.all_requests) // 2),
            priority=priority,
            cache_salt=salt,
            lora_name=adapter,
        )
        self.all_requests.append(request)
        self.runner.scripts[request_id] = Script(reply, drafts)
        self.scheduler.add_request(request)
        self.watch.reset()

    @precondition(lambda self: self.scheduler.requests)
    @rule(index=st.integers(0, 100))
    def abort(self, index: int) -> None:
        assert self.scheduler.abort(self.pick(index))
        self.watch.reset()

    @rule()
    def step(self) -> None:
        self.run_step()

    @precondition(lambda self: self.scheduler.requests)
    @rule(index=st.integers(0, 100))
    def step_with_an_abort_during_execution(self, index: int) -> None:
        self.run_step(abort_index=index)
        self.watch.reset()

    @rule(count=st.integers(2, 8))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.run_step()

    def pick(self, index: int) -> str:
        live = list(self.scheduler.requests)
        return live[index % len(live)]

    def run_step(self, abort_index: int | None = None) -> None:
        scheduler = self.scheduler
        output = scheduler.schedule()
        model_output = self.runner.execute(output)
        if abort_index is not None:
            scheduler.abort(self.pick(abort_index), during_execution=True)
        result = scheduler.update_from_output(output, model_output)
        scheduler.update_draft_token_ids(model_output.draft_token_ids)
        events: list[Any] = scheduler.take_events()
        if output.step == 0:
            events.insert(0, configured(self.config))
        assert self.checker.check_step(output.step, events) == []
        assert_shadow(scheduler, self.checker.books.state)
        self.stuck = self.watch.look(output, result)

    def teardown(self) -> None:
        """Every request finishes, or the run stands still for a reason that names one that lives."""
        if not hasattr(self, "scheduler"):
            return
        self.stuck = None
        self.watch.reset()
        for _ in range(2000):
            if not self.scheduler.requests or self.stuck is not None:
                break
            self.run_step()
        if self.stuck is not None:
            assert self.stuck.request_id in self.scheduler.requests
        else:
            assert all(request.status.is_finished and not request.block_ids for request in self.all_requests)
            assert not any(self.scheduler.kv_cache_manager.pool.ref_cnts)


def configured(config: SchedulerConfig) -> EngineConfigured:
    return EngineConfigured(
        model="scripted",
        device="none",
        dtype="none",
        settings=config.as_settings(),
        num_gpu_blocks=config.num_gpu_blocks,
        block_size=config.block_size,
        watermark_blocks=config.watermark_blocks,
    )


TestRandomRuns = SchedulerMachine.TestCase
TestRandomRuns.settings = settings(
    max_examples=500,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,  # a red build must mean a change, not luck
    suppress_health_check=list(HealthCheck),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    prompts=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 40), st.integers(1, 6)), min_size=1, max_size=10),
    budget=st.integers(16, 48),
)
def test_with_ample_blocks_and_sequences_each_step_is_the_lessons_plan(
    prompts: list[tuple[int, int, int]], budget: int
) -> None:
    """No caching, first come first served, no threshold, no drafts, chunking on."""
    built = scenario(blocks=512, budget=budget, seqs=16, enable_prefix_caching=False, max_model_len=64)
    for index, (at, num_prompt_tokens, num_output_tokens) in enumerate(prompts):
        built.request(f"r{index}", "p" * num_prompt_tokens, at=at, reply="x" * num_output_tokens)
    run = built.start()
    while not run.is_done:
        run.run_step()
        record = run.dump()[-1]
        before = record["before"]
        # Tokens that sampling appends are not there yet: those of the moment after schedule.
        num_tokens = record["after_schedule"]["num_tokens"]
        requests: list[PlannedRequest] = [
            {
                "id": request_id,
                "status": "running" if request_id in before["running"] else "waiting",
                "computed": before["num_computed_tokens"][request_id],
                "total_with_spec": num_tokens[request_id],
            }
            for request_id in before["running"] + before["waiting"]
        ]
        plan, left = unified_token_plan(requests, budget)
        assert (record["num_scheduled_tokens"], record["token_budget_left"]) == (plan, left)
