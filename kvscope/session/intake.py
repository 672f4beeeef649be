"""What was asked of an engine and has not entered its queue: early submissions, prompts, requests of a plan.

Knows no threads: the caller sees to it that nobody else looks.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.control import Submit, SubmitPlan
from kvscope.engine.llm_engine import LLMEngine
from kvscope.engine.request_output import OnUpdate
from kvscope.errors import UsageError
from kvscope.session.coming import ComingRequests, plan_submissions
from kvscope.session.early import EarlySubmissions
from kvscope.session.submission import as_submission


class Intake:
    """Takes submissions from before the engine is loaded on."""

    def __init__(self) -> None:
        self._engine: LLMEngine | None = None
        self._early = EarlySubmissions()
        self._coming = ComingRequests()

    def begin(self, engine: LLMEngine) -> None:
        """Gives the engine what came while it loaded; all else goes to it from now on."""
        self._engine = engine
        self._early.submit_all(engine)

    @property
    def num_submitted(self) -> int:
        """Submissions that have not entered the queue."""
        return len(self._early) if self._engine is None else self._engine.num_submitted + len(self._coming)

    @property
    def has_work(self) -> bool:
        """There is something to do, or to come."""
        return self._engine is not None and (self._engine.has_work or len(self._coming) > 0)

    @property
    def may_go_on(self) -> bool:
        """There is something to do, and something can be done."""
        engine = self._engine
        return engine is not None and (len(self._coming) > 0 or (engine.has_work and engine.stuck is None))

    def submit(self, commands: Sequence[Submit]) -> list[str]:
        """Returns the ids of prompts that enter the queue in one step. Raises what `LLMEngine.add_requests` raises."""
        if not commands:
            raise UsageError("there is no prompt: give at least one")
        if self._engine is None:
            return [self._early.add(one) for one in commands]
        for one in commands:
            if one.request_id is not None and self._coming.is_coming(one.request_id):
                raise UsageError(f"a request {one.request_id} is still to come: choose another id")
        return self._engine.add_requests([as_submission(one) for one in commands])

    def submit_plan(self, plan: SubmitPlan, on_update: OnUpdate | None = None) -> list[str]:
        """Returns the ids of a plan's requests. Raises `UsageError`."""
        if self._engine is None:
            raise UsageError("the model is not loaded yet: wait until it is")
        coming = plan_submissions(self._engine, plan, self._coming, on_update)
        self._coming.add(coming)
        return [one.request_id for one in coming]

    def submit_due(self) -> None:
        """Submits what a plan has before the next step."""
        if self._engine is not None:
            self._coming.submit_due(self._engine)

    def drop_coming(self) -> None:
        """Forgets what is still to come."""
        self._coming = ComingRequests()

    def abort(self, request_id: str) -> bool:
        """Ends a request, or takes one back that is still to come; False where no unfinished one has this id."""
        if self._engine is None:
            return self._early.remove(request_id)
        return self._engine.abort(request_id) or self._coming.remove(request_id)
