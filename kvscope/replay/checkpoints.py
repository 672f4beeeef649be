"""The checkpoints of a recording: the state at the last one before a step that can be read.

They only make a seek cheap, the events hold everything: one that is damaged is passed over, and noted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from kvscope.checkpoint import DecodedBase, check_checkpoint, decode_base, decode_checkpoint
from kvscope.errors import RecordingError
from kvscope.events import EngineConfigured
from kvscope.replay.recording_file import RecordingFile
from kvscope.state import EngineState

_MAX_REMEMBERED_BASES = 2


class Checkpoints:
    """Reads them from one file."""

    def __init__(self, file: RecordingFile) -> None:
        self._file = file
        self._bases: OrderedDict[int, DecodedBase] = OrderedDict()
        self.damage: dict[int, str] = {}
        """What is wrong with those that could not be read so far, by step."""

    def step_before(self, step: int) -> int:
        """Returns the step of the last one before a step, -1 where there is none; damaged ones are passed over."""
        found = self._file.checkpoint_before(step)
        while found is not None and found[0] in self.damage:
            found = self._file.checkpoint_before(found[0])
        return -1 if found is None else found[0]

    def state_at(self, step: int, config: EngineConfigured | None) -> EngineState:
        """Returns a new state as the checkpoint of that step has it, or the last one before it that can be read.

        Of step -1, and where none can be read, the state at the start.
        """
        while step >= 0 and config is not None:
            try:
                return self._decoded(step, config)
            except RecordingError as error:
                self.damage[step] = error.message
                step = self.step_before(step)
        return EngineState()

    def check_all(self) -> Iterator[tuple[int, str]]:
        """Yields step and damage of those that cannot be unpacked, or whose base cannot."""
        known: dict[int, str | None] = {}
        for step, base_step in self._file.checkpoint_steps():
            known[step] = self._damage_of(step)
            damage = known[step] or (None if base_step is None else known.get(base_step, "its base is missing"))
            if damage is not None:
                yield step, damage

    def _damage_of(self, step: int) -> str | None:
        try:
            check_checkpoint(self._file.checkpoint(step))
        except RecordingError as error:
            return error.message
        return None

    def _decoded(self, step: int, config: EngineConfigured) -> EngineState:
        found = self._file.checkpoint_before(step + 1)
        if found is None or found[0] != step:
            raise RecordingError(f"{self._file.path} has no checkpoint of step {step}")
        base = None if found[1] is None else self._base(found[1], config)
        state = decode_checkpoint(self._file.checkpoint(step), config, self._file.names_of, base)
        if state.step != step:
            raise RecordingError(f"the checkpoint of step {step} holds step {state.step}")
        return state

    def _base(self, step: int, config: EngineConfigured) -> DecodedBase:
        """Returns what checkpoints refer to; neighbours refer to the same."""
        base = self._bases.get(step)
        if base is None:
            base = self._bases[step] = decode_base(self._file.checkpoint(step), config, self._file.names_of)
            if len(self._bases) > _MAX_REMEMBERED_BASES:
                self._bases.popitem(last=False)
        self._bases.move_to_end(step)
        return base
