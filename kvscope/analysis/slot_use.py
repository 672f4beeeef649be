"""How many KV slots the blocks in use have, and how many of them hold no token: what paging wastes.

Counted at the end of each step and summed over the steps, so the unit is a slot for one step. A block that several
requests hold counts once. Exact; knows no time. Reads the state of every step, so it is for runs of thousands of steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.replay.timeline import Timeline
from kvscope.state import EngineState


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """Slots over a whole run, in slots for one step."""

    num_held_slots: int
    """In blocks that a request holds."""
    num_unused_slots: int
    """Of these, slots without a computed token: the rest of each request's last block."""
    peak_held_blocks: int
    """The most blocks that were held at the end of a step."""

    @property
    def unused_share(self) -> float | None:
        """None where no block was held at the end of any step."""
        return self.num_unused_slots / self.num_held_slots if self.num_held_slots else None


def slot_use(timeline: Timeline) -> SlotUse:
    """Reads the states of all steps."""
    num_held = num_unused = peak = 0
    for step in range(timeline.first_step, timeline.last_step + 1):
        state = timeline.at(step).state
        if state.config is None:
            continue
        num_blocks = state.num_usable_blocks - state.num_free_blocks
        peak = max(peak, num_blocks)
        num_held += num_blocks * state.config.block_size
        num_unused += _num_unused(state, state.config.block_size)
    return SlotUse(num_held_slots=num_held, num_unused_slots=num_unused, peak_held_blocks=peak)


def _num_unused(state: EngineState, block_size: int) -> int:
    """Returns the slots without a token. They are nobody else's: only full blocks are shared."""
    running = (state.requests[request_id] for request_id in state.running)
    return sum(len(request.block_ids) * block_size - request.num_computed_tokens for request in running)
