"""Everything about one step of a wait: the tests in their order, who holds what is missing, what would have helped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvscope.analysis.memory import remembered
from kvscope.analysis.pool_at_stop import pool_at_stop
from kvscope.analysis.recorded_settings import scheduler_config
from kvscope.analysis.verdicts import judged
from kvscope.analysis.why.changes import Change, smallest_changes
from kvscope.analysis.why.journal import Queues
from kvscope.analysis.why.standing import standing_before
from kvscope.analysis.why.trials import StepRerun, WholeRerun
from kvscope.analysis.why.waiting import held_blocks
from kvscope.analysis.workload import WORKLOAD_KINDS, read_workload
from kvscope.engine.scheduling import rules
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.errors import KvscopeError
from kvscope.replay.timeline import Moment, Timeline
from kvscope.state import EngineState, RequestState

MAX_HOLDERS = 64
"""How many holders are tried: one run of the step each."""

MAX_REPEATED_SHARES = 20_000
"""How much the run so far may have scheduled (requests of all steps, and the steps) for it to be repeated, some forty
times, without being asked to: about a second."""

TestName = Literal[
    "budget_left",
    "no_preemption",
    "sequence_free",
    "at_the_head",
    "prefix_lookup",
    "whole_prompt_in_budget",
    "all_tokens_fit",
    "first_chunk_fits",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionTest:
    """One test, in the order in which the scheduler runs them: `need <= have` passes.

    Those behind the first failed one were not reached; what they would have said is told all the same.
    """

    name: TestName
    passed: bool
    was_reached: bool
    need: int
    have: int
    unit: Literal["tokens", "sequences", "blocks", "preemptions", "requests"]
    setting: str = ""
    """The setting that decides on it; empty where none does."""
    watermark_blocks: int = 0
    """Included in the comparison, not in `need`."""
    free_hit_blocks: int = 0
    """With `prefix_lookup`: hits that lie in the free queue and cost a free block each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A running request and what its end would give."""

    request_id: str
    held_blocks: int
    frees_if_it_ends: int
    """Blocks that nobody else holds."""
    is_enough: bool | None
    """Had it ended before the step, the waiting request would have been admitted in it; None where it was not tried."""
    tokens_to_its_end_at_most: int
    """That it can still sample."""
    prefill_tokens_left: int
    """That it must compute before it samples the next; 0 while it decodes."""
    ended_in_this_step: bool
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Whether the request can be admitted, and finish, in an engine of this size at all."""

    can_ever_fit: bool
    """All its present tokens fit the empty pool and, where prompts may not be cut, the budget. Where they do not, and
    only its first chunk must fit, it may be admitted, but never comes to its next token."""
    can_finish_alone: bool
    """The most tokens that it can come to fit the empty pool."""
    pool: int
    """Usable blocks: without the null block."""
    blocks_of_all_tokens: int
    blocks_at_its_longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingInstant:
    """A waiting request at one step."""

    step: int
    tests: tuple[AdmissionTest, ...]
    """Empty where the step failed before anybody was tested."""
    held_by: tuple[Holder, ...]
    """By what they hold, the largest first."""
    changes: tuple[Change, ...]
    """One setting changed alone, for this step only; empty where the step cannot be run again."""
    changes_from_start: tuple[Change, ...]
    """One setting changed alone, from the first step on; empty where the run was not, or cannot be, repeated."""
    num_shares_not_repeated: int
    """What the run so far has scheduled, where that was too much to repeat it unasked; else 0."""
    capacity: Capacity


