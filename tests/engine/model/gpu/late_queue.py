"""A device that does its copies as late as it may: what the host does too early shows.

A copy from pinned memory reads it when the device comes to it, not when the call returns; a copy to it has written when
the device has come past it. Here a copy to the device is done at once, as everything in the queue before it is, and
what it read is compared with what lies there when somebody waits for it. A copy to the host is done when somebody waits
for it; until then an impossible number stands there. Both are seen in torch's dispatcher, inside of `watching`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from kvscope.engine.model.gpu.device_queue import HostMark, HostQueue, Mark

_NOT_YET = -(2**40)
"""No token has this id."""


@dataclass
class _Copy:
    """One that the device may still be at."""

    host: torch.Tensor
    value: torch.Tensor
    is_to_host: bool

    def finish(self) -> None:
        if self.is_to_host:
            self.host.copy_(self.value)
        else:
            assert torch.equal(self.host, self.value), "pinned memory was written to while a copy from it was under way"


class LateMark(HostMark):
    """A place among the queue's copies."""

    def __init__(self, queue: LateQueue) -> None:
        super().__init__()
        self._queue = queue
        self._num_copies = 0

    def set(self) -> None:
        super().set()
        self._num_copies = self._queue.num_begun

    def wait(self) -> None:
        self._queue.finish(self._num_copies)


class LateQueue(HostQueue):
    """A `HostQueue` whose copies end when they are waited for."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.num_begun = 0
        self._num_finished = 0
        self._under_way: list[_Copy] = []
        self._pinned: set[int] = set()
        """Addresses of the buffers' storages."""

    def new_mark(self) -> Mark:
        return LateMark(self)

    def host_buffer(self, num_words: int, dtype: torch.dtype) -> torch.Tensor:
        buffer = super().host_buffer(num_words, dtype)
        self._pinned.add(buffer.untyped_storage().data_ptr())
        return buffer

    def is_pinned_memory(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._pinned

    def begin(self, copy: _Copy) -> None:
        self.num_begun += 1
        self._under_way.append(copy)
        if copy.is_to_host:
            copy.host.fill_(_NOT_YET)

    def finish(self, num_copies: int) -> None:
        """Ends the first copies, in their order."""
        with _disable_current_modes():
            while self._num_finished < num_copies:
                self._under_way.pop(0).finish()
                self._num_finished += 1

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """What is copied inside is seen. All must have been waited for at the end, or be unchanged."""
        with _Copies(self):
            yield
        self.finish(self.num_begun)


class _Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, queue: LateQueue) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._queue = queue

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.copy_.default:
            target, source = args[:2]
            is_to_host, is_from_host = map(self._queue.is_pinned_memory, (target, source))
            if is_to_host or is_from_host:
                assert kwargs.get("non_blocking") or args[2:] == (True,), "a copy that waits for the device"
                self._queue.begin(_Copy(target if is_to_host else source, source.clone(), is_to_host))
                if is_to_host:
                    return target
        return func(*args, **kwargs)
