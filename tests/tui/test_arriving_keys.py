"""Who arrives at something finds selected whom it is about, so that `w` speaks of it; the footer; what `y` takes."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from kvscope import events as ev
from kvscope.control import EngineStatus
from kvscope.tui.app import KvscopeApp
from kvscope.tui.screens.block import BlockScreen
from kvscope.tui.screens.divergence import DivergenceScreen
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.request import RequestScreen
from kvscope.tui.view.events import EventKind, subjects
from kvscope.tui.view.header import footer_line
from kvscope.tui.widgets.lines_view import LinesView
from tests.tui import scenes
from tests.tui.scenes import FakeEngine, live_screen, settle
from tests.tui.test_recordings_keys import variants

FINISHED = ev.RequestFinished(request_id="a", reason="length", num_output_tokens=3)
HIT = ev.PrefixCacheHit(request_id="b", num_hit_tokens=8, num_own_hit_tokens=0, block_ids=(1, 2))
EVICTED = ev.BlockEvicted(request_id="c", block_ids=(7, 5), block_hashes=(1, 2))
PREEMPTED = [
    ev.RequestPreempted(
        request_id=victim,
        beneficiary_id="c",
        num_table_blocks=2,
        num_freed_blocks=2,
        num_lost_tokens=7,
        num_returned_tokens=0,
        queue_position=0,
    )
    for victim in ("d", "e")
]


@pytest.mark.parametrize(
    ("kinds", "about"),
    [
        ({"preempted", "hit", "finished", "evicted"}, [("d", None), ("e", None)]),
        ({"hit", "finished", "evicted"}, [("b", None)]),
        ({"finished", "evicted"}, [("a", None)]),
        ({"evicted"}, [("c", 7)]),
        ({"failed", "stalled"}, []),
    ],
)
def test_a_step_is_about_those_of_its_rarest_kind(kinds: set[EventKind], about: list[tuple[str, int | None]]) -> None:
    assert subjects([FINISHED, EVICTED, HIT, *PREEMPTED], kinds) == about


async def pressed(pilot: Pilot[None], *keys: str) -> KvscopeApp:
    await pilot.press(*keys)
    await pilot.app.workers.wait_for_complete()
    await settle(pilot)
    assert isinstance(pilot.app, KvscopeApp)
    return pilot.app


async def test_n_selects_the_victim_and_w_speaks_of_it() -> None:
    """The first two preemptions of the run: of req-4, then of req-3."""
    app = scenes.screen(scenes.preemption()[0], step=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressed(pilot, "e", "0", "2", "escape", "n")
        assert (app.model.step, app.model.selected_id) == (13, "req-4")
        await pressed(pilot, "w")
        assert "req-4 was preempted in this step" in shown(app, "#answer")
        await pressed(pilot, "escape", "n")
        assert (app.model.step, app.model.selected_id) == (20, "req-3")
        await pressed(pilot, "N")
        assert (app.model.step, app.model.selected_id) == (13, "req-4")


async def test_a_place_about_one_request_stays_with_it() -> None:
    app = scenes.screen(scenes.preemption()[0], step=12)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressed(pilot, "e", "0", "2", "escape", "colon", *"req-1", "enter", "enter", "n")
        assert isinstance(app.screen, RequestScreen)
        assert (app.model.step, app.model.selected_id) == (34, "req-1")  # its own end, not the preemption of another


async def test_goto_chooses_the_last_block_that_the_request_has_then() -> None:
    """The block was chosen from the table of the step before the jump."""
    app = scenes.screen(scenes.preemption()[0], step=60)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressed(pilot, "colon", *"4r1", "enter")
        assert app.model.moment is not None
        table = app.model.moment.state.requests["req-1"].block_ids
        assert (app.model.step, app.model.selected_id, app.model.block_id) == (4, "req-1", table[-1])


async def test_a_hit_on_an_event_chooses_its_block() -> None:
    app = scenes.screen(scenes.preemption()[0], step=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressed(pilot, "slash", *"event:BlockEvicted", "enter", "escape", "n")
        hit = app.finding.hits[0]
        assert app.model.moment is not None
        evicted = next(event for event in app.model.moment.events if isinstance(event, ev.BlockEvicted))
        assert (app.model.step, app.model.selected_id, app.model.block_id) == (
            hit.step,
            evicted.request_id,
            evicted.block_ids[0],
        )


async def test_what_happened_to_a_block_selects_the_request_of_it() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await pressed(pilot, "colon", "b", "7", "enter", "g", "j", "j", "enter")
        assert isinstance(app.screen, BlockScreen)
        assert (app.model.step, app.model.selected_id, app.model.block_id) == (1, "req-2", 7)


# What is copied


async def test_the_place_of_two_recordings_copies_where_they_part() -> None:
    app = variants(20)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressed(pilot, "c", "Y")
        assert isinstance(app.screen, DivergenceScreen)
        assert app.clipboard == "kvscope diff small.db large.db"
        await pressed(pilot, "M", "y")
        lines = app.clipboard.splitlines()
        assert "kvscope diff small.db large.db --match id" in lines[0]
        assert any("They part in step 13" in line for line in lines)
        assert any(line.startswith(" ▲ req-4 preempted for req-2") for line in lines)
        await pressed(pilot, "1")
        assert isinstance(app.screen, MainScreen)
        assert (app.model.step, app.model.selected_id) == (13, "req-4")  # whom A preempted where they part


# The footer


def footer(app: KvscopeApp) -> str:
    return " ".join(shown(app, "#footer").split())


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        (80, "← → step n N event space play ⏎ open w why t findings / find q quit ? help"),
        (
            120,
            "← → step n N event f filter e kinds space play ⏎ open w why t findings / find : go to q quit ? help",
        ),
    ],
)
async def test_the_footer_names_what_opens_most_answers(columns: int, keys: str) -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=(columns, 30)) as pilot:
        await settle(pilot)
        assert footer(app) == keys


def test_keys_that_yield_make_room_for_those_behind_them() -> None:
    keys = [("a", "first"), ("b", "second"), ("c", "third"), ("?", "help")]

    def told(width: int) -> str:
        return "".join(span.text for span in footer_line(keys, width, yielding=(1, 0))).strip()

    assert [told(width) for width in (80, 30, 17, 8)] == [
        "a first b second c third ? help",
        "a first c third ? help",
        "c third ? help",
        "? help",
    ]


def shown(app: KvscopeApp, panel: str) -> str:
    lines = app.screen.query_one(panel, LinesView).lines
    return "\n".join("".join(span.text for span in line) for line in lines)


async def test_a_search_in_vain_leaves_n_to_events() -> None:
    app = scenes.screen(scenes.preemption()[0], step=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressed(pilot, "slash", *"zzz", "enter", "escape", "n")
        assert (app.model.step, app.finding.is_target) == (2, False)  # the first hit


@pytest.mark.parametrize(
    ("step", "question"),
    [
        (0, " req-4 has not arrived at step 0: it does at step 3"),
        (12, " req-4 decodes 1 token at step 12"),
        (14, " Why req-4 is waiting at step 14"),
        (66, " req-4 ended at step 66 (length)"),
    ],
)
async def test_what_is_asked_is_said_in_one_phrase(step: int, question: str) -> None:
    app = scenes.screen(scenes.preemption()[0], step=step)
    async with app.run_test(size=(120, 40)) as pilot:
        app.model.select("req-4")
        await pressed(pilot, "w")
        assert shown(app, "#answer").splitlines()[0].rstrip() == question


@pytest.mark.parametrize(
    ("columns", "hint"), [(80, "type a prompt: enter sends it, esc leaves"), (120, "← → are time")]
)
async def test_the_hint_of_the_prompt_is_not_cut(columns: int, hint: str) -> None:
    app = live_screen(FakeEngine(EngineStatus(phase="idle", recording="scene.db")), [scenes.one_request()])
    async with app.run_test(size=(columns, 30)) as pilot:
        await settle(pilot)
        await pressed(pilot, "p")
        placeholder = app.main_screen.prompt.placeholder
        assert str(placeholder).endswith(hint)
        assert len(str(placeholder)) < app.main_screen.prompt.size.width