def waiting_instant(
    timeline: Timeline, step: int, request_id: str, queues: Queues, *, repeats_any_run: bool = False
) -> WaitingInstant | None:
    """Returns the figures of a step in which the request waited; None where the engine is not configured yet.

    Moves the timeline. With `repeats_any_run` a run that takes long to repeat is repeated too.
    """
    rerun, changes = step_changes(timeline, step, request_id)
    moment = timeline.at(step)
    if moment.state.config is None or request_id not in moment.state.requests:
        return None
    config = scheduler_config(moment.state.config)
    request = moment.state.requests[request_id]
    too_many = 0 if repeats_any_run else num_shares(timeline, step)
    too_many = too_many if too_many > MAX_REPEATED_SHARES else 0
    whole = () if too_many else _changes_from_start(timeline, step, request_id)
    moment = timeline.at(step)
    return WaitingInstant(
        step=step,
        tests=admission_tests(timeline, moment, request, queues),
        held_by=holders(timeline, moment, queues, rerun),
        changes=changes,
        changes_from_start=whole,
        num_shares_not_repeated=too_many,
        capacity=capacity(config, moment.state, request),
    )


def step_changes(timeline: Timeline, step: int, request_id: str) -> tuple[StepRerun | None, tuple[Change, ...]]:
    """Returns what would have admitted a request in a step, and the way to run the step again; moves the timeline.

    None and nothing where the step cannot be run again, or was decided by what is not recorded.
    """
    standing = standing_before(timeline, step)
    if standing is None or request_id not in standing.token_ids or standing.state.config is None:
        return None, ()
    config = scheduler_config(standing.state.config)
    if config.batching == "static":  # the batch that it has formed is not among the recorded facts
        return None, ()
    rerun = StepRerun(config, standing, request_id)
    changes = smallest_changes(rerun)
    return (rerun if changes else None), changes


