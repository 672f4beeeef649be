"""Makes the model runner for a device, and says which one it is: on kernels in Triton, in C, or torch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kvscope.engine.model.cpu.native_model_runner import NativeModelRunner
from kvscope.engine.model.execution import ExecutionPath, choose_path, problem_of
from kvscope.engine.model.loader import Model
from kvscope.engine.model.memory import check_fits, free_memory_bytes, gpu_step_bytes
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunner
from kvscope.errors import EngineError, ModelError

Report = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class BuiltRunner:
    """A runner that is ready for its first step."""

    runner: ModelRunner
    path: ExecutionPath
    num_graphs: int = 0
    graph_bytes: int = 0
    """What recording them took of the device's memory."""
    num_threads: int = 0
    """0 where they are not kvscope's to choose."""

    def __str__(self) -> str:
        graphs = f"; {self.num_graphs} graphs, {self.graph_bytes / (1 << 20):,.0f} MiB" if self.num_graphs else ""
        threads = f"; {self.num_threads} thread{'s' if self.num_threads > 1 else ''}" if self.num_threads else ""
        return f"{self.path}{graphs}{threads}"


def choose_execution(model: Model, block_size: int, *, kernels: str | None, enforce_eager: bool) -> ExecutionPath:
    """Returns how this model will be computed. Raises `EngineError` as `choose_path`."""
    device = model.decoder.device
    problem = problem_of(device, model.config, model.decoder.dtype, block_size)
    return choose_path(device, problem, kernels=kernels, enforce_eager=enforce_eager)


def step_bytes(
    model: Model, path: ExecutionPath, *, max_num_batched_tokens: int, max_num_seqs: int, num_spec_tokens: int = 0
) -> int:
    """Returns what a step takes of the device besides weights and KV cache; 0 on a CPU, where nothing is set aside."""
    if model.decoder.device.type == "cpu":
        return 0
    free_bytes = free_memory_bytes(model.decoder.device) or 0
    num_graphs = 0
    if path.has_graphs:
        from kvscope.engine.model.gpu.cuda_graphs import capture_sizes

        num_graphs = len(capture_sizes(max_num_seqs))
    return gpu_step_bytes(
        model.config,
        itemsize=model.decoder.dtype.itemsize,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        num_spec_tokens=num_spec_tokens,
        num_graphs=num_graphs,
        # Blocks of one layer at most, a quarter of them padding, whatever the pool will be.
        gathered_bytes=0 if path.kernels == "triton" else 4 * free_bytes // (3 * model.config.num_hidden_layers),
    )


def build_runner(model: Model, config: SchedulerConfig, path: ExecutionPath, report: Report) -> BuiltRunner:
    """Makes the KV cache and the runner; compiles kernels and records graphs where the path has them.

    Raises:
        ModelError: there is not so much memory.
        EngineError: kernels could not be compiled, or graphs not be recorded.
    """
    if path.kernels == "torch":
        return BuiltRunner(model.new_runner(num_blocks=config.num_gpu_blocks, block_size=config.block_size), path)
    device = model.decoder.device
    num_bytes = config.num_gpu_blocks * config.block_size * model.kv_bytes_per_token
    check_fits(num_bytes, config.num_gpu_blocks, free_memory_bytes(device))
    if path.kernels == "native":
        native = NativeModelRunner(model.decoder, num_blocks=config.num_gpu_blocks, block_size=config.block_size)
        return BuiltRunner(native, path, num_threads=model.num_threads)
    from kvscope.engine.model.gpu.gpu_model_runner import GPUModelRunner, RunnerLimits

    limits = RunnerLimits(
        num_blocks=config.num_gpu_blocks,
        block_size=config.block_size,
        max_num_batched_tokens=config.token_budget,
        max_num_seqs=config.max_num_seqs,
        max_model_len=config.max_model_len,
        num_spec_tokens=config.num_spec_tokens,
    )
    what, advice = "making the runner", "--kernels torch"
    try:
        runner = GPUModelRunner(model.decoder, limits)
        what = "compiling the kernels"
        runner.warm_up(report, compiles_decodes=not path.has_graphs)
        free_bytes = _free_bytes(device)
        if path.has_graphs:
            what, advice = "recording CUDA graphs", "--enforce-eager"
            runner.capture_graphs(on_progress=report)
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"{what} found no memory beside {config.num_gpu_blocks:,} blocks ({num_bytes >> 20:,} MiB of KV cache); "
            "set --num-gpu-blocks, --max-num-batched-tokens or --max-num-seqs lower"
        ) from error
    except PermissionError as error:  # Triton keeps what it compiles
        advice = f"set TRITON_CACHE_DIR to a folder that can be written to, or take {advice}"
        raise EngineError(f"{what} failed: {_describe(error)}; {advice}") from error
    except Exception as error:  # Triton's and CUDA's errors have no common class
        raise EngineError(f"{what} failed: {_describe(error)}; take {advice}") from error
    num_graphs = len(runner.graphs) if runner.graphs is not None else 0
    return BuiltRunner(runner, path, num_graphs, max(free_bytes - _free_bytes(device), 0))


def _free_bytes(device: torch.device) -> int:
    """Returns the device's free memory, what torch holds without using it among it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return free_memory_bytes(device) or 0


def _describe(error: BaseException) -> str:
    """Returns the first cause in one line: an error while a graph is recorded makes the end of the recording fail too,
    with a message that says nothing of the cause."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
