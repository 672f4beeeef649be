"""What stood before a step was scheduled, as its scheduler can be restored from it."""

from __future__ import annotations

from kvscope import events as ev
from kvscope.analysis.memory import remembered
from kvscope.analysis.prefix import extra_keys
from kvscope.engine.scheduling import hashing
from kvscope.engine.scheduling.restored import Standing
from kvscope.replay.timeline import Moment, Timeline
from kvscope.state import EngineState


def standing_before(timeline: Timeline, step: int) -> Standing | None:
    """Returns what the step's decisions depend on; None where the recording does not reach back far enough.

    Moves the timeline: a moment that the caller holds is not valid any more.
    """
    if step > timeline.first_step:
        state = timeline.at(step - 1).state.copy()
    elif step == 0:
        state = EngineState()
    else:
        return None
    state.begin_step(step)
    moment = timeline.at(step)
    for event in moment.events:
        if isinstance(event, ev.StepStarted):
            break
        state.apply(event)
    if state.config is None:
        return None
    token_ids = {
        request_id: _token_ids(timeline, request_id, step, state.requests[request_id].num_tokens)
        for request_id in [*state.running, *state.waiting]
    }
    return Standing(state=state, token_ids=token_ids, block_hashes=_block_hashes(timeline, moment, state))


def _token_ids(timeline: Timeline, request_id: str, step: int, num_tokens: int) -> list[int]:
    packed = remembered(timeline).packed_tokens(timeline, request_id, step, num_tokens)
    return list(memoryview(packed).cast("I")[:num_tokens])


def _block_hashes(timeline: Timeline, moment: Moment, state: EngineState) -> dict[int, bytes]:
    """Returns the full chain hash of every published block; recordings keep eight bytes of it at most."""
    assert state.config is not None
    size = state.config.block_size
    num_blocks: dict[str, int] = {}
    published = list(state.cached_from.items())
    for _, (request_id, index) in published:
        num_blocks[request_id] = max(num_blocks.get(request_id, 0), index + 1)
    chains: dict[str, list[bytes]] = {}
    for request_id, count in num_blocks.items():
        tokens = _token_ids(timeline, request_id, moment.step, count * size)
        chains[request_id] = hashing.block_hashes(tokens, size, extra_keys(timeline, moment, request_id))
    return {block_id: chains[request_id][index] for block_id, (request_id, index) in published}
