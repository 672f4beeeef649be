"""Turns settings that a user wrote into `SamplingParams` and `SchedulerConfig`, and says what is wrong with them.

Ranges are those of vLLM 0.32.0 (`SamplingParams._verify_args`, `SchedulerConfig`). Knows no model: limits that depend
on one are the engine's.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.hashing import MAX_TOKEN_ID
from kvscope.engine.scheduling.request import SamplingParams
from kvscope.errors import UsageError

T = TypeVar("T")

MAX_NUMBER = (1 << 63) - 1
"""The largest that a recording holds."""

MAX_COUNT = (1 << 31) - 1
"""Of tokens and requests: kernels count with 32 bits."""

MAX_NUM_GPU_BLOCKS = 1 << 22
"""A block costs some 150 bytes beside its keys and values, in the engine and in what shows it: 1.2 GiB at this most."""

MAX_LOGPROBS = 20
"""vLLM's default `max_logprobs`."""


class SettingError(UsageError):
    """A setting has a value that it cannot have: `have`, where `limit` is the nearest one allowed.

    Both are 0 where the value is no number.
    """

    def __init__(self, setting: str, message: str, *, have: float = 0, limit: float = 0) -> None:
        super().__init__(message)
        self.setting = setting
        self.have = have
        self.limit = limit


_RANGES: dict[type, dict[str, tuple[float, float, str]]] = {
    SamplingParams: {
        "temperature": (0, math.inf, "0 is greedy"),
        "top_k": (0, MAX_NUMBER, "0 is off"),
        "min_p": (0, 1, "0 is off"),
        "presence_penalty": (-2, 2, "0 is off"),
        "frequency_penalty": (-2, 2, "0 is off"),
        "max_tokens": (1, MAX_NUMBER, ""),
        "min_tokens": (0, MAX_NUMBER, ""),
        "seed": (-MAX_NUMBER, MAX_NUMBER, ""),
        "logprobs": (0, MAX_LOGPROBS, "leave it out to have none"),
    },
    SchedulerConfig: {
        "num_gpu_blocks": (2, MAX_NUM_GPU_BLOCKS, "block 0 is the null block and is never used"),
        "block_size": (1, MAX_COUNT, ""),
        "max_num_batched_tokens": (1, MAX_COUNT, ""),
        "max_num_seqs": (1, MAX_COUNT, ""),
        "max_model_len": (2, MAX_COUNT, "a prompt and one token"),
        "long_prefill_token_threshold": (0, MAX_COUNT, "0 is off"),
        "num_spec_tokens": (0, MAX_COUNT, "0 is off"),
        "num_lookahead_tokens": (0, MAX_COUNT, ""),
        "max_num_scheduled_tokens": (1, MAX_COUNT, ""),
    },
}
_CHOICES = {
    "policy": ("fcfs", "priority"),
    "kv_load_failure_policy": ("recompute", "fail"),
    "batching": ("unified", "static", "exclusive"),
}


def sampling_params(settings: Mapping[str, Any], defaults: SamplingParams) -> SamplingParams:
    """Returns the defaults with these settings; `stop` may be a single string.

    Raises `SettingError`, for an unknown setting with the nearest valid name.
    """
    if isinstance(settings.get("stop"), str):
        settings = {**settings, "stop": (settings["stop"],)}
    params = _apply(settings, defaults)
    if not 0 < params.top_p <= 1:
        raise SettingError(
            "top_p", f"top_p must be above 0 and at most 1, not {params.top_p}", have=params.top_p, limit=1
        )
    if not 0 < params.repetition_penalty < math.inf:
        have = params.repetition_penalty
        raise SettingError(
            "repetition_penalty", f"repetition_penalty must be above 0 (1 is off), not {have}", have=have
        )
    if params.min_tokens > params.max_tokens:
        raise SettingError(
            "min_tokens",
            f"min_tokens ({params.min_tokens}) must be at most max_tokens ({params.max_tokens})",
            have=params.min_tokens,
            limit=params.max_tokens,
        )
    if "" in params.stop:
        raise SettingError("stop", "stop strings must not be empty")
    if not is_unicode("".join(params.stop)):
        raise SettingError("stop", f"stop strings have bytes that are no UTF-8 text: {list(params.stop)}")
    if any(not 0 <= token_id <= MAX_TOKEN_ID for token_id in params.stop_token_ids):
        raise SettingError(
            "stop_token_ids", f"stop_token_ids must be from 0 to {MAX_TOKEN_ID:,}, not {list(params.stop_token_ids)}"
        )
    return params