def num_shares(timeline: Timeline, last_step: int) -> int:
    """Returns about how much the run has scheduled up to a step: its steps, and the running requests of each.

    Of a long run it looks at stretches: each counts with the most that ran in it.
    """
    num_steps = last_step - timeline.first_step + 1
    size = max(num_steps // 1000, 1)
    columns = timeline.summaries(timeline.first_step, -(-num_steps // size), size)
    return num_steps + sum(column.num_running * column.num_steps for column in columns)


def _changes_from_start(timeline: Timeline, step: int, request_id: str) -> tuple[Change, ...]:
    try:
        workload = read_workload(timeline.select_events(WORKLOAD_KINDS, timeline.first_step, timeline.last_step))
    except KvscopeError:  # not recorded by an engine of ours, or not from its first step on
        return ()
    return smallest_changes(WholeRerun(workload, step, request_id))


def capacity(config: SchedulerConfig, state: EngineState, request: RequestState) -> Capacity:
    """Returns what the request needs against what the engine has when it is empty."""
    pool = state.num_usable_blocks
    now = rules.num_blocks_for(min(request.num_tokens, config.max_model_len), config.block_size)
    longest = min(request.num_prompt_tokens + request.max_tokens, config.max_model_len)
    # The last token that it samples is never computed, and needs no place.
    at_longest = rules.num_blocks_for(max(longest - 1, request.num_tokens), config.block_size)
    chunk = request.num_tokens
    if not config.enable_chunked_prefill and chunk > config.token_budget:
        fits_budget = 0 < config.long_prefill_token_threshold <= config.token_budget
    else:
        fits_budget = True
    return Capacity(
        can_ever_fit=now <= pool and fits_budget,
        can_finish_alone=at_longest <= pool and fits_budget,
        pool=pool,
        blocks_of_all_tokens=now,
        blocks_at_its_longest=at_longest,
    )


def admission_tests(
    timeline: Timeline, moment: Moment, request: RequestState, queues: Queues
) -> tuple[AdmissionTest, ...]:
    """Returns the tests that decide on a waiting request in a step, in the order in which they run.

    `queues` are those at which admission stopped. Does not move the timeline.
    """
    assert moment.state.config is not None
    config = scheduler_config(moment.state.config)
    facts = remembered(timeline).facts(moment)
    pool = pool_at_stop(moment, facts)
    ended = facts.admission_ended
    if ended is None:
        return ()
    budget = ended.token_budget_left
    judgement = judged(timeline, moment, request.request_id)
    hits = judgement.hit_block_ids if judgement is not None else ()
    num_free_hits = judgement.num_free_hit_blocks if judgement is not None else 0
    num_hit_tokens = len(hits) * config.block_size
    threshold = rules.effective_threshold(config.long_prefill_token_threshold, pool.num_requests)
    gap = request.num_tokens - num_hit_tokens
    capped = threshold if 0 < threshold < gap else gap
    watermark = rules.applied_watermark(config.watermark_blocks, pool.num_running)
    chunk = min(capped, budget) if budget > 0 else capped

    def blocks(num_tokens: int) -> int:
        slots = min(num_tokens, config.max_model_len)
        return rules.blocks_needed(slots, config.block_size, 0, len(hits), num_free_hits)

    position = queues.waiting.index(request.request_id)
    need_full = blocks(request.num_tokens)
    need_chunk = blocks(num_hit_tokens + chunk + (config.num_lookahead_tokens or 0))
    free = pool.num_free_blocks
    limit = config.token_budget_setting
    rows: list[AdmissionTest] = []

    def add(name: TestName, passed: bool, need: int, have: int, unit: str, setting: str = "", **more: int) -> None:
        was_reached = all(row.passed for row in rows)
        rows.append(
            AdmissionTest(
                name=name,
                passed=passed,
                was_reached=was_reached,
                need=need,
                have=have,
                unit=unit,  # type: ignore[arg-type]
                setting=setting,
                **more,
            )
        )

    add("no_preemption", not facts.preemptions, 0, len(facts.preemptions), "preemptions")
    add("budget_left", budget > 0, 1, budget, "tokens", limit)
    add(
        "sequence_free",
        pool.num_running < config.max_num_seqs,
        pool.num_running + 1,
        config.max_num_seqs,
        "sequences",
        "max_num_seqs",
    )
    add("at_the_head", position == 0, 0, position, "requests", "policy")
    add(
        "prefix_lookup",
        True,
        0,
        num_hit_tokens,
        "tokens",
        "enable_prefix_caching",
        free_hit_blocks=num_free_hits,
    )
    if not config.enable_chunked_prefill:
        add("whole_prompt_in_budget", capped <= budget, capped, budget, "tokens", "enable_chunked_prefill")
    if config.scheduler_reserve_full_isl:
        add(
            "all_tokens_fit",
            need_full + watermark <= free,
            need_full,
            free,
            "blocks",
            "scheduler_reserve_full_isl",
            watermark_blocks=watermark,
        )
    add("first_chunk_fits", need_chunk + watermark <= free, need_chunk, free, "blocks", watermark_blocks=watermark)
    return tuple(rows)


def holders(timeline: Timeline, moment: Moment, queues: Queues, rerun: StepRerun | None) -> tuple[Holder, ...]:
    """Returns the running requests by what they hold; without `rerun` nobody's end is tried. Moves nothing."""
    state, held = moment.state, held_blocks(moment, queues.running)
    facts = remembered(timeline).facts(moment)
    late_refs = pool_at_stop(moment, facts).late_refs
    freed_late = {r.request_id: len(r.freed_to_head) + len(r.freed_to_tail) for r in facts.late_releases}
    found: list[Holder] = []
    for index, request_id in enumerate(sorted(held, key=lambda key: -held[key])):
        request = state.requests[request_id]
        has_ended = request.finished_step is not None
        if has_ended:
            freed = freed_late.get(request_id, 0)
        else:
            freed = sum(state.ref_cnts[block_id] + late_refs[block_id] == 1 for block_id in request.block_ids)
        is_enough: bool | None = None
        if rerun is not None and index < MAX_HOLDERS and request_id in rerun.standing.state.running:
            is_enough = rerun.admits_without(request_id)
        longest = request.num_prompt_tokens + request.max_tokens
        if state.config is not None:
            longest = min(longest, int(state.config.settings.get("max_model_len", longest)))
        found.append(
            Holder(
                request_id=request_id,
                held_blocks=held[request_id],
                frees_if_it_ends=freed,
                is_enough=is_enough,
                tokens_to_its_end_at_most=0 if has_ended else max(longest - request.num_tokens, 0),
                prefill_tokens_left=0
                if has_ended or not request.is_prefilling
                else request.num_tokens - request.num_computed_tokens,
                ended_in_this_step=has_ended,
                priority=request.priority,
            )
        )
    return tuple(found)
