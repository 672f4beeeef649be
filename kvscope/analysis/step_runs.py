"""What the queues did in the steps of a run, gathered for the detectors: one pass over the states.

Records are keyed by request and hold the steps in which something was so. Knows no words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvscope.analysis.block_books import BlockBooks
from kvscope.analysis.memory import remembered
from kvscope.analysis.recorded_settings import scheduler_config
from kvscope.analysis.step_facts import StepFacts
from kvscope.analysis.verdict_words import BLOCK_TESTS
from kvscope.analysis.verdicts import verdicts
from kvscope.analysis.why.instant import Capacity, capacity
from kvscope.analysis.why.journal import num_sampled_by
from kvscope.analysis.why.overview import Overview, overview
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.events import QueueTest
from kvscope.replay.timeline import Moment, Timeline
from kvscope.state import EngineState, RequestState, StateError

EARLY_STEPS, EARLY_GROWTH = 5_000, 1.5
"""After so many steps the first findings are told, and after so many times as many again."""
_LONG_PREFILL_SHARE = 0.5
"""Share of a step's tokens that one prompt takes from decoders beside it."""
_MAX_BEHIND = 16
"""How many requests behind a refused head are judged: enough to show that it holds somebody up."""


@dataclass(slots=True)
class NeverFits:
    """A request that waited and could not be admitted by an empty engine."""

    need: int
    have: int
    unit: str
    """blocks, or tokens where prompts may not be cut."""
    steps: list[int] = field(default_factory=list)
    behind: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Inversion:
    """Steps in which a request waited while less urgent ones ran."""

    steps: list[int] = field(default_factory=list)
    request_ids: dict[str, None] = field(default_factory=dict)
    tokens: int = 0


@dataclass(slots=True)
class HeadOfLine:
    """Steps in which a head was refused and others behind it would have been admitted."""

    reason: QueueTest
    steps: list[int] = field(default_factory=list)
    fitted: dict[str, list[int]] = field(default_factory=dict)
    most: int = 0


@dataclass(slots=True)
class Overtaken:
    """A waiting request, and who came later and was admitted first."""

    steps: list[int] = field(default_factory=list)
    by: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Empty:
    """Steps on end that scheduled nothing while somebody waited."""

    head_id: str
    reason: QueueTest
    need: int
    have: int
    num_waiting: int
    steps: list[int] = field(default_factory=list)


@dataclass(slots=True)
class LongPrefill:
    """Steps in which one prompt took most of the tokens while others decoded."""

    steps: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    decoders: dict[str, None] = field(default_factory=dict)
    forward_ns: int = 0


@dataclass(slots=True)
class StepRuns:
    """All of it."""

    overview: Overview
    books: BlockBooks
    never_fits: dict[str, NeverFits] = field(default_factory=dict)
    inversions: dict[str, Inversion] = field(default_factory=dict)
    head_of_line: dict[str, HeadOfLine] = field(default_factory=dict)
    overtaken: dict[str, Overtaken] = field(default_factory=dict)
    skipped: list[tuple[str, list[int]]] = field(default_factory=list)
    """Runs of steps in which a running request got nothing."""
    empty: list[Empty] = field(default_factory=list)
    long_prefills: dict[str, LongPrefill] = field(default_factory=dict)
    contradiction: tuple[int, StateError] | None = None
    """The step whose events do not fit the state before it."""


def step_runs(timeline: Timeline, early: Callable[[StepRuns, int], None] | None = None) -> StepRuns:
    """Gathers a whole recording. Moves the timeline.

    `early` is told what there is so far, up to which step, each time that there is `EARLY_GROWTH` times as much.
    """
    over = overview(timeline)
    runs = StepRuns(over, BlockBooks({row.request_id: row.finished_step for row in over.requests}))
    gatherer = _Gatherer(timeline, runs)
    next_early = EARLY_STEPS
    for step in range(timeline.first_step, timeline.last_step + 1):
        try:
            moment = timeline.at(step)
        except StateError as error:
            runs.contradiction = (step, error)
            for _, events in timeline.events(step, step):
                runs.books.note_events(step, events)
            break
        gatherer.add(moment)
        if early is not None and step - timeline.first_step + 1 >= next_early:
            next_early = int(next_early * EARLY_GROWTH)
            early(runs, step)
    return runs


