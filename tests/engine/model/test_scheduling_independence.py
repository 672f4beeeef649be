"""Greedy tokens are the model's alone: no setting of the scheduler changes them."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from kvscope.engine.model.loader import Model, load_model
from kvscope.engine.scheduling.config import SchedulerConfig
from tests.engine.model.run_model import Outcome, all_logits, run_prompts

BLOCK_SIZES = (8, 16, 32)
POOLS = ("ample", "tight")
BUDGETS = (16, 64, 2048)
CACHING = (True, False)
COMPANY = ("alone", "batch")

TOY_OUTPUT = 40
SMOLLM2_OUTPUT = 16


@dataclass(frozen=True)
class Setting:
    block_size: int
    pool: str
    budget: int
    caching: bool
    company: str

    def config(self, prompts: list[list[int]], num_output_tokens: int, num_tight: int = 1) -> SchedulerConfig:
        """A tight pool holds the longest request so many times, and one block more."""
        longest = max(map(len, prompts)) + num_output_tokens
        blocks_of_longest = -(-longest // self.block_size)
        num_blocks = 1 + (num_tight * blocks_of_longest + 1 if self.pool == "tight" else 8 * blocks_of_longest)
        return SchedulerConfig(
            num_gpu_blocks=num_blocks,
            block_size=self.block_size,
            max_num_batched_tokens=self.budget,
            max_num_seqs=min(16, self.budget),
            max_model_len=longest,
            enable_prefix_caching=self.caching,
            # Otherwise admission waits until a whole request fits, and hardly anything is preempted.
            scheduler_reserve_full_isl=False,
        )


ALL_SETTINGS = [Setting(*values) for values in itertools.product(BLOCK_SIZES, POOLS, BUDGETS, CACHING, COMPANY)]


def pairwise(settings: list[Setting]) -> list[Setting]:
    """Returns few settings in which every pair of values occurs that occurs in all of them (greedy choice)."""

    def pairs(setting: Setting) -> set[object]:
        values = enumerate((setting.block_size, setting.pool, setting.budget, setting.caching, setting.company))
        return set(itertools.combinations(values, 2))

    missing = set().union(*map(pairs, settings))
    chosen = []
    while missing:
        best = max(settings, key=lambda setting: len(pairs(setting) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


def run_setting(
    model: Model, setting: Setting, prompts: list[list[int]], num_output_tokens: int, num_tight: int = 1
) -> list[Outcome]:
    """All prompts in one run, or one run for each of the first two."""
    config = setting.config(prompts, num_output_tokens, num_tight)
    runs = [prompts] if setting.company == "batch" else [[prompt] for prompt in prompts[:2]]
    return [run_prompts(model, run, config, max_tokens=num_output_tokens) for run in runs]


def check(setting: Setting, outcomes: list[Outcome], expected: list[list[int]], longest_prompt: int) -> None:
    """The tokens are the expected ones, and the setting did what it is there for."""
    tokens = [token_ids for outcome in outcomes for token_ids in outcome.output_token_ids]
    assert tokens == expected[: len(tokens)]
    if setting.company == "batch":
        assert (sum(outcome.num_preemptions for outcome in outcomes) > 0) == (setting.pool == "tight")
        if setting.caching:
            assert sum(outcome.num_hit_tokens for outcome in outcomes) > 0
    if not setting.caching:
        assert sum(outcome.num_hit_tokens for outcome in outcomes) == 0
    assert (sum(outcome.num_chunks for outcome in outcomes) > 0) or setting.budget > longest_prompt


def toy_prompts(model: Model) -> list[list[int]]:
    """Eight prompts, four of them with one beginning of 96 tokens."""
    system = "You are a toy. You speak in small letters and in spaces, and nobody knows what you mean by it. "
    texts = [
        system + "Why?",
        "Tell me about the sea.",
        system + "What is a block table, and who owns block 0 of it?",
        "a",
        system + "Count.",
        "The quick brown fox jumps over the lazy dog and then does it again.",
        system + "Who preempted whom?",
        "zzzz zzzz zzzz",
    ]
    return [model.tokenizer.encode(text) for text in texts]


@pytest.fixture(scope="module")
def toy_expected(toy: Model) -> list[list[int]]:
    """Each prompt alone, in one chunk, in blocks of 16, without a cache."""
    setting = Setting(16, "ample", 2048, caching=False, company="alone")
    prompts = toy_prompts(toy)
    config = setting.config(prompts, TOY_OUTPUT)
    return [run_prompts(toy, [p], config, max_tokens=TOY_OUTPUT).output_token_ids[0] for p in prompts]


@pytest.fixture(scope="module")
def toy_float32() -> Model:
    return load_model("toy", num_threads=1, dtype="float32")


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=str)
def test_toy_tokens_do_not_depend_on_any_setting(
    toy_float32: Model, toy_expected: list[list[int]], setting: Setting
) -> None:
    """In float32, against the tokens of float64: rounding is 100 times smaller than any gap here (tested below)."""
    prompts = toy_prompts(toy_float32)
    check(setting, run_setting(toy_float32, setting, prompts, TOY_OUTPUT), toy_expected, max(map(len, prompts)))


def smollm2_cases() -> list[tuple[list[int], list[int]]]:
    """Eight prompts and the tokens that transformers answers with: six of the recorded ones, two of them twice.

    Chat and raw ones in turn. Those that come twice fill blocks of 32, so that there is something to hit.
    """
    cases = json.loads(Path(__file__).with_name("smollm2.json").read_text(encoding="utf-8"))
    long_enough = [case for case in cases if len(case["output_token_ids"]) >= SMOLLM2_OUTPUT]
    chat = [case for case in long_enough if case["is_chat"]]
    raw = [case for case in long_enough if not case["is_chat"]]
    chosen = [chat[0], raw[0], chat[0], raw[1], chat[2], raw[2], chat[2], raw[3]]
    return [(case["prompt_token_ids"], case["output_token_ids"][:SMOLLM2_OUTPUT]) for case in chosen]


@pytest.mark.parametrize("setting", pairwise(ALL_SETTINGS), ids=str)
def test_smollm2_tokens_do_not_depend_on_pairs_of_settings(smollm2: Model, setting: Setting) -> None:
    cases = smollm2_cases()
    prompts = [prompt for prompt, _ in cases]
    num_tight = 1 if setting.block_size == 32 else 2  # few requests grow over a border of 32 tokens
    outcomes = run_setting(smollm2, setting, prompts, SMOLLM2_OUTPUT, num_tight)
    check(setting, outcomes, [expected for _, expected in cases], max(map(len, prompts)))


def test_the_toys_best_token_is_far_ahead_of_rounding(
    toy: Model, toy_float32: Model, toy_expected: list[list[int]]
) -> None:
    """Over the grid's own texts: the gap between the best two logits against how far float32 is from float64.

    Seen: 2.7e-3 and 1.9e-5.
    """
    exact, rounded = (model.new_runner(num_blocks=64, block_size=16) for model in (toy, toy_float32))
    gaps, errors = [], []
    for prompt, output in zip(toy_prompts(toy), toy_expected, strict=True):
        logits, logits_float32 = all_logits(exact, prompt + output), all_logits(rounded, prompt + output)
        assert (logits.dtype, logits_float32.dtype) == (torch.float64, torch.float32)
        best, second = logits.topk(2, -1).values.T
        gaps.append(float((best - second).min()))
        errors.append(float((logits - logits_float32).abs().max()))
    assert min(gaps) > 100 * max(errors) > 0


def test_smollm2_answers_as_transformers_does(smollm2: Model) -> None:
    """Eleven prompts, chat and raw, with Chinese, emoji, digits, special tokens: the same tokens in, the same out."""
    cases = json.loads(Path(__file__).with_name("smollm2.json").read_text(encoding="utf-8"))
    for case in cases:
        if case["is_chat"]:
            encoded = smollm2.tokenizer.encode_chat([{"role": "user", "content": case["prompt"]}])
        else:
            encoded = smollm2.tokenizer.encode(case["prompt"])
        assert encoded == case["prompt_token_ids"]
    config = SchedulerConfig(num_gpu_blocks=64)
    prompts = [case["prompt_token_ids"] for case in cases]
    outcome = run_prompts(smollm2, prompts, config, max_tokens=28, ignore_eos=False)
    assert outcome.output_token_ids == [case["output_token_ids"] for case in cases]


def test_smollm2_knows_paris_and_stops(smollm2: Model) -> None:
    question = {"role": "user", "content": "What is the capital of France? Answer in one sentence."}
    prompt = smollm2.tokenizer.encode_chat([question])
    outcome = run_prompts(smollm2, [prompt], SchedulerConfig(num_gpu_blocks=64), max_tokens=64, ignore_eos=False)
    assert smollm2.tokenizer.decode(outcome.output_token_ids[0]) == "The capital of France is Paris."
    assert smollm2.tokenizer.token_bytes(outcome.output_token_ids[0][-1]) == b"<|im_end|>"
