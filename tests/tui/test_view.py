"""The pure half of the screen: what stands where, at which size, in whole values."""

from __future__ import annotations

import dataclasses
from typing import cast

import pytest

from kvscope import events as ev
from kvscope.analysis.history import Turn
from kvscope.analysis.pool_view import BlockChange, BlockStatus, NextOut, PoolView
from kvscope.analysis.queue_view import RunningRow
from kvscope.analysis.spans import Sentence, figure, request, say
from kvscope.analysis.step_facts import StepShare
from kvscope.replay.timeline import Timeline
from kvscope.tui.time_page import TimePage
from kvscope.tui.view.charts import Layer, stack_heights, stacked_rows
from kvscope.tui.view.glyphs import ASCII, NO_COLOR, UNICODE, to_ascii
from kvscope.tui.view.goto import GotoError, ToBlock, ToNumberedRequest, ToRequest, ToStep, ToTime, numbered, parse_goto
from kvscope.tui.view.layout import main_layout
from kvscope.tui.view.life import ScheduledIndex, by_column, deeds_of, life_glyphs, sampled_deeds
from kvscope.tui.view.lines import Line, Span, cut_line, fit, rule, two_ends
from kvscope.tui.view.pool import legend_lines, next_out_lines
from kvscope.tui.view.pool_grid import PoolGrid, pool_grid
from kvscope.tui.view.pool_map import map_lines
from kvscope.tui.view.queues import progress, waiting_height
from kvscope.tui.view.request import HitEnd, table_slots
from kvscope.tui.view.step import sentences_view
from kvscope.tui.view.timeline import tick_interval
from kvscope.tui.view.window import Window, next_zoom, page
from kvscope.tui.view.windowing import Gap, head_and_tail, head_window


def text(line: Line) -> str:
    return "".join(span.text for span in line)


# Lines


def test_a_cut_counts_cells_and_never_splits_a_wide_character() -> None:
    assert fit("首都是巴黎", 10) == "首都是巴黎"
    assert fit("首都是巴黎", 9) == "首都是巴…"
    assert fit("首都是巴黎", 8) == "首都是…"
    assert fit("abc", 1) == "…"
    assert fit("abc", 0) == ""


def test_a_line_is_cut_inside_the_span_that_does_not_fit() -> None:
    line = (Span("abc", "bold"), Span("def"), Span("ghi", "dim"))
    assert cut_line(line, 9) == line
    assert cut_line(line, 8) == (Span("abc", "bold"), Span("def"), Span("g…", "dim"))
    assert cut_line(line, 6) == (Span("abc", "bold"), Span("de…"))


def test_the_right_end_is_kept_whole_and_the_left_one_yields() -> None:
    assert text(two_ends((Span("left"),), (Span("right"),), 12)) == "left   right"
    assert text(two_ends((Span("left"),), (Span("right"),), 9)) == "le… right"


def test_a_rule_leaves_its_right_words_out_before_it_cuts_its_title() -> None:
    title, right = (Span("POOL", "bold"),), (Span("by id", "dim"),)
    assert text(rule(24, title, right, bar="─")) == "── POOL ─────── by id ──"
    assert text(rule(12, title, right, bar="─")) == "── POOL ────"


# Layout


def test_the_three_sizes_divide_as_drawn() -> None:
    small, middle, large = (main_layout(*size, is_live=True) for size in ((80, 24), (120, 40), (200, 55)))
    assert [layout.timeline.rows for layout in (small, middle, large) if layout.timeline] == [4, 10, 12]
    assert [layout.step_rows for layout in (small, middle, large)] == [6, 6, 9]
    assert [(one.queues_columns, one.pool_columns, one.request_columns) for one in (small, middle, large)] == [
        (41, 39, 0),
        (37, 45, 38),
        (52, 91, 57),
    ]
    assert [layout.has_prompt for layout in (small, middle, large)] == [False, True, True]
    assert [layout.body_rows for layout in (small, middle, large)] == [12, 21, 31]


def test_below_60_by_16_only_sentences_and_queues_stay() -> None:
    for size in ((59, 40), (120, 15)):
        layout = main_layout(*size, is_live=True)
        assert (layout.timeline, layout.pool_columns, layout.request_columns) == (None, 0, 0)
        assert layout.queues_columns == size[0]


# Timeline


