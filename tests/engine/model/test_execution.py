"""Which way steps are computed, why, and in which words that is said."""

from __future__ import annotations

import dataclasses
import sysconfig

import pytest
import torch

from kvscope.engine.kernels import unavailable_reason
from kvscope.engine.kernels.attention import BLOCK_SIZES, HEAD_DIMS, MAX_HEADS_PER_KV_HEAD
from kvscope.engine.model.execution import (
    KERNEL_BLOCK_SIZES,
    KERNEL_HEAD_DIMS,
    KERNEL_MAX_HEADS_PER_KV_HEAD,
    ExecutionPath,
    choose_path,
    problem_of,
    unsupported_shape,
)
from kvscope.engine.model.memory import choose_num_gpu_blocks, gpu_step_bytes
from kvscope.engine.model.toy import toy_config
from kvscope.errors import EngineError, ModelError

GPU = torch.device("cuda:0")
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("path", "label", "words"),
    [
        (choose_path(GPU, None), "triton+graphs", "cuda:0, Triton's kernels, CUDA graphs"),
        (
            choose_path(GPU, None, enforce_eager=True),
            "triton",
            "cuda:0, Triton's kernels, no CUDA graphs (enforce_eager)",
        ),
        (choose_path(GPU, None, kernels="triton"), "triton+graphs", "cuda:0, Triton's kernels, CUDA graphs"),
        (choose_path(GPU, None, kernels="torch"), "torch", "cuda:0, torch's kernels (asked for)"),
        (choose_path(GPU, "triton is not installed"), "torch", "cuda:0, torch's kernels (triton is not installed)"),
        (choose_path(CPU, None), "native", "cpu, kvscope's own kernels"),
        (choose_path(CPU, None, kernels="native"), "native", "cpu, kvscope's own kernels"),
        (choose_path(CPU, None, kernels="torch"), "torch", "cpu, torch's kernels (asked for)"),
        (choose_path(CPU, "no C compiler (cc)"), "torch", "cpu, torch's kernels (no C compiler (cc))"),
    ],
    ids=lambda value: str(value) if isinstance(value, ExecutionPath) else "",
)
def test_the_quickest_way_there_is_or_why_not(path: ExecutionPath, label: str, words: str) -> None:
    assert (path.label, str(path)) == (label, words)


def test_kernels_that_cannot_be_had_are_refused() -> None:
    with pytest.raises(EngineError) as caught:
        choose_path(CPU, None, kernels="triton")
    assert caught.value.message == "--kernels triton: they do not run on cpu; take --kernels torch"
    with pytest.raises(EngineError) as caught:
        choose_path(GPU, None, kernels="native")
    assert caught.value.message == "--kernels native: they do not run on cuda:0; take --kernels torch"
    with pytest.raises(EngineError) as caught:
        choose_path(CPU, "no C compiler (cc)", kernels="native")
    assert caught.value.message == "--kernels native: no C compiler (cc); take --kernels torch"


def test_a_model_that_the_kernels_were_not_written_for_is_torchs() -> None:
    config = dataclasses.replace(toy_config(), head_dim=128)
    assert unsupported_shape(config, torch.bfloat16, 16) is None
    assert unsupported_shape(config, torch.float64, 16) == "the kernels have no float64"
    assert unsupported_shape(config, torch.bfloat16, 24) == "the kernels have no block_size 24, only 8, 16, 32 and 64"
    many = dataclasses.replace(config, num_attention_heads=66, num_key_value_heads=2)
    assert unsupported_shape(many, torch.bfloat16, 16) == (
        "the kernels have no 33 heads to a key/value head, at most 32"
    )
    assert (KERNEL_HEAD_DIMS, KERNEL_BLOCK_SIZES, KERNEL_MAX_HEADS_PER_KV_HEAD) == (
        HEAD_DIMS,
        BLOCK_SIZES,
        MAX_HEADS_PER_KV_HEAD,
    )
    small = "the kernels have no head_dim 16, only 64, 80, 96 and 128"
    assert unsupported_shape(toy_config(), torch.float32, 16) == small
    assert problem_of(CPU, config, torch.float64, 16) == "kvscope's own kernels have no float64"


def test_what_keeps_the_gpus_kernels_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked in this order; with all there, nothing does."""
    assert unavailable_reason(CPU) == "device cpu is no CUDA GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert unavailable_reason(GPU) == "torch finds no CUDA GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert unavailable_reason(GPU) == "compute capability 7.5 is below 8.0"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert unavailable_reason(GPU) == "TRITON_INTERPRET is set, with which kernels run on the CPU"
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert unavailable_reason(GPU) == ("no C compiler (gcc, clang), with which Triton makes what launches a kernel")
    monkeypatch.setenv("CC", "gcc")
    assert unavailable_reason(GPU) is None
    monkeypatch.setattr(sysconfig, "get_path", lambda name, scheme: f"/{scheme}/{name}")
    assert unavailable_reason(GPU) == (
        "no /posix_prefix/include/Python.h, with which Triton makes what launches a kernel; "
        "Debian: apt install python3-dev"
    )


def test_a_steps_memory_is_set_aside_before_the_pool() -> None:
    """The toy in float32: 10 tokens of 3 * 64 + 3 * 128 numbers, 3 more padded ones, 3 rows of 261 logits."""
    step = gpu_step_bytes(toy_config(), itemsize=4, max_num_batched_tokens=10, max_num_seqs=3, num_graphs=2)
    graphs_and_libraries = (2 * 16 + 256) << 20
    assert step == 13 * (3 * 64 + 3 * 128) * 4 + 3 * 261 * (4 + 20) + graphs_and_libraries
    eager = gpu_step_bytes(toy_config(), itemsize=4, max_num_batched_tokens=10, max_num_seqs=3, num_graphs=0)
    assert step - eager == 3 * (3 * 64 + 3 * 128) * 4 + (32 << 20)
    # A row for each draft too, but no more rows than tokens: 3 + 6, then 10.
    for num_spec_tokens, num_rows in ((2, 9), (5, 10)):
        drafts = gpu_step_bytes(
            toy_config(),
            itemsize=4,
            max_num_batched_tokens=10,
            max_num_seqs=3,
            num_spec_tokens=num_spec_tokens,
            num_graphs=2,
        )
        assert drafts - step == (num_rows - 3) * 261 * (4 + 20)

    def choose(step_bytes: int) -> int:
        """Blocks of 16 KiB out of 10 GiB."""
        return choose_num_gpu_blocks(
            kv_bytes_per_token=1024,
            block_size=16,
            max_model_len=1024,
            free_bytes=10 << 30,
            is_shared=False,
            step_bytes=step_bytes,
        )

    assert choose(1 << 30) == (8 << 30) // (16 << 10)
    assert choose(9 << 30) == 65, "one sequence fits always where half of the memory holds it"
    with pytest.raises(ModelError):
        choose_num_gpu_blocks(
            kv_bytes_per_token=1 << 20,
            block_size=16,
            max_model_len=8192,
            free_bytes=10 << 30,
            is_shared=False,
            step_bytes=9 << 30,
        )
