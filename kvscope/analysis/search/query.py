"""What is typed after `/`, and what is looked for then.

A word is looked for in request ids, prompts, outputs, kinds of events and reasons; a number also as a token; `b57` is a
block, `#a1b2` a hash, `/…/` a regular expression. `token:`, `text:` and the like ask for one of these alone. Small
letters find large ones too, a large letter only itself.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from kvscope.analysis.search.patterns import check_pattern
from kvscope.analysis.text import visible
from kvscope.errors import UsageError

EXAMPLES = "req-7  some words  b57  token:1234  #a1b2c3  event:evicted  reason:watermark  /regular expression/"

PLACES = ("request", "prompt", "output", "event", "reason")
"""Where texts are looked for."""

_PREFIXES: dict[str, frozenset[str]] = {
    "request": frozenset({"request"}),
    "id": frozenset({"request"}),
    "text": frozenset({"prompt", "output"}),
    "prompt": frozenset({"prompt"}),
    "output": frozenset({"output"}),
    "event": frozenset({"event"}),
    "reason": frozenset({"reason"}),
}
_NUMBERS = ("token", "block", "hash")
MAX_CHARACTERS = 500


class SearchError(UsageError):
    """A query cannot be understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is looked for; all that is given, in one pass."""

    text: str
    """As it was typed."""
    words: str = ""
    """What `pattern` is made of."""
    pattern: re.Pattern[str] | None = None
    places: frozenset[str] = frozenset()
    """Where `pattern` is looked for."""
    is_literal: bool = True
    token_id: int | None = None
    block_id: int | None = None
    hash_digits: str | None = None
    has_frequent_events: bool = False
    """Also kinds of events that every step has."""


def parse_query(text: str) -> Query:
    """Returns the query. Raises `SearchError` with what is wrong."""
    text = text.strip()
    if not text:
        raise SearchError(f"nothing to look for: type one of {EXAMPLES}")
    if len(text) > MAX_CHARACTERS:
        raise SearchError(f"a search has at most {MAX_CHARACTERS} characters, this one {len(text)}")
    prefix, colon, rest = text.partition(":")
    prefix, rest = prefix.lower(), rest.strip()
    if colon and rest and prefix in _NUMBERS:
        return _numbered(text, prefix, rest)
    if colon and rest and prefix in _PREFIXES:
        return _textual(text, rest, _PREFIXES[prefix], has_frequent_events=prefix == "event")
    if text.startswith("#"):
        return _numbered(text, "hash", text[1:])
    if re.fullmatch(r"b\d{1,9}", text):
        return _textual(text, text, {"request"}, block_id=int(text[1:]))
    if re.fullmatch(r"\d{1,8}", text):
        return _textual(text, text, {"request", "prompt", "output"}, token_id=int(text))
    if re.fullmatch(r"[0-9a-fA-F]{16}", text):
        return _textual(text, text, PLACES, hash_digits=text.lower())
    return _textual(text, text, PLACES)


def _numbered(text: str, prefix: str, value: str) -> Query:
    if prefix == "hash":
        digits = value.removeprefix("0x").lower()
        if not re.fullmatch(r"[0-9a-f]{2,16}", digits):
            raise SearchError(f"{visible(value)} is no hash: 2 to 16 hexadecimal digits, like #a1b2c3")
        return Query(text=text, hash_digits=digits)
    if prefix == "block":
        value = value.removeprefix("b")
    if not re.fullmatch(r"\d{1,9}", value):
        raise SearchError(f"{visible(value)} is no {prefix}: it is a number, like {prefix}:57")
    return Query(text=text, token_id=int(value)) if prefix == "token" else Query(text=text, block_id=int(value))


def _textual(
    text: str,
    words: str,
    places: Iterable[str],
    *,
    token_id: int | None = None,
    block_id: int | None = None,
    hash_digits: str | None = None,
    has_frequent_events: bool = False,
) -> Query:
    is_regex = len(words) > 2 and words.startswith("/") and words.endswith("/")
    return Query(
        text=text,
        words=words,
        pattern=_compiled(words[1:-1], text.index(words) + 1) if is_regex else _compiled_literal(words),
        places=frozenset(places),
        is_literal=not is_regex,
        token_id=token_id,
        block_id=block_id,
        hash_digits=hash_digits,
        has_frequent_events=has_frequent_events,
    )


def _flags(words: str) -> re.RegexFlag:
    return re.IGNORECASE if words == words.lower() else re.NOFLAG


def _compiled_literal(words: str) -> re.Pattern[str]:
    return re.compile(re.escape(words), _flags(words))


def _compiled(source: str, column: int) -> re.Pattern[str]:
    """`column`: where it stands in what was typed. Raises `SearchError`."""
    try:
        letters = re.sub(r"\\.", "", source)  # \S is no large letter
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python may one day read otherwise is no matter here
            pattern = re.compile(source, _flags(letters))
    except re.error as error:
        place = column + (error.pos or 0) + 1
        raise SearchError(f"column {place}: this is no regular expression: {error.msg}") from error
    except (OverflowError, RecursionError) as error:
        raise SearchError(f"this regular expression is too large: {type(error).__name__}") from error
    problem = check_pattern(source)
    if problem is not None:
        raise SearchError(f"column {column + problem.place + 1}: {problem.reason}")
    return pattern
