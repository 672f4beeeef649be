"""How fast the kernels move bytes and multiply, beside a copy and a matrix product measured in the same rounds.

Importing this module needs torch and triton. A figure is of launches recorded in a CUDA graph, so that Python's time
between them does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from kvscope.engine.kernels.activation import silu_and_mul
from kvscope.engine.kernels.attention import AttentionBatch, paged_attention
from kvscope.engine.kernels.norm import rms_norm
from kvscope.engine.kernels.rotary import rotate_and_cache
from kvscope.engine.kernels.sampling import SamplingRows, sample
from kvscope.engine.model.gpu.cuda_graphs import CudaGraphBackend
from kvscope.session import kernel_work
from kvscope.session.kernel_work import ModelShape, Work

_LAUNCHES = 10
"""In a graph: what a replay costs by itself is spread over so many."""


@dataclass(frozen=True, slots=True)
class KernelCase:
    """Something to measure. `prepare` makes its tensors and returns what launches it once."""

    name: str
    work: Work
    prepare: Callable[[], Callable[[], object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much each kernel is given: by default more than a GPU's caches hold, but for the shortest decode."""

    copy_bytes: int = 1 << 29
    product_size: int = 8192
    decodes: Sequence[tuple[int, int]] = ((1, 4096), (1, 32_768), (32, 4096), (256, 1024))
    """(sequences, length of each)."""
    num_prefill_tokens: int = 4096
    num_tokens: int = 32_768
    """For norm, gate and rotation."""
    num_rows: int = 256
    """For sampling."""


