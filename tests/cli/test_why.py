"""The command: what it prints fits 80 columns, and what a user can get wrong is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvscope.analysis.text import cell_width
from kvscope.analysis.why import explain
from kvscope.analysis.why.layout import as_text
from kvscope.analysis.why.report import report
from kvscope.cli.main import app
from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.errors import KvscopeError
from kvscope.session.simulation import simulate
from tests.analysis.reading import read
from tests.builders import scenario
from tests.cases import cases


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("cases")
    found = {}
    for name, case in cases().items():
        found[name] = folder / f"{name}.db"
        simulate(parse_scenario({"workload": case["workload"]}), recording=found[name])
    return found


def _run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["why", *map(str, arguments)], catch_exceptions=False, standalone_mode=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("name", sorted(cases()))
def test_every_answer_fits_80_columns(name: str, recordings: dict[str, Path]) -> None:
    texts = [_run(recordings[name])]
    for request in cases()[name]["workload"]["requests"]:
        texts.append(_run(recordings[name], request["id"]))
        texts.append(_run(recordings[name], request["id"], "--step", request["arrival_step"]))
    for text in texts:
        assert max(map(cell_width, text.splitlines())) <= 80
        assert "\x1b" not in text


def test_the_text_of_a_heavy_head(recordings: dict[str, Path]) -> None:
    lines = _run(recordings["c17_heavy_head"], "heavy", "--step", 5).splitlines()
    assert lines[:13] == [
        "· heavy: 70 prompt tokens, 4 of at most 4 sampled; arrived at step 2; ended at",
        "  step 20 (length)",
        "· At step 5 it waits; the step computes 3 of 64 tokens",
        "✗ Not admitted: it needed 18 blocks for all its tokens, 8 were free",
        "",
        "THE ADMISSION TESTS AT STEP 5, IN THE ORDER IN WHICH THEY RUN",
        "     test                     need  have  setting",
        "  ✓  preemptions in the step     0     0",
        "  ✓  tokens left in the step     1    61  max_num_batched_tokens",
        "  ✓  sequences, with it          4     8  max_num_seqs",
        "  ✓  requests ahead of it        0     0  policy",
        "  ✓  prefix lookup                     0  tokens hit",
        "  ✗  all its tokens fit         18     8  scheduler_reserve_full_isl",
    ]
    assert "  l0          2     8  held up by those ahead alone" in "\n".join(lines)


def test_json_is_one_line_with_the_same_figures(recordings: dict[str, Path]) -> None:
    text = _run(recordings["c17_heavy_head"], "heavy", "--step", 5, "--json")
    assert text.count("\n") == 1
    answer = json.loads(text)
    assert answer["at"]["doing"] == "waiting"
    assert answer["waiting"]["instant"]["step"] == 5
    run = json.loads(_run(recordings["c17_heavy_head"], "--json"))
    assert [row["kind"] for row in run["findings"]] == [
        "head_of_line_blocking",
        "long_prefill_among_decoders",
        "hits_lost_to_eviction",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("heavi",), "the recording has no request 'heavi'; 7 are there, e.g. heavy"),
        (("heavy", "--step", "1"), "heavy did not live at step 1: it arrived at step 2, ended at step 20"),
        (("--step", "1"), "--step looks at one request: name it, as in `kvscope why FILE REQUEST --step 7`"),
    ],
)
def test_what_a_user_can_get_wrong(arguments: tuple[str, ...], message: str, recordings: dict[str, Path]) -> None:
    with pytest.raises(KvscopeError) as caught:
        _run(recordings["c17_heavy_head"], *arguments)
    assert caught.value.message == message


def test_control_characters_in_ids_are_shown_not_obeyed(tmp_path: Path) -> None:
    workload = {
        "config": {"num_gpu_blocks": 8, "block_size": 4, "max_num_batched_tokens": 16, "max_num_seqs": 1},
        "requests": [
            {
                "id": name,
                "arrival_step": 0,
                "prompt_token_ids": [1, 2, 3],
                "max_tokens": 3,
                "output_token_ids": [4, 5, 6],
            }
            for name in ("\x1b[31mred\n", "waits")
        ],
    }
    simulate(parse_scenario(workload), recording=tmp_path / "ids.db")
    assert "␛[31mred⏎" in _run(tmp_path / "ids.db", "waits")
    assert "\x1b" not in _run(tmp_path / "ids.db", "\x1b[31mred\n")


def test_a_prompt_that_may_not_be_cut_waits_for_tokens_not_for_blocks() -> None:
    """a takes 6 of 8 tokens; b, uncut, needs 4, next gets 7; c would have fitted, d not."""
    made = scenario(budget=8, enable_chunked_prefill=False).request("a", "aaaaaa", reply="12")
    run = made.request("b", "bbbb", reply="1").request("c", "cc", reply="1").request("d", "ddd", reply="1").run()
    with_b = as_text(report(explain(read(run), "b"))).splitlines()
    assert with_b[3:7] == [
        "WHY",
        "✗ waited 1 step (step 0): it needed 4 tokens in one piece, 2 were left; 7 tokens",
        "  of the next step were left for it: admitted at step 1",
        "↳ meanwhile c (0) would have fitted",
    ]
    start = with_b.index("WHO BEHIND IT WOULD HAVE FITTED AT STEP 0")
    assert with_b[start + 2 : start + 4] == [
        "  ✓  c           1    29  held up by those ahead alone",
        "  ✗  d           1    29  its prompt is longer than the tokens left",
    ]


def test_the_words_on_what_let_it_in_and_on_who_ran_meanwhile(recordings: dict[str, Path]) -> None:
    """A place in the batch let HIGH in, not the blocks that lowB gave back; priorities are told with the names."""
    assert _run(recordings["c10_priority_inversion"], "HIGH").splitlines()[3:8] == [
        "WHY",
        "✗ waited 10 steps (steps 4–13): every one of 3 sequences taken (max_num_seqs);",
        "  lowB finished at step 13 and left its place in the batch: admitted at step 14",
        "▲ Priority inversion in steps 4–13: lowB, lowA and lowC of lower priority (4–7)",
        "  ran and sampled 30 tokens",
    ]
    assert "WHO RUNS, AT STEP 13" in _run(recordings["c10_priority_inversion"], "HIGH").splitlines()
    assert "WHO HOLDS WHAT IT WAITS FOR, AT STEP 13" in _run(recordings["c17_heavy_head"], "heavy").splitlines()
    assert _run(recordings["c10_priority_inversion"], "lowD").splitlines()[4:9] == [
        "✗ waited 18 steps (steps 2–19): behind HIGH, which found every one of 3",
        "  sequences taken (max_num_seqs), and 8 other steps: every sequence was taken;",
        "  lowA and HIGH finished at step 19 and left their places in the batch; mid went",
        "  before it: admitted at step 20; overtaken by HIGH",
        "▲ Priority inversion in steps 2–19: lowC of lower priority (7) ran and sampled",
    ]
    assert _run(recordings["c10_priority_inversion"]).splitlines()[:7] == [
        "WHAT STANDS OUT",
        "▲ lowD (priority 5) waited while less urgent ones ran for 18 steps (2–19): lowC",
        "  (7) sampled 18 tokens",
        "▲ mid (priority 4) waited while less urgent ones ran for 15 steps (5–19): lowA",
        "  and lowC (5–7) sampled 30 tokens",
        "▲ HIGH (priority 0) waited while less urgent ones ran for 10 steps (4–13): lowB,",
        "  lowA and lowC (4–7) sampled 30 tokens",
    ]


def test_the_words_on_a_cycle_and_on_steps_that_are_no_run(recordings: dict[str, Path]) -> None:
    assert _run(recordings["c09_preempt_cycle"], "c5").splitlines()[3:11] == [
        "WHY",
        "▲ In a cycle: 4 times resumed and preempted again; these runs computed 76 tokens",
        "  a second time and gained 21 tokens; with the last resumption 94 were computed",
        "  twice",
        "✗ Preempted, then waited 10 steps (steps 50–59): it needed 12 blocks for all its",
        "  tokens, 7–11 were free, and 1 other step: a preempting step admits no one; A",
        "  and B finished at step 59 and gave 34 blocks back: resumed at step 60 with 41",
        "  free, of which it took 12",
    ]
    assert "▲ Preempted again after it was resumed; that run computed" in _run(recordings["c09_preempt_cycle"], "x")
    assert _run(recordings["c09_preempt_cycle"]).splitlines()[1:8] == [
        "▲ c5 is in a preemption cycle: resumed and preempted again 4 times, 94 tokens",
        "  computed twice",
        "▲ x was preempted again after it was resumed, 70 tokens computed twice",
        "✗ c5 held up the queue for 21 steps (between 13 and 59) in which late and x",
        "  would have fitted",
        "✗ x held up the queue for 18 steps (5–9, 28–31, 39–47) in which late would have",
        "  fitted",
    ]


def test_whom_a_long_prefill_kept_company_and_whom_waiting(recordings: dict[str, Path]) -> None:
    lines = _run(recordings["c12_long_prefill"], "long").splitlines()
    start = lines.index("BESIDE ITS PREFILL")
    assert lines[start + 1 : start + 10] == [
        "  request  shared  steps  no budget  steps",
        "  d0            3  3–5            -",
        "  d1            6  3–8            -",
        "  d2            9  3–11           -",
        "  d3            9  3–11           -",
        "  d4            9  3–11           -",
        "  d5            1  11             6  5–10",
        "  d6            1  11             3  8–10",
        "  no budget: it waited while the budget of these steps was used up",
    ]


def test_the_words_on_what_is_alike_behind_a_difference() -> None:
    run = scenario(blocks=64, block_size=4).request("Ann", "to Ann: be kind to me.", reply="xx")
    lines = as_text(report(explain(read(run.request("Bob", "to Robert: be kind to us.", at=3).run()), "Bob")))
    assert lines.splitlines()[3:10] == [
        "WHY",
        "○ Admitted at step 3: 0 of 25 tokens hit; it shares 3 tokens with Ann, less than",
        "  one block",
        "  first other token: token 3 (block 0, place 3), 82 against 65: “to Robert”",
        "  against “to Ann: b” of Ann",
        "  behind it 13 tokens on end are alike (3 blocks), but no block hits behind a",
        "  difference: what differs would have to stand behind them",
    ]
