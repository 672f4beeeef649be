"""Sampling settings: each against its definition, and randomness that hangs on the request alone."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from kvscope.engine.model.sampler import Sampler, SamplingRow
from kvscope.engine.scheduling.request import Request, SamplingParams

PROBS = [0.4, 0.3, 0.15, 0.1, 0.05]
LOGITS = torch.tensor([PROBS]).log()
EOS = 4


def row(prompt: list[int], output: list[int], request_id: str = "r", **settings: Any) -> SamplingRow:
    sampling = dataclasses.replace(SamplingParams(temperature=0, max_tokens=99), **settings)
    request = Request(request_id=request_id, prompt_token_ids=prompt, sampling=sampling, eos_token_ids=(EOS,))
    request.all_token_ids += output
    return SamplingRow(request)


def sample_one(logits: torch.Tensor, one: SamplingRow) -> int:
    tokens, _ = Sampler(b"").sample(logits, [one])
    return tokens[0]


def frequencies(logits: torch.Tensor = LOGITS, num_samples: int = 4000, **settings: Any) -> list[float]:
    """How often each token is drawn by requests with the seeds 0, 1, 2, …"""
    rows = [row([0], [], **{"temperature": 1.0, "seed": seed, **settings}) for seed in range(num_samples)]
    tokens, _ = Sampler(b"").sample(logits.expand(num_samples, -1), rows)
    return [tokens.count(token) / num_samples for token in range(logits.shape[-1])]


def expect(kept: list[float]) -> list[float]:
    return [p / sum(kept) for p in kept] + [0.0] * (len(PROBS) - len(kept))


@pytest.mark.parametrize("temperature", [1e-6, 1e-39, 1e-300])
def test_next_to_no_temperature_is_greedy(temperature: float) -> None:
    assert frequencies(LOGITS * 30, 20, temperature=temperature) == [1.0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, PROBS),
        ({"top_k": 2}, PROBS[:2]),
        ({"top_k": 99}, PROBS),
        ({"top_p": 0.7}, PROBS[:2]),
        ({"top_p": 0.71}, PROBS[:3]),
        ({"top_p": 0.1}, PROBS[:1]),
        ({"min_p": 0.3}, PROBS[:3]),
        ({"top_k": 3, "top_p": 0.8}, PROBS[:2]),
        ({"min_p": 0.2, "top_p": 0.9}, PROBS[:4]),
    ],
    ids=str,
)
def test_draws_follow_the_probabilities_that_a_setting_leaves(settings: dict[str, Any], kept: list[float]) -> None:
    """4,000 draws: five standard deviations are 0.04."""
    got = frequencies(**settings)
    assert got == pytest.approx(expect(kept), abs=0.04)
    assert [p > 0 for p in got] == [p > 0 for p in expect(kept)]


def test_temperature_sharpens_and_flattens() -> None:
    assert frequencies(temperature=0.5) == pytest.approx(expect([p**2 for p in PROBS]), abs=0.04)
    assert frequencies(temperature=2.0) == pytest.approx(expect([p**0.5 for p in PROBS]), abs=0.04)


def test_filters_hold_where_more_tokens_are_kept_than_are_looked_at_first() -> None:
    """A flat vocabulary of 1,000: top_p 0.5 keeps 500 of them, top_k 400 keeps 400, without either all are possible."""
    logits = torch.linspace(0, -0.01, 1000)[None]
    for settings, num_kept in (({"top_p": 0.5}, 500), ({"top_k": 400}, 400), ({"min_p": 0.5}, 1000)):
        drawn = {sample_one(logits, row([0], [0] * n, temperature=1.0, seed=2, **settings)) for n in range(600)}
        assert max(drawn) < num_kept
        assert max(drawn) > num_kept * 0.97


def test_greedy_takes_the_first_of_the_best() -> None:
    assert sample_one(torch.tensor([[1.0, 3.0, 3.0]]), row([0], [])) == 1
    assert sample_one(torch.tensor([[1.0, 3.0, 2.0]], dtype=torch.bfloat16), row([0], [])) == 1


def test_repetition_penalty_looks_at_prompt_and_output() -> None:
    """Positive logits are divided, negative ones multiplied."""
    logits = torch.tensor([[2.0, 1.9, 1.8, -1.0, -1.2]])
    assert sample_one(logits, row([0], [], repetition_penalty=1.06)) == 1
    assert sample_one(logits, row([0], [1], repetition_penalty=1.2)) == 2
    negative = torch.tensor([[-1.0, -1.1]])
    assert sample_one(negative, row([0], [], repetition_penalty=1.2)) == 1


def test_presence_and_frequency_penalties_look_at_the_output_alone() -> None:
    logits = torch.tensor([[2.0, 1.5, 0.0]])
    assert sample_one(logits, row([0, 0], [], presence_penalty=1.0)) == 0
    assert sample_one(logits, row([1], [0], presence_penalty=0.4)) == 0
    assert sample_one(logits, row([1], [0, 0], presence_penalty=0.4)) == 0
    assert sample_one(logits, row([1], [0, 0], presence_penalty=0.6)) == 1
    assert sample_one(logits, row([1], [0], frequency_penalty=0.3)) == 0
    assert sample_one(logits, row([1], [0, 0], frequency_penalty=0.3)) == 1


def test_min_tokens_keeps_every_stop_away() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0]])
    settings: dict[str, Any] = {"min_tokens": 2, "stop_token_ids": (3, 77)}
    assert sample_one(logits, row([0], [0], **settings)) == 2
    assert sample_one(logits, row([0], [0, 0], **settings)) == 4
    assert frequencies(logits, 200, **settings | {"min_tokens": 1})[3:] == [0, 0]


def test_a_seed_gives_the_same_tokens_in_any_company() -> None:
    sampler = Sampler(b"one engine")
    settings: dict[str, Any] = {"temperature": 1.0, "seed": 42, "top_p": 0.95}
    alone = [sampler.sample(LOGITS, [row([0], [0] * n, **settings)])[0][0] for n in range(20)]
    assert len(set(alone)) > 2
    company = [row([0], [0] * n, "other", temperature=2.0) for n in range(4)]
    logits = torch.cat([torch.randn(2, 5), LOGITS, torch.randn(2, 5)])
    in_batch = [
        Sampler(b"another").sample(logits, [*company[:2], row([0], [0] * n, "x", **settings), *company[2:]])[0][2]
        for n in range(20)
    ]
    assert in_batch == alone


def test_requests_without_a_seed_differ_from_each_other_and_from_run_to_run() -> None:
    def draws(entropy: bytes, request_id: str) -> list[int]:
        sampler = Sampler(entropy)
        return [sampler.sample(LOGITS, [row([0], [0] * n, request_id, temperature=1.0)])[0][0] for n in range(30)]

    assert draws(b"a", "1") == draws(b"a", "1")
    assert len({tuple(draws(b"a", "1")), tuple(draws(b"a", "2")), tuple(draws(b"b", "1"))}) == 3


def test_logprobs_are_of_the_raw_logits() -> None:
    """Neither temperature nor penalties change them; the rank counts from 1."""
    rows = [
        row([0], [0], logprobs=2, presence_penalty=9.0),
        row([0], []),
        row([0], [], logprobs=0),
    ]
    tokens, logprobs = Sampler(b"").sample(LOGITS.expand(3, -1), rows)
    assert tokens == [1, 0, 0]
    first, second, third = logprobs
    assert first is not None
    assert first.rank == 2
    assert first.logprob == pytest.approx(math.log(0.3), abs=1e-5)
    assert [token_id for token_id, _ in first.top] == [0, 1]
    assert [value for _, value in first.top] == pytest.approx([math.log(0.4), math.log(0.3)], abs=1e-5)
    assert second is None
    assert third is not None
    assert (third.rank, third.top) == (1, [])


def test_drafts_count_as_output() -> None:
    one = row([0], [1], frequency_penalty=0.3)
    logits = torch.tensor([[2.0, 1.5, 0.0]])
    assert Sampler(b"").sample(logits, [SamplingRow(one.request, [0])])[0] == [0]
    assert Sampler(b"").sample(logits, [SamplingRow(one.request, [0, -1, 0, 0])])[0] == [1]
