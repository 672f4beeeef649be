"""Triton's kernels run in its interpreter here; Triton looks at the environment when a kernel's module is imported."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
