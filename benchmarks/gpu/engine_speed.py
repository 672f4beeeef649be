"""How fast the engine is: a decode step with graphs, without, and by torch; tokens a second; what a recorder costs.

Contexts are short, so that batch 256 fits a GPU of 24 GB. Ways that are compared take turns, and a ratio is taken turn
by turn.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.gpu.rows import Rows
from benchmarks.gpu.seeded_model import seeded_decoder
from benchmarks.gpu.setup import BLOCK_SIZE, Setup
from benchmarks.gpu.steps import decode_step, decoding, forget, random_prompts
from kvscope.engine.llm_engine import LLMEngine
from kvscope.engine.model.gpu.gpu_model_runner import GPUModelRunner, RunnerLimits
from kvscope.engine.model.model_runner import TorchModelRunner
from kvscope.engine.model_description import ModelDescription
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunner, SchedulerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.events import EventSink, NullSink

LEAST_SHARE_WITH_RECORDER = 0.98
"""DESIGN's budget: recording costs 2 % of the throughput at most."""
NUM_ROUNDS = 5


def _runner(setup: Setup) -> tuple[GPUModelRunner, SchedulerConfig]:
    config = SchedulerConfig(
        num_gpu_blocks=setup.pick(256 * 16 + 1, 16),
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=setup.pick(8192, 32),
        max_num_seqs=max(setup.batches),
        max_model_len=setup.pick(1024, 64),
    )
    decoder = seeded_decoder(setup.config, setup.dtype, setup.device, config.max_model_len)
    began = time.perf_counter()
    limits = RunnerLimits(
        num_blocks=config.num_gpu_blocks,
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_num_seqs=config.max_num_seqs,
        max_model_len=config.max_model_len,
    )
    runner = setup.new_runner(decoder, limits)
    setup.wait()
    print(f"  kernels and {len(runner.graphs or ())} graphs ready in {time.perf_counter() - began:.1f} s", flush=True)
    return runner, config


def measure_graphs(setup: Setup, rows: Rows) -> None:
    """A decode step at each batch size: host and device together, as the engine's loop sees it."""
    free_before = torch.cuda.mem_get_info(setup.device)[0] if setup.device.type == "cuda" else 0
    runner, _ = _runner(setup)
    if setup.device.type == "cuda":
        taken = (free_before - torch.cuda.mem_get_info(setup.device)[0]) / (1 << 20)
        rows.add("weights, cache, buffers and graphs", taken, "MiB")
    torch_runner = TorchModelRunner(runner.decoder, num_blocks=2, block_size=BLOCK_SIZE)
    torch_runner.kv_cache = runner.kv_cache
    for batch in setup.batches:
        with rows.attempt(f"decode steps of {batch}"):
            _measure_decodes(setup, rows, runner, torch_runner, batch)
    with rows.attempt("steps wait for the device at their end only"):
        _check_that_no_step_waits(setup, runner)
        looked = "yes" if setup.device.type == "cuda" else "not looked at"
        rows.add("steps wait for the device at their end only", looked)


