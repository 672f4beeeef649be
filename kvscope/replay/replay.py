"""A recording to move in: implements `Timeline` over a file, closed or growing."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kvscope.errors import RecordingError
from kvscope.events import BlockCached, BlockEvicted, EngineConfigured, Event, TokensSampled, TokensScheduled
from kvscope.replay import lookups
from kvscope.replay.checkpoints import Checkpoints
from kvscope.replay.cursor import StateCursor
from kvscope.replay.moments import OwnMoments
from kvscope.replay.opening import tidy
from kvscope.replay.recording_file import RecordingFile
from kvscope.replay.summaries import read_summaries
from kvscope.replay.timeline import Moment, Moments, RequestRow, StepSummary
from kvscope.state import EngineState

_MAX_REMEMBERED_REQUESTS = 32
_MAX_REMEMBERED_TOKENS = 1 << 17

_REQUEST_ROW = (
    "request_id, prompt, num_prompt_tokens, max_tokens, priority, arrival_step, arrival_time, cache_salt, lora_name, "
    "sampling, num_output_tokens, num_hit_tokens, num_preemptions, first_admitted_step, first_token_step, "
    "finished_step, finish_reason"
)


def open_recording(path: str | Path) -> Replay:
    """Opens a recording. Raises `RecordingError` where there is none, or one that this build cannot read."""
    path = Path(path)
    return Replay(RecordingFile.open(path))


@dataclass(slots=True)
class _Output:
    """A request's output as far as it was read: after `steps[i]` it has the first `lengths[i]` of the tokens."""

    read_until: int
    last: int | None
    """The step in which the request ended: there is nothing behind it."""
    steps: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


