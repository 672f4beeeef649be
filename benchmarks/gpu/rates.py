"""How fast kernels are, against what the machine can do: a copy and a matrix product, measured in the same run."""

from __future__ import annotations

import torch

from benchmarks.gpu.kernel_checks import Spans, attention_batch
from benchmarks.gpu.rows import Rows
from benchmarks.gpu.setup import BLOCK_SIZE, Setup
from kvscope.engine.kernels.activation import silu_and_mul
from kvscope.engine.kernels.attention import paged_attention
from kvscope.engine.kernels.norm import rms_norm
from kvscope.engine.kernels.rotary import rotate_and_cache
from kvscope.engine.kernels.sampling import SamplingRows, sample

LEAST_OF_COPY = 0.8
"""Paged decode attention's goal."""


def measure_rates(setup: Setup, rows: Rows) -> None:
    """Measures everything; each kernel on data that no cache holds."""
    copy = _copy_rate(setup)
    rows.add("copy", copy / 1e9, "GB/s")
    product = _product_rate(setup)
    rows.add("matrix product", product / 1e12, "TFLOP/s")
    _decode_attention(setup, rows, copy)
    _prefill_attention(setup, rows, product)
    _elementwise(setup, rows, copy)
    _sampling(setup, rows, copy)


def _empty(setup: Setup, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=setup.generator(), device=setup.device, dtype=torch.float32).to(setup.dtype)


def _copy_rate(setup: Setup) -> float:
    """Returns bytes a second, read and written ones counted."""
    source = torch.zeros(setup.pick(1 << 29, 1 << 16), dtype=torch.uint8, device=setup.device)
    target = torch.empty_like(source)
    return 2 * len(source) / setup.seconds(lambda: target.copy_(source))


def _product_rate(setup: Setup) -> float:
    size = setup.pick(8192, 64)
    left, right = _empty(setup, size, size), _empty(setup, size, size)
    return 2 * size**3 / setup.seconds(lambda: left @ right)


def _decode_attention(setup: Setup, rows: Rows, copy: float) -> None:
    config = setup.config
    cases = [(1, 32_768), (32, 4096), (256, 1024)]
    for num_seqs, seq_len in [(2, 24)] if setup.is_dry else cases:
        num_blocks = 8 + num_seqs * -(-seq_len // BLOCK_SIZE)
        caches = _empty(setup, 2, num_blocks, config.num_key_value_heads, BLOCK_SIZE, config.head_dim)
        query = _empty(setup, num_seqs, config.num_attention_heads, config.head_dim)
        spans = Spans([1] * num_seqs, [seq_len] * num_seqs)
        batch = attention_batch(spans, setup.device, num_blocks, setup.generator())
        out = torch.empty_like(query)
        seconds = setup.seconds(
            lambda q=query, c=caches, b=batch, o=out: paged_attention(q, c[0], c[1], b, scale=0.1, out=o)  # type: ignore[misc]
        )
        per_token = 2 * config.num_key_value_heads * config.head_dim * caches.itemsize
        rate = num_seqs * seq_len * per_token / seconds
        name = f"decode attention, {num_seqs} x {seq_len} tokens"
        rows.add(f"{name}: keys and values read", rate / 1e9, "GB/s")
        rows.add(f"{name}: a launch", seconds * 1e6, "µs")
        rows.goal(f"{name}: of the copy's rate", rate / copy, LEAST_OF_COPY)


def _prefill_attention(setup: Setup, rows: Rows, product: float) -> None:
    config = setup.config
    num_tokens = setup.pick(4096, 20)
    num_blocks = 8 + -(-num_tokens // BLOCK_SIZE)
    caches = _empty(setup, 2, num_blocks, config.num_key_value_heads, BLOCK_SIZE, config.head_dim)
    query = _empty(setup, num_tokens, config.num_attention_heads, config.head_dim)
    batch = attention_batch(Spans([num_tokens], [num_tokens]), setup.device, num_blocks, setup.generator())
    out = torch.empty_like(query)
    seconds = setup.seconds(
        lambda: paged_attention(query, caches[0], caches[1], batch, scale=0.1, num_splits=1, out=out)
    )
    # Two products over the half of all pairs that a causal mask leaves.
    operations = 2 * num_tokens**2 * config.num_attention_heads * config.head_dim
    rows.add(f"prefill attention, {num_tokens} tokens", operations / seconds / 1e12, "TFLOP/s")
    rows.add(f"prefill attention, {num_tokens} tokens: of the product's rate", operations / seconds / product)


def _elementwise(setup: Setup, rows: Rows, copy: float) -> None:
    config = setup.config
    num_tokens, hidden = setup.pick(32_768, 4), config.hidden_size
    x, residual, weight = _empty(setup, num_tokens, hidden), _empty(setup, num_tokens, hidden), _empty(setup, hidden)
    itemsize = x.itemsize

    def note(name: str, num_bytes: int, seconds: float) -> None:
        rows.add(f"{name}, {num_tokens} tokens: of the copy's rate", num_bytes / seconds / copy)

    out = torch.empty_like(x)
    seconds = setup.seconds(lambda: rms_norm(x, weight, 1e-6, residual=residual, out=out))
    note("rms_norm with residual", 4 * x.numel() * itemsize, seconds)
    gate_up = _empty(setup, num_tokens, 2 * config.intermediate_size)
    gated = gate_up[:, : config.intermediate_size].contiguous()
    seconds = setup.seconds(lambda: silu_and_mul(gate_up, out=gated))
    note("silu_and_mul", 3 * gated.numel() * itemsize, seconds)
    num_kv_heads, head_dim = config.num_key_value_heads, config.head_dim
    qkv = _empty(setup, num_tokens, (config.num_attention_heads + 2 * num_kv_heads) * head_dim)
    caches = _empty(setup, 2, 1 + -(-num_tokens // BLOCK_SIZE), num_kv_heads, BLOCK_SIZE, head_dim)
    positions = torch.arange(num_tokens, device=setup.device) % 512
    slots = torch.arange(num_tokens, device=setup.device) + BLOCK_SIZE
    angles = torch.rand(512, head_dim // 2, device=setup.device)
    norm = _empty(setup, config.num_attention_heads + num_kv_heads, head_dim)
    seconds = setup.seconds(
        lambda: rotate_and_cache(
            *(qkv, positions, angles, angles, caches[0], caches[1], slots),
            num_heads=config.num_attention_heads,
            qk_norm=norm,
        )
    )
    note("rotate_and_cache", 2 * qkv.numel() * itemsize, seconds)


def _sampling(setup: Setup, rows: Rows, copy: float) -> None:
    num_rows = setup.pick(256, 2)
    logits = _empty(setup, num_rows, setup.config.vocab_size).mul_(4)
    num_bytes = logits.numel() * logits.itemsize
    device = setup.device
    settings = SamplingRows(
        temperatures=torch.ones(num_rows, device=device),
        top_ks=torch.full((num_rows,), 50, dtype=torch.int32, device=device),
        top_ps=torch.full((num_rows,), 0.9, device=device),
        min_ps=torch.zeros(num_rows, device=device),
        seeds=torch.arange(num_rows, device=device),
        indices=torch.zeros(num_rows, dtype=torch.int64, device=device),
    )
    for name, chosen in (("greedy", None), ("top_k 50, top_p 0.9", settings)):
        seconds = setup.seconds(lambda chosen=chosen: sample(logits, chosen))  # type: ignore[misc]
        rows.add(f"sample {num_rows} rows, {name}", seconds * 1e6, "µs")
        rows.add(f"sample {num_rows} rows, {name}: logits read once, of the copy's rate", num_bytes / seconds / copy)
