"""The GPU's runner on a CPU: the torch runner's tokens, whatever the scheduler does, with graphs and without."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from benchmarks.gpu.poisoned import PoisonedQueue, RecordingBackend
from benchmarks.gpu.torch_kernels import TorchKernels
from kvscope.engine.kernels.sampling import SamplingRows
from kvscope.engine.model.gpu.device_queue import HostQueue
from kvscope.engine.model.gpu.gpu_model_runner import GPUModelRunner, RunnerLimits
from kvscope.engine.model.loader import Model, load_model
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunnerOutput, SchedulerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams
from tests.engine.model.gpu.late_queue import LateQueue
from tests.engine.model.run_model import make_request, run_prompts


@pytest.fixture(scope="module")
def toy_float32() -> Model:
    return load_model("toy", num_threads=1, dtype="float32")


@dataclass
class PoisoningRunner:
    """Spoils every static buffer after each step, and looks at the null block."""

    runner: GPUModelRunner
    queue: PoisonedQueue
    backend: RecordingBackend | None
    num_steps: int = 0
    decode_sizes: list[int] = field(default_factory=list)
    """Requests in each step that only decodes."""
    graph_sizes: list[int] = field(default_factory=list)
    """Sizes of the graphs that were replayed."""

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        self.queue.poison()
        before = self.num_replays()
        result = self.runner.execute(output)
        self.num_steps += 1
        if set(output.num_scheduled_tokens) == {1}:
            self.decode_sizes.append(len(output.requests))
        self.graph_sizes += [size for size, count in self.num_replays().items() if count > before[size]]
        for cache in (self.runner.kv_cache.key, self.runner.kv_cache.value):
            assert not cache[:, 0].any(), "something was written to the null block"
        return result

    def num_replays(self) -> dict[int, int]:
        """By size; the largest was recorded first."""
        graphs = self.backend.graphs if self.backend else []
        sizes = reversed(self.runner.graphs.sizes if self.runner.graphs else ())
        return {size: graph.num_replays for size, graph in zip(sizes, graphs, strict=True)}


def limits_of(config: SchedulerConfig) -> RunnerLimits:
    return RunnerLimits(
        num_blocks=config.num_gpu_blocks,
        block_size=config.block_size,
        max_num_batched_tokens=config.token_budget,
        max_num_seqs=config.max_num_seqs,
        max_model_len=config.max_model_len,
        num_spec_tokens=config.num_spec_tokens,
    )


def new_runner(model: Model, config: SchedulerConfig, *, has_graphs: bool) -> PoisoningRunner:
    queue = PoisonedQueue(HostQueue(torch.device("cpu")))
    backend = RecordingBackend() if has_graphs else None
    runner = GPUModelRunner(model.decoder, limits_of(config), kernels=TorchKernels(), queue=queue, entropy=b"fixed")
    runner.warm_up(compiles_decodes=not has_graphs)
    if backend is not None:
        queue.poison()
        runner.capture_graphs(backend)
    return PoisoningRunner(runner, queue, backend)


PROMPTS = [
    "You are a toy. You speak in small letters. Why?",
    "a",
    "You are a toy. You speak in small letters. What is a block table?",
    "Tell me about the sea, and then about the land.",
    "zz",
]
NUM_OUTPUT_TOKENS = 24
CONFIGS = {
    "ample": SchedulerConfig(num_gpu_blocks=64, block_size=8, max_num_seqs=5, max_model_len=96),
    "chunks": SchedulerConfig(num_gpu_blocks=64, max_num_batched_tokens=12, max_num_seqs=3, max_model_len=96),
    "preemption": SchedulerConfig(
        num_gpu_blocks=18, block_size=8, max_num_seqs=5, max_model_len=96, scheduler_reserve_full_isl=False
    ),
    "no caching": SchedulerConfig(
        num_gpu_blocks=40, block_size=8, max_num_seqs=4, max_model_len=96, enable_prefix_caching=False
    ),
}


@pytest.mark.parametrize("has_graphs", [True, False], ids=["graphs", "eager"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_torch_runners_tokens(toy_float32: Model, name: str, has_graphs: bool) -> None:
    """Ragged batches of every kind; three requests of at most five are padded to a graph of four."""
    config = CONFIGS[name]
    prompts = [toy_float32.tokenizer.encode(prompt) for prompt in PROMPTS]
    expected = run_prompts(toy_float32, prompts, config, max_tokens=NUM_OUTPUT_TOKENS, ignore_eos=False)
    runner = new_runner(toy_float32, config, has_graphs=has_graphs)
    outcome = run_prompts(toy_float32, prompts, config, max_tokens=NUM_OUTPUT_TOKENS, ignore_eos=False, runner=runner)
    assert outcome == expected
    assert (outcome.num_preemptions > 0) == (name == "preemption")
    assert (outcome.num_hit_tokens > 0) == (name != "no caching")
    assert (outcome.num_chunks > 0) == (name == "chunks")
    padded = {1: 1, 2: 2, 3: 3 if config.max_num_seqs == 3 else 4, 4: 4, 5: 5}
    assert runner.graph_sizes == ([padded[size] for size in runner.decode_sizes] if has_graphs else [])
    assert 0 < len(runner.decode_sizes) < runner.num_steps


@pytest.mark.parametrize("has_graphs", [True, False], ids=["graphs", "eager"])
def test_the_host_waits_for_copies_and_for_nothing_else(toy_float32: Model, has_graphs: bool) -> None:
    """Copies end as late as they may: pinned memory is not written to before, and tokens are not read before."""
    config = CONFIGS["preemption"]
    prompts = [toy_float32.tokenizer.encode(prompt) for prompt in PROMPTS]
    expected = run_prompts(toy_float32, prompts, config, max_tokens=NUM_OUTPUT_TOKENS)
    queue = LateQueue()
    runner = GPUModelRunner(toy_float32.decoder, limits_of(config), kernels=TorchKernels(), queue=queue)
    with queue.watching():
        runner.warm_up(compiles_decodes=not has_graphs)
        if has_graphs:
            runner.capture_graphs(RecordingBackend())
        outcome = run_prompts(toy_float32, prompts, config, max_tokens=NUM_OUTPUT_TOKENS, runner=runner)
    assert outcome == expected
    assert queue.num_begun > 0


def test_the_largest_step_is_made_before_the_first(toy_float32: Model) -> None:
    """As many tokens as there may be, of more than one request where one has not so many; and rows for all drafts."""
    seen: list[tuple[list[int], int]] = []

    class SeenKernels(TorchKernels):
        def paged_attention(self, query: torch.Tensor, *cache_and_batch: Any, **settings: Any) -> torch.Tensor:
            seen.append((cache_and_batch[2].seq_lens.tolist(), len(query)))
            return super().paged_attention(query, *cache_and_batch, **settings)

        def sample(self, logits: torch.Tensor, rows: SamplingRows | None) -> torch.Tensor:
            seen.append(([], len(logits)))
            return super().sample(logits, rows)

    config = SchedulerConfig(
        num_gpu_blocks=8, block_size=8, max_num_batched_tokens=40, max_num_seqs=4, max_model_len=16, num_spec_tokens=2
    )
    runner = GPUModelRunner(toy_float32.decoder, limits_of(config), kernels=SeenKernels())
    runner.warm_up()
    num_layers = toy_float32.config.num_hidden_layers
    largest = [([16, 16, 8], 40)] * num_layers + [([], 12)] * 2
    assert seen == largest + [([0, 0], 2)] * num_layers


def test_some_batches_are_padded_and_tables_are_reused(toy_float32: Model) -> None:
    """What the grid above is worth: three requests in a graph of four, and rows of requests that ended before."""
    config = CONFIGS["preemption"]
    runner = new_runner(toy_float32, config, has_graphs=True)
    prompts = [toy_float32.tokenizer.encode(prompt) for prompt in PROMPTS]
    outcome = run_prompts(toy_float32, prompts, config, max_tokens=NUM_OUTPUT_TOKENS, runner=runner)
    assert 3 in runner.decode_sizes
    assert outcome.num_preemptions > 0


def feed(
    runner: PoisoningRunner, *work: tuple[Request, int], drafts: dict[str, list[int]] | None = None
) -> ModelRunnerOutput:
    """One step: advances each request by so many tokens, drafts included."""
    for request, count in work:
        request.num_computed_tokens += count
    output = SchedulerOutput(
        step=0,
        requests=[request for request, _ in work],
        num_scheduled_tokens=[count for _, count in work],
        scheduled_spec_tokens=drafts or {},
    )
    return runner.execute(output)


def answer(runner: PoisoningRunner, requests: list[Request], num_tokens: int) -> list[list[int]]:
    """Prefills all requests in one step and decodes them together; their blocks follow one another."""
    for index, request in enumerate(requests):
        request.block_ids = list(range(1 + 8 * index, 9 + 8 * index))
    work = [(request, request.num_tokens) for request in requests]
    for _ in range(num_tokens):
        for request, token_ids in zip(requests, feed(runner, *work).sampled_token_ids, strict=True):
            request.all_token_ids += token_ids
        work = [(request, 1) for request in requests]
    return [request.output_token_ids for request in requests]


SEEDED = SamplingParams(temperature=2.0, seed=2**63 + 5, max_tokens=100)
UNSEEDED = SamplingParams(temperature=2.0, max_tokens=100)
GREEDY = SamplingParams(temperature=0, max_tokens=100)
WITH_LOGPROBS = SamplingParams(temperature=0, logprobs=2, max_tokens=100)


def test_a_seeds_tokens_do_not_depend_on_company(toy_float32: Model) -> None:
    """Nor on settings of others that only the torch sampler knows; without a seed the request's id stands for it."""
    config = CONFIGS["ample"]
    text = toy_float32.tokenizer.encode("chance")

    def run(*samplings: SamplingParams) -> list[list[int]]:
        runner = new_runner(toy_float32, config, has_graphs=True)
        names = {SEEDED: "seeded", UNSEEDED: "unseeded", GREEDY: "greedy", WITH_LOGPROBS: "logprobs"}
        return answer(runner, [make_request(toy_float32, names[s], text, s) for s in samplings], 12)

    seeded, unseeded, greedy, with_logprobs = run(SEEDED, UNSEEDED, GREEDY, WITH_LOGPROBS)
    assert greedy == with_logprobs
    assert len({tuple(seeded), tuple(unseeded), tuple(greedy)}) == 3
    assert run(SEEDED) == [seeded]
    assert run(UNSEEDED, SEEDED) == [unseeded, seeded]
    assert run(GREEDY) == [greedy]


