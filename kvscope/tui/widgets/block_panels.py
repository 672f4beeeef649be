"""The panels of a block's place. Its biography is read beside the screen, and grows while it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

from kvscope.analysis.biography import Biographer
from kvscope.analysis.happenings import Happening
from kvscope.analysis.pool_view import block_facts
from kvscope.analysis.text import visible
from kvscope.errors import KvscopeError
from kvscope.tui.desk import OpenTimeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.slices import in_slices
from kvscope.tui.view.block import fact_lines, life_entries
from kvscope.tui.view.entries import Entry
from kvscope.tui.view.lines import Line, Span
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

MAX_HAPPENINGS = 5_000
"""The latest ones stay: a block of a long run may be taken thousands of times."""


class BlockLife:
    """The biography of the chosen block, read up to the recording's end."""

    def __init__(self, app: KvscopeApp, open_timeline: OpenTimeline | None, changed: Callable[[], None]) -> None:
        self._app = app
        self._open_timeline = open_timeline
        self._changed = changed
        self._worker: Worker[None] | None = None
        self._biographer: Biographer | None = None
        self._read_until = -1
        self.told: list[Happening] = []
        self.num_forgotten = 0
        self.error = ""
        self.version = 0

    @property
    def is_reading(self) -> bool:
        return self._worker is not None and not self._worker.is_finished

    @property
    def read_until(self) -> int:
        return self._read_until

    def follow(self, block_id: int | None) -> bool:
        """Reads the life of this block, or on where the recording has grown. True where it is another block."""
        timeline = self._app.model.timeline
        if timeline is None or block_id is None:
            return False
        is_new = self._biographer is None or self._biographer.block_id != block_id
        if self._biographer is None or self._biographer.block_id != block_id:
            self.leave()
            self._biographer = Biographer(block_id)
            self._read_until = timeline.first_step - 1
            self.told, self.num_forgotten, self.error = [], 0, ""
            self.version += 1
        if not self.is_reading and self._read_until < timeline.last_step and not self.error:
            self._worker = self._app.run_worker(self._read(self._biographer), group="block")
        return is_new

    def leave(self) -> None:
        """Ends the reading."""
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None

    async def _read(self, biographer: Biographer) -> None:
        timeline = self._app.model.timeline
        assert timeline is not None
        work = partial(biographer.read, first_step=self._read_until + 1, last_step=timeline.last_step)
        try:
            async for pieces in in_slices(timeline, self._open_timeline, work):
                for piece in pieces:
                    if isinstance(piece, Happening):
                        self.told.append(piece)
                    else:
                        self._read_until = piece.step
                if len(self.told) > MAX_HAPPENINGS:
                    self.num_forgotten += len(self.told) - MAX_HAPPENINGS
                    del self.told[:-MAX_HAPPENINGS]
                self.version += 1
                self._changed()
        except KvscopeError as error:
            self.error = visible(error.message)
        self._worker = None
        self.version += 1
        self._changed()


class BlockFactsPanel(Panel):
    """What the block is after the step."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="block", is_ascii=is_ascii)

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        if model.moment is None or model.timeline is None or model.block_id is None or model.config is None:
            return [(Span(" no block is chosen", "dim"),)]
        facts = block_facts(model.timeline, model.moment, model.block_id)
        if facts is None:
            return [(Span(f" the pool has no block {model.block_id}", "dim"),)]
        block_hash = model.moment.state.block_hashes.get(model.block_id)
        title = self.title(f"BLOCK {model.block_id}", (Span(f"after step {model.step}", "dim"),), width)
        return [title, *fact_lines(facts, block_hash, model.config.block_size, width, height - 1)]


class BlockLifePanel(JumpPanel):
    """What happened to it."""

    def __init__(self, model: ScreenModel, life: BlockLife, *, is_ascii: bool) -> None:
        super().__init__(model, id="life", is_ascii=is_ascii)
        self._life = life
        self._made: tuple[tuple[int, int, int], Sequence[Entry]] | None = None
        self._has_chosen = False
        """A key has chosen an entry: until then it is the last one up to the step."""

    def head(self, width: int, height: int) -> Sequence[Line]:
        life = self._life
        if life.error:
            right: Line = (Span(life.error, "bad"),)
        elif life.is_reading:
            right = (Span(f"reading, at step {max(life.read_until, 0):,} of {self.model.last_step:,}", "dim"),)
        else:
            right = (Span("enter jumps", "dim"),)
        lines: list[Line] = [self.title("BIOGRAPHY", (), width, right)]
        if life.num_forgotten:
            lines.append((Span(f" … {life.num_forgotten:,} lines before", "dim"),))
        if not life.told and not life.is_reading and not life.error:
            lines.append((Span(" nothing ever happened to it", "dim"),))
        return lines

    def walk(self, offset: int) -> None:
        self._has_chosen = True
        super().walk(offset)

    def choose_row(self, row: int) -> None:
        self._has_chosen = True
        super().choose_row(row)

    def begin_anew(self) -> None:
        """Another block."""
        self._has_chosen = False

    def entries(self, width: int) -> Sequence[Entry]:
        key = (width, self._life.version, self.model.step)
        if self._made is None or self._made[0] != key:
            self._made = (key, life_entries(self._life.told, self.model.step, width))
            if not self._has_chosen:
                self.current = max(sum(told.step <= self.model.step for told in self._life.told) - 1, -1)
        return self._made[1]
