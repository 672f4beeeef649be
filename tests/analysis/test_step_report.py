"""A step as 80 columns of text, and as data."""

from __future__ import annotations

import json

from kvscope.analysis.step_report import step_record, step_report
from kvscope.analysis.text import cell_width
from tests.analysis.reading import read
from tests.analysis.runs import preempting
from tests.builders import scenario


def test_a_step_as_text() -> None:
    assert step_report(read(preempting()), 2) == [
        "STEP 2  1 of 16 tokens = 1×1 decode + 15 left",
        "",
        "✗ b not admitted: needs 2 blocks (all its tokens), 1 is free; 1 block of its hit",
        "  lies in the free queue and costs as much as a new one; 1 behind it, c would",
        "  fit",
        "✓ a finished (length), 3 tokens: 3 blocks given back; 2 still hittable",
        "= 15 of 16 tokens unused while 2 waited: no room for b, and nobody behind the",
        "  head is tried",
        "",
        "WAITING 2                                                           steps waited",
        "   1▲ b  need 2 > 1 free                                                       1",
        "   2  c  ↳ need 1 fits                                                         1",
        "",
        "RUNNING 0",
        "",
        "POOL 4 blocks × 4 tokens",
        "  ■ live 0   2+ shared 0   ░ cached 3   · free 1",
        "  + new 0   ◆ evicting 0   ● hit 0   − released 3",
        "  next out ·4 ◆3 ◆2 ◆1",
    ]


def test_a_step_as_data() -> None:
    record = step_record(read(preempting()), 1)
    assert json.loads(json.dumps(record)) == record
    assert {name: record[name] for name in ("step", "token_budget", "num_scheduled_tokens")} == {
        "step": 1,
        "token_budget": 16,
        "num_scheduled_tokens": 1,
    }
    assert record["scheduled"] == [
        {"request_id": "a", "num_tokens": 1, "num_draft_tokens": 0, "kind": "decode", "num_computed_before": 8}
    ]
    assert record["decisions"][0] == {
        "glyph": "▲",
        "about": "preempted",
        "text": "b preempted for a, which needed 1 block with 0 free: 2 of 2 blocks freed, 5 tokens thrown away",
    }
    assert [(row["request_id"], row["failed_test"], row["fits"]) for row in record["waiting"]] == [
        ("b", "preempted", False),
        ("c", None, True),
    ]
    assert record["running"] == [
        {
            "request_id": "a",
            "num_computed_tokens": 9,
            "num_tokens": 10,
            "num_prompt_tokens": 8,
            "max_tokens": 3,
            "num_scheduled_tokens": 1,
            "num_blocks": 3,
            "num_new_blocks": 1,
        }
    ]
    assert record["pool"] == {
        "num_usable_blocks": 4,
        "num_live_blocks": 3,
        "num_shared_blocks": 0,
        "num_cached_free_blocks": 1,
        "num_free_blocks": 1,
        "num_new_blocks": 1,
        "num_evicted_blocks": 0,
        "num_hit_blocks": 0,
        "num_released_blocks": 1,
        "next_out": [3],
    }


def test_no_line_is_wider_than_asked_and_ids_are_shown_safely() -> None:
    run = scenario(seqs=40, blocks=200, budget=200)
    for index in range(45):
        run.request(f"日本語\x1b[31m-{index}", "abcdefgh" * 3, reply="xyz")
    lines = step_report(read(run.run(2)), 0)
    assert max(map(cell_width, lines)) <= 80
    assert not any("\x1b" in line for line in lines)
    assert "      … 20 more" in lines
