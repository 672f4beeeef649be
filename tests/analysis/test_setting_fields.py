"""Settings as they are typed: values by their kinds, and every error at its field with value and limit."""

from __future__ import annotations

import pytest

from kvscope.analysis.setting_fields import Filled, read_sampling, read_scheduler
from kvscope.analysis.setting_words import sampling_in_use, settings_line, value_text

ENGINE = {"temperature": 0.0, "max_tokens": 256}


def test_fields_that_are_filled_in_are_read_by_their_kinds_and_empty_ones_say_nothing() -> None:
    texts = {
        "temperature": " 0.7 ",
        "top_p": "",
        "top_k": "40",
        "seed": "3",
        "ignore_eos": "True",
        "stop": "END. ",
        "stop_token_ids": "2, 7",
        "min_tokens": " ",
    }
    assert read_sampling(texts, ENGINE) == Filled(
        {"temperature": 0.7, "top_k": 40, "seed": 3, "ignore_eos": True, "stop": ["END. "], "stop_token_ids": [2, 7]}
    )


@pytest.mark.parametrize(
    ("text", "stop"),
    [('["a", "b\\n"]', ["a", "b\n"]), ('"\\n\\n"', ["\n\n"]), ("[sic", ["[sic"]), ('"quoted', ['"quoted'])],
)
def test_stop_strings_may_be_json(text: str, stop: list[str]) -> None:
    assert read_sampling({"stop": text}, ENGINE) == Filled({"stop": stop})


def test_everything_that_is_wrong_is_told_at_once_each_at_its_field() -> None:
    texts = {"temperature": "-1", "top_p": "2", "max_tokens": "many", "ignore_eos": "x", "top_k": "5", "stop": "[1]"}
    found = read_sampling(texts, ENGINE)
    assert found.values["top_k"] == 5
    assert found.errors == {
        "temperature": "temperature must be at least 0 (0 is greedy), not -1.0",
        "top_p": "top_p must be above 0 and at most 1, not 2.0",
        "max_tokens": "max_tokens must be a whole number, not 'many'",
        "ignore_eos": "ignore_eos must be true or false, not 'x'",
        "stop": 'stop must be a text or ["one", "two"], not \'[1]\'',
    }


def test_what_contradicts_the_engines_own_value_is_told_too() -> None:
    assert read_sampling({"min_tokens": "300"}, ENGINE).errors == {
        "min_tokens": "min_tokens (300) must be at most max_tokens (256)"
    }
    assert read_sampling({"min_tokens": "300", "max_tokens": "400"}, ENGINE).errors == {}


def test_scheduler_settings() -> None:
    texts = {"num_gpu_blocks": "65", "policy": "priority", "enable_prefix_caching": "false", "watermark": "0.05"}
    assert read_scheduler(texts) == Filled(
        {"num_gpu_blocks": 65, "policy": "priority", "enable_prefix_caching": False, "watermark": 0.05}
    )
    assert read_scheduler({"num_gpu_blocks": "1", "policy": "lifo", "block_size": "1.5"}).errors == {
        "num_gpu_blocks": "num_gpu_blocks must be at least 2 (block 0 is the null block and is never used), not 1",
        "policy": "policy must be fcfs or priority, not 'lifo'",
        "block_size": "block_size must be a whole number, not '1.5'",
    }
    assert read_scheduler({"max_num_batched_tokens": "4", "max_num_seqs": "8"}).errors == {
        "max_num_batched_tokens": "max_num_batched_tokens (4) must be at least max_num_seqs (8): "
        "each running sequence needs a token a step"
    }
    assert read_scheduler({"watermark": "2"}).errors == {
        "watermark": "watermark must be at least 0 and below 1, not 2.0"
    }


def test_settings_are_written_as_they_can_be_typed() -> None:
    values = (None, True, 0.0, 0.25, 7, ("a", "b"), "x")
    assert [value_text(value) for value in values] == ["", "true", "0", "0.25", "7", "a, b", "x"]
    neutral = {"temperature": 1.0, "max_tokens": 16, "top_k": 0, "seed": None}
    used = sampling_in_use({"temperature": 1.0, "max_tokens": 16, "top_k": 0, "seed": 5}, neutral)
    assert settings_line(used) == "temperature 1, max_tokens 16, seed 5"
