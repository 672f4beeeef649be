"""The scenario format: a scheduler's settings, and requests with what their model will say. Read strictly.

A file of golden form, `{"workload": …, "trace": …}`, is read too: the workload alone, whatever stands beside it (the
trace of another scheduler, a question with its answer).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.hashing import MAX_TOKEN_ID
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.settings import MAX_NUMBER, scheduler_config
from kvscope.errors import UsageError
from kvscope.json_text import decode_json

DEFAULT_MAX_STEPS = 400


class ScenarioRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request, and what happens to it. Steps count from 0."""

    id: str
    arrival_step: int
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    output_token_ids: tuple[int, ...]
    """The k-th output token is the k-th of these."""
    arrival_time: float = 0.0
    priority: int = 0
    stop_token_ids: tuple[int, ...] = ()
    cache_salt: str | None = None
    lora_name: str | None = None
    cancel_step: int | None = None
    """Aborted before this step is scheduled."""
    cancel_mid: bool = False
    """Aborted while `cancel_step` executes instead."""
    drafts: tuple[tuple[int, ...], ...] = ()
    """What the drafter proposes after the request's j-th sampling."""

    def new_request(self) -> Request:
        """Returns the request as the scheduler takes it, greedy."""
        return Request(
            self.id,
            list(self.prompt_token_ids),
            SamplingParams(temperature=0.0, max_tokens=self.max_tokens, stop_token_ids=self.stop_token_ids),
            arrival_time=self.arrival_time,
            priority=self.priority,
            cache_salt=self.cache_salt,
            lora_name=self.lora_name,
        )


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and requests, in the order of the file."""

    name: str
    config: SchedulerConfig
    requests: tuple[ScenarioRequest, ...]
    max_steps: int = DEFAULT_MAX_STEPS
    shows: str = ""


_TOP_KEYS = ("name", "shows", "config", "requests", "max_steps")
_OPEN_CONNECTOR_KEYS = ("ext",)
_WHOLE_NUMBERS = ("arrival_step", "cancel_step", "priority", "max_tokens")


def load_scenario(path: Path) -> Scenario:
    """Reads a scenario file. Raises `UsageError` with the file, the place in it, and what is allowed there."""
    try:
        data = decode_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    try:
        return parse_scenario(data, default_name=path.stem)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from error


def parse_scenario(data: Any, default_name: str = "scenario") -> Scenario:
    """Returns the scenario of decoded JSON. Raises `UsageError`."""
    if isinstance(data, dict) and "workload" in data:
        data = data["workload"]
    if not isinstance(data, dict):
        raise UsageError('a scenario is an object with "config" and "requests"')
    _check_keys(data, _TOP_KEYS, "the scenario")
    for key in ("config", "requests"):
        if key not in data:
            raise UsageError(f"the scenario has no {key!r}")
    if not isinstance(data["config"], dict) or not isinstance(data["requests"], list):
        raise UsageError('"config" must be an object and "requests" a list')
    config = _config(data["config"])
    requests = tuple(_request(entry, index, config) for index, entry in enumerate(data["requests"]))
    seen: set[str] = set()
    for request in requests:
        if request.id in seen:
            raise UsageError(f"two requests have the id {request.id!r}; ids must differ")
        seen.add(request.id)
    max_steps = data.get("max_steps", DEFAULT_MAX_STEPS)
    if type(max_steps) is not int or max_steps < 1:
        raise UsageError(f"max_steps must be a whole number of at least 1, not {max_steps!r}")
    return Scenario(
        name=str(data.get("name", default_name)),
        config=config,
        requests=requests,
        max_steps=max_steps,
        shows=str(data.get("shows", "")),
    )


def _config(settings: Mapping[str, Any]) -> SchedulerConfig:
    if "num_gpu_blocks" not in settings:
        raise UsageError("config: num_gpu_blocks is missing (the pool's size, with the null block)")
    try:
        config = scheduler_config(settings)
    except UsageError as error:
        raise UsageError(f"config: {error.message}") from error
    if config.connector:
        raise UsageError("config: connector must be false: scenarios with a KV connector cannot be simulated yet")
    return config


def _request(entry: Any, index: int, config: SchedulerConfig) -> ScenarioRequest:
    where = f"requests[{index}]"
    if not isinstance(entry, dict):
        raise UsageError(f"{where} must be an object")
    where = f"request {entry['id']!r}" if isinstance(entry.get("id"), str) else where
    if entry.get("ext") is None:
        entry = {key: value for key, value in entry.items() if key not in _OPEN_CONNECTOR_KEYS}
    else:
        raise UsageError(f"{where}: ext must be null: scenarios with a KV connector cannot be simulated yet")
    _check_keys(entry, ScenarioRequest.__struct_fields__, where)
    try:
        request = msgspec.convert(entry, ScenarioRequest)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {str(error).replace('`$.', '`').replace(' - at ', ' at ')}") from error
    for name in _WHOLE_NUMBERS:
        value = getattr(request, name)
        if value is not None and abs(value) > MAX_NUMBER:
            raise UsageError(f"{where}: {name} must be at most {MAX_NUMBER:,} either way, not {value}")
    _check_limits(request, where, config)
    return request


def _check_limits(request: ScenarioRequest, where: str, config: SchedulerConfig) -> None:
    def check(is_fine: bool, message: str) -> None:
        if not is_fine:
            raise UsageError(f"{where}: {message}")

    check(request.id != "", "id must not be empty")
    check(len(request.prompt_token_ids) > 0, "prompt_token_ids must have at least one token")
    check(request.max_tokens >= 1, f"max_tokens must be at least 1, not {request.max_tokens}")
    check(
        not request.cancel_mid or request.cancel_step is not None,
        "cancel_mid needs a cancel_step: the step that executes when it is aborted",
    )
    for name in ("arrival_step", "cancel_step"):
        step = getattr(request, name)
        check(step is None or step >= 0, f"{name} must be at least 0, not {step}")
    check(math.isfinite(request.arrival_time), f"arrival_time must be a time in seconds, not {request.arrival_time}")
    for name in ("prompt_token_ids", "output_token_ids", "stop_token_ids"):
        for token_id in getattr(request, name):
            check(0 <= token_id <= MAX_TOKEN_ID, f"{name}: {token_id} is no token id (0 to {MAX_TOKEN_ID})")
    room = max(config.max_model_len - len(request.prompt_token_ids), 0)
    most = min(request.max_tokens, room)
    for index, token_id in enumerate(request.output_token_ids[:most]):
        if token_id in request.stop_token_ids:
            most = index + 1
            break
    num_outputs = len(request.output_token_ids)
    check(
        num_outputs >= most,
        f"output_token_ids has {num_outputs} tokens, but up to {most} may be sampled; give as many as max_tokens",
    )


def _check_keys(entry: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for key in entry:
        if key not in names:
            nearest = difflib.get_close_matches(key, names, n=1, cutoff=0)[0]
            raise UsageError(f"{where}: there is no key {key!r}: did you mean {nearest!r}?")
