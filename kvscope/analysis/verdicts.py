"""Why each request of the waiting queue still waits after a step, with the figures that decided it.

The head's verdict is what the engine recorded. Those behind it were not tried: they are judged with the scheduler's own
rules on the state in which the waiting loop stopped, so that "fits" means "would have been admitted but for the head".
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.analysis.memory import remembered
from kvscope.analysis.pool_at_stop import pool_at_stop
from kvscope.analysis.prefix import hit_block_ids
from kvscope.analysis.recorded_settings import scheduler_config
from kvscope.analysis.spans import Span, plain, say, strong
from kvscope.analysis.verdict_words import BLOCK_TESTS, behind_words, not_judged_words, refused_words
from kvscope.engine.scheduling import rules
from kvscope.events import QueueTest
from kvscope.replay.timeline import Moment, Timeline
from kvscope.state import RequestState

MAX_JUDGED = 32
"""How many waiting requests `would_fit` judges: enough to answer who is blocked. With long prompts 128 of them took a
whole screen's 50 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingVerdict:
    """Why one request of the waiting queue still waits. The scheduler's own `rules.Verdict` is about the head alone."""

    request_id: str
    position: int
    """0 is the head."""
    num_waited_steps: int
    """Steps since it entered the queue (again)."""
    was_preempted: bool
    """It ran before."""
    is_preempted_now: bool
    """It was preempted in this very step."""
    is_refused: bool
    """It is the request that the recorded verdict is about; False for those behind, which were not tried."""
    reason: QueueTest | None
    """The first test that fails for it; None where it would have been admitted but for the head."""
    need_blocks: int | None
    """Free blocks that its admission takes, without the watermark; None where the step's end is not known."""
    num_free_blocks: int
    """Free blocks when the waiting loop stopped."""
    watermark_blocks: int
    spans: tuple[Span, ...]
    """The verdict in words, e.g. `need 25+1wm > 23 free` or `↳ need 16 fits`."""

    @property
    def fits(self) -> bool:
        """It would have been admitted but for the head."""
        return self.reason is None

    @property
    def text(self) -> str:
        """The verdict's words."""
        return plain(self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the rules say of a waiting request, as if it had stood at the head when the waiting loop stopped."""

    failed: rules.Verdict | None
    """The first test that it fails; None where it would have been admitted."""
    need_blocks: int
    """Blocks that it needs from the free queue: for all its tokens, or for its first chunk where no more must fit."""
    hit_block_ids: tuple[int, ...]
    num_free_hit_blocks: int
    """Of these, those that lie in the free queue and so are part of the need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldFit:
    """Who would have been admitted had it stood at the head, each alone; victims of the step are not judged."""

    request_ids: tuple[str, ...]
    num_waiting: int
    num_judged: int
    """The first so many of the queue; less than `num_waiting` only where the queue is very long."""


def verdicts(timeline: Timeline, moment: Moment, first: int = 0, count: int | None = None) -> list[WaitingVerdict]:
    """Returns the rows of the waiting queue from position `first` on, at most `count`."""
    judge = _judge(timeline, moment)
    stop = None if count is None else first + count
    return [
        judge.verdict(request_id, position)
        for position, request_id in enumerate(moment.state.waiting[first:stop], first)
    ]


def verdict_of(timeline: Timeline, moment: Moment, request_id: str) -> WaitingVerdict | None:
    """Returns one request's row; None where it does not wait."""
    waiting = moment.state.waiting
    if request_id not in waiting:
        return None
    return _judge(timeline, moment).verdict(request_id, waiting.index(request_id))


def judged(timeline: Timeline, moment: Moment, request_id: str) -> Judgement | None:
    """Judges a waiting request, whether it was tried or not; None for a step whose waiting loop did not end."""
    return _judge(timeline, moment).judged(moment.state.requests[request_id])


def would_fit(timeline: Timeline, moment: Moment) -> WouldFit:
    """Judges the queue as far as `MAX_JUDGED`, without the request that was refused."""
    rows = verdicts(timeline, moment, count=MAX_JUDGED)
    return WouldFit(
        request_ids=tuple(row.request_id for row in rows if row.fits),
        num_waiting=len(moment.state.waiting),
        num_judged=len(rows),
    )


class _Judge:
    """Judges the waiting requests of one moment, each once."""

    def __init__(self, timeline: Timeline, moment: Moment) -> None:
        self._timeline = timeline
        self._moment = moment
        self._facts = remembered(timeline).facts(moment)
        self._config = scheduler_config(moment.state.config) if moment.state.config is not None else None
        self._pool = pool_at_stop(moment, self._facts)
        admitted = self._facts.admitted_ids
        before = [share for share in self._facts.shares.values() if share.request_id not in admitted]
        self._has_scheduled_running = bool(before)
        self._has_scheduled_prefill = any(share.is_prefill for share in before)
        self._victims = set(self._facts.preempted_ids)
        self._rows: dict[str, WaitingVerdict] = {}

    def verdict(self, request_id: str, position: int) -> WaitingVerdict:
        """Returns the row of a waiting request."""
        row = self._rows.get(request_id)
        if row is None:
            row = self._rows[request_id] = self._build(self._moment.state.requests[request_id], position)
        return row

    def _build(self, request: RequestState, position: int) -> WaitingVerdict:
        request_id = request.request_id
        blocked = self._facts.blocked
        is_refused = blocked is not None and blocked.request_id == request_id
        is_victim = request_id in self._victims
        judgement = self.judged(request)
        reason: QueueTest | None = "other"
        need: int | None = None
        if judgement is not None:
            reason = None if judgement.failed is None else judgement.failed.reason
            need = judgement.need_blocks
        if is_refused:
            assert blocked is not None
            reason = blocked.reason
            if reason in BLOCK_TESTS:
                need = blocked.need
            words = refused_words(blocked, is_victim=is_victim)
        elif is_victim:
            reason = "preempted"
            words = say(strong("preempted in this step"))
        else:
            words = not_judged_words() if judgement is None else behind_words(judgement.failed, judgement.need_blocks)
        return WaitingVerdict(
            request_id=request_id,
            position=position,
            num_waited_steps=self._moment.step - request.waiting_since_step,
            was_preempted=request.num_preemptions > 0,
            is_preempted_now=is_victim,
            is_refused=is_refused,
            reason=reason,
            need_blocks=need,
            num_free_blocks=self._pool.num_free_blocks,
            watermark_blocks=blocked.watermark_blocks if is_refused and blocked is not None else self._watermark(),
            spans=words,
        )

    def _watermark(self) -> int:
        return rules.applied_watermark(self._config.watermark_blocks, self._pool.num_running) if self._config else 0

    def judged(self, request: RequestState) -> Judgement | None:
        """Applies the tests of an admission to the state in which the waiting loop stopped."""
        ended = self._facts.admission_ended
        if self._config is None or ended is None:
            return None
        config, pool, state = self._config, self._pool, self._moment.state
        hits = hit_block_ids(self._timeline, self._moment, request.request_id) if config.enable_prefix_caching else []
        num_free_hits = sum(pool.is_free(state, block_id) for block_id in hits)
        failed = rules.admission_verdict(
            config,
            token_budget=ended.token_budget_left,
            num_running=pool.num_running,
            num_requests=pool.num_requests,
            num_tokens=request.num_tokens,
            num_hit_blocks=len(hits),
            num_free_hit_blocks=num_free_hits,
            num_free_blocks=pool.num_free_blocks,
            has_scheduled_running=self._has_scheduled_running,
            has_scheduled_prefill=self._has_scheduled_prefill,
        )
        if failed is not None and failed.reason in BLOCK_TESTS:
            need = failed.need
        else:
            num_tokens = self._tokens_to_hold(request, len(hits), ended.token_budget_left)
            need = rules.blocks_needed(num_tokens, config.block_size, 0, len(hits), num_free_hits)
        return Judgement(failed=failed, need_blocks=need, hit_block_ids=tuple(hits), num_free_hit_blocks=num_free_hits)

    def _tokens_to_hold(self, request: RequestState, num_hit_blocks: int, token_budget: int) -> int:
        """Returns the tokens whose blocks decide: all of them, or its first chunk where that is all that must fit."""
        config = self._config
        assert config is not None
        num_tokens = min(request.num_tokens, config.max_model_len)
        if config.scheduler_reserve_full_isl:
            return num_tokens
        num_hit_tokens = num_hit_blocks * config.block_size
        chunk = request.num_tokens - num_hit_tokens
        threshold = rules.effective_threshold(config.long_prefill_token_threshold, self._pool.num_requests)
        if 0 < threshold < chunk:
            chunk = threshold
        if token_budget > 0:
            chunk = min(chunk, token_budget)
        return min(num_hit_tokens + chunk, num_tokens)


def _judge(timeline: Timeline, moment: Moment) -> _Judge:
    cache = remembered(timeline).of_moment(moment)
    judge = cache.get("judge")
    if judge is None:
        judge = cache["judge"] = _Judge(timeline, moment)
    assert isinstance(judge, _Judge)
    return judge
