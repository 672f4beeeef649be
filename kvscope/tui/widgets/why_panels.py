"""The panels of the place "why". What they show comes from one `WhyReading`, which works each thing out once."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.request_view import RequestFacts
from kvscope.analysis.sentences import sentences
from kvscope.analysis.spans import Entity, count
from kvscope.analysis.text import visible
from kvscope.analysis.why.here_report import is_blocks_test
from kvscope.analysis.why.layout import Section
from kvscope.replay.timeline import Timeline
from kvscope.tui.view.entries import Entry, heading
from kvscope.tui.view.lines import EMPTY, Line, Span, cut_line, request_target, rule
from kvscope.tui.view.step import sentence_rows
from kvscope.tui.view.why_history import LABEL_COLUMNS, HistoryFacts, history_lines
from kvscope.tui.view.why_life import life_entries
from kvscope.tui.view.why_place import (
    answer_lines,
    behind_entries,
    change_entries,
    holder_entries,
    holder_title,
    missing_title,
    question_line,
    test_lines,
)
from kvscope.tui.view.window import Window, page
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.panel import Panel
from kvscope.tui.widgets.request_panels import facts_of
from kvscope.tui.widgets.why_reading import WhyReading

MAX_LOOK_BACK = 400
"""Steps that are looked back at to say since when it has been so."""


class AnswerPanel(Panel):
    """The question, the answer, the tests in the order in which they ran."""

    def __init__(self, reading: WhyReading, *, is_ascii: bool) -> None:
        super().__init__(reading.model, id="answer", is_ascii=is_ascii)
        self.reading = reading
        self.is_roomy = True
        self.num_answer_rows = 5

    def rows(self) -> int:
        """Returns the panel's height."""
        if not self.reading.is_step_shown:
            return 4 if self.is_roomy else 3
        here = self.reading.here
        num_tests = max(len(here.tests), 6) if here is not None else 6
        return self.num_answer_rows + 1 + num_tests + (4 if self.is_roomy else 0)

    def build(self, width: int, height: int) -> Sequence[Line]:
        model, here = self.model, self.reading.here
        facts = facts_of(model)
        if facts is None or model.timeline is None:
            return [(Span(" no request is selected", "dim"),)]
        is_waiting = facts.queue_position is not None
        question = question_line(facts.request_id, _doing(facts, model.step), width, is_waiting=is_waiting)
        if here is None or self.reading.shows_life:
            room = height - 2 if self.is_roomy else height - 1
            return [question, *self._told(facts.request_id, width, room)]
        first = max(here.head.waiting_since_step, model.step - MAX_LOOK_BACK)
        self.reading.refusals.read(model.timeline, first, model.step)
        since = self.reading.refusals.same_since(model.step, first)
        answer = answer_lines(
            here, since, width, self.num_answer_rows, is_longer=since == first > here.head.waiting_since_step
        )
        answer += [EMPTY] * (self.num_answer_rows - len(answer))
        words = () if here.is_head else (Span(visible(here.head.request_id), "bold"), Span(", the head", "dim"))
        title = self.title("THE ADMISSION TESTS, IN THE ORDER IN WHICH THEY RAN", words, width)
        tests = test_lines(here, width, model.glyphs)
        if self.is_roomy:
            return [question, EMPTY, *answer, EMPTY, title, *tests]
        return [*answer, title, *tests]

    def _told(self, request_id: str, width: int, height: int) -> list[Line]:
        """What the step decided about the request, in words: as many sentences as have room, the first one at least."""
        model = self.model
        assert model.timeline is not None
        assert model.moment is not None
        wanted = Entity("request", request_id)
        told = [said for said in sentences(model.timeline, model.moment) if wanted in said.entities]
        lines: list[Line] = []
        for said in told:
            rows = sentence_rows(said, width)
            if len(lines) + len(rows) > height:
                if not lines:
                    lines = [*rows[: height - 1], cut_line((*rows[height - 1], Span(" …" + " " * width, "dim")), width)]
                break
            lines += rows
        return lines


def _doing(facts: RequestFacts, step: int) -> str:
    """Returns what the request does at the step, in words that follow its id."""
    if step < facts.arrival_step:
        return f"has not arrived at step {step}: it does at step {facts.arrival_step}"
    if facts.finished_step is not None and facts.finished_step <= step:
        return f"ended at step {facts.finished_step} ({facts.finish_reason})"
    if facts.queue_position is not None:
        return f"is waiting at step {step}"
    if facts.share is None:
        return f"runs and gets no token at step {step}"
    verb = "prefills" if facts.share.is_prefill else "decodes"
    return f"{verb} {count(facts.share.num_tokens, 'token')} at step {step}"