class _Gatherer:
    def __init__(self, timeline: Timeline, runs: StepRuns) -> None:
        self._timeline = timeline
        self._runs = runs
        self._config: SchedulerConfig | None = None
        self._arrivals = {row.request_id: row.arrival_step for row in runs.overview.requests}
        self._open_skips: dict[str, list[int]] = {}
        self._capacities: dict[str, tuple[int, Capacity]] = {}
        """With the tokens that the request had then."""

    def add(self, moment: Moment) -> None:
        state = moment.state
        if self._config is None:
            if state.config is None:
                return
            self._config = scheduler_config(state.config)
        facts = remembered(self._timeline).facts(moment)
        self._note_waiting(moment, facts, self._config)
        self._note_head(moment, facts)
        self._note_empty(facts)
        self._note_prefill(moment, facts)
        self._note_skipped(moment, facts)
        self._runs.books.note_events(moment.step, moment.events)
        self._runs.books.note_state(moment.step, state)

    def _note_waiting(self, moment: Moment, facts: StepFacts, config: SchedulerConfig) -> None:
        state, runs = moment.state, self._runs
        later = [request_id for request_id in facts.admitted_ids if request_id in self._arrivals]
        running = [*state.running, *facts.late_ends]
        for position, request_id in enumerate(state.waiting):
            request = state.requests[request_id]
            fits = self._capacity(config, state, request)
            if not fits.can_ever_fit:
                found = runs.never_fits.get(request_id)
                if found is None:
                    is_blocks = fits.blocks_of_all_tokens > fits.pool
                    found = runs.never_fits[request_id] = NeverFits(
                        fits.blocks_of_all_tokens if is_blocks else request.num_tokens,
                        fits.pool if is_blocks else config.token_budget,
                        "blocks" if is_blocks else "tokens",
                    )
                found.steps.append(moment.step)
                found.behind.update(dict.fromkeys(state.waiting[position + 1 :]))
            overtaken = runs.overtaken.setdefault(request_id, Overtaken())
            overtaken.steps.append(moment.step)
            if later:
                mine = self._arrivals.get(request_id, 0)
                overtaken.by += [key for key in later if self._arrivals[key] > mine and key not in overtaken.by]
            if config.policy == "priority":
                self._note_inversion(moment, request_id, running)

    def _capacity(self, config: SchedulerConfig, state: EngineState, request: RequestState) -> Capacity:
        known = self._capacities.get(request.request_id)
        if known is None or known[0] != request.num_tokens:
            known = self._capacities[request.request_id] = (request.num_tokens, capacity(config, state, request))
        return known[1]

    def _note_inversion(self, moment: Moment, request_id: str, running: Sequence[str]) -> None:
        requests = moment.state.requests
        lower = [key for key in running if requests[key].priority > requests[request_id].priority]
        if lower:
            inversion = self._runs.inversions.setdefault(request_id, Inversion())
            inversion.steps.append(moment.step)
            inversion.request_ids.update(dict.fromkeys(lower))
            inversion.tokens += num_sampled_by(moment.events, set(lower))

    def _note_head(self, moment: Moment, facts: StepFacts) -> None:
        blocked = facts.blocked
        if blocked is None or blocked.reason not in (*BLOCK_TESTS, "chunked_prefill_off", "spec_pad_budget"):
            return
        if len(moment.state.waiting) < 2:
            return
        rows = verdicts(self._timeline, moment, 0, _MAX_BEHIND + 1)
        fitted = [row.request_id for row in rows if row.fits and row.request_id != blocked.request_id]
        if fitted:
            found = self._runs.head_of_line.setdefault(blocked.request_id, HeadOfLine(blocked.reason))
            found.steps.append(moment.step)
            found.most = max(found.most, len(fitted))
            for request_id in fitted:
                found.fitted.setdefault(request_id, []).append(moment.step)

    def _note_empty(self, facts: StepFacts) -> None:
        ended, blocked = facts.admission_ended, facts.blocked
        if facts.shares or facts.failed is not None or ended is None or blocked is None or not ended.num_waiting:
            return
        empty = self._runs.empty
        last = empty[-1] if empty else None
        if last is None or (last.head_id, last.reason, last.steps[-1]) != (
            blocked.request_id,
            blocked.reason,
            facts.step - 1,
        ):
            last = Empty(blocked.request_id, blocked.reason, blocked.need, blocked.have, ended.num_waiting)
            empty.append(last)
        last.steps.append(facts.step)
        last.num_waiting = max(last.num_waiting, ended.num_waiting)

    def _note_prefill(self, moment: Moment, facts: StepFacts) -> None:
        total = facts.num_scheduled_tokens
        decoders = [key for key, share in facts.shares.items() if not share.is_prefill]
        if not decoders:
            return
        for request_id, share in facts.shares.items():
            if share.is_prefill and share.num_tokens >= _LONG_PREFILL_SHARE * total:
                found = self._runs.long_prefills.setdefault(request_id, LongPrefill())
                found.steps.append(moment.step)
                found.tokens.append(share.num_tokens)
                found.shares.append(share.num_tokens / total)
                found.decoders.update(dict.fromkeys(decoders))
                found.forward_ns += facts.finished.forward_ns if facts.finished is not None else 0

    def _note_skipped(self, moment: Moment, facts: StepFacts) -> None:
        if facts.started is None:
            return
        idle = {key for key in moment.state.running if key not in facts.shares}
        for request_id in [key for key in self._open_skips if key not in idle]:
            del self._open_skips[request_id]
        for request_id in idle:
            if request_id not in self._open_skips:
                self._open_skips[request_id] = []
                self._runs.skipped.append((request_id, self._open_skips[request_id]))
            self._open_skips[request_id].append(moment.step)
