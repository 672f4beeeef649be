"""Event by event inside a step, by pilot: `[ ]` walk, the panels show the state as it is there."""

from __future__ import annotations

from textual.pilot import Pilot

from kvscope import events as ev
from kvscope.replay import MemoryTimeline
from kvscope.tui.app import KvscopeApp
from kvscope.tui.view.lines import Line
from tests.tui import scenes
from tests.tui.scenes import settle

SIZE = (120, 40)


def text(line: Line) -> str:
    return "".join(span.text for span in line).rstrip(" ─━")


def title(app: KvscopeApp) -> str:
    """The title of the step panel, without what it says of the keys."""
    return text(app.main_screen.step_panel.lines[0]).split(" ───")[0]


async def walked(pilot: Pilot[None], *keys: str) -> KvscopeApp:
    """Presses the keys and returns the app as it then stands."""
    await settle(pilot)
    await pilot.press(*keys)
    await settle(pilot)
    assert isinstance(pilot.app, KvscopeApp)
    return pilot.app


NEXT, BACK = "right_square_bracket", "left_square_bracket"


async def test_each_event_of_a_preemption_and_what_it_left() -> None:
    """The step of the first preemption: title, words, head of the queue, changes of the pool, the marked sentence."""
    timeline, step = scenes.preemption()
    app = scenes.screen(timeline, step=step)
    seen = []
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(6):
            await walked(pilot, NEXT)
            main = app.main_screen
            marked = [text(line) for line in main.step_panel.lines if line and line[0].text.startswith("▸")]
            queue = " ".join(text(main.queues_panel.lines[2]).split())
            seen.append((title(app), text(main.step_panel.lines[1]), queue, text(main.pool_panel.lines[2]), marked))
    lost = "▸▲ req-4 preempted for req-2, which needed 1 block with 0 free: 5 of 7 blocks freed, "
    lost += "26 tokens thrown away"
    assert seen == [
        (
            "── STEP ─ 13  event 1 of 11: StepStarted",
            " · schedule() began with a budget of 32 tokens",
            "nobody waits",
            "+ new 0 ◆ evicting 0 ● hit 0 − released 0",
            [],
        ),
        (
            "── STEP ─ 13  event 2 of 11: AllocationFailed",
            " ✗ req-2 got no blocks for 1 token while it ran: needs 1 > 0 free (blocks)",
            "nobody waits",
            "+ new 0 ◆ evicting 0 ● hit 0 − released 0",
            [lost],
        ),
        (
            "── STEP ─ 13  event 3 of 11: RequestPreempted",
            " ▲ req-4 preempted for req-2: frees 5 of 7 blocks, 26 tokens lost, back to place 1 of the waiting queue",
            "▸1▲req-4 preempted in this step 0",
            "+ new 0 ◆ evicting 0 ● hit 0 − released 0",
            [lost],
        ),
        (
            "── STEP ─ 13  event 4 of 11: BlockReleased",
            " − req-4 gave back 7 blocks; 1 to the head of the free queue: 22; 4 to its tail: 18 14–12; "
            "2 still held by others: 7 6",
            "▸1▲req-4 preempted in this step 0",
            "+ new 0 ◆ evicting 0 ● hit 0 − released 5",
            [lost],
        ),
        (
            "── STEP ─ 13  event 5 of 11: BlockAllocated",
            " + req-2 took 1 block from the head of the free queue: 22",
            "▸1▲req-4 preempted in this step 0",
            "+ new 1 ◆ evicting 0 ● hit 0 − released 4",
            ["▸+ 1 block taken from the head of the free queue: req-2 22, just freed by the preemption"],
        ),
        (
            "── STEP ─ 13  event 6 of 11: BlockCached",
            " ░ 1 full block of req-3 published for prefix hits: 21, 21 doubles 19",
            "▸1▲req-4 preempted in this step 0",
            "+ new 1 ◆ evicting 0 ● hit 0 − released 4",
            ["▸░ 1 full block published for prefix hits (it doubles one published before): req-3 21"],
        ),
    ]


async def test_the_way_goes_on_into_the_next_step_and_back() -> None:
    timeline, step = scenes.preemption()
    num_events = len(timeline.at(step).events)
    app = scenes.screen(timeline, step=step)
    stops = []
    async with app.run_test(size=SIZE) as pilot:
        for key in (BACK, NEXT, NEXT, BACK, BACK, "left_curly_bracket", BACK):
            await walked(pilot, key)
            stops.append((app.model.step, app.model.walk.number))
    assert stops == [
        (step, num_events),
        (step + 1, 1),
        (step + 1, 2),
        (step + 1, 1),
        (step, num_events),
        (step, max(num_events - 10, 1)),
        (step - 1, len(timeline.at(step - 1).events)) if num_events <= 11 else (step, num_events - 11),
    ]


