"""Settings as they are typed into fields: read by their kinds, and everything that is wrong told by field.

A field that is empty says nothing: the engine's own value holds. Knows no screen.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kvscope.analysis.setting_words import WITHOUT_OPTION
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.request import SamplingParams
from kvscope.engine.settings import SettingError, check_scheduler_settings, sampling_params, scheduler_config
from kvscope.json_text import decode_json

NEUTRAL_SAMPLING = SamplingParams()
SAMPLING_NAMES = tuple(SamplingParams.__dataclass_fields__)
SCHEDULER_NAMES = tuple(name for name in SchedulerConfig.__dataclass_fields__ if name not in WITHOUT_OPTION)


@dataclass(frozen=True, slots=True)
class Filled:
    """What fields say: the values of those that are filled in, and what is wrong, by name."""

    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def read_sampling(texts: Mapping[str, str], defaults: Mapping[str, Any]) -> Filled:
    """Reads fields of sampling settings; `defaults` are the engine's, as far as they are known."""
    base = sampling_params(_known(defaults), NEUTRAL_SAMPLING)
    filled = _read(SamplingParams, texts)
    for name, value in list(filled.values.items()):
        _note(filled, name, lambda one={name: value}: sampling_params(one, _wide(base)))  # type: ignore[misc]
    if not filled.errors:
        _note(filled, "", lambda: sampling_params(filled.values, base))
    return filled


def read_scheduler(texts: Mapping[str, str]) -> Filled:
    """Reads fields of scheduler settings; what hangs on the model is the engine's to say when it starts."""
    filled = _read(SchedulerConfig, texts)
    for name, value in list(filled.values.items()):
        _note(filled, name, lambda one={name: value}: check_scheduler_settings(one))  # type: ignore[misc]
    if not filled.errors:
        given = {"num_gpu_blocks": 2, "max_model_len": 2} | filled.values
        _note(filled, "", lambda: scheduler_config(given))
    return filled


def _known(defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in defaults.items() if name in SAMPLING_NAMES}


def _wide(base: SamplingParams) -> SamplingParams:
    """Returns settings that contradict no other single one."""
    return sampling_params({"min_tokens": 0, "max_tokens": 1 << 62}, base)


def _note(filled: Filled, name: str, check: typing.Callable[[], object]) -> None:
    try:
        check()
    except SettingError as error:
        filled.errors[name or error.setting] = error.message


def _read(kind: type, texts: Mapping[str, str]) -> Filled:
    hints, filled = typing.get_type_hints(kind), Filled()
    for name, text in texts.items():
        if not text.strip():
            continue
        try:
            filled.values[name] = parse_field(text, hints[name])
        except ValueError:
            filled.errors[name] = f"{name} must be {_kind_words(hints[name])}, not {text.strip()!r}"
    return filled


def parse_field(text: str, hint: Any) -> Any:
    """Returns the value of a field of this type. Raises `ValueError`.

    Several stop strings are a JSON list; a single one is taken as it is, or as a JSON string where it has quotes.
    Several token ids are separated by commas.
    """
    if typing.get_origin(hint) is tuple:
        return _parse_several(text, typing.get_args(hint)[0])
    kinds = set(typing.get_args(hint) or (hint,)) - {type(None)}
    text = text.strip()
    if kinds <= {bool, int, float}:
        try:
            return msgspec.convert(text.lower(), next(iter(kinds)), strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(text) from error
    return text


def _parse_several(text: str, kind: type) -> list[Any]:
    if kind is int:
        return [int(part) for part in text.strip("[] ").split(",") if part.strip()]
    if not text.lstrip().startswith(("[", '"')):
        return [text]
    try:
        found = decode_json(text)
    except ValueError:
        return [text]
    several = found if isinstance(found, list) else [found]
    if not all(isinstance(one, str) for one in several):
        raise ValueError(text)
    return several


def _kind_words(hint: Any) -> str:
    if typing.get_origin(hint) is tuple:
        return "whole numbers with commas between" if typing.get_args(hint)[0] is int else 'a text or ["one", "two"]'
    kinds = set(typing.get_args(hint) or (hint,)) - {type(None)}
    return "true or false" if kinds == {bool} else "a whole number" if kinds == {int} else "a number"