def test_zoom_goes_through_1_2_5_10() -> None:
    steps = [1]
    for _ in range(6):
        steps.append(next_zoom(steps[-1], is_finer=False))
    assert steps == [1, 2, 5, 10, 20, 50, 100]
    assert [next_zoom(step, is_finer=True) for step in steps] == [1, 1, 2, 5, 10, 20, 50]


def test_ticks_are_round_and_far_enough_apart() -> None:
    assert [tick_interval(steps) for steps in (1, 2, 5, 10, 1000)] == [20, 50, 100, 200, 20_000]


def test_the_first_page_ends_at_the_last_step() -> None:
    assert page(372, 0, 372, 101, 1) == Window(272, 101, 1)
    assert page(20, 0, 372, 101, 1) == Window(0, 101, 1)
    assert page(5, 0, 5, 101, 1) == Window(0, 101, 1)


def test_the_page_stays_until_the_cursor_leaves_it() -> None:
    here = Window(100, 100, 1)
    assert page(199, 0, 1000, 100, 1, here) is here
    assert page(200, 0, 1000, 100, 1, here) == Window(175, 100, 1)  # a quarter of it lies behind the cursor
    assert page(99, 0, 1000, 100, 1, here) == Window(24, 100, 1)
    assert page(3, 0, 1000, 100, 1, here) == Window(0, 100, 1)


def test_a_page_of_several_steps_a_column_begins_at_a_whole_column() -> None:
    window = page(777, 0, 1000, 50, 10, Window(0, 50, 10))
    assert window.first_step % 10 == 0
    assert 777 in window


def test_what_is_not_zero_is_at_least_an_eighth() -> None:
    assert stack_heights((7, 0, 57), 64, 3) == (3, 3, 24)
    assert stack_heights((1, 1, 1), 2048, 3) == (1, 2, 3)
    assert stack_heights((64, 1, 0), 64, 3) == (24, 24, 24)  # never above the budget


def test_a_cell_of_two_layers_has_the_upper_one_behind_it() -> None:
    layers = (Layer("decode", "="), Layer("prefill", "#"))
    rows = stacked_rows([(3, 16), (16, 16), (0, 4), None], layers, 2, UNICODE, cursor_column=2)
    assert rows == [
        (Span("█", "prefill"), Span("█", "decode"), Span(" ", "text", "cursor"), Span(" ")),
        (Span("▃", "decode", "prefill"), Span("█", "decode"), Span("▄", "prefill", "cursor"), Span(" ")),
    ]
    assert stacked_rows([(3, 16), (1, 1)], layers, 2, ASCII) == [
        (Span("#", "prefill"), Span(" ")),
        (Span("#", "prefill"), Span("=", "decode")),
    ]


def test_without_colours_the_layers_are_told_apart_by_their_fills() -> None:
    layers = (Layer("decode", NO_COLOR.bar_decode), Layer("prefill", NO_COLOR.bar_prefill))
    rows = stacked_rows([(8, 16), (16, 16), (3, 16), (1, 1)], layers, 2, NO_COLOR)
    assert ["".join(span.text for span in row) for row in rows] == ["▒█▒ ", "██▒█"]


# Life


TURNS = [Turn(2, "arrived"), Turn(4, "admitted"), Turn(5, "decoding"), Turn(7, "preempted"), Turn(9, "admitted")]


def test_a_life_shows_waits_prefill_decode_and_the_step_of_the_preemption() -> None:
    deeds = deeds_of([*TURNS, Turn(10, "ended")], ScheduledIndex(), "a", 0, 11)
    assert life_glyphs(deeds, UNICODE)[0] == "  ┄┄▓━━▲┄▓✓ "


def test_a_life_that_was_aborted_ends_with_another_mark() -> None:
    chars, roles = life_glyphs(deeds_of([*TURNS, Turn(10, "aborted")], ScheduledIndex(), "a", 8, 11), UNICODE)
    assert (chars, roles) == ("┄▓× ", ["dim", "prefill", "bad", "dim"])


def test_a_running_step_without_a_token_shows_once_its_events_are_known() -> None:
    scheduled = ScheduledIndex()
    assert "nothing" not in deeds_of(TURNS, scheduled, "a", 0, 8)
    scheduled.add(6, [])
    assert deeds_of(TURNS, scheduled, "a", 5, 7) == ["decode", "nothing", "preempted"]
    assert scheduled.first_missing(5, 7) == 5
    assert scheduled.first_missing(6, 6) is None