async def test_leaving_goes_back_to_the_whole_step_and_so_do_the_keys_of_time() -> None:
    timeline, step = scenes.preemption()
    app = scenes.screen(timeline, step=step)
    async with app.run_test(size=SIZE) as pilot:
        await walked(pilot)
        whole = title(app)
        queues = [text(line) for line in app.main_screen.queues_panel.lines]
        await walked(pilot, NEXT, NEXT, "escape")
        assert (title(app), app.model.step, app.model.walk.number) == (whole, step, None)
        assert [text(line) for line in app.main_screen.queues_panel.lines] == queues
        await walked(pilot, NEXT, "left")
        assert (app.model.step, app.model.walk.number) == (step - 1, None)
        await walked(pilot, BACK, "right")
        assert (title(app), app.model.step, app.model.walk.number) == (whole, step, None)


async def test_at_both_ends_of_the_recording_it_stays() -> None:
    app = scenes.screen(scenes.one_request(), step=0)
    async with app.run_test(size=SIZE) as pilot:
        await walked(pilot, NEXT, BACK)
        assert (app.model.step, app.model.walk.number) == (0, 1)
        await walked(pilot, "end", BACK, NEXT)
        assert (app.model.step, app.model.walk.number) == (11, app.model.walk.num_events)
        assert [str(toast.message) for toast in app._notifications] == [
            "no event before this one",
            "no event after this one",
        ]


async def test_inside_a_step_a_growing_recording_is_held() -> None:
    run = scenes.preempting_run()
    timeline = MemoryTimeline("growing.db")
    for step, events in run.sink.steps[:5]:
        timeline.write_step(step, events)
    app = scenes.screen(timeline)
    timeline.refresh = lambda: True  # type: ignore[method-assign]  # a file would be looked at; this one knows
    async with app.run_test(size=SIZE) as pilot:
        await walked(pilot, NEXT)
        timeline.write_step(*run.sink.steps[5])
        app._poll()
        await walked(pilot, NEXT)
        assert (app.model.step, app.model.walk.number) == (4, 2)
        await walked(pilot, "end")
        assert (app.model.step, app.model.walk.number, app.model.is_following) == (5, None, True)


async def test_u_comes_back_to_the_event() -> None:
    timeline, step = scenes.preemption()
    app = scenes.screen(timeline, step=step)
    async with app.run_test(size=SIZE) as pilot:
        await walked(pilot, NEXT, NEXT, NEXT, "colon", *"0", "enter", "u")
        assert (app.model.step, app.model.walk.number) == (step, 3)


async def test_an_event_that_cannot_be_true_leaves_the_whole_step_standing() -> None:
    """A step whose first events are lost: the state before it does not fit; the whole one came from a checkpoint."""
    timeline = MemoryTimeline("damaged.db")
    run = scenes.preempting_run()
    for step, events in run.sink.steps[:3]:
        kept = [event for event in events if step != 2 or not isinstance(event, ev.RequestArrived)]
        timeline.write_step(step, kept)
    app = scenes.screen(timeline, step=1)
    async with app.run_test(size=SIZE) as pilot:
        await walked(pilot, BACK, NEXT)
        assert app.model.step == 1
        assert app.model.error.startswith("step 2: ")


async def test_the_blocks_of_the_event_lie_on_its_background() -> None:
    """The victim's blocks, as it gives them back; none are marked for the event before, which names no block."""
    timeline, step = scenes.preemption()
    app = scenes.screen(timeline, step=step)
    async with app.run_test(size=SIZE) as pilot:
        seen = []
        for order in ("", "v"):
            await walked(pilot, "escape", *order, NEXT, NEXT, NEXT)
            seen.append(on_background(app))
            await walked(pilot, NEXT)
            seen.append(on_background(app))
        assert seen == [[], [6, 7, 12, 13, 14, 18, 22]] * 2


def on_background(app: KvscopeApp) -> list[int]:
    """Returns the blocks that lie on the event's background."""
    panel = app.main_screen.pool_panel
    found = []
    for row, line in enumerate(panel.lines):
        column = 0
        for span in line:
            cells = range(column, column + len(span.text))
            found += [panel.block_at(row, cell) for cell in cells if span.on == "cursor"]
            column += len(span.text)
    return sorted(block_id for block_id in found if block_id is not None)
