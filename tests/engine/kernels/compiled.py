"""Compiles every kernel for a GPU that need not be there, and prints what each takes of it, as lines of JSON.

    python -m tests.engine.kernels.compiled CAPABILITY [all]

The wrappers make the launches, on tensors without memory; here they are compiled instead of run, with the types and the
divisibility by 16 that Triton would see. Without `all` dtypes, head sizes and block sizes are paired, not multiplied;
with it a capability takes minutes.
Must run in a process of its own, without TRITON_INTERPRET.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kvscope.engine.kernels import attention as attention_module
from kvscope.engine.kernels.activation import silu_and_mul
from kvscope.engine.kernels.attention import BLOCK_SIZES, HEAD_DIMS, AttentionBatch, paged_attention
from kvscope.engine.kernels.launch import DeviceProfile, Launch
from kvscope.engine.kernels.norm import rms_norm
from kvscope.engine.kernels.rotary import rotate_and_cache
from kvscope.engine.kernels.sampling import SamplingRows, sample

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
SHARED_LIMITS = {80: (99 << 10, 163 << 10), 90: (227 << 10,), 100: (227 << 10,)}
"""Bytes of shared memory that a program may have (CUDA programming guide, table of compute capabilities), ascending.

8.6, 8.9 and 12.0 are given the tiles of 8.0, and have the lesser."""
TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
}

AttentionCase = tuple[torch.dtype, int, int, tuple[int, int]]
"""dtype, head_dim, block_size, (num_heads, num_kv_heads)."""

DECODES: list[AttentionCase] = [
    (torch.bfloat16, 128, 16, (16, 8)),
    (torch.float16, 64, 32, (9, 3)),
    (torch.float32, 128, 8, (32, 8)),
    (torch.bfloat16, 80, 64, (32, 32)),
]
MIXED: list[AttentionCase] = [
    (torch.bfloat16, 128, 16, (16, 8)),
    (torch.float16, 96, 64, (32, 32)),
    (torch.float32, 128, 32, (9, 3)),
    (torch.bfloat16, 64, 8, (32, 8)),
]

ROTATIONS = [(torch.bfloat16, 128, 16, True), (torch.float16, 80, 8, False), (torch.float32, 96, 64, True)]
"""dtype, head_dim, block_size, has_norm."""


def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def attend(case: AttentionCase, *, is_decode_only: bool) -> None:
    dtype, head_dim, block_size, (num_heads, num_kv_heads) = case
    num_seqs, num_tokens = 16, 16 if is_decode_only else 1000
    cache = empty(64, num_kv_heads, block_size, head_dim, dtype=dtype)
    batch = AttentionBatch(
        query_starts=empty(num_seqs + 1, dtype=torch.int32),
        seq_lens=empty(num_seqs, dtype=torch.int32),
        block_tables=empty(num_seqs, 512, dtype=torch.int32),
        slot_mapping=empty(num_tokens, dtype=torch.int64),
        max_query_len=1 if is_decode_only else 512,
        max_seq_len=4096,
    )
    query = empty(num_tokens, num_heads, head_dim, dtype=dtype)
    paged_attention(query, cache, cache, batch, scale=head_dim**-0.5, num_splits=16)


def rotate(dtype: torch.dtype, head_dim: int, block_size: int, *, has_norm: bool) -> None:
    num_heads, num_kv_heads = 16, 8
    cache = empty(64, num_kv_heads, block_size, head_dim, dtype=dtype)
    table = empty(4096, head_dim // 2, dtype=torch.float32)
    tokens = empty(32, dtype=torch.int64)
    rotate_and_cache(
        empty(32, (num_heads + 2 * num_kv_heads) * head_dim, dtype=dtype),
        tokens,
        table,
        table,
        cache,
        cache,
        tokens,
        num_heads=num_heads,
        qk_norm=empty(num_heads + num_kv_heads, head_dim, dtype=dtype) if has_norm else None,
    )


def draw(dtype: torch.dtype, *, is_greedy: bool) -> None:
    floats, integers = empty(32, dtype=torch.float32), empty(32, dtype=torch.int64)
    rows = SamplingRows(
        temperatures=floats,
        top_ks=empty(32, dtype=torch.int32),
        top_ps=floats,
        min_ps=floats,
        seeds=integers,
        indices=integers,
    )
    sample(empty(32, 151_936, dtype=dtype), None if is_greedy else rows)


def norm(dtype: torch.dtype, hidden_size: int, *, has_residual: bool) -> None:
    x = empty(32, hidden_size, dtype=dtype)
    rms_norm(x, empty(hidden_size, dtype=dtype), 1e-6, residual=x if has_residual else None)


def every_case() -> Iterator[AttentionCase]:
    """Yields each dtype, head size and block size, and groups from 3 to 32 query heads to a key/value head."""
    dtypes = (torch.bfloat16, torch.float16, torch.float32)
    for dtype, head_dim, block_size in itertools.product(dtypes, HEAD_DIMS, BLOCK_SIZES):
        yield dtype, head_dim, block_size, (16, 8)
    for dtype, head_dim, heads in itertools.product(dtypes, (64, 128), ((9, 3), (28, 4), (32, 1))):
        yield dtype, head_dim, 16, heads


def launch_everything(*, is_all: bool) -> None:
    """Calls the wrappers over the cases."""
    for case in every_case() if is_all else DECODES:
        attend(case, is_decode_only=True)
    for case in every_case() if is_all else MIXED:
        attend(case, is_decode_only=False)
    rotations: Iterable[tuple[torch.dtype, int, int, bool]] = ROTATIONS
    if is_all:
        dtypes = (torch.bfloat16, torch.float16, torch.float32)
        rotations = itertools.product(dtypes, HEAD_DIMS, BLOCK_SIZES, (True, False))
    for dtype, head_dim, block_size, has_norm in rotations:
        rotate(dtype, head_dim, block_size, has_norm=has_norm)
    norm(torch.bfloat16, 1024, has_residual=True)
    norm(torch.float16, 576, has_residual=False)
    norm(torch.float32, 16_384, has_residual=True)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        silu_and_mul(empty(32, 6144, dtype=dtype))
        draw(dtype, is_greedy=True)
        draw(dtype, is_greedy=False)


def compile_launch(launch: Launch, capability: int) -> Any:
    """Compiles as a real launch would be: what the kernel may know of alignment is told, tensors are aligned."""
    signature, constants, attributes = {}, {}, {}
    for place, (name, parameter) in enumerate(zip(launch.kernel.arg_names, launch.kernel.params, strict=True)):
        value = {**launch.arguments, **launch.constants}[name]
        is_aligned = not parameter.do_not_specialize_on_alignment
        if name in launch.constants or value is None:
            signature[name] = "constexpr"
            constants[(place,)] = value
            continue
        if isinstance(value, torch.Tensor):
            signature[name] = "*" + TYPES[value.dtype]
        else:
            signature[name] = "i32" if isinstance(value, int) else "fp32"
            is_aligned &= not parameter.do_not_specialize and isinstance(value, int) and value % 16 == 0
        if is_aligned:
            attributes[(place,)] = [["tt.divisibility", 16]]
    return triton.compile(
        ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=attributes),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": launch.num_warps, "num_stages": launch.num_stages},
    )


def usage(launch: Launch, capability: int) -> dict[str, Any]:
    """Returns what a launch takes of a GPU. Stack and local memory are there for spilled registers only."""
    compiled = compile_launch(launch, capability)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(CUOBJDUMP), "--dump-resource-usage", file.name]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts = {name: int(count) for name, count in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", report)}
    pointers = [value for value in launch.arguments.values() if isinstance(value, torch.Tensor)]
    return {
        "kernel": launch.kernel.__name__,
        "dtype": TYPES[pointers[0].dtype],
        "constants": dict(launch.constants),
        "registers": counts["REG"],
        "spilled_bytes": counts["STACK"] + counts["LOCAL"],
        "shared_bytes": compiled.metadata.shared,
        "num_warps": launch.num_warps,
        "copy_bytes": sorted(
            {int(n, 16) for n in re.findall(r"cp\.async\.c[ag]\..*?\], 0x(\w+)", compiled.asm["ptx"])}
        ),
    }


def compile_everything(capability: int, *, is_all: bool) -> Iterator[dict[str, Any]]:
    """Yields each launch's usage."""
    launches: dict[str, tuple[Launch, int]] = {}
    for limit in SHARED_LIMITS[capability]:
        profile = DeviceProfile(capability, 132, limit)

        def keep(launch: Launch, limit: int = limit) -> None:
            dtypes = [value.dtype for value in launch.arguments.values() if isinstance(value, torch.Tensor)]
            name = f"{launch.kernel.__name__} {dtypes} {launch.constants} {launch.num_warps} {launch.num_stages}"
            launches.setdefault(name, (launch, limit))

        with (
            patch.object(Launch, "run", keep),
            patch.object(attention_module, "profile_of", lambda device, profile=profile: profile),
        ):
            launch_everything(is_all=is_all)
    for launch, limit in launches.values():
        yield usage(launch, capability) | {"shared_limit": limit}


if __name__ == "__main__":
    for line in compile_everything(int(sys.argv[1]), is_all="all" in sys.argv[2:]):
        print(json.dumps(line), flush=True)
