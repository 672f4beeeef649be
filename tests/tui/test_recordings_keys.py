"""Several recordings in one screen, by pilot: which step of another is shown, what each keeps, where two part."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from kvscope import events as ev
from kvscope.replay import MemoryTimeline, Replay, open_recording
from kvscope.tui.app import KvscopeApp
from kvscope.tui.recordings import Alignment
from kvscope.tui.screens.divergence import DivergenceScreen
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.request import RequestScreen
from kvscope.tui.screens.why import WhyScreen
from tests.builders import CheckedRun, scenario
from tests.recording.runs import record
from tests.tui import scenes
from tests.tui.test_places_keys import press, shown


def workload(blocks: int = 24, names: str = "req", seqs: int = 4) -> CheckedRun:
    """Four requests that outgrow 23 blocks: with 24 the first preemption is in step 13."""
    built = scenario(blocks=blocks, block_size=4, budget=32, seqs=seqs, scheduler_reserve_full_isl=False)
    for number in range(1, 5):
        prompt = "Tell me a story. " if number % 2 else f"What is {number} plus {number}?"
        built.request(f"{names}-{number}", prompt, reply="Once upon a time there was a block.", at=number - 1)
    return built.run()


def recording(
    name: str, run: CheckedRun, *, started_at: str = "", step_ms: int = 0, first_ms: int = 0
) -> MemoryTimeline:
    """Returns the run as a recording; its step k begins `first_ms + k * step_ms` after the engine's start."""
    timeline = MemoryTimeline(name)
    for step, events in run.sink.steps:
        told: list[ev.Event] = []
        for event in events:
            if isinstance(event, ev.StepStarted):
                event = msgspec.structs.replace(event, time_ns=(first_ms + step * step_ms) * 1_000_000)
            if isinstance(event, ev.EngineConfigured):
                event = msgspec.structs.replace(event, started_at=started_at)
            told.append(event)
        timeline.write_step(step, told)
    timeline.finish()
    return timeline


def screen(*timelines: Replay, step: int | None = None, alignment: Alignment | None = None) -> KvscopeApp:
    return KvscopeApp(timelines[0], others=timelines[1:], alignment=alignment, initial_step=step)


def variants(step: int) -> KvscopeApp:
    """Returns a run and the same one with twice as many blocks."""
    return screen(recording("small.db", workload()), recording("large.db", workload(48)), step=step)


def header(app: KvscopeApp) -> str:
    return shown(app, "#header")


async def test_a_shows_the_next_recording_at_the_same_step_and_the_header_says_which() -> None:
    app = variants(13)
    async with app.run_test(size=(120, 40)) as pilot:
        await scenes.settle(pilot)
        assert header(app).startswith(" kvscope  1 of 2 by step: small.db ")
        assert "preempted" in shown(app, "#step")
        await press(pilot, "a")
        assert header(app).startswith(" kvscope  2 of 2 by step: large.db ")
        assert (app.model.step, app.model.timeline) == (13, app.recordings.all[1])
        assert "preempted" not in shown(app, "#step")
        await press(pilot, "right", "a")
        assert (app.recordings.current, app.model.step) == (0, 14)
        await press(pilot, "A")
        assert (app.recordings.current, app.model.step) == (1, 14)


async def test_each_keeps_its_own_selection_mark_and_way_back() -> None:
    app = variants(10)
    async with app.run_test(size=(120, 40)) as pilot:
        await scenes.settle(pilot)
        app.model.select("req-2")
        await press(pilot, "d", "a")
        assert (app.model.selected_id, app.model.mark_step) == ("req-2", None)  # the request comes along, once
        app.model.select("req-3")
        await press(pilot, "a")
        assert (app.model.selected_id, app.model.mark_step) == ("req-2", 10)
        await press(pilot, "u", "a")  # there is nowhere to go back to in this one
        assert (app.model.selected_id, app.model.step) == ("req-3", 10)


async def test_the_shorter_one_shows_its_last_step_and_the_longer_one_is_found_again_where_it_was() -> None:
    short, long = recording("short.db", workload(48)), recording("long.db", workload())
    assert short.last_step < long.last_step
    app = screen(long, short, step=long.last_step - 1)
    async with app.run_test(size=(120, 40)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "a")
        assert app.model.step == short.last_step
        await press(pilot, "a")
        assert app.model.step == long.last_step - 1


