"""What was free when a step's waiting loop stopped: the moment at which a waiting request was judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvscope.analysis.step_facts import StepFacts
from kvscope.replay.timeline import Moment
from kvscope.state import EngineState


@dataclass(frozen=True, slots=True)
class PoolAtStop:
    """The pool when the waiting loop stopped: what was given back later in the step is not free yet."""

    num_free_blocks: int
    num_running: int
    num_requests: int
    """Running and waiting when the step began."""
    late_refs: Counter[int]
    """References that blocks lost between that moment and the end of the step."""

    def is_free(self, state: EngineState, block_id: int) -> bool:
        """True where the block lay in the free queue at that moment. `state` is the step's end."""
        return state.ref_cnts[block_id] + self.late_refs[block_id] == 0


def pool_at_stop(moment: Moment, facts: StepFacts) -> PoolAtStop:
    """Works back from the end of the step to the end of its `schedule()`."""
    state = moment.state
    late_refs: Counter[int] = Counter()
    num_freed = 0
    for released in facts.late_releases:
        num_freed += len(released.freed_to_head) + len(released.freed_to_tail)
        late_refs.update(released.freed_to_head)
        late_refs.update(released.freed_to_tail)
        late_refs.update(released.still_held)
    return PoolAtStop(
        num_free_blocks=state.num_free_blocks - num_freed,
        num_running=len(state.running) + len(facts.late_ends),
        num_requests=len(state.running) + len(state.waiting) + facts.num_late_ends,
        late_refs=late_refs,
    )
