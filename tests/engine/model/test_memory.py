"""How many blocks and threads are taken by default."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from kvscope.engine.model import memory
from kvscope.engine.model.loader import Model
from kvscope.engine.model.memory import check_fits, choose_num_gpu_blocks, choose_num_threads, free_memory_bytes
from kvscope.errors import ModelError

GIB = 1 << 30


def choose(free_bytes: int | None, *, max_model_len: int = 1024, block_size: int = 16, is_shared: bool = True) -> int:
    """Blocks of 16 tokens of 1 KiB: 16 KiB each."""
    return choose_num_gpu_blocks(
        kv_bytes_per_token=1024,
        block_size=block_size,
        max_model_len=max_model_len,
        free_bytes=free_bytes,
        is_shared=is_shared,
    )


def test_a_quarter_of_what_is_free_and_at_most_a_gibibyte() -> None:
    assert choose(2 * GIB) == GIB // 2 // (16 << 10)
    assert choose(64 * GIB) == GIB // (16 << 10)
    assert choose(None) == GIB // (16 << 10)
    assert choose(10 * GIB, is_shared=False) == 9 * GIB // (16 << 10)


def test_one_whole_sequence_fits_always() -> None:
    """1,000,000 tokens are 62,500 blocks and one null block: nearly a gibibyte, of less than two free ones."""
    assert choose(2 * GIB, max_model_len=1_000_000) == 62_501


def test_a_sequence_that_does_not_fit_is_refused_with_the_length_that_would() -> None:
    with pytest.raises(ModelError) as caught:
        choose(GIB // 2, max_model_len=1_000_000)
    assert caught.value.message == (
        "one sequence of 1000000 tokens needs 977 MiB of KV cache and 256 MiB may be taken; "
        "set --max-model-len to at most 262128 or take a smaller model"
    )
    assert choose(GIB // 2, max_model_len=262_128) == 16_384


def test_of_blocks_that_do_not_fit_the_size_is_named_and_no_length() -> None:
    with pytest.raises(ModelError) as caught:
        choose(GIB // 2, max_model_len=1000, block_size=1_000_000)
    assert caught.value.message == (
        "one sequence of 1000 tokens needs 1,953 MiB of KV cache and 256 MiB may be taken; "
        "set --block-size below 1000000 or take a smaller model"
    )


def test_a_pool_larger_than_the_memory_is_refused(toy: Model) -> None:
    check_fits(100, 10, 100)
    with pytest.raises(ModelError) as caught:
        check_fits(4 * GIB, 4096, GIB)
    assert caught.value.message == (
        "4,096 blocks need 4,096 MiB of KV cache and 1,024 MiB are free; set --num-gpu-blocks to at most 1,024"
    )
    with pytest.raises(ModelError, match=r"^1,000,000,000 blocks need"):
        toy.new_runner(num_blocks=10**9, block_size=16)


def test_a_containers_memory_is_what_its_limit_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was only read from files is given back when memory is short; a full container is no unlimited one."""
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    cpu = torch.device("cpu")
    whole = free_memory_bytes(cpu)
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 700\n")
    assert whole is not None
    assert (free_memory_bytes(cpu) or 0) > whole // 2
    (tmp_path / "memory.max").write_text("1100\n")
    assert free_memory_bytes(cpu) == 800
    (tmp_path / "memory.max").write_text("200\n")
    assert free_memory_bytes(cpu) == 0


def test_threads_follow_the_usual_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert choose_num_threads() == 3


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this platform has no affinity")
def test_one_core_is_left_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(memory, "_cgroup_cores", lambda: None)
    for num_cores, expected in ((1, 1), (2, 1), (8, 7)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, n=num_cores: set(range(n)))
        assert choose_num_threads() == expected
        assert choose_num_threads(leaves_a_core=False) == num_cores
    monkeypatch.setattr(memory, "_cgroup_cores", lambda: 4)
    assert choose_num_threads() == 3
