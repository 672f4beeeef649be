"""Settings as they are typed: `NAME=A,B,C`."""

from __future__ import annotations

from typing import Any

from kvscope.errors import UsageError
from kvscope.json_text import decode_json


def parse_value(text: str) -> Any:
    """Returns a number, true, false or none as such, and anything else as text."""
    text = text.strip()
    if text.lower() in ("none", "null"):
        return None
    try:
        return decode_json(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        return text


def parse_sweep(text: str, prefix: str = "") -> tuple[str, list[Any]]:
    """Returns name and values of `NAME=A,B,C`. Raises `UsageError`; `prefix` stands before the text in its message."""
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name or not all(part.strip() for part in values.split(",")):
        raise UsageError(f"{prefix}{text}: write it as NAME=A,B,C, for example max_num_batched_tokens=256,512,1024")
    return name, [parse_value(part) for part in values.split(",")]
