"""From an execution path to a runner that is ready: what is built, what is said, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from kvscope.engine.model import runner_choice
from kvscope.engine.model.execution import ExecutionPath
from kvscope.engine.model.gpu.gpu_model_runner import GPUModelRunner
from kvscope.engine.model.loader import Model, load_model
from kvscope.engine.model.memory import gpu_step_bytes
from kvscope.engine.model.model_runner import TorchModelRunner
from kvscope.engine.model.runner_choice import BuiltRunner, build_runner, choose_execution, step_bytes
from kvscope.engine.model.toy import toy_config
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.errors import EngineError, ModelError

CONFIG = SchedulerConfig(num_gpu_blocks=8, max_num_seqs=3, max_model_len=64)
GRAPHS = ExecutionPath("cuda:0", "triton", has_graphs=True)
EAGER = ExecutionPath("cuda:0", "triton", reason="enforce_eager")


@pytest.fixture(scope="module")
def toy_float32() -> Model:
    return load_model("toy", num_threads=1, dtype="float32")


def ignore(what: str, fraction: float | None) -> None:
    pass


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the GPU's runner, which does none of it here."""
    asked: list[str] = []

    def warm_up(self: GPUModelRunner, on_progress: object, *, compiles_decodes: bool) -> None:
        asked.append(f"warm up, decodes {compiles_decodes}")

    def capture_graphs(self: GPUModelRunner, *, on_progress: object) -> None:
        asked.append("graphs")

    monkeypatch.setattr(GPUModelRunner, "warm_up", warm_up)
    monkeypatch.setattr(GPUModelRunner, "capture_graphs", capture_graphs)
    return asked


def test_on_a_cpu_the_torch_runner_is_made(toy_float32: Model) -> None:
    path = choose_execution(toy_float32, 16, kernels=None, enforce_eager=False)
    built = build_runner(toy_float32, CONFIG, path, ignore)
    assert isinstance(built.runner, TorchModelRunner)
    assert str(built).startswith("cpu, torch's kernels")
    assert step_bytes(toy_float32, path, max_num_batched_tokens=10, max_num_seqs=3) == 0


def test_kernels_are_compiled_before_graphs_are_recorded(toy_float32: Model, calls: list[str]) -> None:
    assert isinstance(build_runner(toy_float32, CONFIG, GRAPHS, ignore).runner, GPUModelRunner)
    assert calls == ["warm up, decodes False", "graphs"]
    calls.clear()
    build_runner(toy_float32, CONFIG, EAGER, ignore)
    assert calls == ["warm up, decodes True"]


def test_the_graphs_and_what_they_took_are_said(toy_float32: Model) -> None:
    runner = toy_float32.new_runner(num_blocks=4, block_size=16)
    built = BuiltRunner(runner, GRAPHS, num_graphs=14, graph_bytes=200 << 20)
    assert str(built) == "cuda:0, Triton's kernels, CUDA graphs; 14 graphs, 200 MiB"


def failing(error: Exception) -> Callable[..., None]:
    def fail(self: GPUModelRunner, *arguments: object, **settings: object) -> None:
        raise error

    return fail


def caused_by(cause: Exception, error: Exception) -> Exception:
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("method", "error", "kind", "message"),
    [
        (
            "warm_up",
            RuntimeError("ptxas is not there\nand more"),
            EngineError,
            "compiling the kernels failed: RuntimeError: ptxas is not there; take --kernels torch",
        ),
        (
            "warm_up",
            PermissionError(13, "Permission denied", "/home/.triton"),
            EngineError,
            "compiling the kernels failed: PermissionError: [Errno 13] Permission denied: '/home/.triton'; "
            "set TRITON_CACHE_DIR to a folder that can be written to, or take --kernels torch",
        ),
        (
            "capture_graphs",
            caused_by(RuntimeError("operation not permitted when stream is capturing"), RuntimeError("ended")),
            EngineError,
            "recording CUDA graphs failed: RuntimeError: operation not permitted when stream is capturing; "
            "take --enforce-eager",
        ),
        (
            "capture_graphs",
            torch.OutOfMemoryError("CUDA out of memory."),
            ModelError,
            "recording CUDA graphs found no memory beside 8 blocks (0 MiB of KV cache); "
            "set --num-gpu-blocks, --max-num-batched-tokens or --max-num-seqs lower",
        ),
    ],
    ids=["compiler", "cache", "graphs", "memory"],
)
def test_what_fails_is_said_with_the_way_around_it(
    toy_float32: Model,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    error: Exception,
    kind: type[EngineError | ModelError],
    message: str,
) -> None:
    monkeypatch.setattr(runner_choice, "_free_bytes", lambda device: 0)
    monkeypatch.setattr(GPUModelRunner, method, failing(error))
    with pytest.raises(kind) as caught:
        build_runner(toy_float32, CONFIG, GRAPHS, ignore)
    assert caught.value.message == message


def test_what_a_step_takes_of_a_gpu_follows_from_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three graphs (1, 2 and 3 requests), or copies of two thirds of the memory: the toy has two layers."""
    monkeypatch.setattr(runner_choice, "free_memory_bytes", lambda device: 6 << 30)
    decoder = SimpleNamespace(device=torch.device("cuda:0"), dtype=torch.float32)
    model = cast("Model", SimpleNamespace(config=toy_config(), decoder=decoder))
    limits = {"max_num_batched_tokens": 10, "max_num_seqs": 3}

    def expected(num_graphs: int, gathered_bytes: int) -> int:
        return gpu_step_bytes(toy_config(), itemsize=4, num_graphs=num_graphs, gathered_bytes=gathered_bytes, **limits)

    assert step_bytes(model, GRAPHS, **limits) == expected(3, 0)
    assert step_bytes(model, EAGER, **limits) == expected(0, 0)
    assert step_bytes(model, ExecutionPath("cuda:0", "torch"), **limits) == expected(0, 4 << 30)
    assert expected(0, 4 << 30) - expected(0, 0) == 4 << 30
