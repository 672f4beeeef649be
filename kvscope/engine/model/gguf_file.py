"""Reads GGUF files: metadata, and weights under Hugging Face's names.

The format is parsed here rather than with the `gguf` package's reader, which takes four seconds for the metadata of a
vocabulary of 49,152 and reads past the end of a broken file; weights are dequantized by that package. Source of the
format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray

from kvscope.engine.model.config import ModelConfig
from kvscope.errors import ModelError

_SCALAR_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. `shape` is in torch's order, rows first."""

    name: str
    shape: tuple[int, ...]
    quant_type: gguf.GGMLQuantizationType
    offset: int
    """From the start of the file."""
    num_bytes: int


class GGUFFile:
    """An opened file: `metadata` by its keys, `tensors` by their names in the file. Data is read when asked for.

    Raises:
        ModelError: no such file, not a GGUF file, incomplete, or of a version that is not supported.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # mmap of an empty file
            raise ModelError(f"{path}: the file is empty; fetch it again") from None
        except OSError as error:
            raise ModelError(f"{path}: {error.strerror or error}") from error
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self._read()

    def array(self, info: TensorInfo) -> NDArray[np.float32]:
        """Returns a tensor's values in float32."""
        raw = np.frombuffer(self._data, dtype=np.uint8, count=info.num_bytes, offset=info.offset)
        match info.quant_type:
            case gguf.GGMLQuantizationType.F32:
                return raw.view(np.float32).reshape(info.shape)
            case gguf.GGMLQuantizationType.F16:
                return raw.view(np.float16).astype(np.float32).reshape(info.shape)
        rows = raw.reshape(*info.shape[:-1], -1)
        try:
            values: NDArray[np.float32] = gguf.quants.dequantize(rows, info.quant_type)
        except NotImplementedError as error:
            raise ModelError(
                f"{self.path}: weights of type {info.quant_type.name} ({info.name}) are not supported; take a file "
                "with Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, K-quants, F16, BF16 or F32"
            ) from error
        return values.reshape(info.shape)

    def _read(self) -> None:
        cursor = _Cursor(self._data, self.path)
        if self._data[:4] != b"GGUF":
            raise ModelError(f"{self.path}: not a GGUF file (it starts with {bytes(self._data[:4])!r}, not b'GGUF')")
        cursor.position = 4
        if (version := cursor.scalar("I")) not in (2, 3):
            raise ModelError(f"{self.path}: GGUF version {version} is not supported; supported are 2 and 3")
        num_tensors, num_keys = cursor.scalar("Q"), cursor.scalar("Q")
        for _ in range(num_keys):
            key = cursor.string()
            self.metadata[key] = cursor.value(cursor.scalar("I"))
        if (num_parts := self.metadata.get("split.count", 1)) > 1:
            raise ModelError(f"{self.path}: part of a model split into {num_parts} files; join them with gguf-split")
        declared = [self._read_tensor_info(cursor) for _ in range(num_tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ModelError(f"{self.path}: general.alignment is {alignment!r}: the file is damaged; fetch it again")
        start = -(-cursor.position // alignment) * alignment
        for name, shape, quant_type, offset, num_bytes in declared:
            cursor.check_end(start + offset + num_bytes)
            self.tensors[name] = TensorInfo(name, shape, quant_type, start + offset, num_bytes)

    def _read_tensor_info(self, cursor: _Cursor) -> tuple[str, tuple[int, ...], gguf.GGMLQuantizationType, int, int]:
        name = cursor.string()
        if (num_dimensions := cursor.scalar("I")) > _MAX_DIMENSIONS:
            raise ModelError(
                f"{self.path}: {name} has {num_dimensions} dimensions: the file is damaged; fetch it again"
            )
        shape = tuple(cursor.scalar("Q") for _ in range(num_dimensions))[::-1]
        type_id, offset = cursor.scalar("I"), cursor.scalar("Q")
        try:
            quant_type = gguf.GGMLQuantizationType(type_id)
            block_size, block_bytes = gguf.GGML_QUANT_SIZES[quant_type]
        except (ValueError, KeyError):
            raise ModelError(f"{self.path}: {name} has the unknown weight type {type_id}") from None
        if not shape or shape[-1] % block_size:
            raise ModelError(
                f"{self.path}: {name} has shape {list(shape)}, {quant_type.name} needs rows of a multiple of "
                f"{block_size}: the file is damaged; fetch it again"
            )
        return name, shape, quant_type, offset, math.prod(shape) // block_size * block_bytes


class _Cursor:
    """Reads values one after another; reading behind the end is an error that names the file."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data = data
        self.path = path
        self.position = 0

    def check_end(self, end: int) -> None:
        if end > len(self.data):
            raise ModelError(
                f"{self.path}: incomplete: it ends at byte {len(self.data):,} and should reach byte {end:,} at least; "
                "fetch it again"
            )

    def take(self, num_bytes: int) -> bytes:
        start = self.position
        self.check_end(start + num_bytes)
        self.position = start + num_bytes
        return self.data[start : self.position]

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self) -> str:
        return self.take(self.scalar("Q")).decode("utf-8", errors="replace")

    def value(self, type_id: int) -> Any:
        if type_id == _STRING:
            return self.string()
        if type_id == _ARRAY:
            return self.array()
        if type_id not in _SCALAR_FORMATS:
            raise ModelError(f"{self.path}: unknown metadata type {type_id}: the file is damaged; fetch it again")
        return self.scalar(_SCALAR_FORMATS[type_id])

    def array(self) -> list[Any]:
        type_id, count = self.scalar("I"), self.scalar("Q")
        if code := _SCALAR_FORMATS.get(type_id):
            size = struct.calcsize("<" + code)
            self.check_end(self.position + count * size)
            return list(struct.unpack(f"<{count}{code}", self.take(count * size)))
        self.check_end(self.position + count)
        return [self.value(type_id) for _ in range(count)]


_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GGUFWeights:
    """A GGUF file as a `WeightSource`: Hugging Face's names, and q and k in Hugging Face's order of rows."""

    def __init__(self, file: GGUFFile, config: ModelConfig) -> None:
        self.description = str(file.path)
        self._file = file
        self._config = config
        self._infos = {_huggingface_name(name): info for name, info in file.tensors.items()}

    def names(self) -> Iterable[str]:
        return self._infos

    def tensor(self, name: str) -> torch.Tensor:
        values = self._file.array(self._infos[name])
        # Only files of the llama architecture: the converters of the Qwen models leave rows alone.
        if self._config.family in ("llama", "mistral"):
            if ".q_proj." in name:
                values = _undo_permutation(values, self._config.num_attention_heads)
            elif ".k_proj." in name:
                values = _undo_permutation(values, self._config.num_key_value_heads)
        # A copy where it is still the file's memory: torch wants to own what it may write to.
        return torch.from_numpy(values if values.flags.writeable else values.copy())


def _huggingface_name(name: str) -> str:
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name):
        index, part, kind = match.groups()
        return f"model.layers.{index}.{_LAYER_NAMES.get(part, part)}.{kind}"
    part, _, kind = name.rpartition(".")
    return f"{_NAMES.get(part, part)}.{kind}"


def _undo_permutation(values: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Rows of a head lie as pairs (0, half), (1, half + 1), … for interleaved rotary embedding; back to two halves."""
    if values.shape[0] % (2 * num_heads):
        return values  # a wrong shape: the decoder names it
    pairs = values.reshape(num_heads, values.shape[0] // num_heads // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
