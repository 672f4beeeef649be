"""Every place over every kind of recording, in both sizes: a table of what is opened and what a reviewer should see.

The main screen has its pictures in `test_snapshots`; first ones of some places lie in `test_places_pictures` and
`test_finding_pictures`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from kvscope.replay import MemoryTimeline
from kvscope.tui.app import KvscopeApp
from tests.builders import scenario
from tests.tui import scenes

Compare = Callable[..., Any]
Scene = Callable[[], MemoryTimeline]

NARROW, ROOMY = (80, 24), (120, 40)
BOTH = (NARROW, ROOMY)


def preemption() -> MemoryTimeline:
    return scenes.preemption()[0]


def larger_pool() -> MemoryTimeline:
    """The run of `preemption` with blocks enough for all."""
    return named("larger.db", scenes.recorded(scenes.preempting_run(blocks=48)))


def hostile_queue() -> MemoryTimeline:
    """Two requests with escape sequences and markup in their ids: one runs, the other one waits for its sequence."""
    built = scenario(blocks=33, seqs=1)
    for request_id in ("[b]one[/b]\x1b[7m", "[red]two\x1b]0;x\x07"):
        built.request(request_id, "[bold]\x1b[31mWho[/]\r\n\tis it?", reply="\x1b[2J[/][@click=app.quit]x[/]")
    return scenes.recorded(built.run(9))


def wide_queue() -> MemoryTimeline:
    """As the last, with ids and texts of two cells a character."""
    built = scenario(blocks=33, seqs=1)
    for request_id in ("请求-1", "質問🗼-2"):
        built.request(request_id, "法国的首都是哪里?フランスの首都は?", reply="首都是巴黎。🗼 👩‍💻 e\u0301")
    return scenes.recorded(built.run(12))


def named(name: str, timeline: MemoryTimeline) -> MemoryTimeline:
    timeline.path = Path(name)
    return timeline


@dataclass(frozen=True)
class Shot:
    """A place over a recording."""

    name: str
    scene: Scene
    keys: Sequence[str]
    see: str
    """What a reviewer should see."""
    step: int | None = None
    mark: int | None = None
    """Step A; by key it would be said for some seconds, in the picture or not."""
    other: Scene | None = None
    """A second recording."""
    typed: str = ""
    """What is put into the line that the keys have opened, and sent."""
    sizes: Sequence[tuple[int, int]] = field(default=BOTH)

    def app(self) -> KvscopeApp:
        others = [] if self.other is None else [self.other()]
        app = KvscopeApp(self.scene(), others=others, initial_step=self.step)
        if self.mark is not None:
            app.model.mark(self.mark)
        return app

    async def open(self, pilot: Pilot[None]) -> None:
        await scenes.settle(pilot)
        for key in self.keys:
            await pilot.press(key)
            await pilot.app.workers.wait_for_complete()
            await scenes.settle(pilot)
        if self.typed:
            line = pilot.app.screen.query_one(Input)
            line.value = self.typed
            await pilot.press("enter")
            await pilot.app.workers.wait_for_complete()
        await scenes.settle(pilot)
        for line in pilot.app.screen.query(Input):
            line.cursor_blink = False


SHOTS = (
    # A request
    Shot("request one", scenes.one_request, ["enter"], "one request's blocks with their text, a life of one wait"),
    Shot("request waits", scenes.full_pool, ["enter"], "req-5 waits: no block, its verdict, its whole prompt to come"),
    Shot("request preempted", preemption, ["enter"], "▲ in the life, what was lost; no block now", step=13),
    Shot("request failed", scenes.failed_step, ["enter"], "it runs when the step fails", sizes=[NARROW]),
    Shot("request of 256", scenes.many_requests, ["G", "enter"], "the last runner; every figure whole", sizes=[NARROW]),
    Shot("request wide", scenes.wide_text, ["enter"], "the text column straight behind characters of two cells"),
    Shot("request hostile", scenes.hostile_text, ["enter"], "␛ ⏎ ⇥ and markup as typed, in id, prompt and table"),
    # A block
    Shot("block shared", scenes.full_pool, ["colon"], "block 1: shared by three, its holders", typed="b1"),
    Shot("block of 256", scenes.many_requests, ["colon"], "one of 2,047, held by one", typed="b300", sizes=[NARROW]),
    Shot("block wide", scenes.wide_text, ["colon"], "its text in Chinese, nothing ragged", typed="b2", sizes=[NARROW]),
    Shot("block hostile", scenes.hostile_text, ["colon"], "the id and the text as they are", typed="b2"),
    # Why
    Shot("why of 256", scenes.many_requests, ["w"], "the head of 192: 64 of 64 sequences run, who ends soonest"),
    Shot("why failed", scenes.failed_step, ["w"], "a request of the step that failed", sizes=[NARROW]),
    Shot("why hostile", hostile_queue, ["w"], "waits for a sequence; ids shown, not obeyed"),
    Shot("why wide", wide_queue, ["w"], "ids of two cells a character, columns straight"),
    Shot("life one", scenes.one_request, ["r"], "a life without a wait", sizes=[NARROW]),
    Shot("life preempted", preemption, ["r"], "waits, preemption, hits, worst gaps", step=50, sizes=[NARROW]),
    Shot("life of 256", scenes.many_requests, ["r"], "a wait behind others, tables cut to what fits", sizes=[NARROW]),
    Shot("life wide", wide_queue, ["r"], "wide ids in sentences and tables", sizes=[NARROW]),
    Shot("life hostile", hostile_queue, ["r"], "hostile ids in sentences and tables", sizes=[NARROW]),
    # Compare
    Shot("compare preemption", preemption, ["d"], "before and after the first preemption", step=14, mark=12),
    Shot("compare 256", scenes.many_requests, ["d"], "several blocks a cell, 256 requests", step=4, mark=1),
    Shot("compare failed", scenes.failed_step, ["d"], "the step that failed is B", mark=0, sizes=[NARROW]),
    Shot("compare hostile", hostile_queue, ["d"], "hostile ids among the requests and in sentences", mark=0),
    Shot("compare wide", wide_queue, ["d"], "wide ids, columns straight", mark=0, sizes=[NARROW]),
    Shot("compare itself", scenes.one_request, ["d"], "step A alone: what to do", mark=11, sizes=[NARROW]),
    # Search
    Shot("search 256", scenes.many_requests, ["slash"], "many hits, more below", typed="time", step=0),
    Shot("search hostile", scenes.hostile_text, ["slash"], "what was found in bold, nothing obeyed", typed="[", step=0),
    Shot("search nothing", scenes.one_request, ["slash"], "no hit, and all was read", typed="pool", sizes=[NARROW]),
    Shot("search error", scenes.one_request, ["slash"], "no regular expression", typed="/(/", sizes=[NARROW]),
    # Statistics and what if
    Shot("statistics one", scenes.one_request, ["t"], "nothing stands out", sizes=[NARROW]),
    Shot("statistics full", scenes.full_pool, ["t"], "requests that have not ended", sizes=[NARROW]),
    Shot("statistics figures", preemption, ["t", "tab"], "the figures in a narrow terminal", sizes=[NARROW]),
    Shot("statistics 256", scenes.many_requests, ["t"], "figures of 256 requests, none of which has ended"),
    Shot("statistics failed", scenes.failed_step, ["t"], "a run that failed", sizes=[NARROW]),
    Shot("statistics hostile", hostile_queue, ["t"], "ids in findings as they are", sizes=[ROOMY]),
    Shot("sweep", preemption, ["t", "o"], "four pool sizes, a bar each", typed="num_gpu_blocks=18,24,32,48"),
    Shot("sweep error", preemption, ["t", "o"], "a setting that is none", typed="num_gpu_blok=1,2", sizes=[NARROW]),
    # What opens above a place
    Shot("breakpoints none", scenes.one_request, ["b"], "how a condition looks", sizes=[NARROW]),
    Shot("breakpoints one", scenes.one_request, ["b"], "one, turned on", typed="free_blocks < 4", sizes=[ROOMY]),
    Shot("goto", scenes.one_request, ["colon"], "what can be typed"),
    Shot("goto error", scenes.hostile_text, ["colon"], "no such request", typed="[b]x[/b]", sizes=[NARROW]),
    Shot("event kinds", preemption, ["e"], "kinds with their marks and digits", sizes=[NARROW]),
    Shot("sentences", preemption, ["1", "enter"], "all decisions of the step", step=13, sizes=[NARROW]),
    Shot("help", scenes.one_request, ["question_mark"], "legend and keys, more below", sizes=[NARROW]),
    Shot("help why", scenes.full_pool, ["w", "question_mark"], "the keys of why before the common ones", sizes=[ROOMY]),
    Shot("help ends", scenes.one_request, ["question_mark", "G"], "the end of the keys", sizes=[NARROW]),
    # Several recordings
    Shot("second recording", preemption, ["a"], "2 of 2, and its name", step=13, other=larger_pool),
    Shot("recordings", preemption, ["c"], "step 13: A preempts, B does not; what it led to", other=larger_pool),
    Shot("recordings equal", preemption, ["c"], "no difference anywhere", other=preemption, sizes=[NARROW]),
    Shot("recordings ended", scenes.one_request, ["c"], "one shares nothing", other=scenes.full_pool, sizes=[NARROW]),
    Shot("recordings hostile", hostile_queue, ["c"], "hostile ids of B alone", other=wide_queue),
    Shot("recordings empty", preemption, ["c"], "B has no step: said in a line", other=scenes.empty, sizes=[NARROW]),
)  # fmt: skip


def taken() -> Iterator[Any]:
    for shot in SHOTS:
        for columns, rows in shot.sizes:
            yield pytest.param(shot, (columns, rows), id=f"{shot.name.replace(' ', '-')}-{columns}x{rows}")


@pytest.mark.parametrize(("shot", "size"), taken())
def test_place(snap_compare: Compare, shot: Shot, size: tuple[int, int]) -> None:
    """See the table."""
    assert snap_compare(shot.app(), terminal_size=size, run_before=shot.open)


EMPTY_KEYS = ("enter", "w", "r", "d", "t", "m", "apostrophe", "b", "c", "e", "slash", "colon", "question_mark")


@pytest.mark.parametrize("key", EMPTY_KEYS)
async def test_every_key_may_be_pressed_before_there_is_a_step(key: str) -> None:
    app = scenes.screen(scenes.empty())
    async with app.run_test(size=NARROW) as pilot:
        await scenes.settle(pilot)
        await pilot.press(key)
        await app.workers.wait_for_complete()
        await scenes.settle(pilot)
        assert app.is_running
