"""A few consecutive steps whose rows were read together: what decoding their events fetches from outside the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvscope import events as ev
from kvscope.errors import RecordingError
from kvscope.recording.row_types import SampledRow, StepFigures

if TYPE_CHECKING:
    from kvscope.replay.recording_file import RecordingFile


class StepChunk:
    """Implements `ReaderTables` for such steps."""

    def __init__(
        self, file: RecordingFile, figures: Mapping[int, StepFigures], sampled: Mapping[int, SampledRow]
    ) -> None:
        self._file = file
        self._figures = figures
        self._sampled = sampled
        self.name_of = file.name_of
        self.requests_of = file.requests_of
        self._arrival_rows: dict[int, tuple[Any, ...]] = {}
        self._prompts: dict[int, bytes] = {}

    def read_arrivals(self, numbers: Sequence[int]) -> None:
        """Reads the requests that arrive in these steps together: one by one they would cost most of the time."""
        if numbers:
            self._arrival_rows, self._prompts = self._file.arrival_rows(numbers)

    def arrival_of(self, number: int, queue_position: int) -> ev.RequestArrived:
        row, prompt = self._arrival_rows.get(number), self._prompts.get(number)
        return self._file.arrival_of(number, queue_position, row, prompt)

    def figures_of(self, step: int) -> StepFigures:
        figures = self._figures.get(step)
        if figures is None:
            raise RecordingError(f"{self._file.path} lacks step {step}; the recording is damaged")
        return figures

    def sampled_in(self, step: int) -> SampledRow:
        sampled = self._sampled.get(step)
        if sampled is None:
            raise RecordingError(f"{self._file.path} lacks the sampled tokens of step {step}; the recording is damaged")
        return sampled

    def bytes_of(self, token_ids: Sequence[int]) -> tuple[bytes, ...]:
        found = self._file.token_bytes(token_ids)
        return tuple([found[token_id] for token_id in token_ids])
