"""The model's work on a GPU, in Triton: one module a kernel, each with a function that checks its tensors and launches.

| module       | function            | does                                                                          |
|--------------|---------------------|-------------------------------------------------------------------------------|
| `attention`  | `paged_attention`   | attention over block tables, prefill chunks and decodes in one launch         |
| `rotary`     | `rotate_and_cache`  | norm of q and k (Qwen3), rotary embedding, and the write of k and v to slots  |
| `norm`       | `rms_norm`          | RMSNorm, with the residual added before where one is given                    |
| `activation` | `silu_and_mul`      | SwiGLU's gate                                                                  |
| `sampling`   | `sample`            | temperature, min_p, top_k, top_p and the draw, or the largest                 |

What they share: float32, float16 or bfloat16 in and out, float32 in between. No function waits for the device, reads
a tensor's values on the host, or lets its grid depend on them, so all can be captured in a CUDA graph: a grid follows
from tensors' shapes and from the bounds in `AttentionBatch`. Padding is harmless: a slot of -1 is not written, a
sequence of length 0 attends to nothing, and rows do not see each other.

Importing the modules needs triton; importing this package does not. They know nothing of requests, weights or steps.
With TRITON_INTERPRET=1 in the environment before the first import they run on a CPU, slowly, for tests.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

import torch

MIN_CAPABILITY = (8, 0)
"""Ampere: the first with bfloat16 in its matrix units and copies to shared memory that do not wait."""
MIN_TRITON = (3, 5)
"""What torch 2.9 brings, the oldest that the kernels were compiled with."""


def unavailable_reason(device: torch.device) -> str | None:
    """Returns why the kernels cannot run on `device`, in words for a person, or None where they can."""
    if device.type != "cuda":
        return f"device {device} is no CUDA GPU"
    if torch.version.hip is not None:
        return "torch is built for ROCm, the kernels were only compiled for CUDA"
    if not torch.cuda.is_available():
        return "torch finds no CUDA GPU"
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        return f"compute capability {_dotted(capability)} is below {_dotted(MIN_CAPABILITY)}"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y"):
        return "TRITON_INTERPRET is set, with which kernels run on the CPU"
    import triton

    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < MIN_TRITON:
        return f"triton {triton.__version__} is older than {_dotted(MIN_TRITON)}"
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "no C compiler (gcc, clang), with which Triton makes what launches a kernel"
    if not python_header().is_file():
        return f"no {python_header()}, with which Triton makes what launches a kernel; Debian: apt install python3-dev"
    return None


def python_header() -> Path:
    """Returns where Triton looks for Python's C header, whether it is there or not."""
    # "posix_prefix" as Triton does: Debian's own scheme names a folder where no headers are.
    return Path(sysconfig.get_path("include", "posix_prefix")) / "Python.h"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
