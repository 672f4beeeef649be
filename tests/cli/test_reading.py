"""`kvscope show`, `dump`, `events` and what the command line itself says."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kvscope import events as ev
from kvscope.replay.dump import dump_steps
from kvscope.state import EngineState
from tests.cli.command_line import CommandLine
from tests.golden import golden_runs
from tests.recording.runs import Steps, golden_steps, record

STEPS: Steps = golden_steps("s20_cancel", "scenarios")
LAST = len(STEPS) - 1


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    record(tmp_path / "run.db", STEPS)
    return CommandLine(tmp_path, monkeypatch, capsys)


def lines(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_dump_prints_the_golden_runs_fields(kvscope: CommandLine) -> None:
    outcome = kvscope("dump", "run.db")
    assert (outcome.exit_code, outcome.err) == (0, "")
    assert lines(outcome.out) == golden_runs("scenarios")["s20_cancel"]["trace"]["steps"]


def test_dump_of_some_steps_is_a_part_of_the_whole(kvscope: CommandLine) -> None:
    whole = kvscope("dump", "run.db").out.splitlines()
    for begin, end in ((3, 5), (LAST, LAST), (0, 0)):
        assert (
            kvscope("dump", "run.db", "--from", str(begin), "--to", str(end)).out.splitlines() == whole[begin : end + 1]
        )


def test_dump_without_checkpoints_is_byte_for_byte_the_same(kvscope: CommandLine) -> None:
    before = kvscope("dump", "run.db").out
    connection = sqlite3.connect("run.db")
    assert connection.execute("DELETE FROM checkpoints").rowcount > 0
    connection.commit()
    connection.close()
    assert kvscope("dump", "run.db").out == before
    assert lines(before) == json.loads(json.dumps(list(dump_steps(STEPS))))


def test_show_says_what_a_step_decided(kvscope: CommandLine) -> None:
    outcome = kvscope("show", "run.db", "--step", "8")
    assert outcome.exit_code == 0
    assert outcome.out.startswith("STEP 8  2 of 16 tokens")
    assert "WAITING 1" in outcome.out
    record = json.loads(kvscope("show", "run.db", "--step", "8", "--json").out)
    assert (record["step"], record["num_scheduled_tokens"], record["token_budget"]) == (8, 2, 16)
    assert [row["request_id"] for row in record["running"]] == ["r", "k"]


def test_show_without_a_step_shows_the_last(kvscope: CommandLine) -> None:
    assert kvscope("show", "run.db").out == kvscope("show", "run.db", "--step", str(LAST)).out


def test_show_of_a_request_after_a_step(kvscope: CommandLine) -> None:
    record = json.loads(kvscope("show", "run.db", "--step", "8", "--request", "p", "--json").out)
    assert (record["request_id"], record["status"], record["num_preemptions"]) == ("p", "PREEMPTED", 1)
    kinds = [event["kind"] for event in record["events"]]
    assert kinds == ["AllocationFailed", "RequestPreempted", "BlockReleased", "RequestBlocked"]
    text = kvscope("show", "run.db", "--step", "7", "--request", "p").out.splitlines()
    table = next(line.split()[1:] for line in text if line.startswith("block_ids"))
    state = EngineState()
    for step, events in STEPS[:8]:
        state.apply_step(step, events)
    assert list(map(int, table)) == state.requests["p"].block_ids


def test_events_of_a_kind(kvscope: CommandLine) -> None:
    expected = [(step, event) for step, events in STEPS for event in events if isinstance(event, ev.RequestAborted)]
    assert len(expected) > 1
    for spelling in ("RequestAborted", "requestaborted", "request_aborted"):
        found = lines(kvscope("events", "run.db", "--kind", spelling, "--json").out)
        assert [(row["step"], row["request_id"], row["status"]) for row in found] == [
            (step, event.request_id, event.status) for step, event in expected
        ]
    step, event = expected[0]
    first = kvscope("events", "run.db", "--kind", "RequestAborted").out.splitlines()[0]
    assert first.split() == [
        str(step),
        "RequestAborted",
        f"request_id={event.request_id}",
        f"status={event.status}",
        "during_execution=false",
    ]


def test_events_of_a_request_are_those_that_name_it(kvscope: CommandLine) -> None:
    found = lines(kvscope("events", "run.db", "--request", "p", "--from", "4", "--to", "9", "--json").out)
    expected = [
        (step, type(event).__name__)
        for step, events in STEPS[4:10]
        for event in events
        if "p" in (getattr(event, "request_id", None), getattr(event, "beneficiary_id", None))
        or "p" in getattr(event, "request_ids", ())
    ]
    assert [(row["step"], row["kind"]) for row in found] == expected
    both = lines(kvscope("events", "run.db", "--request", "p", "--kind", "RequestPreempted", "--json").out)
    assert [row["step"] for row in both] == [8]


def test_all_events_are_printed_in_order(kvscope: CommandLine) -> None:
    found = lines(kvscope("events", "run.db", "--json").out)
    assert [(row["step"], row["kind"]) for row in found] == [
        (step, type(event).__name__) for step, events in STEPS for event in events
    ]


def test_control_characters_are_shown_and_not_obeyed(kvscope: CommandLine) -> None:
    name = "evil\x1b[31m\n"
    arrived = ev.RequestArrived(
        request_id=name, prompt_token_ids=(1,), max_tokens=1, arrival_time=0.0, queue_position=0, prompt="a\x1b[2Jb"
    )
    record(kvscope.folder / "evil.db", [(0, [*STEPS[0][1][:1], arrived, ev.StepStarted(step=0, token_budget=4)])])
    for arguments in (("show",), ("show", "--request", name), ("events",)):
        outcome = kvscope(arguments[0], "evil.db", *arguments[1:])
        assert outcome.exit_code == 0
        assert "\x1b" not in outcome.out
        assert "evil␛[31m" in outcome.out
    assert json.loads(kvscope("show", "evil.db", "--request", name, "--json").out)["request_id"] == name


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("show", "nothing.db"), 3, "there is no file nothing.db"),
        (("show", "."), 3, ". is a folder; name a recording in it"),
        (("show", "run.db", "--step", "99"), 3, f"there is no step 99 in run.db: it has steps 0 to {LAST}"),
        (("show", "run.db", "--step", "-1"), 3, f"there is no step -1 in run.db: it has steps 0 to {LAST}"),
        (("show", "run.db", "--request", "q"), 3, "run.db has no request q; the nearest is "),
        (("dump", "run.db", "--from", "5", "--to", "4"), 2, "steps 5 to 4 are not a part of run.db"),
        (("dump", "run.db", "--to", "99"), 2, f"it has steps 0 to {LAST}"),
        (("events", "run.db", "--kind", "PrefixHit"), 2, "no kind of event PrefixHit; did you mean PrefixCacheHit?"),
        (("events", "run.db", "--request", "\x1b[1m"), 3, "has no request ␛[1m"),
        (("show", "run.db", "--stpe", "1"), 2, "No such option: --stpe"),
        (("show", "run.db", "--step", "one"), 2, "Invalid value for '--step'"),
        (("shw", "run.db"), 2, "No such command 'shw'. Did you mean 'show'?"),
        (("dump",), 2, "Missing argument 'file'"),
    ],
)
def test_each_mistake_is_one_line(
    kvscope: CommandLine, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    outcome = kvscope(*arguments)
    assert (outcome.exit_code, outcome.out) == (exit_code, "")
    assert outcome.err.startswith("kvscope: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_file_that_is_no_recording(kvscope: CommandLine) -> None:
    (kvscope.folder / "notes.txt").write_text("a text\n" * 100)
    for command in ("show", "dump", "events"):
        outcome = kvscope(command, "notes.txt")
        assert (outcome.exit_code, outcome.out) == (3, "")
        assert outcome.err == (
            "kvscope: notes.txt is no recording of kvscope, or is damaged: file is not a database; "
            "give a file made with kvscope run --record FILE, or a copy that is whole\n"
        )


def test_the_version(kvscope: CommandLine) -> None:
    outcome = kvscope("--version")
    assert (outcome.exit_code, outcome.err) == (0, "")
    assert outcome.out.startswith("kvscope 0.")


def test_a_reader_that_has_seen_enough_is_no_error(kvscope: CommandLine) -> None:
    program = "from kvscope.cli.main import main; main()"
    command = f"'{sys.executable}' -c '{program}' dump run.db | head -c 20"
    ended = subprocess.run(["bash", "-c", command], cwd=kvscope.folder, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ('{"step":0,"arrived":', "")


def test_reading_commands_load_no_engine(kvscope: CommandLine) -> None:
    program = (
        "import sys; from kvscope.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'textual', 'tokenizers') if name in sys.modules], file=sys.stderr)"
    )
    for command in (["show", "run.db"], ["dump", "run.db"], ["events", "run.db"], ["--help"]):
        ended = subprocess.run(
            [sys.executable, "-c", program, *command], cwd=kvscope.folder, capture_output=True, text=True, check=True
        )
        assert ended.stderr == "[]\n"
