"""What may be asked of a running engine, and what it answers: plain records for the control channel.

The channel carries commands and the engine's own condition. Everything that is shown of requests, blocks and steps
comes from the recording. One record a line, JSON, over a Unix socket in a private folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from kvscope.events import EngineConfigured


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Asks for a completion. The request enters the waiting queue at the engine's next step."""

    prompt: str
    is_chat: bool = True
    """Through the model's chat template, as one user message; False feeds the text as it is."""
    system: str | None = None
    sampling: dict[str, Any] = {}
    """Fields of `SamplingParams`; the engine's defaults for the rest."""
    priority: int = 0
    cache_salt: str | None = None
    request_id: str | None = None


class SubmitTogether(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Asks for several completions, which enter the waiting queue in one step: all of them, or none."""

    submissions: tuple[Submit, ...]


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of given lengths. Its words are made up where the tokenizer is."""

    request_id: str
    num_own_tokens: int
    """Of its prompt, after the shared ones; no other prompt of the plan has the same."""
    num_output_tokens: int
    """It writes so many: the model's end of sequence is ignored."""
    num_shared_tokens: int = 0
    """Leading tokens, the same for all requests of the plan."""
    before_step: int = 0
    """Arrives before this step of the plan, sooner where the engine would stand idle."""
    priority: int = 0


class SubmitPlan(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Asks for a workload. Where an id of the plan is taken, all of them get a number of their own: `storm.2-1`."""

    requests: tuple[PlannedRequest, ...]
    seed: int = 0
    """Another seed, other words."""


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ends a request before the next step."""

    request_id: str


class Pause(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Stops after the step that is under way."""


class Step(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Runs so many steps, then pauses."""

    num_steps: int = 1


class Resume(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Runs until paused."""


class StopCondition(msgspec.Struct, frozen=True, kw_only=True):
    """When the engine pauses by itself; all the fields that are given must hold at the end of one step."""

    event: str | None = None
    """An event kind of the step, by class name."""
    request_id: str | None = None
    """With `event`: the event's request. Alone: any event of the request."""
    step: int | None = None
    """Reached or passed; holds once."""
    is_stalled: bool = False
    """Nothing was scheduled while something waited."""
    expression: str | None = None
    """A condition over named fields, `free_blocks < 4`, see `kvscope.analysis.conditions`; where it begins to hold."""


class SetStopConditions(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Replaces the conditions; the engine pauses where any of them holds."""

    conditions: tuple[StopCondition, ...]


class GetStatus(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Asks for the engine's condition."""


class Describe(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Asks for the model and the settings, which the recording has from its first step on."""


class Shutdown(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ends the engine process: at once (unfinished requests are aborted), or when all requests are done."""

    when: Literal["now", "idle"] = "now"


Command = (
    Submit
    | SubmitTogether
    | SubmitPlan
    | Abort
    | Pause
    | Step
    | Resume
    | SetStopConditions
    | GetStatus
    | Describe
    | Shutdown
)


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The command was taken; `request_id` of a submission, the first one of several."""

    request_id: str | None = None
    request_ids: tuple[str, ...] = ()
    """Of several submissions."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The command was not taken; nothing changed."""

    message: str
    setting: str = ""
    """The setting that it is about, where it is about one."""


EnginePhase = Literal["loading", "running", "idle", "paused", "stopped", "failed"]


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The engine's condition. Sent in answer to `GetStatus`, and by itself whenever it changes."""

    phase: EnginePhase
    detail: str = ""
    """What is being loaded; why it paused; the error, in one line."""
    progress: float | None = None
    """0 to 1 while loading, where it is known."""
    recording: str = ""
    """Path of the recording; empty until there is one."""
    step: int = -1
    num_running: int = 0
    num_waiting: int = 0
    num_submitted: int = 0
    """Submissions that have not entered the queue: they wait for the next step, or for their step of a plan."""
    error: str = ""
    """With "failed": the traceback."""
    sampling: dict[str, Any] = {}
    """Sampling settings of requests that do not say otherwise: those that matter, see `sampling_in_use`."""
    recommended_sampling: dict[str, Any] = {}
    """What the model's generation_config.json says, used or not."""


class Described(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The model and the settings, in answer to `Describe`."""

    config: EngineConfigured


Reply = Accepted | Refused | EngineStatus | Described


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One line to the engine."""

    id: int
    """Given back in the `Answer`; counted by the client."""
    command: Command


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One line from the engine: the answer to a `Call`, or a condition that it tells by itself (`id` is None)."""

    id: int | None
    reply: Reply


class EngineControl(Protocol):
    """An engine somewhere else. Never blocks the caller's event loop."""

    @property
    def status(self) -> EngineStatus:
        """The last condition heard of; phase "failed" with detail where the engine is gone."""
        ...

    async def send(self, command: Command) -> Reply:
        """Sends a command and returns the answer. `Refused` where the engine cannot be reached."""
        ...

    async def close(self) -> None:
        """Leaves the engine running."""
        ...


class EngineStarter(Protocol):
    """Starts another engine beside the one that runs, which it leaves alone."""

    @property
    def choices(self) -> dict[str, Any]:
        """What the engine was asked for: model, dtype, device, scheduler settings by their vLLM names."""
        ...

    async def start(self, choices: Mapping[str, Any]) -> EngineControl:
        """Starts an engine, which may still fail while it loads. Raises `KvscopeError` where that is seen at once."""
        ...

    async def discard(self, control: EngineControl) -> None:
        """Ends an engine that was started and is not wanted; nothing of it is left."""
        ...