def _measure_decodes(
    setup: Setup, rows: Rows, runner: GPUModelRunner, torch_runner: TorchModelRunner, batch: int
) -> None:
    graphs = runner.graphs
    num_steps = setup.pick(20, 1)
    times: dict[str, list[float]] = {"graphs": [], "eager": [], "torch": []}
    tokens: dict[str, list[list[list[int]]]] = {name: [] for name in times}
    for _ in range(setup.pick(NUM_ROUNDS, 1)):
        for name in times:
            runner.graphs = graphs if name == "graphs" else None
            way: ModelRunner = torch_runner if name == "torch" else runner
            requests = decoding(batch, setup.pick(128, 17), num_steps + 2, setup)
            runner.kv_cache.key.zero_()
            runner.kv_cache.value.zero_()
            decode_step(way, requests)
            setup.wait()
            began = time.perf_counter()
            tokens[name] = [decode_step(way, requests) for _ in range(num_steps)]
            times[name].append((time.perf_counter() - began) / num_steps)
            forget(runner, requests)
    runner.graphs = graphs
    for name, values in times.items():
        rows.add(f"decode step of {batch}, {name}", statistics.median(values) * 1e3, "ms")
    for name in ("eager", "torch"):
        ratios = [other / graph for other, graph in zip(times[name], times["graphs"], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.add(f"decode step of {batch}, {name} over graphs ({spread})", statistics.median(ratios), "times")
    # The same kernels on the same numbers; only products of a padded batch may be summed in another order.
    differing = sum(
        a != b
        for graph_step, eager_step in zip(tokens["graphs"], tokens["eager"], strict=True)
        for a, b in zip(graph_step, eager_step, strict=True)
    )
    if batch in (graphs.sizes if graphs else ()):
        rows.check_equal(f"decode step of {batch}: tokens that graphs change", differing, 0)


def _check_that_no_step_waits(setup: Setup, runner: GPUModelRunner) -> None:
    """Makes a prefill, a mixed step and a decode, greedy and random. Raises `RuntimeError` where torch has to wait.

    The one wait at a step's end is for an event, which torch does not count.
    """
    greedy, random = decoding(2, 17, 8, setup)
    random.sampling = SamplingParams(temperature=1.0, top_k=5, top_p=0.9, max_tokens=8)
    greedy.num_computed_tokens, random.num_computed_tokens = 0, 16
    mode = torch.cuda.get_sync_debug_mode() if setup.device.type == "cuda" else 0
    try:
        if setup.device.type == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        for counts in ([17, 1], [1, 1]):
            for request, count in zip((greedy, random), counts, strict=True):
                request.num_computed_tokens += count
            sampled = runner.execute(SchedulerOutput(0, [greedy, random], counts)).sampled_token_ids
            for request, token_ids in zip((greedy, random), sampled, strict=True):
                request.all_token_ids += token_ids
    finally:
        if setup.device.type == "cuda":
            torch.cuda.set_sync_debug_mode(mode)
    forget(runner, [greedy, random])


def measure_throughput(setup: Setup, rows: Rows) -> None:
    """Whole requests through the engine's loop, without a recorder."""
    runner, config = _runner(setup)
    num_prompt_tokens, num_output_tokens = setup.pick(128, 9), setup.pick(128, 2)
    for batch in setup.batches:
        if not setup.is_dry:
            _serve(setup, runner, config, NullSink(), batch, num_prompt_tokens, 2)
        seconds, first_token_s = _serve(setup, runner, config, NullSink(), batch, num_prompt_tokens, num_output_tokens)
        rows.add(f"{batch} requests of {num_prompt_tokens} + {num_output_tokens} tokens", seconds, "s")
        rows.add(f"{batch} requests: tokens generated", batch * num_output_tokens / seconds, "tokens/s")
        rows.add(f"{batch} requests: last first token after", first_token_s * 1e3, "ms")


def measure_recorder(setup: Setup, rows: Rows) -> None:
    """The largest batch with a recorder and without, in turns."""
    from kvscope.recording.recorder import Recorder

    runner, config = _runner(setup)
    batch, num_output_tokens = max(setup.batches), setup.pick(128, 2)
    ratios, num_bytes = [], 0
    for turn in range(setup.pick(NUM_ROUNDS + 1, 1)):
        without, _ = _serve(setup, runner, config, NullSink(), batch, setup.pick(64, 9), num_output_tokens)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.db"
            recorder = Recorder(path, in_own_process=True)  # as the engine has it
            recorded, _ = _serve(setup, runner, config, recorder, batch, setup.pick(64, 9), num_output_tokens)
            recorder.close()
            num_bytes = path.stat().st_size
        if turn or setup.is_dry:  # the first turn warms up
            ratios.append(without / recorded)
    rows.add(f"batch {batch}: throughput with a recorder, lowest and highest", f"{min(ratios):.3f} {max(ratios):.3f}")
    name = f"batch {batch}: throughput with a recorder over without, median"
    rows.goal(name, statistics.median(ratios), LEAST_SHARE_WITH_RECORDER)
    rows.add("bytes recorded a generated token", num_bytes / (batch * num_output_tokens), "bytes")


def _serve(
    setup: Setup,
    runner: GPUModelRunner,
    config: SchedulerConfig,
    sink: EventSink,
    batch: int,
    num_prompt_tokens: int,
    num_output_tokens: int,
) -> tuple[float, float]:
    """Returns the seconds until all requests are done, and until each had its first token."""
    engine = LLMEngine(config, runner, model=ModelDescription(name="seeded"), sink=sink)
    sampling = SamplingParams(temperature=0, max_tokens=num_output_tokens, ignore_eos=True)
    began = time.perf_counter()
    for prompt in random_prompts(setup, [num_prompt_tokens] * batch):
        engine.add_request(prompt, sampling)
    ended: list[Request] = []
    first_token_s = 0.0
    while engine.has_work:
        report = engine.step()
        ended += report.ended_requests
        if not first_token_s and all(request.num_output_tokens for request in engine.scheduler.requests.values()):
            first_token_s = time.perf_counter() - began
    seconds = time.perf_counter() - began
    forget(runner, ended)
    return seconds, first_token_s
