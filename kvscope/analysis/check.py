"""Checks every invariant on every step of a run: from a recording, or live, one step after another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from kvscope import events as ev
from kvscope.analysis.check_books import Books, digest_of
from kvscope.analysis.invariants import INVARIANTS, Invariant
from kvscope.errors import RecordingError
from kvscope.replay.timeline import StepSummary, Timeline
from kvscope.state import EngineState, StateError

STEPS_BETWEEN_SEEKS = 1000
"""Every so many steps a seek is compared with the fold: each costs what a seek costs."""

MAX_STEPS_OF_TOKENS = 5_000_000
"""So many rows of sampled tokens are read, over all requests, to compare what a reader of one request sees."""

COLUMN_FIGURES = tuple(field.name for field in fields(StepSummary) if field.name not in ("first_step", "num_steps"))
SUMMED_FIGURES = ("num_preemptions", "num_evicted_blocks", "num_hits", "num_finished", "num_stalled", "num_failed")
"""Of a wide column: the other figures are maxima."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that does not hold."""

    check: str
    """The invariant's name."""
    step: int
    event: str | None
    """`Kind` and place among the step's events, None where the step as a whole is at fault."""
    message: str
    is_warning: bool = False


class Checker:
    """The invariants over one run's events, step by step from the first on.

    After an event that contradicts the state nothing more can be said: `is_broken`, and later steps are not looked at.
    """

    def __init__(self) -> None:
        self.books = Books()
        self.is_broken = False
        self._before: dict[type, list[Invariant]] = defaultdict(list)
        for invariant in INVARIANTS:
            for event_type in invariant.event_types:
                self._before[event_type].append(invariant)
        self._after_step = [invariant for invariant in INVARIANTS if not invariant.event_types]

    def check_step(self, step: int, events: Sequence[ev.Event]) -> list[Violation]:
        """Returns what is wrong with the step."""
        found: list[Violation] = []
        if self.is_broken:
            return found
        books, before = self.books, self._before
        books.begin_step(step)
        for index, event in enumerate(events):
            kind = type(event)
            try:
                for invariant in before.get(kind, ()):
                    messages = invariant.find(books, event)
                    found += [_broken(invariant, step, text, f"{kind.__name__} (event {index})") for text in messages]
                books.apply(event)
            except (StateError, KeyError) as error:
                message = str(error) if isinstance(error, StateError) else f"the event names {error}, which is unknown"
                found.append(
                    Violation(
                        check="events_fit_the_state",
                        step=step,
                        event=f"{kind.__name__} (event {index})",
                        message=message,
                    )
                )
                self.is_broken = True
                return found
        for invariant in self._after_step:
            found += [_broken(invariant, step, message, None) for message in invariant.find(books, None)]
        return found


def _broken(invariant: Invariant, step: int, message: str, place: str | None) -> Violation:
    return Violation(check=invariant.name, step=step, event=place, message=message, is_warning=invariant.is_warning)


def check_events(steps: Iterable[tuple[int, Sequence[ev.Event]]]) -> Iterator[Violation]:
    """Yields what is wrong with a run, step by step."""
    checker = Checker()
    for step, events in steps:
        yield from checker.check_step(step, events)


def check_recording(timeline: Timeline, on_step: Callable[[int], None] = lambda num_steps: None) -> Iterator[Violation]:
    """Yields what is wrong with a recording: its events, and what it says of them in rows, sums and seeks.

    `on_step` hears after each step how many were looked at. Memory does not grow with the recording, but for some
    figures of each request; of a long one's requests only so many are read token by token.
    """
    checker = Checker()
    try:
        yield from _check_recording(timeline, checker, on_step)
    except RecordingError as error:
        yield _violation("the_recording_can_be_read", checker.books.step_number + 1, error.message)


def _check_recording(timeline: Timeline, checker: Checker, on_step: Callable[[int], None]) -> Iterator[Violation]:
    last = timeline.last_step
    seeks = {last, *range(timeline.first_step, last, STEPS_BETWEEN_SEEKS)}
    sums = _Sums(timeline)
    for step, events in timeline.events(timeline.first_step, last):
        yield from checker.check_step(step, events)
        if checker.is_broken:
            return
        yield from sums.check(checker.books)
        if step in seeks:
            yield from _check_seek(timeline, checker.books)
        on_step(step - timeline.first_step + 1)
    yield from _check_rows(timeline, checker.books, last)
    for step, damage in timeline.damaged_checkpoints():
        yield _violation("checkpoints_can_be_read", step, f"{damage}; seeks pass over it, which takes longer")


