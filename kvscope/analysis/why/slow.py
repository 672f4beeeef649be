"""Where a request's time went: its first token, and every gap between two of its tokens.

Steps are counted exactly in every run. Times exist where the run has a clock. What others' prefill added to a step
cannot be read off a clock: it is the step's forward time beyond that of the request's usual decode step (the median of
its steps in which nobody computed a prompt); without such a step it is the prefill's share of the step's tokens. The
record says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from kvscope import events as ev
from kvscope.analysis.why.journal import StepNote
from kvscope.analysis.why.slow_records import (
    Basis,
    BesidePrefill,
    FirstToken,
    Gap,
    PrefillStep,
    SharedPrefill,
    SlowAnswer,
)

MAX_GAPS = 1000


@dataclass(slots=True)
class _Split:
    """Sums over the steps of a gap."""

    own: int = 0
    others_prefill: int = 0
    preemption: int = 0
    skipped: int = 0
    pause: int = 0
    prefill_tokens: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    preempted_for: list[str] = field(default_factory=list)


def slow_answer(
    request_id: str,
    notes: Sequence[StepNote],
    arrival: ev.RequestArrived | None,
    shares_of: dict[int, dict[str, int]],
    beside_prefill: tuple[BesidePrefill, ...],
) -> SlowAnswer:
    """Returns the answer over a request's steps. `shares_of`: everybody's tokens, of steps in which it got nothing."""
    usual = _usual_decode_ns(request_id, notes)
    gaps = _gaps(request_id, notes, usual, shares_of)
    gaps.sort(key=_badness, reverse=True)
    has_clock = any(note.start_ns is not None for note in notes)
    basis: Basis = "no_clock" if not has_clock else "median_decode_step" if usual is not None else "share_of_tokens"
    return SlowAnswer(
        first_token=_first_token(request_id, notes, arrival),
        gaps=tuple(gaps[:MAX_GAPS]),
        num_gaps=len(gaps),
        shared_prefill=_shared_prefill(request_id, notes, usual),
        beside_prefill=beside_prefill,
        steps_skipped=tuple(note.step for note in notes if note.is_running and note.share is None),
        waiting_for_budget=tuple(note.step for note in notes if note.is_waiting and note.stop == "budget"),
        usual_decode_ns=usual,
        basis=basis,
    )


def _badness(gap: Gap) -> tuple[int, int, int]:
    return gap.total_ns or 0, gap.steps, sum(gap.others_prefill_tokens.values())


def _usual_decode_ns(request_id: str, notes: Sequence[StepNote]) -> int | None:
    times = [
        note.forward_ns
        for note in notes
        if note.forward_ns and note.share is not None and not note.share.is_prefill and not note.prefill_tokens
    ]
    return round(median(times)) if times else None


def _others_prefill(request_id: str, note: StepNote) -> dict[str, int]:
    return {key: tokens for key, tokens in note.prefill_tokens.items() if key != request_id}


def _added_ns(request_id: str, note: StepNote, usual: int | None) -> int:
    """Returns what others' prefill added to a step in which the request was scheduled."""
    others = sum(_others_prefill(request_id, note).values())
    if not others or not note.forward_ns:
        return 0
    share = others / note.num_scheduled_tokens
    if usual is None or (note.share is not None and note.share.is_prefill):
        return round(note.forward_ns * share)
    return max(note.forward_ns - usual, 0)


def _gaps(
    request_id: str, notes: Sequence[StepNote], usual: int | None, shares_of: dict[int, dict[str, int]]
) -> list[Gap]:
    gaps: list[Gap] = []
    previous: StepNote | None = None
    between: list[StepNote] = []
    num_tokens = 0
    for note in notes:
        if previous is not None:
            between.append(note)
        if note.num_sampled:
            if previous is not None:
                gaps.append(_gap(request_id, num_tokens, previous, between, usual, shares_of))
            previous, between = note, []
            num_tokens += note.num_sampled
    return gaps


