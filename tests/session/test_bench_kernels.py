"""`kvscope bench kernels` as far as no GPU is needed: every launch, in Triton's interpreter, and the table."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kvscope.cli.bench.kernels import rates, row
from kvscope.engine import kernels
from kvscope.session.bench_kernels import Sizes, kernel_cases
from kvscope.session.bench_measure import ratio
from kvscope.session.kernel_work import ModelShape, Work
from tests.cli.command_line import CommandLine


def test_every_case_can_be_launched() -> None:
    shape = ModelShape(
        num_heads=2, num_kv_heads=1, head_dim=64, hidden_size=64, intermediate_size=32, vocab_size=100, dtype_bytes=4
    )
    sizes = Sizes(copy_bytes=10, product_size=4, decodes=((2, 20),), num_prefill_tokens=20, num_tokens=2, num_rows=1)
    cases = list(kernel_cases(shape, sizes, torch.device("cpu"), torch.float32))

    results = {case.name: case.prepare()() for case in cases}

    shapes = {name: list(result.shape) for name, result in results.items() if isinstance(result, torch.Tensor)}
    assert shapes == {
        "copy": [10],
        "matrix product": [4, 4],
        "decode attention, 2 × 20 tokens": [2, 2, 64],
        "prefill attention, 20 tokens": [20, 2, 64],
        "rotate and cache, 2 tokens": [2, 2, 64],
        "RMSNorm with residual, 2 tokens": [2, 64],
        "SwiGLU, 2 tokens": [2, 32],
        "sample 1 rows, largest": [1],
        "sample 1 rows, top_k 50, top_p 0.9": [1],
    }


def test_a_row_has_rates_and_their_part_of_the_bounds() -> None:
    of_copy, of_product = ratio([8.0, 9.0], [10.0, 10.0]), ratio([1.0, 1.0], [4.0, 4.0])
    result = rates("decode", Work(num_bytes=3_000_000, num_flops=50_000_000), 2e-6, of_copy, of_product)

    assert {name: round(value, 6) for name, value in result.items() if isinstance(value, float)} == {
        "microseconds": 2.0,
        "gb_per_s": 1500.0,
        "tflop_per_s": 25.0,
    }
    assert row(result, of_copy, of_product) == (
        f"{'decode':<40}{'2.0':>10}{'1500':>10}{'25.0':>10}   {of_copy}, {of_product}"
    )
    without = rates("norm", Work(num_bytes=3_000_000, num_flops=0), 2e-6, of_copy, None)
    assert row(without, of_copy, None) == f"{'norm':<40}{'2.0':>10}{'1500':>10}{'':>10}   {of_copy}"


def test_says_in_a_line_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "unavailable_reason", lambda device: f"torch finds no {device} here")

    outcome = CommandLine(tmp_path, monkeypatch, capsys)("bench", "kernels")

    assert (outcome.exit_code, outcome.out) == (2, "")
    assert outcome.err.splitlines() == [
        "kvscope: bench kernels measures a GPU's kernels, and they cannot run here: torch finds no cuda here"
    ]
