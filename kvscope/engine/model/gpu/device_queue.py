"""What of CUDA's queue of work the model runner needs: copies that nobody waits for, marks in it, and one wait a step.

Everything of a step goes into the thread's current stream, in order; so a copy's target is read only behind the copy,
and nothing on the device needs an event. Only the host does: before it writes again what a copy may read (`Mark`),
and before it reads what was sampled. `HostQueue` does the same on a CPU, where all is done when a call returns.
"""

from __future__ import annotations

import contextlib
import time
from typing import Protocol

import torch


class Mark(Protocol):
    """A place in the queue, set anew by each `set`."""

    def set(self) -> None:
        """Marks the end of what is queued now."""
        ...

    def wait(self) -> None:
        """Blocks the host until the device has come to the mark; returns at once where it was never set."""
        ...

    def ns_until(self, later: Mark) -> int:
        """Returns how long the device took from here to `later`; both must have been reached."""
        ...


class DeviceQueue(Protocol):
    """Work for one device."""

    device: torch.device

    def new_mark(self) -> Mark: ...

    def host_buffer(self, num_words: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns `[num_words]` zeros in host memory that the device can read and write by itself (pinned)."""
        ...

    def static_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Returns zeros on the device, for what graphs read and write: its address must never change."""
        ...

    def selected(self) -> contextlib.AbstractContextManager[object]:
        """Returns a context in which kernels are launched on this device."""
        ...


class CudaMark:
    """An event in the current stream."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def set(self) -> None:
        self._event.record()

    def wait(self) -> None:
        self._event.synchronize()

    def ns_until(self, later: Mark) -> int:
        assert isinstance(later, CudaMark)
        return int(self._event.elapsed_time(later._event) * 1e6)


class CudaQueue:
    """The current stream of one GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def new_mark(self) -> Mark:
        with self.selected():
            return CudaMark()

    def host_buffer(self, num_words: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(num_words, dtype=dtype, pin_memory=True)

    def static_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def selected(self) -> contextlib.AbstractContextManager[object]:
        return torch.cuda.device(self.device)


class HostMark:
    """A moment."""

    def __init__(self) -> None:
        self._at_ns = 0

    def set(self) -> None:
        self._at_ns = time.perf_counter_ns()

    def wait(self) -> None:
        pass

    def ns_until(self, later: Mark) -> int:
        assert isinstance(later, HostMark)
        return later._at_ns - self._at_ns


class HostQueue:
    """A CPU, for kernels that run in Triton's interpreter."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def new_mark(self) -> Mark:
        return HostMark()

    def host_buffer(self, num_words: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(num_words, dtype=dtype)

    def static_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def selected(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()


def new_queue(device: torch.device) -> DeviceQueue:
    """Returns the queue of a device."""
    return CudaQueue(device) if device.type == "cuda" else HostQueue(device)