def _gap(
    request_id: str,
    index: int,
    previous: StepNote,
    between: Sequence[StepNote],
    usual: int | None,
    shares_of: dict[int, dict[str, int]],
) -> Gap:
    split = _Split()
    last = previous
    preempted = recompute = skipped = own = 0
    for note in between:
        duration = 0
        if note.start_ns is not None and note.end_ns is not None and last.end_ns is not None:
            split.pause += max(note.start_ns - last.end_ns, 0)
            duration = note.end_ns - note.start_ns
        split.preempted_for += [p.event.beneficiary_id for p in note.preemptions if p.event.request_id == request_id]
        if note.share is None and note.is_waiting:
            preempted += 1
            split.preemption += duration
        elif note.share is None:
            skipped += 1
            split.skipped += duration
            for key, tokens in shares_of.get(note.step, {}).items():
                split.taken[key] = split.taken.get(key, 0) + tokens
        else:
            added = _added_ns(request_id, note, usual)
            split.others_prefill += added
            for key, tokens in _others_prefill(request_id, note).items():
                split.prefill_tokens[key] = split.prefill_tokens.get(key, 0) + tokens
            if note.share.is_prefill and note is not between[-1]:
                recompute += 1
                split.preemption += duration - added
            else:
                own += 1
                split.own += duration - added
        last = note
    start, end = previous.end_ns, between[-1].end_ns
    has_clock = start is not None and end is not None
    return Gap(
        index=index,
        from_step=previous.step,
        to_step=between[-1].step,
        steps=between[-1].step - previous.step,
        own_steps=own,
        preempted_steps=preempted,
        recompute_steps=recompute,
        skipped_steps=skipped,
        others_prefill_tokens=split.prefill_tokens,
        preempted_for=tuple(split.preempted_for),
        skipped_because_of=split.taken,
        total_ns=end - start if start is not None and end is not None else None,
        own_ns=split.own if has_clock else None,
        others_prefill_ns=split.others_prefill if has_clock else None,
        preemption_ns=split.preemption if has_clock else None,
        skipped_ns=split.skipped if has_clock else None,
        pause_ns=split.pause if has_clock else None,
    )


def _first_token(request_id: str, notes: Sequence[StepNote], arrival: ev.RequestArrived | None) -> FirstToken:
    first = next((note for note in notes if note.num_sampled), None)
    until = [note for note in notes if first is None or note.step <= first.step]
    admitted = next((note.step for note in until if request_id in note.admitted_ids), None)
    queue = [note for note in until if admitted is None or note.step < admitted]
    later = [note for note in until if admitted is not None and note.step >= admitted]
    prefill = [note for note in later if note.share is not None]
    idle = [note for note in later if note.share is None]
    has_clock = first is not None and first.end_ns is not None and arrival is not None and bool(later)
    queue_ns = prefill_ns = idle_ns = ttft_ns = None
    if has_clock:
        assert first is not None
        assert first.end_ns is not None
        assert arrival is not None
        # The submission is stamped before template and tokenization; from their end to its first step it queued.
        submitted = arrival.arrival_ns or (until[0].start_ns or 0)
        ttft_ns = first.end_ns - submitted
        queue_ns = max((later[0].start_ns or 0) - submitted - arrival.template_ns - arrival.tokenize_ns, 0)
        prefill_ns = sum((note.end_ns or 0) - (note.start_ns or 0) for note in prefill)
        idle_ns = first.end_ns - (later[0].start_ns or 0) - prefill_ns
    return FirstToken(
        arrival_step=notes[0].step,
        first_token_step=first.step if first is not None else None,
        ttft_ns=ttft_ns,
        template_ns=arrival.template_ns if arrival is not None else 0,
        tokenize_ns=arrival.tokenize_ns if arrival is not None else 0,
        queue_steps=sum(note.is_waiting for note in queue),
        queue_ns=queue_ns,
        prefill_steps=len(prefill),
        prefill_ns=prefill_ns,
        between_chunks_steps=len(idle),
        between_chunks_ns=idle_ns,
        preempted_steps=sum(note.is_waiting for note in idle),
        chunks=tuple(_prefill_step(note) for note in notes if note.share is not None and note.share.is_prefill),
    )


def _prefill_step(note: StepNote) -> PrefillStep:
    assert note.share is not None
    return PrefillStep(
        step=note.step,
        tokens=note.share.num_tokens,
        step_total_tokens=note.num_scheduled_tokens,
        share_pct=_percent(note.share.num_tokens, note.num_scheduled_tokens),
    )


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def _shared_prefill(request_id: str, notes: Sequence[StepNote], usual: int | None) -> tuple[SharedPrefill, ...]:
    steps: dict[str, list[StepNote]] = {}
    for note in notes:
        if note.share is not None:
            for key in _others_prefill(request_id, note):
                steps.setdefault(key, []).append(note)
    found = [
        SharedPrefill(
            request_id=key,
            steps=tuple(note.step for note in shared),
            tokens=tuple(note.prefill_tokens[key] for note in shared),
            step_total_tokens=tuple(note.num_scheduled_tokens for note in shared),
            share_pct=tuple(_percent(note.prefill_tokens[key], note.num_scheduled_tokens) for note in shared),
            added_ns=sum(_part_ns(request_id, key, note, usual) for note in shared)
            if any(note.start_ns is not None for note in shared)
            else None,
        )
        for key, shared in steps.items()
    ]
    return tuple(sorted(found, key=lambda shared: -sum(shared.tokens)))


def _part_ns(request_id: str, other_id: str, note: StepNote, usual: int | None) -> int:
    """Returns one other request's part of what prefill added to a step."""
    others = _others_prefill(request_id, note)
    return round(_added_ns(request_id, note, usual) * others[other_id] / sum(others.values()))
