"""Requests of a plan that have not arrived yet: each comes before its step, or sooner where the engine stands idle.

Knows no threads: the caller sees to it that nobody else looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.control import PlannedRequest, SubmitPlan
from kvscope.engine.input_processor import Submission, check_length
from kvscope.engine.llm_engine import LLMEngine
from kvscope.engine.request_output import OnUpdate
from kvscope.errors import EngineError, UsageError
from kvscope.session.prompt_texts import prompt_tokens

_TO_THE_END = {"ignore_eos": True, "min_tokens": 0, "stop": (), "stop_token_ids": ()}
"""Nothing but `max_tokens` ends an answer of a plan."""


@dataclass(frozen=True, slots=True)
class Coming:
    """A request, and the engine's step that it comes before."""

    step: int
    request_id: str
    submission: Submission


class ComingRequests:
    """In the order in which they come; plans that were begun together run beside each other."""

    def __init__(self) -> None:
        self._queue: deque[Coming] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, requests: Sequence[Coming]) -> None:
        """Takes over requests that `plan_submissions` made."""
        self._queue = deque(sorted([*self._queue, *requests], key=lambda coming: coming.step))

    def is_coming(self, request_id: str) -> bool:
        return any(coming.request_id == request_id for coming in self._queue)

    def remove(self, request_id: str) -> bool:
        """Takes a request off the list, as if it had never been asked for; False where it is not on it."""
        kept = deque(coming for coming in self._queue if coming.request_id != request_id)
        is_found = len(kept) < len(self._queue)
        self._queue = kept
        return is_found

    def submit_due(self, engine: LLMEngine) -> None:
        """Submits what is due before the next step; where the engine has nothing else to do, those that come next."""
        if not self._queue:
            return
        is_idle = not engine.has_work or engine.stuck is not None
        due = max(engine.step_index + 1, self._queue[0].step if is_idle else 0)
        submissions = []
        while self._queue and self._queue[0].step <= due:
            submissions.append(self._queue.popleft().submission)
        if submissions:
            engine.add_requests(submissions)


def plan_submissions(
    engine: LLMEngine, plan: SubmitPlan, taken: ComingRequests, on_update: OnUpdate | None = None
) -> list[Coming]:
    """Returns the requests of a plan that begins with the engine's next step: their ids free, their prompts made up.

    Raises:
        UsageError: a length is impossible.
        EngineError: the engine has no tokenizer.
    """
    if engine.codec is None:
        raise EngineError("this engine has no tokenizer to make prompts with: submit token ids")
    _check(plan.requests)
    ids = _free_ids(engine, [request.request_id for request in plan.requests], taken)
    prompts = prompt_tokens(engine.codec, plan.requests, seed=plan.seed)
    coming = []
    for request_id, request, prompt in zip(ids, plan.requests, prompts, strict=True):
        check_length(prompt, engine.config.max_model_len)
        submission = Submission(
            prompt=prompt,
            sampling=engine.sampling_params({**_TO_THE_END, "max_tokens": request.num_output_tokens}),
            priority=request.priority,
            request_id=request_id,
            on_update=on_update,
        )
        coming.append(Coming(engine.step_index + 1 + request.before_step, request_id, submission))
    return coming


def _check(requests: Sequence[PlannedRequest]) -> None:
    if not requests:
        raise UsageError("the plan has no request: give at least one")
    ids = [request.request_id for request in requests]
    if len(set(ids)) < len(ids):
        raise UsageError("two requests of the plan have one id: choose others")
    for request in requests:
        if request.num_own_tokens < 0 or request.num_shared_tokens < 0 or request.before_step < 0:
            raise UsageError(f"{request.request_id}: lengths and steps must not be negative")
        if request.num_own_tokens + request.num_shared_tokens < 1 or request.num_output_tokens < 1:
            raise UsageError(f"{request.request_id}: prompt and answer need at least one token each")


def _free_ids(engine: LLMEngine, ids: Sequence[str], taken: ComingRequests) -> list[str]:
    """Returns ids that no request had: `storm-1` as they are, else `storm.2-1` and so on, one number for the plan."""
    number, found = 1, list(ids)
    while any(engine.is_known(request_id) or taken.is_coming(request_id) for request_id in found):
        number += 1
        heads = [request_id.rpartition("-") for request_id in ids]
        found = [f"{head or tail}.{number}{dash}{tail if head else ''}" for head, dash, tail in heads]
    return found
