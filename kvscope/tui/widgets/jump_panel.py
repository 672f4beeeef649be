"""A panel that is a list: `j k` go from jump to jump, enter follows."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.tui.model import ScreenModel
from kvscope.tui.view.entries import EntriesView, Entry, entries_view, next_jump
from kvscope.tui.view.lines import Line, Target
from kvscope.tui.widgets.panel import Panel


class JumpPanel(Panel):
    """Base of the lists of a place. Subclasses say what they list in `entries` and how it is called in `head`."""

    def __init__(self, model: ScreenModel, *, id: str, is_ascii: bool) -> None:
        super().__init__(model, id=id, is_ascii=is_ascii, can_focus=True)
        self.current = -1
        """The chosen entry; -1 before a key has chosen one."""
        self._entries: Sequence[Entry] = ()
        self._view = EntriesView((), ())
        self._first = 0
        self._num_head = 0

    def head(self, width: int, height: int) -> Sequence[Line]:
        """Returns the lines that stay above the list, its title first."""
        raise NotImplementedError

    def entries(self, width: int) -> Sequence[Entry]:
        """Returns the list for the model as it is now."""
        raise NotImplementedError

    def build(self, width: int, height: int) -> Sequence[Line]:
        head = self.head(width, height)
        self._num_head = len(head)
        self._entries = self.entries(width)
        self.current = min(self.current, len(self._entries) - 1)
        if self.has_focus and self.current < 0:
            self.current = next_jump(self._entries, -1, 1)
            if self.current >= 0 and self._entries[self.current].target is None:
                self.current = -1
        room = max(height - len(head), 1)
        self._view = entries_view(
            self._entries, self.current, width, room, is_focused=self.has_focus, first=self._first
        )
        shown = [index for index in self._view.entry_of if index is not None]
        self._first = sum(len(entry.lines) for entry in self._entries[: shown[0]]) if shown and self.current >= 0 else 0
        return [*head, *self._view.lines]

    def all_lines(self) -> Sequence[Line]:
        width, height = self.size.width or self.app.size.width, self.size.height or self.app.size.height
        return [*self.head(width, height), *(line for entry in self.entries(width) for line in entry.lines)]

    @property
    def target(self) -> Target | None:
        """Where the chosen entry leads; the first one, before the panel could show that it has the focus."""
        current = self.current if self.current >= 0 else next_jump(self._entries, -1, 1)
        return self._entries[current].target if 0 <= current < len(self._entries) else None

    def walk(self, offset: int) -> None:
        """Chooses another entry; a list that leads nowhere scrolls."""
        shown = [index for index in self._view.entry_of if index is not None]
        if shown and all(entry.target is None for entry in self._entries):
            self.current = shown[-1] if offset > 0 else shown[0]
        self.current = next_jump(self._entries, self.current, offset)
        self.invalidate()
        self.show()

    def choose_row(self, row: int) -> None:
        """Chooses what stands in a row of the widget."""
        place = row - self._num_head
        index = self._view.entry_of[place] if 0 <= place < len(self._view.entry_of) else None
        if index is not None and self._entries[index].target is not None:
            self.current = index
            self.invalidate()
            self.show()
