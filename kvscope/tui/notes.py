"""Bookmarks with notes: set at the step, listed, gone to; kept beside the recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvscope.analysis.text import visible
from kvscope.replay.bookmarks import Bookmark, Bookmarks, NotesError
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.bookmarks import BookmarksModal, NoteModal

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class Notes:
    """The bookmarks of the recording that is shown."""

    def __init__(self, app: KvscopeApp) -> None:
        self._app = app
        self._bookmarks: Bookmarks | None = None
        self._recording: Path | None = None

    @property
    def _model(self) -> ScreenModel:
        return self._app.model

    @property
    def all(self) -> list[Bookmark]:
        """The bookmarks as they were read last."""
        return [] if self._bookmarks is None else self._bookmarks.all

    def at(self, step: int) -> Bookmark | None:
        """Returns the bookmark of a step, read anew: another screen may have set it."""
        bookmarks = self._read()
        return None if bookmarks is None else bookmarks.at(step)

    def _read(self) -> Bookmarks | None:
        """Returns the bookmarks; says why where there can be none."""
        timeline = self._model.timeline
        if timeline is None or self._model.step < 0:
            self._app.say("there is no step yet to come back to")
            return None
        if not timeline.path.is_file():
            self._app.say("this recording is in memory alone: there is no file to keep bookmarks beside")
            return None
        if self._bookmarks is None or self._recording != timeline.path:
            self._bookmarks, self._recording = Bookmarks(timeline.path), timeline.path
        try:
            self._bookmarks.read()
        except NotesError as error:
            self._app.say(error.message, is_error=True)
            return None
        return self._bookmarks

    def ask(self) -> None:
        """Opens the line for the step's note; enter sets the bookmark, also without one."""
        bookmarks = self._read()
        if bookmarks is None:
            return
        step = self._model.step
        known = bookmarks.at(step)

        def put(note: str) -> str | None:
            try:
                bookmarks.put(step, note)
            except NotesError as error:
                return visible(error.message)
            self._app.markers.notes_changed()
            listing = self._app.keys.shown("'")
            self._app.say(f"step {step} is bookmarked: {listing} lists the bookmarks")
            return None

        is_ascii = self._app.is_ascii
        self._app.push_screen(NoteModal(step, None if known is None else known.note, put, is_ascii=is_ascii))

    def open(self) -> None:
        """Opens the list."""
        bookmarks = self._read()
        if bookmarks is None:
            return
        if not bookmarks.all:
            self._app.say(f"there is no bookmark: {self._app.keys.shown('m')} sets one")
            return
        self._app.push_screen(BookmarksModal(self, self._model.step, is_ascii=self._app.is_ascii))

    def go_to(self, step: int) -> None:
        """Goes to a bookmark."""
        self._app.navigation.remember()
        self._app.navigation.move_to(step)

    def remove(self, step: int) -> str | None:
        """Removes a bookmark; returns what is wrong."""
        assert self._bookmarks is not None
        try:
            self._bookmarks.remove(step)
        except NotesError as error:
            return visible(error.message)
        self._app.markers.notes_changed()
        return None

    def report_lines(self, step: int) -> list[str]:
        """Returns what a report says of the step's bookmark: its note, as a quotation."""
        timeline = self._model.timeline
        if timeline is None or not timeline.path.is_file():
            return []
        try:
            found = next((mark for mark in Bookmarks(timeline.path).read() if mark.step == step), None)
        except NotesError:
            return []  # the report is of the step: what is wrong with the notes is said where they are opened
        return [f"> {visible(found.note)}", ""] if found is not None and found.note else []