class ScheduledSteps:
    """Of a timeline what reading ahead needs: who was scheduled in each step."""

    first_step, last_step = 0, 3

    def select_events(self, kinds: object, first_step: int, last_step: int) -> list[tuple[int, list[ev.Event]]]:
        names = [("a", "b"), ("a", "b"), ("b",), ("a", "b")]
        steps: list[list[ev.Event]] = [
            [ev.TokensScheduled(request_ids=ids, num_tokens=(1,) * len(ids))] for ids in names
        ]
        return list(enumerate(steps))[first_step : last_step + 1]


@pytest.mark.parametrize(("request_id", "has_news"), [("a", [False, True, False]), ("b", [False, False, False])])
def test_reading_ahead_has_news_where_a_step_left_the_request_out(request_id: str, has_news: list[bool]) -> None:
    model = TimePage(cast("Timeline", ScheduledSteps()))
    model.turn_page(10)
    model.selected_id = request_id
    found = []
    for is_more in (True, True, False):
        assert model.read_ahead(2) == is_more
        found.append(model.take_new_life())
    assert found == has_news


def test_a_column_of_several_steps_shows_the_rarest_deed() -> None:
    deeds = deeds_of(TURNS, ScheduledIndex(), "a", 0, 9)
    assert by_column(deeds, 5) == ["prefill", "preempted"]
    assert sampled_deeds(TURNS, 0, 9, 5) == ["prefill", "preempted"]


# Lists


def test_a_list_that_fits_has_no_gap() -> None:
    assert head_window(3, 3, None) == [0, 1, 2]
    assert head_window(0, 3, None) == []


def test_the_rest_of_a_list_is_counted_in_its_last_line() -> None:
    assert head_window(10, 4, None) == [0, 1, 2, Gap(7, is_end=True)]
    assert head_window(10, 4, 2) == [0, 1, 2, Gap(7, is_end=True)]


def test_the_head_and_the_selected_row_are_always_seen() -> None:
    assert head_window(100, 6, 50, num_head=1) == [0, Gap(48, is_end=False), 49, 50, 51, Gap(48, is_end=True)]
    assert head_window(100, 6, 99, num_head=1) == [0, Gap(95, is_end=False), 96, 97, 98, 99]


@pytest.mark.parametrize("height", range(1, 9))
@pytest.mark.parametrize("selected", range(12))
def test_a_window_fills_its_height_and_counts_every_row(height: int, selected: int) -> None:
    slots = head_window(12, height, selected, num_head=1)
    assert len(slots) <= height
    assert selected in slots
    if height >= 4:
        assert sum(slot.num_rows if isinstance(slot, Gap) else 1 for slot in slots) == 12


def test_a_long_table_shows_its_head_and_its_last_third() -> None:
    assert head_and_tail(22, 9) == [0, 1, 2, 3, 4, Gap(14, is_end=False), 19, 20, 21]


def test_the_end_of_the_hit_has_a_line_where_it_is_seen() -> None:
    assert table_slots(6, 2, 9, None) == [0, 1, HitEnd(), 2, 3, 4, 5]
    assert table_slots(22, 5, 15, None) == [*range(5), HitEnd(), *range(5, 9), Gap(9, is_end=False), *range(18, 22)]
    assert HitEnd() not in table_slots(100, 50, 15, None)
    assert table_slots(3, 0, 9, None) == [0, 1, 2]


def test_the_waiting_queue_has_its_share_whatever_happens() -> None:
    assert [waiting_height(number, 18, 64) for number in (0, 7, 8, 500)] == [7, 7, 7, 7]
    assert [waiting_height(number, 18, 4) for number in (7, 8, 500)] == [7, 14, 14]


# Pool


def test_the_roomiest_density_that_fits_is_taken() -> None:
    def grid(num_blocks: int, width: int, height: int) -> tuple[int, int, int, int]:
        found = pool_grid(num_blocks, width, height)
        return found.blocks_per_cell, found.cells_per_row, found.cell_columns, found.num_rows

    assert grid(160, 44, 16) == (1, 16, 2, 10)
    assert grid(160, 38, 7) == (1, 32, 1, 5)
    assert grid(32768, 90, 27) == (16, 80, 1, 26)


