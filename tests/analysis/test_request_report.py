"""A request as text to take along, line by line."""

from __future__ import annotations

from kvscope.analysis.request_report import request_report
from kvscope.analysis.text import cell_width
from tests.analysis.reading import read
from tests.analysis.runs import preempting
from tests.tui import scenes


def test_a_request_that_was_preempted() -> None:
    assert request_report(read(preempting()), 2, "b") == [
        "REQUEST b  preempted after step 2",
        "5 prompt tokens, 1 of at most 3 generated, 0 computed; 0 blocks; arrived at step",
        "0; 1 preemption, 5 tokens lost; priority 0; sampling greedy",
        "prompt: “ijklm”",
        "",
        "0 ↓ arrived with 5 prompt tokens",
        "0 → admitted at once: no hit, 5 scheduled",
        "0 ━ first token",
        "1 ▲ b preempted for a, which needed 1 block with 0 free: 2 of 2 blocks freed, 5",
        "    tokens thrown away",
        "2 ✗ refused: need 2 > 1 free",
    ]


def test_wide_characters_and_escape_sequences_keep_the_width() -> None:
    for timeline, request_id in ((scenes.wide_text(), "请求-1"), (scenes.hostile_text(), "[b]req[/b]\x1b[7m")):
        lines = request_report(timeline, timeline.last_step, request_id, 40)
        assert max(map(cell_width, lines[1:])) <= 40
        assert all(line.isprintable() for line in lines)
