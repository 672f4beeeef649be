"""Greedy tokens and logits of the GPU's runner against the torch path, both held against a wider dtype.

The tolerance is the torch path's own: in one sequence, how far its logits are from those of the same weights computed
in a wider dtype. The kernels' may be off by `LEAST_FACTOR` times as much. Where two runs part, the two tokens' logits
must be closer together than both tolerances: then it was a tie that rounding broke. All static buffers are spoilt
between steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.gpu.poisoned import PoisonedQueue
from benchmarks.gpu.rows import Rows
from benchmarks.gpu.seeded_model import seeded_decoder
from benchmarks.gpu.setup import BLOCK_SIZE, Setup
from benchmarks.gpu.steps import new_request, random_prompts
from kvscope.engine.kernels.attention import AttentionBatch
from kvscope.engine.model.attention import Span, build_metadata
from kvscope.engine.model.config import ModelConfig
from kvscope.engine.model.decoder import Decoder
from kvscope.engine.model.gpu.device_queue import new_queue
from kvscope.engine.model.gpu.gpu_model_runner import RunnerLimits
from kvscope.engine.model.gpu.kernel_decoder import KernelDecoder
from kvscope.engine.model.gpu.kernel_set import TritonKernels
from kvscope.engine.model.gpu.step_batch import DecoderInputs
from kvscope.engine.model.model_runner import TorchModelRunner
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunner
from kvscope.engine.scheduling.scheduler import Scheduler

LEAST_FACTOR = 2.0
_SMALLEST_TOLERANCE = 1e-5
"""Of the largest logit: in float32 the torch path is nearly exact, and Triton multiplies in three parts of 11 bits."""


def check_tokens(setup: Setup, rows: Rows) -> None:
    """The engine's dtype with all layers, then float32 with six, so that a float64 copy fits small GPUs too."""
    with rows.attempt("the engine's dtype"):
        _check(setup, rows, setup.config, setup.dtype, torch.float64 if setup.is_dry else torch.float32)
    if not setup.is_dry:
        shallow = dataclasses.replace(setup.config, num_hidden_layers=6)
        with rows.attempt("float32"):
            _check(setup, rows, shallow, torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class _Models:
    """The same weights in the dtype under test, and in a wider one."""

    decoder: Decoder
    wide: Decoder


@torch.inference_mode()
def _check(setup: Setup, rows: Rows, config: ModelConfig, dtype: torch.dtype, wide: torch.dtype) -> None:
    max_model_len = setup.pick(1024, 64)
    models = _Models(
        seeded_decoder(config, dtype, setup.device, max_model_len),
        seeded_decoder(config, wide, setup.device, max_model_len, rounded_to=dtype),
    )
    name = str(dtype).removeprefix("torch.")
    tolerance = _check_logits(setup, rows, models, name)
    scheduling = SchedulerConfig(
        num_gpu_blocks=setup.pick(90, 7),
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=setup.pick(200, 24),
        max_num_seqs=setup.pick(12, 3),
        max_model_len=max_model_len,
        scheduler_reserve_full_isl=False,
    )
    lengths = (17, 5) if setup.is_dry else (300, 5, 256, 33, 1, 64, 190, 16, 129, 40, 220, 80, 12, 310, 47, 100)
    prompts = random_prompts(setup, lengths, seed=1)
    prompts.append([*prompts[0][: len(prompts[0]) // BLOCK_SIZE * BLOCK_SIZE], 3])  # begins with cached blocks
    num_output_tokens = setup.pick(48, 2)
    torch_runner = TorchModelRunner(models.decoder, num_blocks=scheduling.num_gpu_blocks, block_size=BLOCK_SIZE)
    expected, num_preemptions = _run(torch_runner, scheduling, prompts, num_output_tokens)
    limits = RunnerLimits(
        num_blocks=scheduling.num_gpu_blocks,
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=scheduling.max_num_batched_tokens,
        max_num_seqs=scheduling.max_num_seqs,
        max_model_len=max_model_len,
    )
    queue = PoisonedQueue(new_queue(setup.device))
    runner = setup.new_runner(models.decoder, limits, queue=queue)
    rows.add(f"{name}: preemptions of the run", num_preemptions)
    graphs = runner.graphs
    for way in ("graphs", "eager"):
        runner.graphs = graphs if way == "graphs" else None
        found, _ = _run(runner, scheduling, prompts, num_output_tokens, queue.poison)
        _compare(rows, f"{name}, {way}", models.wide, prompts, expected, found, tolerance)


def _check_logits(setup: Setup, rows: Rows, models: _Models, name: str) -> float:
    """Returns how far apart the logits of two tokens may be where one is taken for the other."""
    (tokens,) = random_prompts(setup, [setup.pick(400, 10)], seed=2)
    exact = torch_logits(models.wide, tokens)
    own = float((torch_logits(models.decoder, tokens) - exact).abs().max())
    kernels = float((kernel_logits(models.decoder, tokens) - exact).abs().max())
    largest = float(exact.abs().max())
    limit = LEAST_FACTOR * own + _SMALLEST_TOLERANCE * largest
    rows.add(f"{name}: largest logit", largest)
    rows.add(f"{name}: torch path's logits, off by at most", own)
    rows.check(f"{name}: kernels' logits, off by at most", kernels, limit)
    return own + limit


def torch_logits(decoder: Decoder, token_ids: list[int]) -> torch.Tensor:
    """Returns the logits of every position in float64, `[num_tokens, vocab_size]`, by the torch path."""
    num_blocks = -(-len(token_ids) // BLOCK_SIZE)
    cache = decoder.new_kv_cache(1 + num_blocks, BLOCK_SIZE)
    metadata = build_metadata([Span(0, len(token_ids), range(1, 1 + num_blocks))], cache)
    tokens = torch.tensor(token_ids, device=decoder.device)
    positions = torch.arange(len(token_ids), device=decoder.device)
    return decoder.logits(decoder.forward(tokens, positions, cache, metadata)).double()


def kernel_logits(decoder: Decoder, token_ids: list[int]) -> torch.Tensor:
    """As `torch_logits`, by the kernels."""
    device, num_tokens = decoder.device, len(token_ids)
    num_blocks = -(-num_tokens // BLOCK_SIZE)
    cache = decoder.new_kv_cache(1 + num_blocks, BLOCK_SIZE)
    positions = torch.arange(num_tokens, device=device)
    inputs = DecoderInputs(
        token_ids=torch.tensor(token_ids, dtype=torch.int32, device=device),
        positions=positions,
        slot_mapping=positions + BLOCK_SIZE,
        query_starts=torch.tensor([0, num_tokens], dtype=torch.int32, device=device),
        seq_lens=torch.tensor([num_tokens], dtype=torch.int32, device=device),
        table_rows=torch.zeros(1, dtype=torch.int32, device=device),
    )
    batch = AttentionBatch(
        query_starts=inputs.query_starts,
        seq_lens=inputs.seq_lens,
        block_tables=torch.arange(1, 1 + num_blocks, dtype=torch.int32, device=device)[None],
        slot_mapping=inputs.slot_mapping,
        max_query_len=num_tokens,
        max_seq_len=num_tokens,
    )
    return decoder.lm_head(KernelDecoder(decoder, TritonKernels(), cache).forward(inputs, batch, 1)).double()


def _run(
    runner: ModelRunner,
    config: SchedulerConfig,
    prompts: list[list[int]],
    num_output_tokens: int,
    before_step: Callable[[], None] = lambda: None,
) -> tuple[list[list[int]], int]:
    """Returns each prompt's tokens, and how often somebody was preempted."""
    scheduler = Scheduler(config)
    requests = [new_request(str(index), prompt, num_output_tokens) for index, prompt in enumerate(prompts)]
    for request in requests:
        scheduler.add_request(request)
    while scheduler.has_unfinished_requests():
        output = scheduler.schedule()
        before_step()
        scheduler.update_from_output(output, runner.execute(output))
    runner.execute(scheduler.schedule())  # which tells it who ended last
    return [request.output_token_ids for request in requests], sum(request.num_preemptions for request in requests)


def _compare(
    rows: Rows,
    name: str,
    wide: Decoder,
    prompts: list[list[int]],
    expected: list[list[int]],
    found: list[list[int]],
    tolerance: float,
) -> None:
    """Notes how many sequences part, and the widest gap between the two tokens at which one does."""
    gaps = []
    for prompt, theirs, ours in zip(prompts, expected, found, strict=True):
        place = next((i for i, pair in enumerate(zip(theirs, ours, strict=True)) if pair[0] != pair[1]), None)
        if place is not None:
            logits = torch_logits(wide, [*prompt, *theirs[:place]])[-1]
            gaps.append(abs(float(logits[theirs[place]] - logits[ours[place]])))
    num_tokens = sum(map(len, expected))
    rows.add(f"{name}: sequences that part, of {len(prompts)} with {num_tokens} tokens", len(gaps))
    rows.check(f"{name}: widest gap between two tokens where they part", max(gaps, default=0.0), tolerance)
