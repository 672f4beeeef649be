"""A step's numbers in one buffer: filled on the host, sent with one copy, read on the device through views.

A buffer is a row of 32-bit words. What a graph reads lies at the front, at offsets that follow from the padded size
alone, so that a graph finds it where it was when it was recorded. Every field begins at a multiple of 16 bytes: Triton
compiles a kernel anew for a pointer that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kvscope.engine.model.gpu.device_queue import DeviceQueue

_ALIGNED_WORDS = 4
_WORD_BYTES = 4
_NUMPY_DTYPES: dict[torch.dtype, type[np.generic]] = {
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float32: np.float32,
}

Values = Sequence[int] | Sequence[float] | NDArray[np.generic]
Field = tuple[int, torch.dtype]
"""How many numbers, and of which kind: int32, int64 or float32."""


def num_words(field: Field) -> int:
    """Returns the words that a field takes, the gap behind it included."""
    count, dtype = field
    words = count * dtype.itemsize // _WORD_BYTES
    return -(-words // _ALIGNED_WORDS) * _ALIGNED_WORDS


@dataclass(frozen=True, slots=True)
class Section:
    """Fields one behind the other, from word `begin`."""

    begin: int
    fields: tuple[Field, ...]

    @property
    def end(self) -> int:
        return self.begin + sum(map(num_words, self.fields))

    def views(self, words: torch.Tensor) -> list[torch.Tensor]:
        """Returns the fields of a buffer, `[count]` each."""
        begin, views = self.begin, []
        for field in self.fields:
            count, dtype = field
            view = words[begin : begin + count * dtype.itemsize // _WORD_BYTES]
            views.append(view if dtype == torch.int32 else view.view(dtype))
            begin += num_words(field)
        return views

    def fill(self, words: NDArray[np.int32], values: Sequence[Values], padding: Sequence[int] | None = None) -> None:
        """Writes the fields. Where a value is shorter than its field, its number of `padding` fills the rest."""
        begin = self.begin
        for index, (field, value) in enumerate(zip(self.fields, values, strict=True)):
            count, dtype = field
            target = words[begin : begin + count * dtype.itemsize // _WORD_BYTES].view(_NUMPY_DTYPES[dtype])
            length = len(value)
            target[:length] = value
            if length < count:
                assert padding is not None
                target[length:] = padding[index]
            begin += num_words(field)


class StepBuffer:
    """`num_words` words, pinned on the host and, at an address that never changes, on the device."""

    def __init__(self, num_words: int, queue: DeviceQueue) -> None:
        self._staged = queue.host_buffer(num_words, torch.int32)
        self._on_host: NDArray[np.int32] = self._staged.numpy()
        self.on_device = queue.static_buffer((num_words,), torch.int32)
        self._copied = queue.new_mark()

    def to_fill(self) -> NDArray[np.int32]:
        """Returns the host's words, to be written; waits where the last copy still reads them."""
        self._copied.wait()
        return self._on_host

    def send(self, num_words: int) -> None:
        """Queues the copy of the first words."""
        self.on_device[:num_words].copy_(self._staged[:num_words], non_blocking=True)
        self._copied.set()
