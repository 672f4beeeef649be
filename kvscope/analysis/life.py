"""A request's life on the time axis, and where its time went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvscope import events as ev
from kvscope.analysis.history import Turn, TurningKind, request_history, turns
from kvscope.analysis.memory import remembered
from kvscope.replay.timeline import Moment, Timeline

MAX_EXACT_STEPS = 1000
"""Ranges up to so many steps are read step by step, so that steps without a token show; longer ones by turns alone."""

_MAX_CLOCKS = 10_000

LifeState = Literal["waiting", "prefill", "decode", "preempted", "nothing", "finished"]
"""`preempted` is waiting again; `nothing` is running without a token; `finished` is the last step itself."""


@dataclass(frozen=True, slots=True)
class LifeRun:
    """Steps `first_step` to `last_step`, both included, in which a request was in one state."""

    state: LifeState
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShare:
    """How much of a request's time until the step went into one state."""

    state: Literal["waiting", "prefill", "decode"]
    """`waiting` includes the time after preemptions."""
    num_steps: int
    duration_ns: int | None
    """None where the run has no clock."""
    num_tokens: int


_STATES: dict[TurningKind, LifeState] = {
    "arrived": "waiting",
    "admitted": "prefill",
    "decoding": "decode",
    "preempted": "preempted",
    "ended": "finished",
    "aborted": "finished",
}
_SHARES: dict[LifeState, Literal["waiting", "prefill", "decode"]] = {
    "waiting": "waiting",
    "preempted": "waiting",
    "prefill": "prefill",
    "decode": "decode",
    "nothing": "decode",
    "finished": "decode",
}


def life(timeline: Timeline, request_id: str, first_step: int, last_step: int) -> list[LifeRun]:
    """Returns what the request was doing in the steps of a range, as runs; nothing before it arrives and after its end.

    In ranges beyond `MAX_EXACT_STEPS` running steps without a token are not told from the others.
    """
    runs = _clipped(_runs(turns(timeline, request_id, last_step), last_step), first_step)
    if not runs or last_step - first_step >= MAX_EXACT_STEPS:
        return runs
    idle = _idle_steps(timeline, request_id, runs)
    return [piece for run in runs for piece in _split(run, idle)]


def time_shares(timeline: Timeline, moment: Moment, request_id: str) -> list[TimeShare]:
    """Returns how the request's time up to the moment's step divides into waiting, prefill and decode."""
    found = turns(timeline, request_id, moment.step)
    if not found:
        return []
    num_steps = {"waiting": 0, "prefill": 0, "decode": 0}
    durations: dict[str, int | None] = {"waiting": 0, "prefill": 0, "decode": 0}
    runs = _runs(found, moment.step)
    for run in runs:
        share = _SHARES[run.state]
        # The step of the end is the end of what it was doing, unless it was taken out before the step.
        if run.state == "finished" and not _was_scheduled(timeline, request_id, run.first_step):
            continue
        num_steps[share] += run.last_step - run.first_step + 1
        durations[share] = _sum(durations[share], _duration_ns(timeline, run))
    durations["waiting"] = _sum(durations["waiting"], _before_first_step_ns(timeline, request_id, found[0].step))
    num_tokens = {"waiting": 0, **_computed_tokens(timeline, moment, request_id, found)}
    states: tuple[Literal["waiting", "prefill", "decode"], ...] = ("waiting", "prefill", "decode")
    return [
        TimeShare(state=state, num_steps=num_steps[state], duration_ns=durations[state], num_tokens=num_tokens[state])
        for state in states
    ]


def _runs(found: list[Turn], last_step: int) -> list[LifeRun]:
    """Turns as runs; a turn that another one follows in the same step leaves no run."""
    runs: list[LifeRun] = []
    for index, turn in enumerate(found):
        end = found[index + 1].step - 1 if index + 1 < len(found) else last_step
        if turn.kind in ("ended", "aborted"):
            end = turn.step
        if turn.step <= end:
            runs.append(LifeRun(_STATES[turn.kind], turn.step, end))
    return runs


def _clipped(runs: list[LifeRun], first_step: int) -> list[LifeRun]:
    return [
        LifeRun(run.state, max(run.first_step, first_step), run.last_step)
        for run in runs
        if run.last_step >= first_step
    ]


