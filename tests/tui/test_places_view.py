"""The pure half of the places why, compare and statistics, in whole values."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kvscope.analysis.detectors import find_all
from kvscope.analysis.stats import read_statistics
from kvscope.analysis.step_difference import StepDifference, step_difference
from kvscope.analysis.why.here import Outlook, Refusal, Refusals, WaitingHere, outlook, waiting_here
from kvscope.tui.view.compare import (
    between_line,
    figure_entries,
    happening_entries,
    pool_lines,
    request_entries,
    steps_line,
)
from kvscope.tui.view.entries import Entry, entries_view, next_jump
from kvscope.tui.view.glyphs import ASCII, UNICODE
from kvscope.tui.view.lines import Line, Span, Target
from kvscope.tui.view.statistics import (
    finding_entries,
    finding_marks,
    histogram_entries,
    latency_entries,
    next_finding,
    run_figures,
    whole_run,
    worst_findings,
)
from kvscope.tui.view.sweep import SweepFigures, sweep_lines
from kvscope.tui.view.why_history import HistoryFacts, history_lines, verdict_glyph
from kvscope.tui.view.why_place import (
    answer_lines,
    behind_entries,
    change_entries,
    holder_entries,
)
from kvscope.tui.view.why_place import (
    test_lines as lines_of_tests,
)
from kvscope.tui.view.window import Window
from tests.builders import scenario
from tests.tui import scenes


def texts(lines: Sequence[Line]) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in lines]


def entry_texts(entries: Sequence[Entry]) -> list[str]:
    return texts([line for entry in entries for line in entry.lines])


# Lists


JUMPS = [Entry(((Span("title"),),))] + [
    Entry(((Span(name),), (Span(f"more of {name}"),)), Target("step", name)) for name in "123"
]


@pytest.mark.parametrize(
    ("current", "offset", "expected"),
    [(-1, 1, 1), (-1, -1, 1), (1, 1, 2), (1, -1, 1), (2, 10, 3), (3, -2, 1), (0, 1, 1), (3, 1, 3)],
)
def test_j_and_k_go_from_jump_to_jump_and_stop_at_the_ends(current: int, offset: int, expected: int) -> None:
    assert next_jump(JUMPS, current, offset) == expected


def test_a_list_without_jumps_is_walked_line_by_line_and_an_empty_one_stays_empty() -> None:
    plain = [Entry(((Span("a"),),)), Entry(((Span("b"),),))]
    assert (next_jump(plain, -1, 1), next_jump(plain, 0, 5), next_jump([], 0, 1)) == (0, 1, -1)


def test_a_list_shows_all_of_the_current_entry_and_counts_what_lies_below() -> None:
    view = entries_view(JUMPS, 1, 20, 4, is_focused=True)
    assert texts(view.lines) == ["title", "1", "more of 1", "… 4 more lines"]
    assert view.entry_of == (0, 1, 1, None)
    assert [line[0].on for line in view.lines] == ["", "row", "row", ""]
    assert texts(entries_view(JUMPS, 2, 20, 4, is_focused=True).lines) == [
        "more of 1",
        "2",
        "more of 2",
        "… 2 more lines",
    ]
    assert texts(entries_view(JUMPS, 3, 20, 4, is_focused=True).lines) == ["2", "more of 2", "3", "more of 3"]
    assert texts(entries_view(JUMPS, 3, 20, 7, is_focused=False).lines)[0] == "title"


# Why
#
# `full_pool`: 32 usable blocks of 4 tokens, a watermark of 1. After step 6 req-1 has computed 41 tokens (11 blocks),
# req-2 40 (10), req-3 31 (8), req-4 30 (8); req-1 and req-2 begin with the same 33 tokens (8 blocks), req-3 and req-4
# with the same 9 (2 blocks). So 11 + 2 + 8 + 6 = 27 are live and 5 are free; req-5 has 31 tokens: 8 blocks.


def waiting(request_id: str) -> tuple[WaitingHere, Outlook]:
    timeline = scenes.full_pool()
    here = waiting_here(timeline, timeline.at(6), request_id)
    found = outlook(timeline, 6, request_id)
    assert here is not None
    assert found is not None
    return here, found


def test_the_answer_has_need_and_have_and_since_when() -> None:
    here, _ = waiting("req-5")
    assert texts(answer_lines(here, 5, 100, 9, is_longer=False)) == [
        " ✗ The pool is 4 blocks short. req-5 needs 8 blocks for all its 31 tokens, the watermark keeps 1",
        "   back, and 5 are free. So it has been for 2 steps, since step 5. It arrived 2 steps ago and is",
        "   first in the queue.",
    ]
    cut = answer_lines(here, 5, 100, 2, is_longer=True)
    assert len(cut) == 2
    assert texts(cut)[1].endswith("…")


def test_behind_the_head_the_answer_says_so_and_then_answers_for_the_head() -> None:
    here, _ = waiting("req-6")
    assert texts(answer_lines(here, 6, 100, 9, is_longer=False)) == [
        " ↳ req-6 is number 2 in the queue, behind req-5; it needs 1+1 blocks itself, and would have fitted.",
        "   It arrived 1 step ago.",
        " ✗ The pool is 4 blocks short. req-5 needs 8 blocks for all its 31 tokens, the watermark keeps 1",
        "   back, and 5 are free. It arrived 2 steps ago and is first in the queue.",
    ]


def test_the_tests_stand_in_their_order_with_need_have_and_setting() -> None:
    here, _ = waiting("req-5")
    assert texts(lines_of_tests(here, 100, UNICODE)) == [
        " ✓ preemptions in this step                  0  = 0",
        " ✓ tokens left in the step                  60  > 0            max_num_batched_tokens 64",
        " ✓ sequences running                         4  < 8            max_num_seqs 8",
        " ○ prefix lookup                      0 tokens",
        " ✗ all its tokens fit                 8 + 1 wm  ≤ 5 free       4 short (scheduler_reserve_full_isl)",
        " · first chunk fits                   8 + 1 wm  ≤ 5 free       not reached; would have failed too",
    ]
    narrow = texts(lines_of_tests(here, 80, UNICODE))
    assert narrow[4] == " ✗ all its tokens fit        8 + 1 wm  ≤ 5 free  4 short"
    assert max(map(len, narrow)) <= 80


def test_holders_say_what_their_end_would_free_and_whether_that_is_enough() -> None:
    here, found = waiting("req-5")
    entries = holder_entries(here, found, 60, UNICODE)
    assert entry_texts(entries) == [
        " request holds  frees             enough  its end",
        " req-1    11  ━━━━━━         3  no      ≤ 18 tokens away",
        " req-2    10  ━━━━           2  no      ≤ 19 tokens away",
        " req-3     8  ━━━━━━━━━━━━   6  enough  ≤ 20 tokens away",
        " req-4     8  ━━━━━━━━━━━━   6  enough  ≤ 21 tokens away",
    ]
    assert [entry.target for entry in entries[1:3]] == [Target("request", "req-1"), Target("request", "req-2")]
    assert "…" in entry_texts(holder_entries(here, None, 60, UNICODE))[1]  # while it is being worked out
    assert max(map(len, entry_texts(holder_entries(here, found, 39, UNICODE)))) <= 39


def test_who_behind_would_have_fitted_and_what_would_admit_the_head_and_the_one_behind() -> None:
    here, found = waiting("req-6")
    assert entry_texts(behind_entries(here, 60, UNICODE)) == [" ✓ req-6  need   1 + 1 ≤ 5  blocked by the head alone"]
    assert entry_texts(change_entries(here, found, 70)) == [
        " num_gpu_blocks                33 → 37  (4 more)",
        " no value of max_num_seqs, max_num_batched_tokens,",
        " long_prefill_token_threshold, scheduler_reserve_full_isl, policy",
        " helps: it needs 8+1wm blocks > 5 free",
        " no value of watermark helps: it needs 8 blocks > 5 free",
        "",
        " and req-6",
        " num_gpu_blocks                33 → 38  (5 more)",
        " no value of max_num_seqs, max_num_batched_tokens,",
        " long_prefill_token_threshold, scheduler_reserve_full_isl, policy",
        " helps: req-5 needs 8+1wm blocks > 5 free",
        " no value of watermark helps: req-5 needs 8 blocks > 5 free",
    ]


def test_sequences_budget_and_preemption_are_answered_in_their_own_words() -> None:
    seqs = scenes.recorded(scenario(blocks=33, seqs=1).request("a", "Why?", reply="So").request("b", "Who?").run(2))
    here = waiting_here(seqs, seqs.at(1), "b")
    assert here is not None
    answer = " ".join(texts(answer_lines(here, 0, 200, 9, is_longer=False)))
    assert answer == (
        " ✗ The only sequence is taken. b would be number 2 (max_num_seqs). So it has been for 2 steps, since step 0. "
        "It arrived 1 step ago and is first in the queue."
    )
    budget = scenes.recorded(scenario(blocks=33, budget=8).request("a", "0123456789").request("b", "Who?").run(1))
    here = waiting_here(budget, budget.at(0), "b")
    assert here is not None
    assert texts(answer_lines(here, 0, 200, 9, is_longer=False)) == [
        " ✗ The step's 8 tokens are used up: a 8 tokens. It arrived in this step and is first in the queue."
    ]
    timeline, step = scenes.preemption()
    here = waiting_here(timeline, timeline.at(step), "req-4")
    assert here is not None
    assert texts(answer_lines(here, step, 200, 1, is_longer=False))[0].startswith(
        " ✗ req-4 was preempted in this step, and a preempting step admits no one."
    )


def test_a_request_that_does_not_wait_has_no_such_answer() -> None:
    timeline = scenes.full_pool()
    assert waiting_here(timeline, timeline.at(6), "req-1") is None
    assert outlook(timeline, 6, "req-1") is None


def test_the_history_has_a_letter_for_each_step_and_red_where_too_little_was_free() -> None:
    timeline = scenes.full_pool()
    refusals = Refusals()
    refusals.read(timeline, 4, 6)
    assert [refusals[step] for step in (3, 4, 5, 6)] == [None, *[Refusal("full_isl", "req-5")] * 3]
    assert (refusals.same_since(6, 4), refusals.same_since(6, 5)) == (4, 5)
    facts = HistoryFacts(
        window=Window(4, 20, 1),
        step=6,
        request_id="req-5",
        deeds=["waits"] * 3,
        refusals=refusals,
        summaries=timeline.summaries(4, 3, 1),
        num_usable_blocks=32,
        need=9,
    )
    lines = history_lines(facts, 80, 1, UNICODE)
    assert texts(lines)[1:3] == ["verdict      ✗✗✗", "               6             ╵20"]
    assert {span.role for span in lines[0][1:]} == {"bad"}  # 9 are needed; 7, 6 and 5 were free
    assert verdict_glyph(Refusal("full_isl", "req-1"), "req-5", UNICODE) == ("↳", "dim")
    assert verdict_glyph(Refusal("max_num_seqs", "req-1"), "req-5", UNICODE) == ("s", "text")
    assert verdict_glyph(Refusal("preempted", None), "req-5", ASCII) == ("P", "dim")


# Compare
#
# `full_pool` from step 2 (three run: 9 + 2 + 7 = 18 blocks) to step 6 (27 blocks, see above).


def difference() -> StepDifference:
    return step_difference(scenes.full_pool(), 2, 6)


def test_what_lies_in_between_waits_while_the_two_states_are_shown() -> None:
    told: list[StepDifference] = []
    step_difference(scenes.full_pool(), 2, 6, told.append)
    words = "reading step 4 of 6 …"
    assert texts([between_line(told[0], 80, words), steps_line(2, 6, 2, told[0], 80)]) == [
        " In between: reading step 4 of 6 …",
        " A  step 2 (marked)   B  step 6   4 steps later",
    ]
    assert entry_texts(happening_entries(told[0], 80, words)) == ["   reading step 4 of 6 …"]
    assert entry_texts(figure_entries(told[0], 44, shows_equal=True)) == entry_texts(
        figure_entries(difference(), 44, shows_equal=True)
    )


def test_figures_that_differ_come_first_and_equal_ones_stand_whole_behind_each_other_for_want_of_rows() -> None:
    assert entry_texts(figure_entries(difference(), 44, shows_equal=True)) == [
        "                          A       B     B−A",
        " live blocks             18      27      +9",
        " shared blocks            8      10      +2",
        " free blocks             14       5      −9",
        " running                  3       4      +1",
        " waiting                  0       2      +2",
        " tokens in step          29       4     −25",
        " prefill tokens          27       0     −27",
        " decode tokens            2       4      +2",
        " cached free blocks       0       0       =",
        " draft tokens             0       0       =",
        " token budget            64      64       =",
        " forward, ms            7.5     7.5       =",
    ]
    assert entry_texts(figure_entries(difference(), 44, shows_equal=False))[-2:] == [
        " = cached free blocks 0, draft tokens 0,",
        "   token budget 64, forward, ms 7.5",
    ]


def test_requests_that_changed_come_first_and_lead_to_their_place() -> None:
    entries = request_entries(difference().requests, 60)
    assert entry_texts(entries) == [
        " ≠ req-4  not arrived → running  +8 blocks  ran 4 steps",
        " ≠ req-5  not arrived → waiting",
        " ≠ req-6  not arrived → waiting",
        "   req-1  running  +1 block  +4 tokens",
        "   req-2  running  +1 block  +4 tokens",
        "   req-3  running  +1 block  +4 tokens",
    ]
    assert entries[0].target == Target("request", "req-4")


def test_the_pool_shows_each_block_against_the_other_step() -> None:
    assert texts(pool_lines(difference(), 60, 6, UNICODE)) == [
        " + taken 9  ~ other owner 2  ■ same 16  · free 5",
        "  0 ∅ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ~ ~ ■ ■ ■ ■ ■ + + + + +",
        " 24 + + + + · · · · ·",
    ]


def test_what_happened_in_between_is_counted_and_told() -> None:
    # Step 3 gives 3 decodes and 19 tokens of req-4's prompt (27, 8 of them hit), each of the three after it 4 decodes.
    found = difference()
    assert texts([between_line(found, 100), between_line(found, 60)]) == [
        " In between: 0 preempted · 1 admitted · 0 resumed · 0 finished · 0 blocks evicted · 8 tokens hit",
        " In between: 1 admitted · 8 tokens hit",
    ]
    assert texts([steps_line(2, 6, 6, found, 90)]) == [
        " A  step 2   B  step 6 (marked)   4 steps, 32 ms, 34 tokens later"
    ]
    entries = happening_entries(found, 80)
    assert entry_texts(entries) == [" 3 ● req-4 admitted at once: 8 tokens hit in 2 blocks of req-3, 19 scheduled"]
    assert entries[0].target == Target("step", "3", "req-4")


# Statistics


def test_latencies_drop_percentiles_before_they_are_cut() -> None:
    found = read_statistics(scenes.full_pool())
    assert len(entry_texts(latency_entries(found, 80))[0].split()) == 8
    narrow = entry_texts(latency_entries(found, 50))
    assert narrow[0].split() == ["ms", "mean", "p50", "p95", "p99", "max", "of"]
    assert max(map(len, narrow)) <= 50
    # Every gap of an unhindered run is one step of 8.1 ms: 6 + 5 + 4 + 3 gaps.
    assert entry_texts(histogram_entries(run_figures(found).gaps, "ns", 60, UNICODE)) == [f" 8.1  18  {'█' * 40}"]


def test_findings_lead_to_their_first_step_and_mark_the_run() -> None:
    timeline, _ = scenes.preemption()
    findings = find_all(timeline)
    assert [finding.first_step for finding in findings] == [20, 30, 40, 21, 35]
    entries = finding_entries(findings, 0, 60)
    assert [entry.target for entry in entries] == [Target("finding", str(number)) for number in range(5)]
    assert entry_texts(entries)[0] == " 20 ▲ req-3 is in a preemption cycle: resumed and preempted"
    assert [next_finding(findings, step, 1) for step in (0, 20, 35, 40)] == [0, 3, 2, None]
    assert [next_finding(findings, step, -1) for step in (66, 35, 20)] == [2, 1, None]
    window = whole_run(0, timeline.last_step, 40)
    assert (window.steps_per_column, window.first_step) == (2, 0)
    marks = texts([finding_marks(findings, window, 0, 13)])[0]
    assert marks == "findings               ▲    ✗ ◆  ✗"


def test_of_many_findings_of_a_kind_the_longest_are_told_and_the_others_counted() -> None:
    findings = find_all(scenes.preemption()[0])
    many = [*findings, *[findings[2]] * 30]
    told, num_more = worst_findings(many)
    assert (len(told), num_more) == (4 - 1 + 25, 7)
    assert entry_texts(finding_entries(told, num_more, 60))[-1] == "   … 7 shorter ones (kvscope stats --findings)"


# What if


def test_a_sweep_has_a_bar_for_each_figure_on_one_scale_a_column() -> None:
    rows = [
        SweepFigures("24", True, False, (30.0, 8.0, 250.0, 6.0), ("30.0", "8.0", "250", "6")),
        SweepFigures("48", False, True, (15.0, None, 500.0, 0.0), ("15.0", "–", "500", "0")),
    ]
    assert texts(sweep_lines(rows, "ns", 80, UNICODE)) == [
        "          TTFT p99 ms       ITL p99 ms       tokens out/s     preempted",
        " 24 *     ━━━━━━━━━━━ 30.0  ━━━━━━━━━━━ 8.0  ━━━━━━      250  ━━━━━━━━━━━ 6",
        " 48 stuck ━━━━━━      15.0                –  ━━━━━━━━━━━ 500              0",
    ]
    assert max(map(len, texts(sweep_lines(rows, "steps", 80, UNICODE)))) <= 80
