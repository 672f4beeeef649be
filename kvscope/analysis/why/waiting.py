"""Why a request waits: the whole of each of its waits, and everything about one step of it.

A wait reaches from the step in which the request entered the queue to the last one in which it was still there when
admission stopped. Figures of refusals are the recorded ones; needs of requests that were not tried follow from the
scheduler's own rules on the recorded state (`kvscope.analysis.verdicts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from kvscope import events as ev
from kvscope.analysis.memory import remembered
from kvscope.analysis.verdicts import WaitingVerdict, verdicts
from kvscope.analysis.why.admission_books import AdmissionBooks
from kvscope.analysis.why.journal import Queues, StepNote, num_sampled_by
from kvscope.analysis.why.wait_records import LetIn, Overtaken, Stretch, Wait, WaitStep
from kvscope.events import QueueTest
from kvscope.replay.timeline import Moment, Timeline

MAX_DETAILED_STEPS = 1000
"""Steps of a wait that are told one by one; of a longer wait the first so many."""

MAX_BEHIND = 64
"""How many requests behind it are judged at each step."""


@dataclass(slots=True)
class _OpenWait:
    kind: Literal["arrived", "preempted"]
    since_step: int
    last_step: int
    steps: list[WaitStep] = field(default_factory=list)
    steps_left_out: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    inversion_steps: list[int] = field(default_factory=list)
    inversion_ids: dict[str, None] = field(default_factory=dict)
    inversion_tokens: int = 0
    overtaken_by: list[str] = field(default_factory=list)
    num_freed_late: int = 0
    finished: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    stop: QueueTest | None = None


class WaitCollector:
    """Builds the waits from the steps of `journal.walk`, one after another."""

    def __init__(self, timeline: Timeline, request_id: str) -> None:
        self.waits: list[Wait] = []
        self._timeline = timeline
        self._request_id = request_id
        self._open: _OpenWait | None = None
        self._arrivals: dict[str, int] = {}
        self._priorities: dict[str, int] = {}

    def add(self, note: StepNote, queues: Queues, moment: Moment) -> None:
        """Takes the next step; at the end of the life call `close`."""
        for request_id, request in moment.state.requests.items():
            if request_id not in self._priorities:
                self._priorities[request_id] = request.priority
                self._arrivals[request_id] = request.arrival_step
        is_victim = any(p.event.request_id == self._request_id for p in note.preemptions)
        if self._open is not None and (not note.is_waiting or is_victim):
            self._end(note, moment)
        if note.is_waiting:
            self._wait(note, queues, moment, "preempted" if is_victim else "arrived")

    def close(self) -> None:
        """Ends a wait that the recording does not see the end of."""
        if self._open is not None:
            self.waits.append(self._built(self._open, None, None, None))
            self._open = None

    def _wait(self, note: StepNote, queues: Queues, moment: Moment, kind: Literal["arrived", "preempted"]) -> None:
        wait = self._open
        if wait is None:
            wait = self._open = _OpenWait(kind, note.step, note.step)
        wait.last_step, wait.stop = note.step, note.stop
        wait.num_freed_late = note.num_freed_late
        wait.finished, wait.aborted = note.finished_ids, note.aborted_mid_ids
        mine = self._arrivals[self._request_id]
        wait.overtaken_by += [key for key in note.admitted_ids if self._arrivals[key] > mine]
        self._note_stretch(wait, note, queues)
        lower = [key for key in queues.running if self._priority(key) > self._priority(self._request_id)]
        if lower:
            wait.inversion_steps.append(note.step)
            wait.inversion_ids.update(dict.fromkeys(lower))
            wait.inversion_tokens += num_sampled_by(moment.events, set(lower))
        if len(wait.steps) < MAX_DETAILED_STEPS:
            wait.steps.append(self._detail(note, queues, moment, lower))
        else:
            wait.steps_left_out += 1

    def _priority(self, request_id: str) -> int:
        return self._priorities.get(request_id, 0)

    def _note_stretch(self, wait: _OpenWait, note: StepNote, queues: Queues) -> None:
        blocked, head_id = note.blocked, queues.waiting[0]
        need, have = (blocked.need, blocked.have) if blocked is not None else (0, 0)
        watermark = blocked.watermark_blocks if blocked is not None else 0
        last = wait.stretches[-1] if wait.stretches else None
        if last is not None and (last.reason, last.head_id, last.watermark_blocks) == (note.stop, head_id, watermark):
            need_range = (min(last.need[0], need), max(last.need[1], need))
            have_range = (min(last.have[0], have), max(last.have[1], have))
            first = wait.stretches.pop().first_step
        else:
            need_range, have_range, first = (need, need), (have, have), note.step
        wait.stretches.append(
            Stretch(
                first_step=first,
                last_step=note.step,
                reason=note.stop,
                head_id=head_id,
                is_head=head_id == self._request_id,
                need=need_range,
                have=have_range,
                watermark_blocks=watermark,
            )
        )

    def _detail(self, note: StepNote, queues: Queues, moment: Moment, lower: Sequence[str]) -> WaitStep:
        first = queues.waiting.index(self._request_id)
        rows = {row.request_id: row for row in verdicts(self._timeline, moment, first, MAX_BEHIND + 1)}
        return wait_step(
            self._timeline,
            moment,
            queues,
            self._request_id,
            rows,
            lower=lower,
            equal=[key for key in queues.running if self._priority(key) == self._priority(self._request_id)],
        )

    def _end(self, note: StepNote, moment: Moment) -> None:
        wait = self._open
        assert wait is not None
        self._open = None
        ended: Literal["admitted", "resumed", "aborted"] | None = None
        let_in: LetIn | None = None
        if self._request_id in note.admitted_ids:
            ended = "admitted" if _is_first_admission(self._request_id, moment) else "resumed"
            let_in = self._let_in(wait, note, moment)
        elif self._request_id in note.aborted_ids or self._request_id in note.aborted_mid_ids:
            ended = "aborted"
        self.waits.append(self._built(wait, ended, note.step, let_in))

    def _let_in(self, wait: _OpenWait, note: StepNote, moment: Moment) -> LetIn:
        before = note.admitted_ids[: note.admitted_ids.index(self._request_id)]
        books = AdmissionBooks(self._request_id, moment)
        return LetIn(
            step=wait.last_step,
            reason=wait.stop,
            finished=tuple(wait.finished),
            aborted=(*wait.aborted, *note.aborted_ids),
            admitted_before=tuple(before),
            freed_blocks=wait.num_freed_late + books.num_freed_before,
            free_before_admission=books.num_free,
            taken_blocks=books.num_taken,
            token_budget_left=note.token_budget_left + books.num_scheduled_from_here,
        )

    def _built(
        self,
        wait: _OpenWait,
        ended: Literal["admitted", "resumed", "aborted"] | None,
        ended_step: int | None,
        let_in: LetIn | None,
    ) -> Wait:
        return Wait(
            kind=wait.kind,
            since_step=wait.since_step,
            last_step=wait.last_step,
            waited_steps=wait.last_step - wait.since_step + 1,
            ended=ended,
            ended_step=ended_step,
            let_in_by=let_in,
            stretches=tuple(wait.stretches),
            steps=tuple(wait.steps),
            steps_left_out=wait.steps_left_out,
            fitted_behind=_fitted_behind(wait.steps),
            lower_priority_ran=Overtaken(
                steps=tuple(wait.inversion_steps),
                request_ids=tuple(wait.inversion_ids),
                priorities=tuple(self._priority(key) for key in wait.inversion_ids),
                sampled_tokens=wait.inversion_tokens,
            ),
            overtaken_by=tuple(wait.overtaken_by),
        )


def _fitted_behind(steps: Sequence[WaitStep]) -> dict[str, tuple[int, ...]]:
    fitted: dict[str, list[int]] = {}
    for row in steps:
        if row.stop == "preempted":  # such a step admits no one: it is not the request that was in the way
            continue
        for request_id in row.fit_alone:
            fitted.setdefault(request_id, []).append(row.step)
    return {request_id: tuple(found) for request_id, found in fitted.items()}


def wait_step(
    timeline: Timeline,
    moment: Moment,
    queues: Queues,
    request_id: str,
    rows: dict[str, WaitingVerdict],
    *,
    lower: Sequence[str],
    equal: Sequence[str],
) -> WaitStep:
    """Returns the step of a wait with all its figures; `rows` are the verdicts on it and on those behind it."""
    facts = remembered(timeline).facts(moment)
    position = queues.waiting.index(request_id)
    row, behind = rows.get(request_id), [rows[key] for key in queues.waiting[position + 1 :] if key in rows]
    config = moment.state.config
    need = row.need_blocks if row is not None else None
    free = row.num_free_blocks if row is not None else moment.state.num_free_blocks
    watermark = row.watermark_blocks if row is not None else 0
    return WaitStep(
        step=moment.step,
        position=position,
        head_id=queues.waiting[0],
        stop=facts.admission_ended.reason if facts.admission_ended is not None else None,
        head_need=facts.blocked.need if facts.blocked is not None else 0,
        head_have=facts.blocked.have if facts.blocked is not None else 0,
        head_watermark=facts.blocked.watermark_blocks if facts.blocked is not None else 0,
        reason=row.reason if row is not None else None,
        need=need,
        free=free,
        watermark=watermark,
        missing=max(need + watermark - free, 0) if need is not None else 0,
        token_budget_left=facts.admission_ended.token_budget_left if facts.admission_ended is not None else 0,
        running=tuple(queues.running),
        max_num_seqs=int(config.settings.get("max_num_seqs", 0)) if config is not None else 0,
        held_by=held_blocks(moment, queues.running),
        ahead=tuple(queues.waiting[:position]),
        needs_behind={other.request_id: other.need_blocks for other in behind},
        num_behind=len(queues.waiting) - position - 1,
        fit_alone=tuple(other.request_id for other in behind if other.fits),
        failed_behind={other.request_id: other.reason for other in behind if other.reason is not None},
        running_with_lower_priority=tuple(lower),
        running_with_equal_priority=tuple(equal),
        scheduled_tokens={key: share.num_tokens for key, share in facts.shares.items()},
    )


def held_blocks(moment: Moment, running: Sequence[str]) -> dict[str, int]:
    """Returns how many blocks each running request held when admission stopped."""
    late: dict[str, int] = {}
    is_late = False
    for event in moment.events:
        if isinstance(event, ev.TokensScheduled):
            is_late = True
        elif is_late and isinstance(event, ev.BlockReleased):
            late[event.request_id] = len(event.freed_to_head) + len(event.freed_to_tail) + len(event.still_held)
    requests = moment.state.requests
    return {key: late[key] if key in late else len(requests[key].block_ids) for key in running}


def _is_first_admission(request_id: str, moment: Moment) -> bool:
    return any(isinstance(event, ev.RequestAdmitted) and event.request_id == request_id for event in moment.events)
