"""One launch of a kernel as a value: made by the wrappers, run on a GPU, or compiled for one that is not there."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What of a device decides how work is cut."""

    capability: int
    """Compute capability times ten: 80, 90, 100."""
    num_processors: int
    """Streaming multiprocessors."""
    shared_bytes: int
    """Shared memory that one program may have."""


_STAND_IN = DeviceProfile(90, 132, 227 << 10)
"""An H100, for tensors that lie on no GPU: Triton's interpreter, and compiling without one."""


@functools.cache
def profile_of(device: torch.device) -> DeviceProfile:
    """Returns the profile of a device; asks the driver once."""
    if device.type != "cuda":
        return _STAND_IN
    properties: Any = torch.cuda.get_device_properties(device)
    return DeviceProfile(
        properties.major * 10 + properties.minor,
        properties.multi_processor_count,
        properties.shared_memory_per_block_optin,
    )


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with all that it is launched with. The tensors' device must be the current one."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: Mapping[str, torch.Tensor | int | float | None]
    constants: Mapping[str, int | float | bool]
    """What a kernel is compiled for: its parameters of type `tl.constexpr`."""
    num_warps: int
    num_stages: int

    def run(self) -> None:
        """Launches on the current stream, without waiting. A grid with no programs launches nothing."""
        if 0 not in self.grid:
            launcher = self.kernel[self.grid]
            launcher(**self.arguments, **self.constants, num_warps=self.num_warps, num_stages=self.num_stages)


DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def require(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """Checks a contiguous tensor. Raises `ValueError` with what was given and what is needed."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != device:
        raise ValueError(
            f"{name} is {tensor.dtype} {list(tensor.shape)} on {tensor.device}; "
            f"{dtype} {list(shape)} on {device} is needed"
        )
    require_contiguous(name, tensor)


def require_contiguous(name: str, tensor: torch.Tensor) -> None:
    """Raises `ValueError` where the tensor has gaps or is transposed."""
    if not tensor.is_contiguous():
        raise ValueError(f"{name} of shape {list(tensor.shape)} has strides {list(tensor.stride())}, not contiguous")


def require_dtype(name: str, tensor: torch.Tensor) -> None:
    """Raises `ValueError` where the dtype is none of the three that kernels are written for."""
    if tensor.dtype not in DTYPES:
        raise ValueError(f"{name} is {tensor.dtype}; float32, float16 or bfloat16 is needed")


def output(given: torch.Tensor | None, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Returns `given`, checked, or a new tensor of `like`'s dtype and device."""
    if given is None:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    require("out", given, shape, like.dtype, like.device)
    return given


def next_power_of_2(number: int) -> int:
    """Returns the smallest power of two that is not below `number`, at least 1."""
    return 1 << max(number - 1, 0).bit_length()
