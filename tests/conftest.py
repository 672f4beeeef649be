"""Set before any test module is imported: Triton's kernels run in its interpreter, on the CPU.

Triton reads this once, when it is first imported, and a module that some test imports may lead to it.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
