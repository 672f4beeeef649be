"""Gives an engine what a `control.Submit` asks for."""

from __future__ import annotations

from kvscope.control import Submit
from kvscope.engine.input_processor import Submission
from kvscope.engine.llm_engine import LLMEngine
from kvscope.engine.request_output import OnUpdate


def submit(engine: LLMEngine, command: Submit, on_update: OnUpdate | None = None) -> str:
    """Returns the request's id. Raises what `LLMEngine.add_request` raises."""
    return engine.add_requests([as_submission(command, on_update)])[0]


def as_submission(command: Submit, on_update: OnUpdate | None = None) -> Submission:
    """Returns what the engine takes."""
    return Submission(
        prompt=command.prompt,
        sampling=command.sampling,
        is_chat=command.is_chat,
        system=command.system,
        priority=command.priority,
        cache_salt=command.cache_salt,
        request_id=command.request_id,
        on_update=on_update,
    )
