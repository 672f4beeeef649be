"""The answer to "why?" as lines to read."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.spans import say
from kvscope.analysis.text import visible
from kvscope.analysis.why import explain
from kvscope.analysis.why.layout import Section, laid_out, sentence
from kvscope.analysis.why.report import report
from kvscope.errors import KvscopeError
from kvscope.replay.timeline import Timeline
from kvscope.tui.view.lines import Line, sentence_line


def why_sections(timeline: Timeline, request_id: str, step: int | None) -> list[Section]:
    """Returns the answer, or what is wrong with the question. Moves the timeline."""
    try:
        return report(explain(timeline, request_id, step))
    except KvscopeError as error:
        return [Section("", (sentence("✗", say(visible(error.message))),))]


def why_lines(sections: Sequence[Section], width: int) -> list[Line]:
    """Lays the answer out."""
    return [sentence_line(spans) for spans in laid_out(sections, min(width, 110))]
