"""What an error quotes of a value is bounded; what it says besides is not touched."""

from __future__ import annotations

import pytest

from kvscope.analysis.conditions import ConditionError, parse_condition
from kvscope.errors import KvscopeError, UsageError, bounded


@pytest.mark.parametrize(
    "message",
    [
        "there is no key 'lfet': did you mean 'left'?",
        "prompts' lengths differ by more than what others' prompts do, the model's own limit and nobody else's",
        f"cannot read {'/folder' * 30}/prompts.txt: No such file or directory",
        "there are a, b and c; " + "or words of any number " * 20,
    ],
)
def test_messages_with_short_values_stay_as_they_are(message: str) -> None:
    assert UsageError(message).message == message == str(UsageError(message))


def test_a_quoted_value_is_cut_behind_60_characters_whatever_is_in_it() -> None:
    for value in ("x" * 90, "it's " * 40, "don't\n" * 30, 'say "no" ' * 20):
        error = KvscopeError(f"the model's theme is {value!r}: 'dark' or 'light', not another's")
        quoted = repr(value)
        assert error.message == f"the model's theme is {quoted[:60]}…{quoted[-1]}: 'dark' or 'light', not another's"
    assert bounded(f"cache salt “{'s' * 90}” is taken") == f"cache salt “{'s' * 59}…” is taken"


def test_words_and_messages_have_an_end_too() -> None:
    assert bounded("/a" * 500 + ": no such file") == "/a" * 119 + "/…: no such file"
    long = bounded("what " * 1_000 + "name a file")
    assert (len(long), long[:10], long[-11:]) == (1_000, "what what ", "name a file")


def test_a_condition_says_what_is_wrong_in_it_in_few_words() -> None:
    with pytest.raises(ConditionError) as raised:
        parse_condition("y" * 5_000 + " < 4")
    assert len(raised.value.message) < 400
    assert len(raised.value.reason) < 400