def _idle_steps(timeline: Timeline, request_id: str, runs: list[LifeRun]) -> set[int]:
    """Returns the steps of running in which the request was not scheduled."""
    known = remembered(timeline).kept(f"scheduled {request_id}")
    running = [
        step for run in runs if run.state in ("prefill", "decode") for step in range(run.first_step, run.last_step + 1)
    ]
    missing = [step for step in running if step not in known]
    if missing:
        if len(known) > 4 * MAX_EXACT_STEPS:
            known.clear()
            missing = running
        for step, events in timeline.select_events((ev.TokensScheduled,), missing[0], missing[-1]):
            known[step] = any(isinstance(e, ev.TokensScheduled) and request_id in e.request_ids for e in events)
    return {step for step in running if known.get(step) is False}


def _split(run: LifeRun, idle: set[int]) -> list[LifeRun]:
    """Cuts the idle steps out of a run of running."""
    if run.state not in ("prefill", "decode") or not idle:
        return [run]
    pieces: list[LifeRun] = []
    for step in range(run.first_step, run.last_step + 1):
        state: LifeState = "nothing" if step in idle else run.state
        if pieces and pieces[-1].state == state:
            pieces[-1] = LifeRun(state, pieces[-1].first_step, step)
        else:
            pieces.append(LifeRun(state, step, step))
    return pieces


def _was_scheduled(timeline: Timeline, request_id: str, step: int) -> bool:
    return any(
        isinstance(event, ev.TokensScheduled) and request_id in event.request_ids
        for _, events in timeline.select_events((ev.TokensScheduled,), step, step)
        for event in events
    )


def _sum(known: int | None, more: int | None) -> int | None:
    return None if known is None or more is None else known + more


def _duration_ns(timeline: Timeline, run: LifeRun) -> int | None:
    """Returns the time from the run's first step to the step behind its last one; None without a clock."""
    start, _ = _clock(timeline, run.first_step)
    if run.last_step < timeline.last_step:
        end, _ = _clock(timeline, run.last_step + 1)
    else:
        end = _clock(timeline, run.last_step)[1]
    return end - start if start is not None and end else None


def _before_first_step_ns(timeline: Timeline, request_id: str, first_step: int) -> int | None:
    """Returns how long the request waited between its submission and the step with which it entered the queue."""
    history = request_history(timeline, request_id, first_step)
    start, _ = _clock(timeline, first_step)
    if history is None or not start:
        return None
    arrival = next((event.arrival_ns for _, event in history.events if isinstance(event, ev.RequestArrived)), 0)
    return start - arrival if arrival else 0


def _clock(timeline: Timeline, step: int) -> tuple[int | None, int | None]:
    """Returns when a step began and when it was complete, on the engine's clock; None for steps without a schedule."""
    known = remembered(timeline).kept("clock")
    found = known.get(step)
    if not isinstance(found, tuple):
        start: int | None = None
        end: int | None = None
        for _, events in timeline.select_events((ev.StepStarted, ev.StepFinished), step, step):
            for event in events:
                if isinstance(event, ev.StepStarted):
                    start = end = event.time_ns
                elif isinstance(event, ev.StepFinished) and start is not None:
                    end = start + event.schedule_ns + event.forward_ns + event.sample_ns + event.update_ns
        if len(known) >= _MAX_CLOCKS:
            known.clear()
        found = known[step] = (start, end)
    return found


def _computed_tokens(timeline: Timeline, moment: Moment, request_id: str, found: list[Turn]) -> dict[str, int]:
    """Returns the tokens computed as prefill and as decode, those counted twice that were thrown away in between."""
    prefill = decode = 0
    admitted: Turn | None = None
    for turn in found:
        if turn.kind == "admitted":
            admitted = turn
        elif turn.kind == "preempted" and admitted is not None:
            prefill += min(turn.num_tokens, admitted.num_tokens) - admitted.num_hit_tokens
            decode += max(turn.num_tokens - admitted.num_tokens, 0)
            admitted = None
    if admitted is not None:
        computed = _num_computed(timeline, moment, request_id)
        prefill += min(computed, admitted.num_tokens) - admitted.num_hit_tokens
        decode += max(computed - admitted.num_tokens, 0)
    return {"prefill": prefill, "decode": decode}


def _num_computed(timeline: Timeline, moment: Moment, request_id: str) -> int:
    request = moment.state.requests.get(request_id)
    if request is not None:
        return request.num_computed_tokens
    row = timeline.request(request_id)  # it ended: its last sampled token was never computed
    return 0 if row is None else row.num_prompt_tokens + max(row.num_output_tokens - 1, 0)