class Replay:
    """Implements `Timeline`. Use as a context manager, or call `close`."""

    def __init__(self, file: RecordingFile) -> None:
        self.path = file.path
        self._file = file
        self._config = file.config()
        self._last_step = file.last_step()
        self._is_growing = file.has_writer()
        self._cursor = StateCursor(self)
        self._checkpoints = Checkpoints(file)
        self._outputs: OrderedDict[str, _Output] = OrderedDict()
        self._token_bytes: dict[int, bytes | None] = {}
        self._check_length()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def config(self) -> EngineConfigured | None:
        return self._config

    @property
    def first_step(self) -> int:
        return 0

    @property
    def last_step(self) -> int:
        return self._last_step

    @property
    def is_growing(self) -> bool:
        return self._is_growing

    def refresh(self) -> bool:
        if not self._is_growing:
            return False
        has_writer = self._file.has_writer()  # asked first: what it wrote before it left is then seen
        last_step = self._file.last_step()
        is_new = last_step != self._last_step or not has_writer
        if is_new:
            self._last_step = last_step
            self._config = self._config or self._file.config()
        if not has_writer:
            self._is_growing = False
            self._reopen()
            self._check_length()
        return is_new

    def at(self, step: int) -> Moment:
        if not self.first_step <= step <= self._last_step:
            raise RecordingError(self._range_message(step))
        state, events = self._cursor.at(step)
        return Moment(step, state, events)

    def prepare(self, step: int) -> None:
        if self.first_step <= step <= self._last_step:
            self._cursor.prepare(step)

    def events(self, first_step: int, last_step: int) -> Iterator[tuple[int, Sequence[Event]]]:
        yield from self._file.steps(max(first_step, self.first_step), min(last_step, self._last_step))

    def select_events(
        self, kinds: Collection[type[Event]], first_step: int, last_step: int
    ) -> Iterator[tuple[int, Sequence[Event]]]:
        yield from self._file.select_events(kinds, max(first_step, self.first_step), min(last_step, self._last_step))

    def request_events(self, request_id: str, first_step: int, last_step: int) -> Iterator[tuple[int, Event]]:
        end = min(last_step, self._last_step)
        for step, event in self._file.request_events(request_id, max(first_step, self.first_step), end):
            if not isinstance(event, TokensScheduled | TokensSampled):
                yield step, event

    def block_events(self, block_id: int, first_step: int, last_step: int) -> Iterator[tuple[int, Event]]:
        return lookups.block_events(self._file, block_id, first_step, min(last_step, self._last_step))

    def hash_events(
        self, digits: str, first_step: int, last_step: int
    ) -> Iterator[tuple[int, BlockCached | BlockEvicted]]:
        return lookups.hash_events(self._file, digits, first_step, min(last_step, self._last_step))

    def kind_events(
        self, kinds: Collection[type[Event]], first_step: int, last_step: int
    ) -> Iterator[tuple[int, Event]]:
        return lookups.kind_events(self._file, kinds, max(first_step, 0), min(last_step, self._last_step))

    def steps_sampling(self, token_id: int, first_step: int, last_step: int) -> list[tuple[int, list[int]]]:
        return lookups.steps_sampling(self._file, token_id, first_step, min(last_step, self._last_step))

    def moments(self) -> Moments:
        return OwnMoments(self)

    def damaged_checkpoints(self) -> Iterator[tuple[int, str]]:
        return self._checkpoints.check_all()

    def summaries(self, first_step: int, num_columns: int, steps_per_column: int) -> list[StepSummary]:
        return read_summaries(self._file, first_step, num_columns, steps_per_column, self._last_step)

    def request(self, request_id: str) -> RequestRow | None:
        row = self._file.one(
            f"SELECT {_REQUEST_ROW} FROM requests WHERE request_id = ? AND arrival_step IS NOT NULL "
            "ORDER BY number DESC LIMIT 1",
            (request_id,),
        )
        if row is None:
            return None
        fields = dict(zip(_REQUEST_ROW.split(", "), row, strict=True))
        fields["sampling"] = fields["sampling"] or "{}"
        if fields["num_output_tokens"] is None:
            output = self._output(request_id, self._last_step)
            fields["num_output_tokens"] = len(output.token_ids)
        fields["num_hit_tokens"] = fields["num_hit_tokens"] or 0
        fields["num_preemptions"] = fields["num_preemptions"] or 0
        try:
            return msgspec.convert(fields, RequestRow)
        except msgspec.ValidationError as error:
            raise RecordingError(f"{self.path}: the row of request {request_id} is damaged ({error})") from error

    def request_ids(self) -> list[str]:
        rows = self._file.rows(
            "SELECT request_id FROM requests WHERE arrival_step <= ? ORDER BY number", (self._last_step,)
        )
        return list(dict.fromkeys(name for (name,) in rows))

    def token_ids(self, request_id: str, step: int) -> list[int]:
        row = self._file.one("SELECT max(number) FROM requests WHERE request_id = ?", (request_id,))
        if row is None or row[0] is None:
            raise RecordingError(f"{self.path} has no request {request_id}")
        output = self._output(request_id, min(step, self._last_step))
        known = bisect_right(output.steps, step)
        length = output.lengths[known - 1] if known else 0
        return [*self._file.prompt_of(row[0]), *output.token_ids[:length]]

    def _output(self, request_id: str, step: int) -> _Output:
        """Returns the request's output, read at least up to the step (and as far as it lasts)."""
        output = self._outputs.get(request_id)
        if output is None:
            row = self._file.one(
                "SELECT first_token_step, finished_step FROM requests WHERE request_id = ? "
                "ORDER BY number DESC LIMIT 1",
                (request_id,),
            )
            first = None if row is None else self._file.integer(row[0])
            if row is None or first is None:
                return _Output(read_until=step, last=None)
            output = _Output(read_until=first - 1, last=self._file.integer(row[1]))
            self._outputs[request_id] = output
            if len(self._outputs) > _MAX_REMEMBERED_REQUESTS:
                self._outputs.popitem(last=False)
        self._outputs.move_to_end(request_id)
        if output.last is not None:
            step = min(step, output.last)
        if step > output.read_until:
            for found, token_ids in self._file.output_tokens(request_id, output.read_until + 1, step):
                output.token_ids += token_ids
                output.steps.append(found)
                output.lengths.append(len(output.token_ids))
            output.read_until = step
        return output

    def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        known = self._token_bytes
        missing = {token_id for token_id in token_ids if known.get(token_id) is None}
        if missing:
            if len(known) > _MAX_REMEMBERED_TOKENS:
                known.clear()
                missing = set(token_ids)
            known.update(self._file.token_bytes(missing))
        return [known.get(token_id) for token_id in token_ids]

    def close(self) -> None:
        self._file.close()
        if not self._is_growing:
            tidy(self.path)

    # --- StateSource --------------------------------------------------------------------------------------------------

    def steps(self, first_step: int, last_step: int) -> Iterator[tuple[int, Sequence[Event]]]:
        """Yields the steps, both ends included."""
        return self._file.steps(first_step, last_step)

    def checkpoint_step_before(self, step: int) -> int:
        """Returns the step of the last checkpoint before a step that can be read, -1 where there is none."""
        return self._checkpoints.step_before(step)

    def state_at_checkpoint(self, step: int) -> EngineState:
        """Returns a new state as the checkpoint of that step has it, or the last one before it that can be read."""
        return self._checkpoints.state_at(step, self._config)

    # --- the file -----------------------------------------------------------------------------------------------------

    def _reopen(self) -> None:
        """Lets go of a file that its writer has left, so that it can become one file again."""
        self._file.close()
        tidy(self.path)
        self._file = RecordingFile.open(self.path)
        self._checkpoints = Checkpoints(self._file)

    def _check_length(self) -> None:
        """A closed recording says how long it is: steps cut off at its end are missed here."""
        num_steps = self._file.meta("num_steps")
        if num_steps is not None and num_steps != str(self._last_step + 1):
            raise RecordingError(
                f"{self.path} holds steps up to {self._last_step}, but was closed with {num_steps} steps; it is damaged"
            )

    def _range_message(self, step: int) -> str:
        if self._last_step < 0:
            return f"{self.path} has no step yet"
        return f"there is no step {step} in {self.path}: it has steps {self.first_step} to {self._last_step}"
