"""A GPU that is none: graphs that run what they recorded, and static buffers that are spoilt between steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kvscope.engine.model.gpu.device_queue import HostMark, Mark

_FAR_OFF = 0x7F00_0000
"""No token, position, slot, row or block has this number."""


class PoisonedQueue:
    """A CPU whose buffers are full of numbers that nobody may use, after each call of `poison`."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._buffers: list[torch.Tensor] = []

    def new_mark(self) -> Mark:
        return HostMark()

    def host_buffer(self, num_words: int, dtype: torch.dtype) -> torch.Tensor:
        return self.static_buffer((num_words,), dtype)

    def static_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        self._buffers.append(torch.zeros(shape, dtype=dtype))
        return self._buffers[-1]

    def selected(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def poison(self) -> None:
        """Spoils all buffers."""
        for buffer in self._buffers:
            buffer.fill_(torch.nan if buffer.is_floating_point() else _FAR_OFF)


@dataclass
class RecordedGraph:
    run: Callable[[], None]
    num_replays: int = 0

    def replay(self) -> None:
        self.num_replays += 1
        self.run()


@dataclass
class RecordingBackend:
    """Runs what it records once, as a warm-up does, and again with each replay."""

    graphs: list[RecordedGraph] = field(default_factory=list)

    def capture(self, run: Callable[[], None]) -> RecordedGraph:
        run()
        self.graphs.append(RecordedGraph(run))
        return self.graphs[-1]
