"""`kvscope models show`: what a model's KV cache takes, read from its configuration alone."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kvscope.errors import UsageError


def show_model(
    name: Annotated[str, typer.Argument(help="A name of `models list`, a folder, a GGUF file, or a hub id.")],
    dtype: Annotated[str, typer.Option(help="What keys and values are kept in; auto is what the model has.")] = "auto",
    block_size: Annotated[int, typer.Option(help="Tokens a block.", min=1)] = 16,
    max_model_len: Annotated[
        int | None, typer.Option(help="The longest sequence; by default the model's.", min=1)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the bytes of KV a token, and the KV memory by context length and number of requests."""
    from kvscope.analysis.kv_memory import DTYPE_BYTES, NUM_REQUESTS, KVShape, context_lengths, context_row
    from kvscope.cli.plain_table import share, table, wrapped
    from kvscope.engine.model.loader import read_config

    config = read_config(name)
    kept_in = config.dtype if dtype == "auto" else dtype
    if kept_in not in DTYPE_BYTES:
        raise UsageError(f"--dtype {kept_in}: choose auto, {', '.join(DTYPE_BYTES)}")
    longest = min(max_model_len or config.max_model_len, config.max_model_len)
    shape = KVShape(
        num_layers=config.num_hidden_layers,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        dtype=kept_in,
    )
    rows = [
        context_row(shape, length, block_size=block_size, max_model_len=longest) for length in context_lengths(longest)
    ]
    if as_json:
        record = {
            "name": name,
            "family": config.family,
            "num_layers": shape.num_layers,
            "num_attention_heads": config.num_attention_heads,
            "num_kv_heads": shape.num_kv_heads,
            "head_dim": shape.head_dim,
            "dtype": kept_in,
            "max_model_len": longest,
            "block_size": block_size,
            "kv_bytes_per_token": shape.bytes_per_token,
            "rows": [
                {
                    "num_tokens": row.num_tokens,
                    "paged_bytes": dict(zip(NUM_REQUESTS, row.paged_bytes, strict=True)),
                    "reserved_bytes": dict(zip(NUM_REQUESTS, row.reserved_bytes, strict=True)),
                    "wasted_paged": row.wasted_paged,
                    "wasted_reserved": row.wasted_reserved,
                }
                for row in rows
            ],
        }
        typer.echo(json.dumps(record, ensure_ascii=False))
        return
    lines = wrapped(
        f"{name}: {config.family}, {shape.num_layers} layers, {config.num_attention_heads} heads over "
        f"{shape.num_kv_heads} key/value heads of {shape.head_dim}, up to {longest:,} tokens",
        first="",
    )
    lines += wrapped(
        f"KV of a token: 2 × {shape.num_layers} layers × {shape.num_kv_heads} heads × {shape.head_dim} × "
        f"{DTYPE_BYTES[kept_in]} bytes ({kept_in}) = {shape.bytes_per_token:,} bytes; a block of {block_size} tokens: "
        f"{byte_size(block_size * shape.bytes_per_token)}"
    )
    counts = [f"{count} request{'' if count == 1 else 's'}" for count in NUM_REQUESTS]
    paged = [(f"{row.num_tokens:,}", *map(byte_size, row.paged_bytes), share(row.wasted_paged)) for row in rows]
    lines += ["", *table((f"paged, {block_size} a block", *counts, "unused"), paged)]
    reserved = [
        (f"{row.num_tokens:,}", *map(byte_size, row.reserved_bytes), share(row.wasted_reserved)) for row in rows
    ]
    lines += ["", *table((f"{longest:,} reserved", *counts, "unused"), reserved)]
    lines += wrapped(
        "Rows are tokens a request. Paged: whole blocks as they are needed; unused is half a block, the mean. "
        "Reserved: one piece for each request, as long as the longest sequence may become.",
        first="",
        rest="",
    )
    typer.echo("\n".join(lines))


def byte_size(num_bytes: int) -> str:
    """Returns a size with three digits and its binary unit."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    digits = 0 if unit == "B" or value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"
