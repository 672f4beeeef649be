"""Why each request of the waiting queue still waits after a step, with the figures that decided it.

The head's verdict is what the engine recorded. Those behind it were not tried: they are judged with the scheduler's own
rules on the state in which the waiting loop stopped, so that "fits" means "would have been admitted but for the head".
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.analysis.spans import Span, plain
from kvscope.events import QueueTest


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One row of the waiting queue."""

    request_id: str
    position: int
    """0 is the head."""
    num_waited_steps: int
    """Steps since it entered the queue (again)."""
    was_preempted: bool
    """It ran before."""
    is_preempted_now: bool
    """It was preempted in this very step."""
    is_refused: bool
    """It is the request that the recorded verdict is about; False for those behind, which were not tried."""
    reason: QueueTest | None
    """The first test that fails for it; None where it would have been admitted but for the head."""
    need_blocks: int | None
    """Blocks that it needs from the free queue, without the watermark; None where no block figure decided."""
    watermark_blocks: int
    spans: tuple[Span, ...]
    """The verdict in words, e.g. `need 25+1wm > 23 free` or `↳ need 16 fits`."""

    @property
    def fits(self) -> bool:
        """It would have been admitted but for the head."""
        return self.reason is None

    @property
    def text(self) -> str:
        """The verdict's words."""
        return plain(self.spans)
