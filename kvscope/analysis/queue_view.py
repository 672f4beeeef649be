"""The running list of a step as rows: what each request got, how far it is, what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.analysis.memory import remembered
from kvscope.analysis.step_facts import StepShare
from kvscope.replay.timeline import Moment, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRow:
    """One running request after a step, or one that ended in it."""

    request_id: str
    num_computed_tokens: int
    num_tokens: int
    num_prompt_tokens: int
    max_tokens: int
    share: StepShare | None
    """None where it got nothing in this step."""
    num_blocks: int
    num_new_blocks: int
    """Allocated in this step."""


def running_rows(timeline: Timeline, moment: Moment, first: int = 0, count: int | None = None) -> list[RunningRow]:
    """Returns rows of the running list in admission order, from position `first` on, at most `count`."""
    state = moment.state
    facts = remembered(timeline).facts(moment)
    stop = None if count is None else first + count
    rows: list[RunningRow] = []
    for request_id in state.running[first:stop]:
        request = state.requests[request_id]
        rows.append(
            RunningRow(
                request_id=request_id,
                num_computed_tokens=request.num_computed_tokens,
                num_tokens=request.num_tokens,
                num_prompt_tokens=request.num_prompt_tokens,
                max_tokens=request.max_tokens,
                share=facts.shares.get(request_id),
                num_blocks=len(request.block_ids),
                num_new_blocks=facts.num_new_blocks[request_id],
            )
        )
    return rows
