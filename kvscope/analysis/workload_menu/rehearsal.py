"""Runs a planned workload through the scheduler without a model, and counts what it brings about.

The scheduler is a function of what it is given: from an idle engine with an empty cache the real run takes the same
decisions, as long as nobody sends anything else. Knows nothing of words and time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvscope import events as ev
from kvscope.control import PlannedRequest
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.scenario import Scenario, ScenarioRequest
from kvscope.engine.scheduling.scripted_run import ScriptedRun

MAX_STEPS = 5_000

_FIRST_OWN_TOKEN = 1 << 20
_OWN_TOKENS = 1 << 18
"""Token ids of a request's own: no two requests share one. Longer prompts than this are not rehearsed."""


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """What happened, counted."""

    num_steps: int = 0
    """Steps that scheduled something."""
    num_prompt_tokens: int = 0
    num_hit_tokens: int = 0
    """At first admissions."""
    num_preemptions: int = 0
    num_lost_tokens: int = 0
    """Computed tokens that preemptions threw away."""
    num_chunked_prompts: int = 0
    """Prompts that took several steps."""
    num_mixed_steps: int = 0
    """Steps that computed a part of a prompt beside at least one decode token."""
    num_evicted_blocks: int = 0
    most_waiting: int = 0
    is_cut: bool = False
    """The rehearsal ended before the workload did."""
    stuck: str = ""
    """Why it can never end, where that is so."""


class _Counter:
    """A sink that counts."""

    is_recording = True

    def __init__(self, found: Rehearsal) -> None:
        self._found = found
        self._prompt_tokens_left: dict[str, int] = {}
        self._num_prefill_steps: Counter[str] = Counter()
        self.num_waiting = 0

    def write_step(self, step: int, events: Sequence[ev.Event]) -> None:
        found = self._found
        for event in events:
            match event:
                case ev.RequestArrived():
                    self._prompt_tokens_left[event.request_id] = len(event.prompt_token_ids)
                    found.num_prompt_tokens += len(event.prompt_token_ids)
                case ev.RequestAdmitted():
                    found.num_hit_tokens += event.num_hit_tokens
                    self._prompt_tokens_left[event.request_id] -= event.num_hit_tokens
                case ev.RequestPreempted():
                    found.num_preemptions += 1
                    found.num_lost_tokens += event.num_lost_tokens
                case ev.BlockEvicted():
                    found.num_evicted_blocks += len(event.block_ids)
                case ev.TokensScheduled():
                    self._count_tokens(event)
                case _:
                    pass

    def _count_tokens(self, scheduled: ev.TokensScheduled) -> None:
        num_prompts = num_decodes = 0
        for request_id, num_tokens in zip(scheduled.request_ids, scheduled.num_tokens, strict=True):
            left = self._prompt_tokens_left[request_id]
            if left > 0:
                num_prompts += 1
                self._num_prefill_steps[request_id] += 1
                self._prompt_tokens_left[request_id] = left - num_tokens
            elif num_tokens == 1:
                num_decodes += 1
        self._found.num_steps += bool(scheduled.request_ids)
        self._found.num_mixed_steps += num_prompts > 0 and num_decodes > 0

    @property
    def num_chunked_prompts(self) -> int:
        return sum(count > 1 for count in self._num_prefill_steps.values())


def rehearse(
    config: SchedulerConfig,
    requests: Sequence[PlannedRequest],
    *,
    max_steps: int = MAX_STEPS,
    is_left: Callable[[], bool] = lambda: False,
) -> Rehearsal:
    """Returns what the requests bring about on an idle engine with an empty cache; cut where `is_left` says so."""
    found = Rehearsal()
    counter = _Counter(found)
    run = ScriptedRun(_scenario(config, requests, max_steps), counter)
    while not run.is_done and run.next_step < max_steps and not is_left():
        run.run_step()
        found.most_waiting = max(found.most_waiting, len(run.scheduler.waiting))
    found.num_chunked_prompts = counter.num_chunked_prompts
    found.is_cut = not run.is_done
    found.stuck = f"{run.stuck.request_id} can never go on: {run.stuck.reason}" if run.stuck is not None else ""
    return found


def _scenario(config: SchedulerConfig, requests: Sequence[PlannedRequest], max_steps: int) -> Scenario:
    return Scenario(
        name="rehearsal",
        config=config,
        max_steps=max_steps,
        requests=tuple(
            ScenarioRequest(
                id=request.request_id,
                arrival_step=request.before_step,
                arrival_time=float(number),
                priority=request.priority,
                prompt_token_ids=(
                    *range(request.num_shared_tokens),
                    *range(_own(number), _own(number) + request.num_own_tokens),
                ),
                output_token_ids=tuple(
                    range(_own(number) + _OWN_TOKENS // 2, _own(number) + _OWN_TOKENS // 2 + request.num_output_tokens)
                ),
                max_tokens=request.num_output_tokens,
            )
            for number, request in enumerate(requests)
        ),
    )


def _own(number: int) -> int:
    return _FIRST_OWN_TOKEN + number * _OWN_TOKENS