def test_a_place_on_the_map_is_a_block() -> None:
    grid = PoolGrid(num_blocks=40, blocks_per_cell=1, cells_per_row=16, cell_columns=2, label_columns=3, num_rows=3)
    assert [grid.block_at(0, 3), grid.block_at(0, 4), grid.block_at(1, 5)] == [0, 0, 17]
    assert [grid.block_at(0, 2), grid.block_at(2, 3 + 16), grid.block_at(3, 3), grid.block_at(0, 40)] == [None] * 4


def pool(statuses: list[BlockStatus], changes: dict[int, BlockChange] | None = None) -> PoolView:
    changed = [changes.get(index, BlockChange.NONE) if changes else BlockChange.NONE for index in range(len(statuses))]
    return PoolView(
        step=0,
        block_size=16,
        status=bytes(statuses),
        change=bytes(changed),
        ref_cnt=bytes(12 if status is BlockStatus.SHARED else status is BlockStatus.LIVE for status in statuses),
        num_live=statuses.count(BlockStatus.LIVE),
        num_shared=statuses.count(BlockStatus.SHARED),
        num_cached=statuses.count(BlockStatus.CACHED),
        num_free=statuses.count(BlockStatus.FREE),
        num_new=0,
        num_evicting=0,
        num_hit=0,
        num_released=0,
    )


NULL, FREE, CACHED, LIVE, SHARED = BlockStatus


def test_a_block_shows_its_last_event_else_what_it_is() -> None:
    view = pool([NULL, LIVE, LIVE, SHARED, CACHED, FREE, CACHED, LIVE], {2: BlockChange.NEW, 6: BlockChange.RELEASED})
    grid = PoolGrid(num_blocks=8, blocks_per_cell=1, cells_per_row=8, cell_columns=1, label_columns=2, num_rows=1)
    assert map_lines(view, grid, frozenset({1, 2}), None, UNICODE) == [
        (
            Span("0 ∅", "dim"),
            Span("■", "on-selected", "selected"),
            Span("+", "new", "selected"),
            Span("*", "shared"),
            Span("░", "cached"),
            Span("·", "free"),
            Span("−", "released"),
            Span("■", "live"),
        )
    ]


def test_a_cell_of_many_blocks_shows_the_strongest_event_else_the_live_share() -> None:
    statuses = (
        [LIVE] * 8 + [LIVE] * 2 + [CACHED] * 6 + [CACHED] * 5 + [FREE] * 3 + [FREE] * 8 + [SHARED] * 5 + [FREE] * 3
    )
    view = pool(statuses, {0: BlockChange.RELEASED, 1: BlockChange.EVICTING})
    grid = PoolGrid(num_blocks=40, blocks_per_cell=8, cells_per_row=8, cell_columns=1, label_columns=3, num_rows=1)
    assert map_lines(view, grid, frozenset({33}), None, UNICODE) == [
        (
            Span(" 0 ", "dim"),
            Span("◆", "evict"),
            Span("▂", "live", "cached-tint"),
            Span("░", "cached"),
            Span("·", "free"),
            Span("▄", "on-selected", "selected"),
        )
    ]


def test_a_legend_loses_its_zeros_then_its_names_but_never_a_figure() -> None:
    view = dataclasses.replace(pool([NULL]), num_live=14_658, num_shared=16, num_cached=18_088, num_new=2)
    grid = PoolGrid(num_blocks=1, blocks_per_cell=64, cells_per_row=8, cell_columns=1, label_columns=2, num_rows=1)

    def legend(width: int) -> list[str]:
        return [text(line) for line in legend_lines(view, grid, width, UNICODE, shows_zero=True)]

    assert legend(70)[0] == "■ live 14,658   2+ shared 16   ░ cached 18,088   · free 0"
    assert legend(44) == ["■ live 14,658 2+ shared 16 ░ cached 18,088", "+ new 2   1 cell = 64 blocks"]
    assert legend(30) == ["■ 14,658 2+ 16 ░ 18,088", "+ new 2   1 cell = 64 blocks"]