def is_unicode(text: str) -> bool:
    """False for a text with halves of surrogate pairs: what Python makes of a command line that is no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_scheduler_settings(settings: Mapping[str, Any]) -> None:
    """Raises `SettingError` for a setting that is unknown or wrong by itself, whatever the others will be."""
    _apply(settings, SchedulerConfig(num_gpu_blocks=2))


def scheduler_config(settings: Mapping[str, Any]) -> SchedulerConfig:
    """Returns the configuration with these settings; `num_gpu_blocks` must be among them.

    Where `max_num_seqs` is left out, it is lowered to a small token budget. Raises `SettingError`.
    """
    settings = dict(settings)
    config = _apply(settings, SchedulerConfig(num_gpu_blocks=settings.get("num_gpu_blocks", 2)))
    if "max_num_seqs" not in settings:
        config = dataclasses.replace(config, max_num_seqs=min(config.max_num_seqs, config.max_num_batched_tokens))
    budget = config.max_num_batched_tokens
    if budget < config.max_num_seqs:
        raise SettingError(
            "max_num_batched_tokens",
            f"max_num_batched_tokens ({budget}) must be at least max_num_seqs ({config.max_num_seqs}): "
            "each running sequence needs a token a step",
            have=budget,
            limit=config.max_num_seqs,
        )
    if not config.enable_chunked_prefill and budget < config.max_model_len:
        raise SettingError(
            "max_num_batched_tokens",
            f"without chunked prefill max_num_batched_tokens ({budget}) must be at least max_model_len "
            f"({config.max_model_len}): raise the one or lower the other",
            have=budget,
            limit=config.max_model_len,
        )
    if not 0 <= config.watermark < 1:
        have = config.watermark
        raise SettingError("watermark", f"watermark must be at least 0 and below 1, not {have}", have=have, limit=1)
    return config


def _apply(settings: Mapping[str, Any], defaults: T) -> T:
    kind = type(defaults)
    names = [field.name for field in dataclasses.fields(defaults)]  # type: ignore[arg-type]
    for name in settings:
        if name not in names:
            nearest = difflib.get_close_matches(name, names, n=1, cutoff=0)[0]
            raise SettingError(name, f"there is no setting {name!r}: did you mean {nearest}?")
    for name, value in settings.items():
        if name in _CHOICES and value not in _CHOICES[name]:
            raise SettingError(name, f"{name} must be {' or '.join(_CHOICES[name])}, not {value!r}")
        _check_range(kind, name, value)
    current = {name: getattr(defaults, name) for name in names}
    try:
        return msgspec.convert(current | dict(settings), kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        name = where.rstrip("`").partition("[")[0]
        raise SettingError(name, f"{name} is of the wrong kind: {what[:1].lower()}{what[1:]}") from error


def _check_range(kind: type, name: str, value: Any) -> None:
    if name not in _RANGES[kind] or not isinstance(value, int | float):
        return
    low, high, meaning = _RANGES[kind][name]
    if low <= value <= high and math.isfinite(value):
        return
    is_open = high >= MAX_NUM_GPU_BLOCKS  # nobody comes near it but by mistake
    bounds = f"from {low} to {high}" if not is_open else f"at most {high:,}" if value > high else f"at least {low}"
    nearest = high if value > high else low
    hint = f" ({meaning})" if meaning else ""
    raise SettingError(name, f"{name} must be {bounds}{hint}, not {value}", have=value, limit=nearest)
