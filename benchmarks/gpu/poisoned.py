"""Static buffers that are spoilt between steps, and graphs where there is no GPU.

A graph reads what lies at its addresses, fresh or stale; a batch that is padded reads more than its requests. With
poison between steps, whatever a step forgot to write shows at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kvscope.engine.model.gpu.device_queue import DeviceQueue, Mark

_FAR_OFF = 0x7F00_0000
"""No token, position, slot, row or block has this number."""


class PoisonedQueue:
    """A queue whose buffers are full of numbers that nobody may use, after each call of `poison`."""

    def __init__(self, queue: DeviceQueue) -> None:
        self.device = queue.device
        self._queue = queue
        self._buffers: list[torch.Tensor] = []

    def new_mark(self) -> Mark:
        return self._queue.new_mark()

    def host_buffer(self, num_words: int, dtype: torch.dtype) -> torch.Tensor:
        return self._keep(self._queue.host_buffer(num_words, dtype))

    def static_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return self._keep(self._queue.static_buffer(shape, dtype))

    def selected(self) -> contextlib.AbstractContextManager[object]:
        return self._queue.selected()

    def poison(self) -> None:
        """Spoils all buffers; to be called between steps."""
        for buffer in self._buffers:
            buffer.fill_(torch.nan if buffer.is_floating_point() else _FAR_OFF)

    def _keep(self, buffer: torch.Tensor) -> torch.Tensor:
        self._buffers.append(buffer)
        return buffer


@dataclass
class RecordedGraph:
    """Runs again what it was made with."""

    run: Callable[[], None]
    num_replays: int = 0

    def replay(self) -> None:
        self.num_replays += 1
        self.run()


@dataclass
class RecordingBackend:
    """`GraphBackend` without CUDA: runs what it records once, as a warm-up does, and again with each replay."""

    graphs: list[RecordedGraph] = field(default_factory=list)

    def capture(self, run: Callable[[], None]) -> RecordedGraph:
        run()
        self.graphs.append(RecordedGraph(run))
        return self.graphs[-1]