def test_requests_without_a_seed_draw_apart(toy_float32: Model) -> None:
    text = toy_float32.tokenizer.encode("chance")
    requests = [make_request(toy_float32, name, text, UNSEEDED) for name in "ab"]
    one, other = answer(new_runner(toy_float32, CONFIGS["ample"], has_graphs=True), requests, 12)
    assert one != other


def test_logprobs_are_those_of_the_torch_runner(toy_float32: Model) -> None:
    """In a step where another row is sampled on the device."""
    prompt = toy_float32.tokenizer.encode("hi")
    results = []
    for runner in (
        new_runner(toy_float32, CONFIGS["ample"], has_graphs=False).runner,
        toy_float32.new_runner(num_blocks=64, block_size=8),
    ):
        requests = [make_request(toy_float32, name, prompt, s) for name, s in (("a", GREEDY), ("b", WITH_LOGPROBS))]
        for index, request in enumerate(requests):
            request.block_ids = [1 + index]
            request.num_computed_tokens = request.num_tokens
        output = SchedulerOutput(step=0, requests=requests, num_scheduled_tokens=[len(prompt)] * 2)
        results.append(runner.execute(output))
    ours, theirs = results
    assert ours.sampled_token_ids == theirs.sampled_token_ids
    assert list(ours.logprobs) == list(theirs.logprobs) == ["b"]
    (mine,), (other,) = ours.logprobs["b"], theirs.logprobs["b"]
    assert mine.rank == other.rank
    assert mine.logprob == pytest.approx(other.logprob, abs=1e-4)
    assert [token_id for token_id, _ in mine.top] == [token_id for token_id, _ in other.top]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_drafts_are_verified(toy_float32: Model, sampling: SamplingParams) -> None:
    """Right ones are accepted, a wrong one and a placeholder end it; a step with drafts is replayed from no graph."""
    prompt = toy_float32.tokenizer.encode("speculate")

    def answered(num_tokens: int) -> tuple[PoisoningRunner, Request]:
        runner = new_runner(toy_float32, CONFIGS["ample"], has_graphs=True)
        request = make_request(toy_float32, "r", prompt, sampling)
        answer(runner, [request], num_tokens)
        return runner, request

    expected = answered(6)[1].output_token_ids
    wrong = (expected[3] + 1) % 256
    for drafts, accepted in (
        (expected[1:4], expected[1:5]),
        ([expected[1], expected[2], wrong], expected[1:4]),
        ([-1, -1], expected[1:2]),
    ):
        runner, request = answered(1)
        assert feed(runner, (request, 1 + len(drafts)), drafts={"r": drafts}).sampled_token_ids == [accepted]
        assert runner.graph_sizes == []
        request.all_token_ids += accepted
        request.num_computed_tokens = request.num_tokens - 1
        assert feed(runner, (request, 1)).sampled_token_ids == [[expected[1 + len(accepted)]]]
        assert runner.graph_sizes == [1]


@pytest.mark.parametrize("field_name", ["preempted_request_ids", "finished_request_ids"])
def test_rows_of_the_preempted_and_the_ended_are_there_for_others(toy_float32: Model, field_name: str) -> None:
    """One row in all; also a step that has nothing to compute gives rows back."""
    config = SchedulerConfig(num_gpu_blocks=16, block_size=8, max_num_seqs=1, max_model_len=96)
    runner = new_runner(toy_float32, config, has_graphs=False).runner
    first, second, third = (
        make_request(toy_float32, name, [ord("x")], GREEDY) for name in ("first", "second", "third")
    )
    for request in (first, second, third):
        request.block_ids, request.num_computed_tokens = [1], 1
    runner.execute(SchedulerOutput(step=0, requests=[first], num_scheduled_tokens=[1]))
    gone = {field_name: ["first"]}
    assert runner.execute(SchedulerOutput(0, [second], [1], **gone)).sampled_token_ids != [[]]  # type: ignore[arg-type]
    gone = {field_name: ["second"]}
    runner.execute(SchedulerOutput(0, [], [], **gone))  # type: ignore[arg-type]
    assert runner.execute(SchedulerOutput(0, [third], [1])).sampled_token_ids != [[]]