def two_engines() -> tuple[MemoryTimeline, MemoryTimeline]:
    """A prefill engine with a step each 10 ms, and one that was started 95 ms later, with a step each 7 ms."""
    return (
        recording("prefill.db", workload(), started_at="2026-03-01T12:00:00.000+00:00", step_ms=10, first_ms=1),
        recording("decode.db", workload(48), started_at="2026-03-01T14:00:00.095+02:00", step_ms=7, first_ms=1),
    )


async def test_engines_that_ran_together_are_aligned_by_clock() -> None:
    app = screen(*two_engines(), step=13)
    async with app.run_test(size=(120, 40)) as pilot:
        await scenes.settle(pilot)
        assert "1 of 2 by clock: prefill.db" in header(app)
        # Step 13 began at 131 ms; the other's steps begin at 96 + 7k ms: 5 began at 131, 6 at 138.
        await press(pilot, "a")
        assert app.model.step == 5
        # Its step 7 began at 145 ms: there the first engine was in step 14, of 141 ms.
        await press(pilot, "right", "right", "a")
        assert app.model.step == 14
        # Nobody has moved: the other one is where it was left, though its step 6 was the last by 141 ms.
        await press(pilot, "a")
        assert app.model.step == 7


async def test_before_an_engine_has_started_its_first_step_stands_and_that_is_said() -> None:
    app = screen(*two_engines(), step=2)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "a")
        assert app.model.step == 0
        assert [toast.message for toast in app._notifications] == [
            "decode.db begins 0.1 s later: this is its first step"
        ]
        await press(pilot, "a")
        assert app.model.step == 2


async def test_capital_t_aligns_by_step_instead() -> None:
    app = screen(*two_engines(), step=13)
    async with app.run_test(size=(120, 40)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "T", "a")
        assert "2 of 2 by step: decode.db" in header(app)
        assert app.model.step == 13


async def test_what_a_run_was_replayed_to_has_its_clock_and_is_no_other_engine() -> None:
    """`whatif --record` keeps the settings of the run, its start included."""
    began = "2026-03-01T12:00:00.000+00:00"
    one, other = (recording(name, workload(), started_at=began, step_ms=10) for name in ("run.db", "changed.db"))
    assert screen(one, other).recordings.alignment == "step"


async def test_without_a_clock_there_is_no_alignment_by_it() -> None:
    app = variants(3)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "T")
        assert app.recordings.alignment == "step"


@pytest.mark.parametrize(("key", "place"), [("enter", RequestScreen), ("w", WhyScreen)])
async def test_the_place_stays_of_the_same_kind(key: str, place: type[object]) -> None:
    app = variants(13)
    async with app.run_test(size=(120, 40)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, key, "a")
        assert isinstance(app.screen, place)
        assert "kvscope › 2 of 2 › step 13 › req-4" in header(app)
        await press(pilot, "escape")
        assert isinstance(app.screen, MainScreen)


async def test_what_was_looked_for_is_looked_for_in_the_other_one() -> None:
    one = scenes.recorded(scenario().request("a", "where is it", reply="here").run())
    two = scenes.recorded(scenario().request("b", "nothing", reply="it is here").run())
    app = screen(one, two, step=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "slash", *"here", "enter")
        assert [hit.request_id for hit in app.finding.hits] == ["a", "a"]
        await press(pilot, "escape", "a")
        assert [hit.request_id for hit in app.finding.hits] == ["b"]


async def test_one_recording_has_no_other() -> None:
    app = screen(recording("one.db", workload()))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "a", "T", "c")
        assert isinstance(app.screen, MainScreen)
        assert [toast.message for toast in app._notifications] == [
            "one recording is open: kvscope replay A B opens several",
            "one recording is open: there is nothing to align it with",
            "one recording is open: kvscope replay A B opens two to compare",
        ]


# Where two of them part


async def part(pilot: Pilot[None]) -> None:
    await scenes.settle(pilot)
    await press(pilot, "c")


