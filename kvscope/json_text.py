"""JSON that a user wrote, decoded so that all that is wrong with it is one kind of error.

Python's own decoder takes NaN, and half a character by its escape, which no file can hold; of what is nested too deep
it raises something else. Knows nothing of what the text is for.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn


def decode_json(text: str | bytes) -> Any:
    """Returns what a JSON text says; numbers are finite, texts are whole. Raises `ValueError`."""
    try:
        found = json.loads(text, parse_constant=_refuse)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"\\u{ord(error.object[error.start]):04x} is half a character") from None
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
