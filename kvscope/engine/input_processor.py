"""From what a caller asks for to a request that can be scheduled, or to a refusal that says why.

What is let through here cannot fail a step: nobody's request ends because somebody else's was wrong.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvscope import events as ev
from kvscope.engine import settings
from kvscope.engine.model_description import ModelDescription
from kvscope.engine.request_output import OnUpdate
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.hashing import MAX_TOKEN_ID
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.settings import MAX_NUMBER, SettingError, is_unicode
from kvscope.engine.text_codec import TextCodec
from kvscope.errors import KvscopeError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request as a caller asks for it; see `LLMEngine.add_request`."""

    prompt: str | Sequence[int]
    sampling: SamplingParams | Mapping[str, Any] | None = None
    is_chat: bool = False
    system: str | None = None
    priority: int = 0
    cache_salt: str | None = None
    request_id: str | None = None
    arrival_time: float | None = None
    on_update: OnUpdate | None = None


class InputProcessor:
    """Makes requests for one engine. May be used from any thread."""

    def __init__(
        self,
        config: SchedulerConfig,
        model: ModelDescription,
        codec: TextCodec | None,
        default_sampling: SamplingParams,
        clock_ns: Callable[[], int],
    ) -> None:
        """`default_sampling` fills what a request leaves out; `clock_ns` is the engine's."""
        self._config = config
        self._model = model
        self._codec = codec
        self._default_sampling = default_sampling
        self._clock_ns = clock_ns

    def sampling_params(self, given: Mapping[str, Any]) -> SamplingParams:
        """Returns the engine's defaults with these settings. Raises `SettingError`."""
        return settings.sampling_params(given, self._default_sampling)

    def new_request(self, submission: Submission, arrival_ns: int) -> Request:
        """Returns a request that has no id yet. Raises `UsageError`, or `ModelError` of the chat template."""
        given = submission.sampling or {}
        sampling = self.sampling_params(dataclasses.asdict(given) if isinstance(given, SamplingParams) else given)
        encoded = encode_prompt(
            self._codec,
            submission.prompt,
            is_chat=submission.is_chat,
            system=submission.system,
            clock_ns=self._clock_ns,
        )
        check_token_ids(encoded.token_ids, self._model.vocab_size)
        check_length(encoded.token_ids, self._config.max_model_len)
        check_labels(
            priority=submission.priority, cache_salt=submission.cache_salt, arrival_time=submission.arrival_time
        )
        return Request(
            request_id="",
            prompt_token_ids=encoded.token_ids,
            sampling=sampling,
            arrival_time=arrival_ns / 1e9 if submission.arrival_time is None else submission.arrival_time,
            priority=submission.priority,
            cache_salt=submission.cache_salt,
            eos_token_ids=self._model.eos_token_ids,
            prompt=encoded.text,
            arrival_ns=arrival_ns,
            template_ns=encoded.template_ns,
            tokenize_ns=encoded.tokenize_ns,
        )


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt's tokens, its text before any template, and what either took in ns."""

    token_ids: list[int]
    text: str | None = None
    template_ns: int = 0
    tokenize_ns: int = 0


def encode_prompt(
    codec: TextCodec | None,
    prompt: str | Sequence[int],
    *,
    is_chat: bool,
    system: str | None,
    clock_ns: Callable[[], int],
) -> EncodedPrompt:
    """Returns the tokens of the prompt. Raises `SettingError` where there is nothing to compute."""
    if not isinstance(prompt, str):
        return EncodedPrompt(_not_empty(list(prompt)))
    if codec is None:
        raise UsageError("this engine has no tokenizer: give the prompt as token ids")
    if not prompt or (is_chat and not prompt.strip()):
        raise _empty()
    if not is_unicode(prompt + (system or "")):
        raise SettingError("prompt", "the prompt has bytes that are no UTF-8 text: check the terminal's encoding")
    began = clock_ns()
    if not is_chat:
        token_ids = codec.encode(prompt)
        return EncodedPrompt(_not_empty(token_ids), prompt, tokenize_ns=clock_ns() - began)
    messages = [{"role": "system", "content": system}] if system is not None else []
    rendered = codec.render_chat([*messages, {"role": "user", "content": prompt}])
    rendered_ns = clock_ns()
    token_ids = codec.encode_rendered_chat(rendered)
    return EncodedPrompt(_not_empty(token_ids), prompt, rendered_ns - began, clock_ns() - rendered_ns)


def check_token_ids(token_ids: Sequence[int], vocab_size: int | None) -> None:
    """Raises `SettingError` for the first that the model has no embedding of, or that could not be hashed."""
    last = MAX_TOKEN_ID if vocab_size is None else vocab_size - 1
    if set(map(type, token_ids)) == {int} and min(token_ids) >= 0 and max(token_ids) <= last:
        return
    position, token_id = next(
        (position, token_id)
        for position, token_id in enumerate(token_ids)
        if type(token_id) is not int or not 0 <= token_id <= last
    )
    is_number = type(token_id) is int
    raise SettingError(
        "prompt",
        f"token {position} of the prompt is {token_id!r}: token ids are whole numbers from 0 to {last:,}",
        have=token_id if is_number else 0,
        limit=last if is_number and token_id > last else 0,
    )


def check_labels(*, priority: int, cache_salt: str | None, arrival_time: float | None = None) -> None:
    """Raises `SettingError` for what goes with a prompt and could not be put in order or recorded."""
    if arrival_time is not None and not math.isfinite(arrival_time):
        raise SettingError("arrival_time", f"arrival_time must be a number of seconds, not {arrival_time}")
    if abs(priority) > MAX_NUMBER:
        raise SettingError("priority", f"priority must be at most {MAX_NUMBER:,} either way, not {priority}")
    if not is_unicode(cache_salt or ""):
        raise SettingError("cache_salt", f"cache_salt has bytes that are no UTF-8 text: {cache_salt!r}")


def check_length(token_ids: Sequence[int], max_model_len: int) -> None:
    """Raises `SettingError` for a prompt that leaves no room for a token of output."""
    if len(token_ids) > max_model_len - 1:
        raise SettingError(
            "max_model_len",
            f"the prompt has {len(token_ids)} tokens, max_model_len ({max_model_len}) allows {max_model_len - 1} and "
            "one of output: shorten the prompt, or raise max_model_len if the model allows more",
            have=len(token_ids),
            limit=max_model_len - 1,
        )


def rejected(request_id: str, error: KvscopeError) -> ev.RequestRejected:
    """Returns the refusal as it is recorded. Fractions are cut off; the message has them."""
    if not isinstance(error, SettingError):
        return ev.RequestRejected(request_id=request_id, reason="request", have=0, limit=0, message=error.message)
    have, limit = (int(figure) if abs(figure) < 2**62 else 0 for figure in (error.have, error.limit))
    return ev.RequestRejected(
        request_id=request_id, reason=error.setting, have=have, limit=limit, message=error.message
    )


def _not_empty(token_ids: list[int]) -> list[int]:
    if not token_ids:
        raise _empty()
    return token_ids


def _empty() -> SettingError:
    return SettingError("prompt", "the prompt is empty: give at least one word", have=0, limit=1)