class _Sums:
    """Holds the rows of steps against their events, and the timeline's wider columns against those rows."""

    _STEPS_A_READ = 128
    _WIDTH = 1000
    """Steps of the wider columns that are looked at: the rows of all levels below it go into one of them."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._rows: dict[int, StepSummary] = {}
        self._of_column: list[StepSummary] = []

    def check(self, books: Books) -> Iterator[Violation]:
        """Yields what is wrong with the row of the step that the books have just entered."""
        step = books.step_number
        if step not in self._rows:
            self._rows = {row.first_step: row for row in self._timeline.summaries(step, self._STEPS_A_READ, 1)}
        row = self._rows.get(step)
        if row is None:
            yield _violation("steps_have_rows", step, f"step {step} has no row")
            return
        for name, have, due in (
            (
                "scheduled tokens",
                row.num_prefill_tokens + row.num_decode_tokens + row.num_draft_tokens,
                books.step.num_scheduled_tokens,
            ),
            ("running", row.num_running, len(books.state.running)),
            ("waiting", row.num_waiting, len(books.state.waiting)),
            ("live blocks", row.num_live_blocks, books.state.num_live_blocks),
            ("cached free blocks", row.num_cached_blocks, books.state.num_cached_free_blocks),
            ("preemptions", row.num_preemptions, len(books.step.preempted_ids)),
        ):
            if have != due:
                yield _violation("step_rows_equal_their_events", step, f"the row says {have} {name}, the events {due}")
        self._of_column.append(row)
        if (step + 1) % self._WIDTH == 0 or step == self._timeline.last_step:
            yield from self._check_column(step)

    def _check_column(self, step: int) -> Iterator[Violation]:
        """A wide column has the maxima of its steps' figures and the sums of their happenings."""
        rows, self._of_column = self._of_column, []
        wide = self._timeline.summaries(step, 1, self._WIDTH)[0]
        if len(rows) != wide.num_steps:
            return  # the run began in the middle of the column
        for name in COLUMN_FIGURES:
            values = [getattr(row, name) for row in rows]
            due = sum(values) if name in SUMMED_FIGURES else max(values)
            if getattr(wide, name) != due:
                message = f"the {self._WIDTH} steps up to {step} have {name} {due}, their column {getattr(wide, name)}"
                yield _violation("columns_equal_their_steps", step, message)


def _check_seek(timeline: Timeline, books: Books) -> Iterator[Violation]:
    """The state that a seek gives equals the fold over all events."""
    step = books.step_number
    have, due = _books_of(timeline.at(step).state), _books_of(books.state)
    for name, value in due.items():
        if have[name] != value:
            yield _violation(
                "seeks_equal_the_fold", step, f"{name} after a seek: {have[name]}, after all events: {value}"
            )


def _books_of(state: EngineState) -> dict[str, object]:
    live = [*state.running, *state.waiting]
    return {
        "running": list(state.running),
        "waiting": list(state.waiting),
        "free queue": list(state.free_queue),
        "reference counts": list(state.ref_cnts),
        "cached blocks": sorted(state.cached_from),
        "block tables": {key: list(state.requests[key].block_ids) for key in live},
        "computed tokens": {key: state.requests[key].num_computed_tokens for key in live},
        "tokens": {key: state.requests[key].num_tokens for key in live},
    }


def _check_rows(timeline: Timeline, books: Books, last: int) -> Iterator[Violation]:
    """The row of a request equals what its events say, and so do its tokens."""
    if timeline.request_ids() != list(books.requests):
        yield _violation("request_rows_equal_their_events", last, "the requests in rows are not those that arrived")
    for request_id, request in books.requests.items():
        row = timeline.request(request_id)
        if row is None:
            yield _violation("request_rows_equal_their_events", last, f"{request_id} has no row")
            continue
        for name, have, due in (
            ("prompt tokens", row.num_prompt_tokens, request.num_prompt_tokens),
            ("output tokens", row.num_output_tokens, request.num_output_tokens),
            ("preemptions", row.num_preemptions, request.num_preemptions),
            ("hit tokens", row.num_hit_tokens, request.num_hit_tokens),
            ("first admitted step", row.first_admitted_step, request.first_admitted_step),
            ("first token step", row.first_token_step, request.first_token_step),
            ("finished step", row.finished_step, request.finished_step),
            ("finish reason", row.finish_reason, request.finish_reason),
        ):
            if have != due:
                yield _violation(
                    "request_rows_equal_their_events",
                    last,
                    f"{request_id}: {name} {have} in its row, {due} in its events",
                )
    for request_id in _to_be_read(books, last):
        if digest_of(timeline.token_ids(request_id, last)) != books.requests[request_id].digest():
            yield _violation(
                "tokens_are_prompt_and_sampled", last, f"{request_id} has other tokens than its events say"
            )


def _to_be_read(books: Books, last: int) -> Iterator[str]:
    """Yields the requests whose tokens are read: all, or in a long recording some, evenly spread.

    A request's tokens lie in the rows of all steps in which it ran: all of them would be read for each.
    """
    num_steps = {
        request_id: (last if request.finished_step is None else request.finished_step) - request.first_token_step
        for request_id, request in books.requests.items()
        if request.first_token_step is not None
    }
    every = 1 + sum(num_steps.values()) // MAX_STEPS_OF_TOKENS
    for index, request_id in enumerate(books.requests):
        if index % every == 0:
            yield request_id


def _violation(check: str, step: int, message: str) -> Violation:
    return Violation(check=check, step=step, event=None, message=message)
