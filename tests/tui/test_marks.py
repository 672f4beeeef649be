"""Findings and bookmarks on the timeline: where they stand, what they say, how they are gone to, when they are read."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot

from kvscope.analysis.finding import Finding
from kvscope.analysis.spans import Sentence, say
from kvscope.events import Event, RequestPreempted
from kvscope.recording import Recorder
from kvscope.replay import open_recording
from kvscope.replay.bookmarks import Bookmark, Bookmarks
from kvscope.replay.timeline import Timeline
from kvscope.tui import markers
from kvscope.tui.app import KvscopeApp
from kvscope.tui.desk import QuestionLeft
from kvscope.tui.view.glyphs import ASCII, UNICODE
from kvscope.tui.view.layout import TimelineLayout
from kvscope.tui.view.lines import Line
from kvscope.tui.view.marks import Marks, mark_sentences, next_mark
from kvscope.tui.view.timeline import TimelineFacts, timeline_lines
from kvscope.tui.view.window import Window
from tests.tui import scenes
from tests.tui.scenes import settle
from tests.tui.test_keys import shown


@pytest.fixture(autouse=True)
def detectors(no_detectors: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The detectors read what they do for a user."""
    monkeypatch.setattr(markers, "MAX_STEPS", 20_000)


STORM = Path(__file__).parents[2] / "recordings" / "preemption_storm.db"


def found(step: int, last_step: int, words: str) -> Finding:
    return Finding(
        kind="starvation",
        first_step=step,
        last_step=last_step,
        num_steps=last_step - step + 1,
        request_ids=("a",),
        figures={},
        sentence=Sentence("✗", "stalled", say(words)),
    )


MARKS = Marks(
    findings=[found(5, 9, "a starved"), found(9, 12, "b starved"), found(9, 30, "c starved")],
    bookmarks=[Bookmark(step=9, note="look\there"), Bookmark(step=14)],
)


def axis(
    step: int, *, steps_per_column: int = 1, marks: Marks = MARKS, is_ascii: bool = False, gutter: int = 19
) -> str:
    """Returns the last row of a timeline of 40 columns."""
    state = scenes.one_request().at(0).state
    facts = TimelineFacts(
        window=Window(0, 40, steps_per_column),
        summaries=(),
        state=state,
        step=step,
        selected_id=None,
        life="",
        life_roles=(),
        marks=marks,
    )
    rows = TimelineLayout(token_rows=3, block_rows=3, mark_rows=2, life_rows=0, gutter=gutter)
    return shown([timeline_lines(facts, rows, gutter + 40, ASCII if is_ascii else UNICODE)[-1]])


def test_marks_stand_on_the_axis_and_are_counted_in_the_gutter() -> None:
    assert axis(30) == "1 step/col   §3 ⚑2 ╵0   §   ⚑    ⚑     ╵20      30         "
    assert axis(30, is_ascii=True) == "1 step/col   @3 B2 ╵0   @   B    B     ╵20      30         "


def test_a_mark_under_the_cursor_stands_in_front_of_its_step() -> None:
    assert axis(9) == "1 step/col   §3 ⚑2 ╵0   §  ⚑9    ⚑     ╵20                 "
    assert axis(5) == "1 step/col   §3 ⚑2 ╵0  §5   ⚑    ⚑     ╵20                 "


def test_a_number_of_the_axis_gives_way_to_a_mark_and_is_not_mixed_with_it() -> None:
    marks = Marks(findings=[found(21, 21, "x")])
    assert axis(35, marks=marks) == "1 step/col      §1 ╵0                  ╵§            35    "
    assert axis(35, marks=Marks()) == "1 step/col         ╵0                  ╵20           35    "


def test_marks_of_several_steps_a_column_and_a_long_zoom() -> None:
    assert axis(150, steps_per_column=5) == "5 steps/col  §3 ⚑2 ╵⚑⚑                 ╵100     150        "
    assert axis(0, steps_per_column=500, gutter=16).startswith("×500      §3 ⚑2 ⚑0 ")


def test_what_is_noted_is_said_where_the_cursor_stands() -> None:
    def told(first: int, last: int) -> list[tuple[str, str]]:
        return [(sentence.glyph, sentence.text) for sentence in mark_sentences(MARKS, first, last, UNICODE)]

    assert told(4, 4) == []
    assert told(5, 5) == [("§", "a starved")]
    assert told(9, 9) == [("⚑", "Bookmark: look⇥here"), ("§", "b starved; 1 more finding here, see the statistics")]
    assert told(10, 14) == [("⚑", "Bookmark at step 14")]


@pytest.mark.parametrize(
    ("step", "direction", "kinds", "to"),
    [
        (0, 1, {"finding"}, 5),
        (5, 1, {"finding"}, 9),
        (9, 1, {"finding"}, None),
        (9, 1, {"finding", "bookmark"}, 14),
        (14, -1, {"finding", "bookmark"}, 9),
        (5, -1, {"finding"}, None),
        (0, 1, {"hit"}, None),
    ],
)
def test_the_next_mark(step: int, direction: int, kinds: set[str], to: int | None) -> None:
    assert next_mark(MARKS, step, direction, kinds) == to  # type: ignore[arg-type]