class HoldersPanel(JumpPanel):
    """Who holds what it waits for."""

    def __init__(self, reading: WhyReading, *, is_ascii: bool) -> None:
        super().__init__(reading.model, id="holders", is_ascii=is_ascii)
        self.reading = reading

    def head(self, width: int, height: int) -> Sequence[Line]:
        here = self.reading.here
        if here is None:
            return [self.title("WHO RUNS", (), width)]
        return [self.title(missing_title(here), (), width, holder_title(here))]

    def entries(self, width: int) -> Sequence[Entry]:
        here = self.reading.here
        return () if here is None else holder_entries(here, self.reading.outlook, width, self.model.glyphs)


class SidePanel(JumpPanel):
    """Who behind it would have fitted, and what would have admitted it."""

    def __init__(self, reading: WhyReading, *, is_ascii: bool) -> None:
        super().__init__(reading.model, id="side", is_ascii=is_ascii)
        self.reading = reading

    def head(self, width: int, height: int) -> Sequence[Line]:
        return [self.title("WHO BEHIND IT WOULD HAVE FITTED", (), width)]

    def entries(self, width: int) -> Sequence[Entry]:
        here = self.reading.here
        if here is None:
            return ()
        head = here.head.request_id
        whom = () if here.is_head else (Span(" ─ ", "rule"), Span(visible(head), "bold", "", request_target(head)))
        title = rule(
            width,
            (Span("WHAT WOULD ADMIT IT AT THIS STEP", "bold"), *whom),
            (Span("one change alone", "dim"),),
            bar="─",
        )
        changes = change_entries(here, self.reading.outlook, width)
        return [*behind_entries(here, width, self.model.glyphs), heading(EMPTY), heading(title), *changes]


class LifePanel(JumpPanel):
    """The whole answer: waits, preemptions, hits and misses, first token, worst gaps."""

    def __init__(self, reading: WhyReading, *, is_ascii: bool) -> None:
        super().__init__(reading.model, id="life", is_ascii=is_ascii)
        self.reading = reading
        self._laid_out: tuple[list[Section], int, list[Entry]] | None = None

    def head(self, width: int, height: int) -> Sequence[Line]:
        words = self.reading.waiting_words if self.reading.is_partial else "enter jumps to the step"
        return [self.title("ITS WHOLE LIFE", (), width, (Span(words, "dim"),))]

    def entries(self, width: int) -> Sequence[Entry]:
        sections = self.reading.life
        if sections is None:
            return [heading((Span(f" {self.reading.waiting_words}", "dim"),))]
        known = self._laid_out
        if known is None or known[0] is not sections or known[1] != width:
            known = self._laid_out = (sections, width, life_entries(sections, width))
        return known[2]


class HistoryPanel(Panel):
    """How long it has been so; a click seeks."""

    SHOWS_LIFE = True

    def __init__(self, reading: WhyReading, *, is_ascii: bool) -> None:
        super().__init__(reading.model, id="history", is_ascii=is_ascii)
        self.reading = reading
        self.num_bar_rows = 2
        self._window: Window | None = None

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        facts = facts_of(model)
        title = self.title("HOW LONG IT HAS BEEN SO", (), width, (Span("← → or a click: the step", "dim"),))
        if facts is None or model.timeline is None or model.moment is None or model.step < facts.arrival_step:
            return [title]
        lines = history_lines(self._facts(facts, model.timeline, width), width, self.num_bar_rows, model.glyphs)
        return [title, *lines][:height]

    def _facts(self, facts: RequestFacts, timeline: Timeline, width: int) -> HistoryFacts:
        model = self.model
        assert model.moment is not None
        last = model.last_step if facts.finished_step is None else facts.finished_step
        step = min(max(model.step, facts.arrival_step), last)
        previous = self._window if self._window is not None and facts.arrival_step <= self._window.first_step else None
        window = self._window = page(step, facts.arrival_step, last, max(width - LABEL_COLUMNS - 1, 1), 1, previous)
        end = min(window.end_step - 1, last)
        self.reading.refusals.read(timeline, window.first_step, end)
        here = self.reading.here
        need = here.row.head_need + here.row.head_watermark if here is not None and is_blocks_test(here) else None
        return HistoryFacts(
            window=window,
            step=model.step,
            request_id=facts.request_id,
            deeds=model.life_deeds(window.first_step, end, 1),
            refusals=self.reading.refusals,
            summaries=timeline.summaries(window.first_step, end - window.first_step + 1, 1),
            num_usable_blocks=model.moment.state.num_usable_blocks,
            need=need,
        )

    def step_at(self, column: int) -> int | None:
        """Returns the step under a column, None beside the page."""
        if self._window is None or column < LABEL_COLUMNS:
            return None
        return min(self._window.first_step + column - LABEL_COLUMNS, self.model.last_step)
