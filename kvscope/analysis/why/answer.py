"""The whole answer on one request: why it waited, was preempted, missed the prefix cache, was slow."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvscope import events as ev
from kvscope.analysis.memory import remembered
from kvscope.analysis.text import visible
from kvscope.analysis.why.beside_prefill import PrefillNeighbours
from kvscope.analysis.why.instant import WaitingInstant, waiting_instant
from kvscope.analysis.why.journal import Queues, StepNote, walk
from kvscope.analysis.why.missed import missed_answer
from kvscope.analysis.why.missed_records import MissedAnswer
from kvscope.analysis.why.preempted import PreemptedAnswer, PreemptionCollector, Rival
from kvscope.analysis.why.slow import slow_answer
from kvscope.analysis.why.slow_records import SlowAnswer
from kvscope.analysis.why.wait_records import Wait
from kvscope.analysis.why.waiting import WaitCollector
from kvscope.errors import UsageError
from kvscope.replay.timeline import Moment, RequestRow, Timeline

Doing = Literal["waiting", "preempted", "prefill", "decode", "nothing", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSummary:
    """A request as a whole, up to the end of the recording."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    priority: int
    cache_salt: str | None
    lora_name: str | None
    arrival_step: int
    first_admitted_step: int | None
    first_token_step: int | None
    finished_step: int | None
    finish_reason: str | None
    waited_steps: int
    """Before its first admission."""
    waited_steps_in_all: int
    """With those after preemptions."""
    preemptions: tuple[int, ...]
    """Steps."""
    resumes: tuple[int, ...]
    """Steps."""
    recomputed_tokens: int
    hit_tokens: int
    """Of all its admissions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAnswer:
    """What the request was doing at one step."""

    step: int
    doing: Doing
    scheduled_tokens: int
    sampled_tokens: int
    token_budget: int
    step_total_tokens: int
    others_prefill_tokens: dict[str, int]
    """Prompt tokens of others in the step, where it was scheduled."""
    tokens_of_others: dict[str, int]
    """Where it ran and got nothing: who got the step's tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingAnswer:
    """All waits of the request, and one step of them from near."""

    waits: tuple[Wait, ...]
    instant: WaitingInstant | None
    """The asked step, where it waited in it; else the last step that it waited in, of its longest wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyAnswer:
    """Everything that `kvscope why FILE REQUEST` says."""

    request: RequestSummary
    asked_step: int | None
    at: StepAnswer | None
    """Of the asked step."""
    num_steps: int
    """Of the recording."""
    policy: str
    waiting: WaitingAnswer
    preempted: PreemptedAnswer
    missed: MissedAnswer | None
    """None while it is still being read."""
    slow: SlowAnswer


def explain(
    timeline: Timeline,
    request_id: str,
    step: int | None = None,
    *,
    repeats_any_run: bool = False,
    early: Callable[[WhyAnswer], None] | None = None,
) -> WhyAnswer:
    """Returns the answer. Moves the timeline.

    `early` is told all but what the prefix cache held, which the whole recording before the request has to tell.
    What would have admitted it from the first step on is found by repeating the run; a long one only on request.

    Raises:
        UsageError: there is no such request, or it did not live at `step`.
    """
    row = timeline.request(request_id)
    if row is None:
        raise UsageError(_rejected(timeline, request_id) or _unknown(timeline, request_id))
    last_step = row.finished_step if row.finished_step is not None else timeline.last_step
    if step is not None and not row.arrival_step <= step <= last_step:
        end = f"ended at step {last_step}" if row.finished_step is not None else f"the last step is {last_step}"
        name = visible(request_id)
        raise UsageError(f"{name} did not live at step {step}: it arrived at step {row.arrival_step}, {end}")
    policy = str(timeline.config.settings.get("policy", "fcfs")) if timeline.config is not None else "fcfs"
    life = _Life(timeline, request_id, policy, repeats_any_run=repeats_any_run)
    for note, queues, moment in walk(timeline, request_id, row.arrival_step, last_step):
        life.add(note, queues, moment)
    answer = life.answer(row, last_step, step)
    if early is not None:
        early(answer)
    return replace(answer, missed=life.missed(last_step))


def _rejected(timeline: Timeline, request_id: str) -> str | None:
    """Returns why the request never reached a queue."""
    for step, events in timeline.select_events([ev.RequestRejected], timeline.first_step, timeline.last_step):
        for event in events:
            if isinstance(event, ev.RequestRejected) and event.request_id == request_id:
                more = f": {visible(event.message)}" if event.message else ""
                limit = f"{visible(event.reason)} allows {event.limit}, it asked for {event.have}"
                return f"{visible(request_id)} was rejected at step {step}, before it reached a queue: {limit}{more}"
    return None


def _unknown(timeline: Timeline, request_id: str) -> str:
    known = timeline.request_ids()
    near = difflib.get_close_matches(request_id, known, n=3, cutoff=0.3) or known[:3]
    listed = ", ".join(map(visible, near)) if near else "none"
    return f"the recording has no request {request_id!r}; {len(known)} are there, e.g. {listed}"


class _Life:
    """Collects what the parts need in one pass over the life."""

    def __init__(self, timeline: Timeline, request_id: str, policy: str, *, repeats_any_run: bool) -> None:
        self._repeats_any_run = repeats_any_run
        self._timeline = timeline
        self._request_id = request_id
        self._policy = policy
        self._notes: list[StepNote] = []
        self._waits = WaitCollector(timeline, request_id)
        self._preemptions = PreemptionCollector(request_id, policy)
        self._admissions: list[tuple[int, str]] = []
        self._hit_tokens = 0
        self._last_lookup: int | None = None
        self._arrival: ev.RequestArrived | None = None
        self._shares_of: dict[int, dict[str, int]] = {}
        self._beside_prefill = PrefillNeighbours()
        self._priorities: dict[str, int] = {}

    def add(self, note: StepNote, queues: Queues, moment: Moment) -> None:
        self._notes.append(note)
        hit_tokens = own_tokens = 0
        for event in moment.events:
            match event:
                case ev.RequestArrived() if event.request_id == self._request_id:
                    self._arrival = event
                case ev.PrefixLookedUp() if event.request_id == self._request_id:
                    self._last_lookup = note.step
                case ev.PrefixCacheHit() if event.request_id == self._request_id:
                    own_tokens = event.num_own_hit_tokens
                case ev.RequestAdmitted() | ev.RequestResumed() if event.request_id == self._request_id:
                    kind = "new" if isinstance(event, ev.RequestAdmitted) else "resumed"
                    self._admissions.append((note.step, kind))
                    hit_tokens = event.num_hit_tokens
                    self._hit_tokens += hit_tokens
                case _:
                    pass
        facts = remembered(self._timeline).facts(moment)
        self._beside_prefill.add(note, facts.shares, queues.waiting)
        if note.is_running and note.share is None:
            self._shares_of[note.step] = {key: share.num_tokens for key, share in facts.shares.items()}
        for request_id, request in moment.state.requests.items():
            self._priorities.setdefault(request_id, request.priority)
        self._waits.add(note, queues, moment)
        rivals = [Rival(request_id=key, priority=self._priorities.get(key, 0)) for key in note.running_before]
        self._preemptions.add(note, rivals, hit_tokens, own_tokens)

    def answer(self, row: RequestRow, last_step: int, step: int | None) -> WhyAnswer:
        self._waits.close()
        waits = self._waits.waits
        preempted = self._preemptions.answer()
        slow = slow_answer(self._request_id, self._notes, self._arrival, self._shares_of, self._beside_prefill.records)
        return WhyAnswer(
            request=self._summary(row, waits, preempted),
            asked_step=step,
            at=self._at(step) if step is not None else None,
            num_steps=self._timeline.last_step - self._timeline.first_step + 1,
            policy=self._policy,
            waiting=WaitingAnswer(waits=tuple(waits), instant=self._instant(waits, step)),
            preempted=preempted,
            missed=None,
            slow=slow,
        )

    def missed(self, last_step: int) -> MissedAnswer:
        """Returns what the prefix cache had for it; reads the recording from its first step on."""
        refused = None if self._admissions else self._last_lookup
        return missed_answer(self._timeline, self._request_id, last_step, self._admissions, refused)

    def _instant(self, waits: Sequence[Wait], step: int | None) -> WaitingInstant | None:
        if not waits:
            return None
        if step is None or not any(wait.since_step <= step <= wait.last_step for wait in waits):
            if step is not None:
                return None
            step = waits[-1].last_step
            if waits[-1].ended is not None:
                step = max(waits, key=lambda wait: wait.waited_steps).last_step
        queues = next(iter(walk(self._timeline, self._request_id, step, step)))[1]
        kept = Queues(list(queues.running), list(queues.waiting))
        return waiting_instant(self._timeline, step, self._request_id, kept, repeats_any_run=self._repeats_any_run)

    def _at(self, step: int) -> StepAnswer:
        note = next(note for note in self._notes if note.step == step)
        doing: Doing
        if note.share is not None:
            doing = "prefill" if note.share.is_prefill else "decode"
        elif note.is_waiting:
            earlier = any(other.num_sampled or other.share for other in self._notes if other.step < step)
            doing = "preempted" if earlier else "waiting"
        else:
            doing = "nothing" if note.is_running else "ended"
        return StepAnswer(
            step=step,
            doing=doing,
            scheduled_tokens=note.share.num_tokens if note.share is not None else 0,
            sampled_tokens=note.num_sampled,
            token_budget=note.token_budget,
            step_total_tokens=note.num_scheduled_tokens,
            others_prefill_tokens={key: n for key, n in note.prefill_tokens.items() if key != self._request_id}
            if note.share is not None
            else {},
            tokens_of_others=self._shares_of.get(step, {}),
        )

    def _summary(self, row: RequestRow, waits: Sequence[Wait], preempted: PreemptedAnswer) -> RequestSummary:
        return RequestSummary(
            request_id=row.request_id,
            prompt_tokens=row.num_prompt_tokens,
            output_tokens=row.num_output_tokens,
            max_tokens=row.max_tokens,
            priority=row.priority,
            cache_salt=row.cache_salt,
            lora_name=row.lora_name,
            arrival_step=row.arrival_step,
            first_admitted_step=self._admissions[0][0] if self._admissions else None,
            first_token_step=next((note.step for note in self._notes if note.num_sampled), None),
            finished_step=row.finished_step,
            finish_reason=row.finish_reason,
            waited_steps=sum(wait.waited_steps for wait in waits if wait.kind == "arrived"),
            waited_steps_in_all=sum(wait.waited_steps for wait in waits),
            preemptions=preempted.preempted_steps,
            resumes=tuple(step for step, kind in self._admissions if kind == "resumed"),
            recomputed_tokens=preempted.recomputed_tokens,
            hit_tokens=self._hit_tokens,
        )
