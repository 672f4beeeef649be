"""The request column and the selection behind it: words make room for figures, and `g` `G` reach the ends."""

from __future__ import annotations

import dataclasses

import pytest

from kvscope.analysis.request_view import RequestFacts, request_facts
from kvscope.analysis.step_facts import StepShare
from kvscope.tui.view.glyphs import UNICODE
from kvscope.tui.view.lines import Line
from kvscope.tui.view.request import head_lines, text_lines
from tests.tui import scenes


def _text(line: Line) -> str:
    return "".join(span.text for span in line)


def _late() -> RequestFacts:
    """A request of a long run: figures of many digits."""
    timeline, step = scenes.preemption()
    facts = request_facts(timeline, timeline.at(step), timeline.at(step).state.running[0])
    assert facts is not None
    return dataclasses.replace(
        facts,
        num_prompt_tokens=1038,
        num_output_tokens=28,
        max_tokens=1763,
        num_tokens=10660,
        num_computed_tokens=10650,
        num_blocks=667,
        num_preemptions=12,
        share=StepShare(request_id="a", num_tokens=2048, num_draft_tokens=0, is_prefill=True, num_computed_before=8602),
        arrival_step=999_972,
    )


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (45, ["10650/10660 computed +2048  667 blocks  ▲ 12×", "prompt 1038  output 28/1763  since 999972"]),
        (39, ["10650/10660 +2048  667 blocks  ▲ 12×", "prompt 1038 out 28/1763  since 999972"]),
        (36, ["10650/10660 +2048  667 blocks  ▲ 12×", "prompt 1038 out 28/1763 since 999972"]),
        (30, ["10650/10660 +2048  667 blocks…", "1038 out 28/1763 since 999972"]),
    ],
)
def test_words_make_room_for_figures(width: int, lines: list[str]) -> None:
    assert [_text(line) for line in head_lines(_late(), width, UNICODE)[:2]] == lines


def test_a_text_that_is_cut_ends_in_one_ellipsis() -> None:
    """It ended in two where its last line was as wide as the column."""
    shown = [_text(line) for line in text_lines("aaaa bbbb cccc dddd", 4, 2, is_end_shown=False)]
    assert shown == ["aaaa", "bbb…"]
    assert [_text(line) for line in text_lines("aaaa bb cccc", 4, 2, is_end_shown=False)] == ["aaaa", "bb…"]


@pytest.mark.parametrize(
    ("num_rows", "place"), [(1, 0), (-1, -1), (10, 9), (-10, -10), (1_000_000, -1), (-1_000_000, 0)]
)
def test_from_a_request_that_is_in_no_queue_a_key_goes_to_the_end_that_it_names(num_rows: int, place: int) -> None:
    """`G` selected the first request, and `g` the last, once the selected one had ended."""
    app = scenes.screen(scenes.many_requests())
    model = app.model
    model.timeline = scenes.many_requests()
    model.move_to(model.first_step)
    model.load()
    model.selected_id = "nobody"
    model.select_by(num_rows)
    assert len(model.queue_ids) >= 20
    assert model.selected_id == model.queue_ids[place]