# On the screen


def over(path: Path, step: int = 0) -> KvscopeApp:
    return KvscopeApp(open_recording(path), open_timeline=open_recording, initial_step=step)


@pytest.fixture
def storm(tmp_path: Path) -> Path:
    return Path(shutil.copy(STORM, tmp_path / "storm.db"))


async def until_read(pilot: Pilot[None], app: KvscopeApp) -> None:
    """Waits until the detectors have read the recording to its end, however busy the machine is."""
    timeline = app.model.timeline
    assert timeline is not None
    while app.markers.known(timeline.path, timeline.last_step) is None:
        app.markers.look()
        await pilot.pause(0.01)
    await settle(pilot)


def last_line(lines: list[Line]) -> str:
    return shown(lines[-1:])


async def test_the_detectors_mark_the_timeline_by_themselves_and_n_goes_from_one_to_the_next(storm: Path) -> None:
    app = over(storm)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_read(pilot, app)
        axis = last_line([*app.main_screen.timeline_panel.lines])
        assert axis.startswith("1 step/col     §25 ")
        window = app.model.window
        assert window is not None
        begun = {finding.first_step for finding in app.model.marks.findings}
        assert {window.first_step + index for index, char in enumerate(axis[19:]) if char == "§"} == {
            step for step in begun if step in window
        }
        await pilot.press("e", *"123467", "escape")
        assert app.navigation.targets.kinds == {"finding"}
        steps = []
        for key in ("n", "n", "n", "N"):
            await pilot.press(key)
            await app.workers.wait_for_complete()
            await settle(pilot)
            steps.append(app.model.step)
        assert steps == [*sorted(begun)[:3], sorted(begun)[1]] == [4, 59, 60, 59]
        told = shown(app.main_screen.step_panel.lines).splitlines()
        assert told[1].startswith(" ▲ req-8 preempted for req-3"), "what the step did comes before what it means"
        place = next(index for index, line in enumerate(told) if line.startswith(" §"))
        assert told[place].startswith(" § req-8 was preempted again after it was resumed, 88 tokens computed twice")
        assert {line[1] for line in told[1:place]} <= {"▲", "✗", " "}


async def test_a_bookmark_stands_on_the_timeline_as_soon_as_it_is_set_and_goes_with_it(storm: Path) -> None:
    Bookmarks(storm).put(20, "of another screen")
    app = over(storm, step=30)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_read(pilot, app)
        assert last_line([*app.main_screen.timeline_panel.lines]).startswith("×1    §25 ⚑1 ")
        await pilot.press("m", *"here", "enter")
        await settle(pilot)
        assert last_line([*app.main_screen.timeline_panel.lines]).startswith("×1    §25 ⚑2 ")
        assert shown(app.main_screen.step_panel.lines).splitlines()[1] == " ⚑ Bookmark: here"
        await pilot.press("e", *"123468", "escape", "N")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert app.model.step == 20
        await pilot.press("apostrophe", "x", "escape")
        await settle(pilot)
        assert [mark.step for mark in app.model.marks.bookmarks] == [30]


