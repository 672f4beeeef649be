"""The runner on its own: what it computes must hang on the KV cache, and drafts must change nothing."""

from __future__ import annotations

import pytest

from kvscope.engine.model.loader import Model
from kvscope.engine.model.model_runner import TorchModelRunner
from kvscope.engine.model.sampler import Sampler
from kvscope.engine.scheduling.output import SchedulerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams
from tests.engine.model.run_model import make_request

GREEDY = SamplingParams(temperature=0, max_tokens=100)


def new_runner(model: Model) -> TorchModelRunner:
    return model.new_runner(num_blocks=64, block_size=16, sampler=Sampler(entropy=b"fixed"))


def feed(
    runner: TorchModelRunner, work: list[tuple[Request, int]], drafts: dict[str, list[int]] | None = None
) -> list[list[int]]:
    """One step: advances each request by so many tokens, drafts included, and returns what was sampled."""
    for request, count in work:
        request.num_computed_tokens += count
    output = SchedulerOutput(
        step=0,
        requests=[request for request, _ in work],
        num_scheduled_tokens=[count for _, count in work],
        scheduled_spec_tokens=drafts or {},
    )
    return runner.execute(output).sampled_token_ids


def prefilled(model: Model, runner: TorchModelRunner, text: str, sampling: SamplingParams = GREEDY) -> Request:
    """A request whose prompt is computed, with its first token; its blocks are 1, 2, …"""
    request = make_request(model, "r", model.tokenizer.encode(text), sampling)
    request.block_ids = list(range(1, 33))
    request.all_token_ids += feed(runner, [(request, request.num_prompt_tokens)])[0]
    return request


def decode(runner: TorchModelRunner, request: Request, num_tokens: int) -> list[int]:
    for _ in range(num_tokens):
        request.all_token_ids += feed(runner, [(request, 1)])[0]
    return request.output_token_ids


TEXT = "Keys and values of this sentence lie in eight blocks of sixteen tokens each; all of them count for the answer."


@pytest.mark.parametrize("block_index", range(7))
def test_one_wrong_block_changes_what_is_said(toy: Model, block_index: int) -> None:
    """The test that makes the grids over scheduler settings worth something."""
    runner = new_runner(toy)
    expected = decode(runner, prefilled(toy, runner, TEXT), 24)
    runner = new_runner(toy)
    request = prefilled(toy, runner, TEXT)
    right, wrong = request.block_ids[block_index], request.block_ids[(block_index + 1) % 7]
    for cached in (runner.kv_cache.key, runner.kv_cache.value):
        cached[:, right] = cached[:, wrong]
    assert decode(runner, request, 24) != expected


def test_chunks_and_decodes_in_one_pass_are_as_each_alone(toy: Model) -> None:
    """Three requests at different points: a decode, a chunk in the middle of a prompt, and a prompt's last chunk."""
    texts = ["the first one", "a second one with a longer prompt, which comes in two chunks", "third: last chunk"]
    alone = []
    for text in texts:
        runner = new_runner(toy)
        alone.append(decode(runner, prefilled(toy, runner, text), 1)[:2])

    runner = new_runner(toy)
    first, second, third = (make_request(toy, text[:3], toy.tokenizer.encode(text), GREEDY) for text in texts)
    for i, request in enumerate((first, second, third)):
        request.block_ids = list(range(1 + 10 * i, 11 + 10 * i))
    assert feed(runner, [(first, first.num_tokens), (third, 5)]) == [alone[0][:1], []]
    first.all_token_ids += alone[0][:1]
    mixed = feed(runner, [(second, 30), (first, 1), (third, third.num_tokens - 5)])
    assert mixed == [[], alone[0][1:], alone[2][:1]]
    assert feed(runner, [(second, second.num_tokens - 30)]) == [alone[1][:1]]


def test_a_request_may_read_blocks_that_another_computes_in_the_same_step(toy: Model) -> None:
    """As with two equal prompts in one step: the second starts behind blocks that are written in this very pass."""
    prompt = toy.tokenizer.encode("a prompt of more than two whole blocks of tokens")
    runner = new_runner(toy)
    leader, follower = (make_request(toy, name, prompt, GREEDY) for name in ("leader", "follower"))
    leader.block_ids, follower.block_ids = [1, 2, 3, 4], [1, 2, 9, 10]
    follower.num_computed_tokens = 32
    sampled = feed(runner, [(follower, len(prompt) - 32), (leader, len(prompt))])
    assert sampled[0] == sampled[1]
    assert len(sampled[0]) == 1


@pytest.mark.parametrize(
    "sampling", [GREEDY, SamplingParams(temperature=2.0, seed=11, max_tokens=100)], ids=["greedy", "seeded"]
)
def test_right_drafts_are_accepted_and_wrong_ones_change_nothing(toy: Model, sampling: SamplingParams) -> None:
    runner = new_runner(toy)
    expected = decode(runner, prefilled(toy, runner, "speculate", sampling), 5)
    wrong = (expected[3] + 1) % 256

    for drafts, accepted in (
        (expected[1:4], expected[1:5]),
        ([expected[1], expected[2], wrong], expected[1:4]),
        ([-1, -1], expected[1:2]),
    ):
        runner = new_runner(toy)
        request = prefilled(toy, runner, "speculate", sampling)
        assert feed(runner, [(request, 1 + len(drafts))], {"r": drafts}) == [accepted]
        # What was rejected is computed again, in the same places.
        request.all_token_ids += accepted
        request.num_computed_tokens = request.num_tokens - 1
        assert decode(runner, request, 1)[: len(accepted) + 2] == expected[: len(accepted) + 2]


def test_logprobs_come_with_the_tokens(toy: Model) -> None:
    runner = new_runner(toy)
    request = make_request(toy, "r", toy.tokenizer.encode("hi"), SamplingParams(temperature=0, logprobs=2))
    request.block_ids = [1, 2]
    request.num_computed_tokens = request.num_tokens
    output = runner.execute(SchedulerOutput(step=0, requests=[request], num_scheduled_tokens=[request.num_tokens]))
    (logprobs,) = output.logprobs["r"]
    assert logprobs.rank == 1
    assert logprobs.top[0] == (output.sampled_token_ids[0][0], logprobs.logprob)
    assert logprobs.top[0][1] > logprobs.top[1][1]
    assert output.forward_ns > 0
    assert output.sample_ns > 0


def test_a_step_without_requests_computes_nothing(toy: Model) -> None:
    output = new_runner(toy).execute(SchedulerOutput(step=0, requests=[], num_scheduled_tokens=[]))
    assert output.sampled_token_ids == []
