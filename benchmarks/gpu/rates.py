"""How fast kernels are, beside a copy and a matrix product in the same rounds: what `kvscope bench kernels` shows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from benchmarks.gpu.rows import Rows
from benchmarks.gpu.setup import BLOCK_SIZE, Setup
from kvscope.session.bench_kernels import KernelCase, Sizes, kernel_cases, seconds_per_launch
from kvscope.session.kernel_work import ModelShape

NUM_ROUNDS = 5
LEAST_OF_COPY = 0.8
"""The goal of paged attention for decodes."""
DRY_SIZES = Sizes(
    copy_bytes=1 << 16,
    product_size=64,
    decodes=((2, 24),),
    num_prefill_tokens=20,
    num_tokens=4,
    num_rows=1,
)


def measure_rates(setup: Setup, rows: Rows) -> None:
    """Measures each kernel in turns with the copy and the product."""
    config = setup.config
    shape = ModelShape(
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        block_size=BLOCK_SIZE,
        dtype_bytes=setup.dtype.itemsize,
    )
    sizes = DRY_SIZES if setup.is_dry else Sizes()
    copy, product, *cases = kernel_cases(shape, sizes, setup.device, setup.dtype)
    copying, multiplying = _measure(setup, copy), _measure(setup, product)
    rows.add("copy", copy.work.num_bytes / copying() / 1e9, "GB/s")
    rows.add("matrix product", product.work.num_flops / multiplying() / 1e12, "TFLOP/s")
    for case in cases:
        with rows.attempt(case.name):
            measure, work = _measure(setup, case), case.work
            turns = [_Turn(copying(), multiplying(), measure()) for _ in range(setup.pick(NUM_ROUNDS, 1))]
            seconds = statistics.median(turn.case for turn in turns)
            rows.add(f"{case.name}: a launch", seconds * 1e6, "µs")
            rows.add(f"{case.name}: rate", work.num_bytes / seconds / 1e9, "GB/s")
            of_copy = work.num_bytes / copy.work.num_bytes * statistics.median(t.copy / t.case for t in turns)
            if case.name.startswith("decode attention") and work.num_bytes > 2 * _cache_bytes(setup):
                rows.goal(f"{case.name}: of the copy's rate", of_copy, LEAST_OF_COPY)
            else:
                rows.add(f"{case.name}: of the copy's rate", of_copy)
            if work.num_flops:
                of_product = work.num_flops / product.work.num_flops
                of_product *= statistics.median(t.product / t.case for t in turns)
                rows.add(f"{case.name}: of the product's rate", of_product)


class _Turn(NamedTuple):
    """Seconds, one measured after the other."""

    copy: float
    product: float
    case: float


def _cache_bytes(setup: Setup) -> int:
    """Returns what the device's cache holds: a launch that reads less finds it there, and says nothing of memory."""
    if setup.device.type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(setup.device).L2_cache_size)


def _measure(setup: Setup, case: KernelCase) -> Callable[[], float]:
    """Returns what measures a launch once, in seconds: recorded in a graph on a GPU."""
    launch = case.prepare()
    if not setup.is_dry:
        return seconds_per_launch(launch, setup.device)

    def measure() -> float:
        began = time.perf_counter()
        launch()
        return time.perf_counter() - began

    return measure