def kernel_cases(
    shape: ModelShape, sizes: Sizes, device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> Iterator[KernelCase]:
    """Yields the copy, the product, and every kernel."""

    def random(*size: int) -> torch.Tensor:
        return torch.randn(size, dtype=dtype, device=device)

    yield KernelCase("copy", kernel_work.copy(sizes.copy_bytes), partial(_copy, sizes.copy_bytes, device))
    size = sizes.product_size
    yield KernelCase(
        "matrix product",
        kernel_work.product(size, shape.dtype_bytes),
        lambda: partial(torch.matmul, random(size, size), random(size, size)),
    )
    for num_seqs, seq_len in sizes.decodes:
        yield KernelCase(
            f"decode attention, {num_seqs} × {seq_len:,} tokens",
            kernel_work.decode_attention(shape, num_seqs, seq_len),
            partial(_attention, shape, device, dtype, num_seqs, seq_len, 1),
        )
    num_tokens = sizes.num_prefill_tokens
    yield KernelCase(
        f"prefill attention, {num_tokens:,} tokens",
        kernel_work.prefill_attention(shape, num_tokens),
        partial(_attention, shape, device, dtype, 1, num_tokens, num_tokens),
    )
    num_tokens = sizes.num_tokens
    yield KernelCase(
        f"rotate and cache, {num_tokens:,} tokens",
        kernel_work.rotate_and_cache(shape, num_tokens),
        partial(_rotation, shape, device, dtype, num_tokens),
    )
    hidden_size = shape.hidden_size
    yield KernelCase(
        f"RMSNorm with residual, {num_tokens:,} tokens",
        kernel_work.rms_norm(shape, num_tokens),
        lambda: partial(
            rms_norm,
            random(num_tokens, hidden_size),
            random(hidden_size),
            1e-6,
            residual=random(num_tokens, hidden_size),
        ),
    )
    yield KernelCase(
        f"SwiGLU, {num_tokens:,} tokens",
        kernel_work.silu_and_mul(shape, num_tokens),
        lambda: partial(silu_and_mul, random(num_tokens, 2 * shape.intermediate_size)),
    )
    for name, is_greedy in (("largest", True), ("top_k 50, top_p 0.9", False)):
        yield KernelCase(
            f"sample {sizes.num_rows} rows, {name}",
            kernel_work.sample(shape, sizes.num_rows),
            partial(_sampling, shape, device, dtype, sizes.num_rows, is_greedy),
        )


def seconds_per_launch(launch: Callable[[], object], device: torch.device) -> Callable[[], float]:
    """Compiles and records the launch, and returns what measures it once."""

    def launches() -> None:
        for _ in range(_LAUNCHES):
            launch()

    graph = CudaGraphBackend(device).capture(launches)
    new_event: Callable[..., torch.cuda.Event] = torch.cuda.Event
    begin, end = new_event(enable_timing=True), new_event(enable_timing=True)

    def measure() -> float:
        # The device is still at work while the host queues what is timed: else the first launch would wait for it.
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / _LAUNCHES

    measure()
    return measure


def _copy(num_bytes: int, device: torch.device) -> Callable[[], object]:
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    return partial(torch.empty_like(source).copy_, source)


def _attention(
    shape: ModelShape, device: torch.device, dtype: torch.dtype, num_seqs: int, seq_len: int, num_new: int
) -> Callable[[], object]:
    """Blocks are dealt at random, as they lie in a cache that has been used for a while."""
    num_blocks = -(-seq_len // shape.block_size)
    tables = (torch.randperm(num_seqs * num_blocks, device=device) + 1).view(num_seqs, num_blocks)
    cache = (num_seqs * num_blocks + 1, shape.num_kv_heads, shape.block_size, shape.head_dim)
    num_tokens = num_seqs * num_new
    batch = AttentionBatch(
        query_starts=torch.arange(0, num_tokens + 1, num_new, dtype=torch.int32, device=device),
        seq_lens=torch.full((num_seqs,), seq_len, dtype=torch.int32, device=device),
        block_tables=tables.to(torch.int32),
        slot_mapping=torch.full((num_tokens,), -1, dtype=torch.int64, device=device),
        max_query_len=num_new,
        max_seq_len=seq_len,
    )
    return partial(
        paged_attention,
        torch.randn((num_tokens, shape.num_heads, shape.head_dim), dtype=dtype, device=device),
        torch.randn(cache, dtype=dtype, device=device),
        torch.randn(cache, dtype=dtype, device=device),
        batch,
        scale=shape.head_dim**-0.5,
    )


def _rotation(shape: ModelShape, device: torch.device, dtype: torch.dtype, num_tokens: int) -> Callable[[], object]:
    """Tokens of one prompt, each with angles of its own."""
    heads = shape.num_heads + 2 * shape.num_kv_heads
    num_blocks = -(-num_tokens // shape.block_size) + 1
    cache = (num_blocks, shape.num_kv_heads, shape.block_size, shape.head_dim)
    angles = torch.rand((num_tokens, shape.head_dim // 2), device=device)
    positions = torch.arange(num_tokens, device=device)
    return partial(
        rotate_and_cache,
        torch.randn((num_tokens, heads * shape.head_dim), dtype=dtype, device=device),
        positions,
        angles.cos(),
        angles.sin(),
        torch.zeros(cache, dtype=dtype, device=device),
        torch.zeros(cache, dtype=dtype, device=device),
        positions + shape.block_size,
        num_heads=shape.num_heads,
        qk_norm=torch.ones((heads - shape.num_kv_heads, shape.head_dim), dtype=dtype, device=device),
    )


def _sampling(
    shape: ModelShape, device: torch.device, dtype: torch.dtype, num_rows: int, is_greedy: bool
) -> Callable[[], object]:
    logits = torch.randn((num_rows, shape.vocab_size), dtype=dtype, device=device) * 4
    rows = SamplingRows(
        temperatures=torch.ones(num_rows, device=device),
        top_ks=torch.full((num_rows,), 50, dtype=torch.int32, device=device),
        top_ps=torch.full((num_rows,), 0.9, device=device),
        min_ps=torch.zeros(num_rows, device=device),
        seeds=torch.arange(num_rows, device=device),
        indices=torch.zeros(num_rows, dtype=torch.int64, device=device),
    )
    return partial(sample, logits, None if is_greedy else rows)