async def test_c_shows_where_they_part_what_each_decided_and_what_it_led_to() -> None:
    app = variants(0)
    async with app.run_test(size=(120, 40)) as pilot:
        await part(pilot)
        runs = shown(app, "#runs")
        assert "Settings: num_gpu_blocks 24 → 48" in runs
        assert "They part in step 13: who got tokens, who was preempted, why admission ended" in runs
        a = " ".join(shown(app, "#side-a").split())
        assert "decided: 3 tokens: 3 others as in the other run; preempted req-4; admission ended by preempted" in a
        assert "from the same queues: running 4; waiting none; 0 free blocks" in a
        assert "▲ req-4 preempted" in a
        b = " ".join(shown(app, "#side-b").split())
        assert "decided: 4 tokens: req-4 1; 3 others as in the other run; admission ended by empty" in b
        assert "preemptions" in shown(app, "#counts")
        assert "req-4" in shown(app, "#pairs")


@pytest.mark.parametrize(
    ("keys", "recording_number", "step", "request_id"),
    [
        (("1",), 0, 13, "req-4"),
        (("2",), 1, 13, "req-4"),
        (("enter",), 0, 13, "req-4"),
        (("tab", "enter"), 1, 13, "req-4"),
    ],
)
async def test_keys_go_into_either_one_where_they_part(
    keys: tuple[str, ...], recording_number: int, step: int, request_id: str
) -> None:
    app = variants(0)
    async with app.run_test(size=(120, 40)) as pilot:
        await part(pilot)
        await press(pilot, *keys)
        assert isinstance(app.screen, MainScreen)
        assert (app.recordings.current, app.model.step) == (recording_number, step)


async def test_a_request_is_gone_to_where_it_first_shows_in_the_one_where_it_does() -> None:
    """B's req-4 comes one sequence later: its first token in A tells it first. An id of B alone leads into B."""
    one = recording("one.db", workload(48))
    two = recording("two.db", workload(48, names="r", seqs=3))
    app = screen(one, two, step=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await part(pilot)
        assert "Matched by content" in shown(app, "#runs")
        await press(pilot, "tab", "tab", "tab", "enter")
        admitted = [
            step
            for step, events in one.select_events((ev.RequestAdmitted,), 0, one.last_step)
            for event in events
            if isinstance(event, ev.RequestAdmitted) and event.request_id == "req-4"
        ]
        assert (app.recordings.current, app.model.step, app.model.selected_id) == (0, admitted[0], "req-4")


async def test_equal_recordings_do_not_part() -> None:
    app = screen(recording("one.db", workload()), recording("two.db", workload()))
    async with app.run_test(size=(80, 24)) as pilot:
        await part(pilot)
        assert "No difference: every step decides the same." in shown(app, "#runs")
        await press(pilot, "1")
        assert isinstance(app.screen, DivergenceScreen)


async def test_of_three_the_first_is_held_against_the_one_that_is_shown_and_a_takes_the_next() -> None:
    app = screen(*(recording(f"{name}.db", workload(blocks)) for name, blocks in (("a", 24), ("b", 48), ("c", 30))))
    async with app.run_test(size=(120, 40)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "a", "a", "c")
        assert "num_gpu_blocks 24 → 30" in shown(app, "#runs")
        await press(pilot, "a")
        assert "num_gpu_blocks 24 → 48" in shown(app, "#runs")


async def test_over_files_both_are_read_beside_the_screen_and_m_matches_otherwise(tmp_path: Path) -> None:
    paths = [
        record(tmp_path / "a.db", workload().sink.steps),
        record(tmp_path / "b.db", workload(names="other").sink.steps),
    ]
    first, second = map(open_recording, paths)
    app = KvscopeApp(first, others=[second], open_timeline=open_recording, initial_step=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await part(pilot)
        assert "Matched by content" in shown(app, "#runs")
        assert "No difference" in shown(app, "#runs")
        await press(pilot, "M")
        assert "Matched by id: 4 only in A, 4 only in B" in shown(app, "#runs")
        assert "They part in step 0" in shown(app, "#runs")
        await press(pilot, "2")
        assert (app.recordings.current, app.model.step, app.model.selected_id) == (1, 0, "other-1")