def test_what_is_next_out_says_what_it_loses() -> None:
    blocks = [NextOut(30, True), NextOut(145, True), NextOut(41, False)]
    assert [text(line) for line in next_out_lines(blocks, 18, 3, UNICODE)] == [
        "next out ◆30 ◆145 ",
        "         ·41 ",
    ]
    assert text(next_out_lines([], 18, 3, UNICODE)[0]) == "next out no block is free"


# Queues and sentences


def running(computed: int, prompt: int, max_tokens: int) -> RunningRow:
    share = StepShare(
        request_id="a", num_tokens=1, num_draft_tokens=0, is_prefill=False, num_computed_before=computed - 1
    )
    return RunningRow(
        request_id="a",
        num_computed_tokens=computed,
        num_tokens=computed + 1,
        num_prompt_tokens=prompt,
        max_tokens=max_tokens,
        share=share,
        num_blocks=1,
        num_new_blocks=0,
    )


def test_a_bar_is_prompt_then_output_then_what_may_come() -> None:
    assert progress(running(75, 50, 50), 10) == (Span("━" * 5, "live"), Span("━" * 3, "decode"), Span("─" * 2, "rule"))
    assert progress(running(25, 50, 50), 10) == (Span("━" * 2, "live"), Span("─" * 8, "rule"))
    assert progress(running(1, 999, 1), 10) == (Span("━", "live"), Span("─" * 9, "rule"))


def sentence(words: str) -> Sentence:
    return Sentence("✗", "refused", say(request("req-1"), " " + words, figure(" 25")))


def test_a_sentence_wraps_whole_or_is_counted() -> None:
    said = [sentence("one two three four five"), sentence("six"), sentence("seven"), sentence("eight")]
    view = sentences_view(said, 24, 4)
    assert [text(line) for line in view.lines] == [
        " ✗ req-1 one two three",
        "   four five 25",
        " ✗ req-1 six 25",
        "   … 2 more, enter to read all",
    ]
    assert view.sentence_of == (0, 0, 1, None)
    assert [text(line) for line in sentences_view(said[:3], 80, 3).lines] == [
        " ✗ req-1 one two three four five 25",
        " ✗ req-1 six 25",
        " ✗ req-1 seven 25",
    ]


# Typed


def parsed(what: str) -> object:
    return parse_goto(what, step=100, first_step=0, last_step=400, num_blocks=160)


def test_what_is_typed_leads_to_steps_times_blocks_and_requests() -> None:
    assert [
        parsed(what)
        for what in ("120", "-20", "+20", "+999", "50%", " 12.5s", "b57", "block 3", "req-7", "r7", "9b57", "12 r7")
    ] == [
        ToStep(120),
        ToStep(80),
        ToStep(120),
        ToStep(400),
        ToStep(200),
        ToTime(12.5),
        ToBlock(57),
        ToBlock(3),
        ToRequest("req-7"),
        ToNumberedRequest(7),
        ToBlock(57, 9),
        ToNumberedRequest(7, 12),
    ]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("401", "there is no step 401: the recording has 0 to 400"),
        ("101%", "101% is beyond the end: 0% to 100%"),
        ("401b1", "there is no step 401: the recording has 0 to 400"),
        ("b160", "there is no block 160: the pool has 0 to 159"),
        (" ", "nowhere to go: type one of 120  +20  -20  50%  12.5s  req-7  r7  b57  120b57"),
    ],
)
def test_what_leads_nowhere_is_answered_with_the_range(what: str, message: str) -> None:
    with pytest.raises(GotoError) as error:
        parsed(what)
    assert error.value.message == message


def test_a_number_stands_for_the_one_request_whose_id_ends_in_it() -> None:
    ids = ["req-7", "req-17", "chat 08", "b9", "a-3", "b-3"]
    assert [numbered(ids, number) for number in (7, 17, 8, 9)] == ["req-7", "req-17", "chat 08", "b9"]
    with pytest.raises(GotoError, match=r"^there is no request whose id ends in 1$"):
        numbered(ids, 1)
    with pytest.raises(GotoError, match=r"^2 requests end in 3, e.g. 'a-3' and 'b-3': type the whole id$"):
        numbered(ids, 3)


def test_ascii_keeps_every_width() -> None:
    line = "■░·∅◆◇●−▲✗✖✓↓→↳▸≈▓━┄╌─│╵…×—“”≤‖◀○ 首都"
    assert to_ascii(line).removesuffix("首都").isascii()
    assert len(to_ascii(line)) == len(line)
