"""What every place has in common: the keys of time, of the engine and of leaving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.screen import Screen

from kvscope.tui.closing import ClosesOnce
from kvscope.tui.model import ScreenModel, Selection
from kvscope.tui.view.help import KeyHelp
from kvscope.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class TimeScreen(ClosesOnce[None]):
    """A place with the keys of time. Subclasses compose panels and say what the list keys do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", "one step back", show=False, id="time.back"),
        Binding("right,l", "move(1)", "one step on", show=False, id="time.on"),
        Binding("shift+left,H", "move(-10)", "ten steps back", show=False, id="time.back10"),
        Binding("shift+right,L", "move(10)", "ten steps on", show=False, id="time.on10"),
        Binding("right_square_bracket", "event_on(1)", "one event on, inside the step", show=False, id="time.event_on"),
        Binding("left_square_bracket", "event_on(-1)", "one event back", show=False, id="time.event_back"),
        Binding("right_curly_bracket", "event_on(10)", "ten events on", show=False, id="time.event_on10"),
        Binding("left_curly_bracket", "event_on(-10)", "ten events back", show=False, id="time.event_back10"),
        Binding(
            "left_parenthesis,ctrl+left", "page(-1)", "a page of the timeline back", show=False, id="time.page_back"
        ),
        Binding("right_parenthesis,ctrl+right", "page(1)", "a page of the timeline on", show=False, id="time.page_on"),
        Binding("home,0", "first", "first step", show=False, id="time.first"),
        Binding("end,dollar_sign", "last", "last step, and follow", show=False, id="time.last"),
        Binding("colon", "goto", "go to a step, time, request or block", show=False, id="time.goto"),
        Binding("plus,equals_sign", "zoom(True)", "fewer steps a column", show=False, id="time.zoom_in"),
        Binding("minus", "zoom(False)", "more steps a column", show=False, id="time.zoom_out"),
        Binding("z", "whole_run", "the whole run, and single steps again", show=False, id="time.whole_run"),
        Binding("n", "event(1)", "next event", show=False, id="events.next"),
        Binding("N", "event(-1)", "previous event", show=False, id="events.previous"),
        Binding("e", "event_kinds", "choose the events of n and N", show=False, id="events.kinds"),
        Binding("E", "event_log", "event log, filtered by kind", show=False, id="events.log"),
        Binding("slash", "search", "search: n and N then go to hits", show=False, id="events.search"),
        Binding("f", "event_filter", "only events of the selected request", show=False, id="events.filter"),
        Binding("space", "pause_or_run", "pause or run (replay: play)", show=False, id="engine.pause"),
        Binding("B", "run_back", "run back to a breakpoint", show=False, id="engine.run_back"),
        Binding("full_stop", "engine_step", "one step", show=False, id="engine.step"),
        Binding("less_than_sign", "speed(False)", "play slower", show=False, id="engine.slower"),
        Binding("greater_than_sign", "speed(True)", "play faster", show=False, id="engine.faster"),
        Binding("p,i", "prompt", "type a prompt", show=False, id="engine.prompt"),
        Binding(
            "P", "prompt_settings", "with every prompt: copies, sampling …", show=False, id="engine.prompt_settings"
        ),
        Binding("W", "workloads", "send a workload from the menu", show=False, id="engine.workloads"),
        Binding("R", "restart", "restart with other settings", show=False, id="engine.restart"),
        Binding("x", "abort", "abort the selected request", show=False, id="engine.abort"),
        Binding("j,down", "walk(1)", "next in the list", show=False, id="move.down"),
        Binding("k,up", "walk(-1)", "previous in the list", show=False, id="move.up"),
        Binding("pagedown", "walk(10)", "ten rows down", show=False, id="move.page_down"),
        Binding("pageup", "walk(-10)", "ten rows up", show=False, id="move.page_up"),
        Binding("g", "walk(-1000000)", "first in the list", show=False, id="move.top"),
        Binding("G", "walk(1000000)", "last in the list", show=False, id="move.bottom"),
        Binding("comma", "block(-1)", "previous block", show=False, id="move.block_back"),
        Binding("semicolon", "block(1)", "next block", show=False, id="move.block_on"),
        Binding("enter", "open", "open", show=False, id="look.open"),
        Binding("w", "why", "why: waited, preempted, missed, slow", show=False, id="look.why"),
        Binding("r", "why(True)", "why: its whole life", show=False, id="look.why_life"),
        Binding("d", "compare", "mark step A; again: compare with it", show=False, id="look.compare"),
        Binding("D", "clear_mark", "clear step A", show=False, id="look.clear_mark"),
        Binding("t", "statistics", "findings and statistics of the run", show=False, id="look.statistics"),
        Binding("a", "recording(1)", "another recording, same moment", show=False, id="look.recording"),
        Binding("A", "recording(-1)", "the recording before", show=False, id="look.recording_back"),
        Binding("T", "alignment", "recordings by clock or by step", show=False, id="look.alignment"),
        Binding("c", "divergence", "where two recordings part", show=False, id="look.divergence"),
        Binding("m", "bookmark", "bookmark the step, with a note", show=False, id="keep.bookmark"),
        Binding("apostrophe", "bookmarks", "bookmarks", show=False, id="keep.bookmarks"),
        Binding("b", "breakpoints", "breakpoints", show=False, id="keep.breakpoints"),
        Binding("y", "copy_step", "copy as Markdown: the step, or what is shown", show=False, id="keep.copy"),
        Binding("Y", "copy_command", "copy the command that shows it", show=False, id="keep.copy_command"),
        Binding("question_mark", "help", "all keys", show=False, id="leave.help"),
        Binding("u,backspace", "back", "back: place and step", show=False, id="leave.back"),
        Binding("U", "forward", "forward again", show=False, id="leave.forward"),
        Binding("escape", "leave", "up", show=False, id="leave.up"),
        Binding("q", "quit", "quit", show=False, id="leave.quit"),
    ]

    came_from: Selection | None = None
    """What was selected before a jump led here."""

    IS_ABOUT_ONE: ClassVar[bool] = False
    """It shows the selected request or block: an event that is gone to here selects nobody else."""

    @property
    def more_help(self) -> Sequence[KeyHelp]:
        """Keys that the place hears without bindings of its own, for the help."""
        return ()

    @property
    def kvscope(self) -> KvscopeApp:
        return cast("KvscopeApp", self.app)

    @property
    def model(self) -> ScreenModel:
        return self.kvscope.model

    def show(self) -> None:
        """Brings every panel up to date."""
        with self.kvscope.painter.together():
            for panel in self.query(Panel):
                panel.show()

    def on_screen_resume(self) -> None:
        self.show()

    def action_move(self, num_steps: int) -> None:
        self.kvscope.navigation.move_by(num_steps * self.kvscope.held_key.num_times)

    def action_page(self, direction: int) -> None:
        self.kvscope.navigation.move_by_page(direction)

    def action_event_on(self, num_events: int) -> None:
        self.kvscope.navigation.move_by_events(num_events)

    def action_first(self) -> None:
        self.kvscope.navigation.move_to(self.model.first_step)

    def action_last(self) -> None:
        self.kvscope.navigation.move_to(self.model.last_step)

    def action_zoom(self, is_finer: bool) -> None:
        self.kvscope.navigation.zoom(is_finer=is_finer)

    def action_whole_run(self) -> None:
        self.kvscope.navigation.swap_whole_run()

    def action_goto(self) -> None:
        self.kvscope.navigation.ask_goto()

    def action_event(self, direction: int) -> None:
        self.kvscope.navigation.find_event(direction)

    def action_event_kinds(self) -> None:
        self.kvscope.navigation.choose_event_kinds()

    def action_event_log(self) -> None:
        self.kvscope.places.open_event_log()

    def action_search(self) -> None:
        self.kvscope.finding.ask()

    def action_event_filter(self) -> None:
        self.kvscope.navigation.toggle_event_filter()

    async def action_pause_or_run(self) -> None:
        await self.kvscope.engine.pause_or_run()

    def action_run_back(self) -> None:
        self.kvscope.breakpoints.run(-1)

    async def action_engine_step(self) -> None:
        await self.kvscope.engine.step()

    def action_speed(self, is_faster: bool) -> None:
        self.kvscope.engine.change_speed(is_faster=is_faster)

    def action_prompt(self) -> None:
        self.kvscope.open_prompt()

    def action_prompt_settings(self) -> None:
        self.kvscope.prompting.ask_settings()

    def action_workloads(self) -> None:
        self.kvscope.workloads.open()

    def action_restart(self) -> None:
        self.kvscope.restart.ask()

    def action_abort(self) -> None:
        self.kvscope.engine.ask_abort()

    def action_why(self, of_whole_life: bool = False) -> None:
        self.kvscope.places.open_why(of_whole_life=of_whole_life)

    def action_compare(self) -> None:
        self.kvscope.places.mark_or_compare()

    def action_clear_mark(self) -> None:
        self.kvscope.places.clear_mark()

    def action_statistics(self) -> None:
        self.kvscope.places.open_statistics()

    def action_recording(self, direction: int) -> None:
        self.kvscope.recordings.go_on(direction)

    def action_alignment(self) -> None:
        self.kvscope.recordings.toggle_alignment()

    def action_divergence(self) -> None:
        self.kvscope.places.open_divergence()

    def action_bookmark(self) -> None:
        self.kvscope.notes.ask()

    def action_bookmarks(self) -> None:
        self.kvscope.notes.open()

    def action_breakpoints(self) -> None:
        self.kvscope.breakpoints.open()

    def action_copy_step(self) -> None:
        self.kvscope.answers.copy_step()

    def action_copy_command(self) -> None:
        self.kvscope.answers.copy_command()

    def action_help(self) -> None:
        self.kvscope.key_guide.open_help()

    def action_back(self) -> None:
        self.kvscope.navigation.go_back()

    def action_forward(self) -> None:
        self.kvscope.navigation.go_forward()

    async def action_quit(self) -> None:
        await self.kvscope.engine.ask_quit()

    def action_block(self, offset: int) -> None:
        if self.model.block_id is not None:
            self.model.choose_block(self.model.block_id + offset)
            self.kvscope.show_soon()

    def action_walk(self, num_rows: int) -> None:
        """Moves in the list that has the focus."""

    def action_open(self) -> None:
        """Opens what is selected."""

    def action_leave(self) -> None:
        """Goes up one place; what was selected there is selected again."""
        if self.came_from is not None:
            self.model.bring_back(self.came_from)
        self.close()

    def close(self) -> None:
        """Takes the place away, for good or on the way to where an entry led."""
        self.end()
        self.dismiss()

    def end(self) -> None:
        """Ends what is under way for the place."""


def key_bindings(screen: Screen[object]) -> list[Binding]:
    """Returns the keys of a place, its own before the common ones; a key that it has otherwise is its own alone."""
    found: list[Binding] = []
    taken: set[str] = set()
    for kind in type(screen).__mro__:
        if issubclass(kind, Screen) and kind is not Screen:
            own = [binding for binding in kind.__dict__.get("BINDINGS", []) if isinstance(binding, Binding)]
            found += [binding for binding in own if binding.id and not taken.issuperset(binding.key.split(","))]
            taken.update(key for binding in own for key in binding.key.split(","))
    return found
