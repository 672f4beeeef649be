"""The engine's state, as its events tell it."""

from kvscope.state.block_events import NULL_BLOCK
from kvscope.state.block_origins import BlockOrigins, Origin
from kvscope.state.engine_state import EngineState, StateError, StepTokens
from kvscope.state.free_queue import FreeQueue
from kvscope.state.request_state import RequestState, RequestStatus

__all__ = [
    "NULL_BLOCK",
    "BlockOrigins",
    "EngineState",
    "FreeQueue",
    "Origin",
    "RequestState",
    "RequestStatus",
    "StateError",
    "StepTokens",
]