async def test_the_statistics_have_what_the_detectors_have_read_and_the_other_way_round(
    storm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = counted(monkeypatch)
    app = over(storm)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_read(pilot, app)
        await pilot.press("t")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert reads == ["storm.db"]
        assert "1 found, enter jumps" in shown(app.screen.query_one("#findings").lines)  # type: ignore[attr-defined]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list that grows with each reading; the detectors then find one thing."""
    reads: list[str] = []

    def find(timeline: Timeline) -> list[Finding]:
        reads.append(timeline.path.name)
        return [found(timeline.first_step, timeline.last_step, f"read to {timeline.last_step}")]

    monkeypatch.setattr(markers, "find_all", find)
    return reads


async def test_a_long_recording_is_read_only_when_the_statistics_are_asked_for(
    storm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = counted(monkeypatch)
    monkeypatch.setattr(markers, "MAX_STEPS", 463)
    app = over(storm)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        app.markers.look()
        await pilot.press("e", *"123467", "escape", "n")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert (reads, app.model.marks) == ([], Marks())
        assert [note.message for note in app._notifications] == [
            "no event of the chosen kinds after step 0: the detectors read 464 steps only where they are asked to: t"
        ]
        await pilot.press("t")
        while not app.model.marks.findings:
            await pilot.pause(0.01)
        assert len(app.model.marks.findings) == 25


async def test_a_growing_recording_is_read_again_when_it_has_grown_by_a_part_and_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = counted(monkeypatch)
    monkeypatch.setattr(markers, "MIN_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(markers, "NUM_RESTS", 0)
    monkeypatch.setattr("kvscope.tui.app.POLL_SECONDS", 1e6)  # looked for by hand
    steps = list(scenes.preempting_run().sink.steps)
    path = tmp_path / "run.db"
    recorder = Recorder(path)
    recorder.write_step(*steps[0])
    while not path.exists() or open_recording(path).last_step < 0:
        time.sleep(0.01)
    app = over(path, step=0)
    seen = []
    async with app.run_test(size=(120, 40)) as pilot:
        while app.markers._under_way is not None:
            await pilot.pause(0.01)
        assert reads == ["run.db"]
        for end in (20, 21, 22, 23, 30, 31):
            for step, events in steps[app.model.last_step + 1 : end]:
                recorder.write_step(step, events)
            while app.model.last_step < end - 1:
                app.model.poll()
                await pilot.pause(0.01)
            app.markers.look()
            while app.markers._under_way is not None:
                await pilot.pause(0.01)
            await pilot.pause()
            seen.append((end, len(reads), app.model.marks.findings[0].last_step))
        recorder.close()
        app.model.poll()
        await until_read(pilot, app)
        seen.append((31, len(reads), app.model.marks.findings[0].last_step))
    assert seen == [(20, 2, 19), (21, 2, 19), (22, 3, 21), (23, 3, 21), (30, 4, 29), (31, 4, 29), (31, 5, 30)]


async def test_leaving_the_screen_ends_the_detectors_at_their_next_look(
    storm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the process would stay until they had read it all."""
    begun, ended = threading.Event(), threading.Event()

    def find(timeline: Timeline) -> list[Finding]:
        begun.set()
        try:
            while True:
                timeline.at(timeline.first_step)
        except QuestionLeft:
            ended.set()
            raise

    monkeypatch.setattr(markers, "find_all", find)
    app = over(storm)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        app.markers.look()
        while not begun.is_set():
            await pilot.pause(0.01)
    assert ended.wait(30)


async def test_detectors_that_fail_leave_the_screen_as_it_is(storm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(timeline: Timeline) -> list[Finding]:
        raise ZeroDivisionError("of [b]nothing[/b]")

    monkeypatch.setattr(markers, "find_all", find)
    app = over(storm)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        app.markers.look()
        while app.markers._under_way is not None:
            await pilot.pause(0.01)
        await pilot.press("right")
        await settle(pilot)
        assert app.model.step == 1
        assert [note.message for note in app._notifications] == [
            "the detectors failed: ZeroDivisionError: of [b]nothing[/b]"
        ]


def test_the_detectors_rest_in_between_and_while_keys_are_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(now[0])
        now[0] += seconds

    monkeypatch.setattr("kvscope.tui.markers.time.monotonic", lambda: now[0])
    monkeypatch.setattr("kvscope.tui.markers.time.sleep", rest)
    timeline = markers.PatientTimeline(scenes.one_request(), lambda: 0.1 <= now[0] < 0.5)
    for _ in range(16):
        timeline.at(0)
        now[0] += 0.002
    disturbed = [at for at in rests if 0.1 <= at < 0.5]
    assert now[0] == pytest.approx(16 * 0.002 + 0.02 * len(rests))
    assert len(disturbed) == 20
    assert [round(at, 3) for at in rests if at < 0.1] == [0.006, 0.032, 0.058, 0.084]


def test_the_detectors_never_read_many_steps_before_they_look_whether_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = scenes.preemption()[0]
    read: list[tuple[int, int]] = []
    events, select_events = memory.events, memory.select_events

    def noted(first: int, last: int) -> Iterator[tuple[int, Sequence[Event]]]:
        read.append((first, last))
        return events(first, last)

    monkeypatch.setattr(memory, "events", noted)
    timeline = markers.PatientTimeline(memory, lambda: False)
    assert list(timeline.events(3, 1_000)) == list(events(3, 1_000))
    assert read == [(3, 18), (19, 34), (35, 50), (51, 66)]
    kinds = (RequestPreempted,)
    assert list(timeline.select_events(kinds, 3, 40)) == list(select_events(kinds, 3, 40))


async def test_a_reading_that_has_not_begun_when_the_screen_is_left_does_not_begin(
    storm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = counted(monkeypatch)
    asked = threading.Event()
    app = over(storm)

    def open_late(path: Path) -> Timeline:
        asked.set()
        while not app.markers._is_closed:
            time.sleep(0.01)
        return open_recording(path)

    monkeypatch.setattr(app.markers, "_open_timeline", open_late)
    async with app.run_test(size=(120, 40)) as pilot:
        while not asked.is_set():
            await pilot.pause(0.01)
    assert reads == []


async def test_n_goes_to_what_comes_first_an_event_or_a_mark(storm: Path) -> None:
    Bookmarks(storm).put(70, "")
    app = over(storm, step=59)
    app.navigation.targets.kinds = {"preempted", "bookmark"}
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        steps = []
        for key in ("n", "n", "n", "N", "N", "N"):
            await pilot.press(key)
            await app.workers.wait_for_complete()
            await settle(pilot)
            steps.append(app.model.step)
        assert steps == [70, 73, 89, 73, 70, 59]
