"""GGUF files: every weight type, and files that are broken in any place."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from kvscope.engine.model.gguf_file import GGUFFile
from kvscope.errors import ModelError


def write(path: Path, raw: NDArray[np.generic], quant_type: GGMLQuantizationType | None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("an.array", [1, 2, 3])
    writer.add_string("a.string", "Grüße")
    writer.add_bool("a.flag", True)
    writer.add_tensor("x", raw, raw_dtype=quant_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def values(num_rows: int = 3, num_columns: int = 64) -> NDArray[np.float32]:
    return np.random.Generator(np.random.PCG64(5)).standard_normal((num_rows, num_columns), dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    # Half a step of the grid: values reach 3, and a block of 32 is cut into 2**bits steps.
    [
        ("F32", 0),
        ("F16", 2e-3),
        ("BF16", 1e-2),
        ("Q8_0", 0.015),
        ("Q5_0", 0.11),
        ("Q5_1", 0.1),
        ("Q4_0", 0.25),
        ("Q4_1", 0.2),
    ],
)
def test_a_weight_type_comes_back_as_it_was_written(name: str, tolerance: float, tmp_path: Path) -> None:
    quant_type = GGMLQuantizationType[name]
    written = values()
    raw = written if name == "F32" else gguf.quants.quantize(written, quant_type)
    file = GGUFFile(write(tmp_path / "x.gguf", raw, quant_type))
    info = file.tensors["x"]
    assert (info.shape, info.quant_type) == ((3, 64), quant_type)
    read = file.array(info)
    assert read.dtype == np.float32
    np.testing.assert_allclose(read, written, atol=tolerance, rtol=0)


def q4_k_block(scale: float, minimum: float, quants: NDArray[np.uint8]) -> bytes:
    """A block of Q4_K with all sub-block scales 1 and minimums 2: value = scale * q - 2 * minimum."""
    scales = bytes([1, 1, 1, 1, 2, 2, 2, 2, 0x21, 0x21, 0x21, 0x21])  # six bits each, the last four split over bytes
    low, high = quants.reshape(4, 2, 32)[:, 0], quants.reshape(4, 2, 32)[:, 1]
    return np.float16(scale).tobytes() + np.float16(minimum).tobytes() + scales + (low | high << 4).tobytes()


def q6_k_block(scale: float, quants: NDArray[np.uint8]) -> bytes:
    """A block of Q6_K with all sub-block scales 3: value = scale * 3 * (q - 32)."""
    halves = quants.reshape(2, 4, 32)  # each half of 128 values has four rows of 32
    low = b"".join(
        np.concatenate([half[0] & 15 | (half[2] & 15) << 4, half[1] & 15 | (half[3] & 15) << 4]).tobytes()
        for half in halves
    )
    high = b"".join(
        (half[0] >> 4 | (half[1] >> 4) << 2 | (half[2] >> 4) << 4 | (half[3] >> 4) << 6).tobytes() for half in halves
    )
    return low + high + bytes([3] * 16) + np.float16(scale).tobytes()


def test_k_quants_are_read_by_their_definition(tmp_path: Path) -> None:
    """Blocks put together by hand, from ggml's description of block_q4_K and block_q6_K."""
    generator = np.random.Generator(np.random.PCG64(6))
    quants = generator.integers(0, 16, 256).astype(np.uint8)
    raw = np.frombuffer(q4_k_block(0.5, 0.25, quants), dtype=np.uint8)[None]
    file = GGUFFile(write(tmp_path / "q4.gguf", raw, GGMLQuantizationType.Q4_K))
    np.testing.assert_array_equal(file.array(file.tensors["x"]), [0.5 * quants - 0.5])

    quants = generator.integers(0, 64, 256).astype(np.uint8)
    raw = np.frombuffer(q6_k_block(0.125, quants), dtype=np.uint8)[None]
    file = GGUFFile(write(tmp_path / "q6.gguf", raw, GGMLQuantizationType.Q6_K))
    np.testing.assert_array_equal(file.array(file.tensors["x"]), [0.375 * (quants.astype(np.float32) - 32)])


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q5_K"])
def test_the_other_k_quants_have_the_sizes_of_their_type(name: str, tmp_path: Path) -> None:
    quant_type = GGMLQuantizationType[name]
    _, block_bytes = gguf.GGML_QUANT_SIZES[quant_type]
    file = GGUFFile(write(tmp_path / "x.gguf", np.zeros((2, block_bytes), dtype=np.uint8), quant_type))
    info = file.tensors["x"]
    assert (info.shape, info.num_bytes) == ((2, 256), 2 * block_bytes)
    np.testing.assert_array_equal(file.array(info), np.zeros((2, 256)))


def test_metadata_of_every_kind_is_read(tmp_path: Path) -> None:
    file = GGUFFile(write(tmp_path / "x.gguf", values(), GGMLQuantizationType.F32))
    assert file.metadata["general.architecture"] == "llama"
    assert (file.metadata["an.array"], file.metadata["a.string"], file.metadata["a.flag"]) == ([1, 2, 3], "Grüße", True)


def test_a_file_that_was_cut_anywhere_is_noticed(tmp_path: Path) -> None:
    whole = write(tmp_path / "x.gguf", values(), GGMLQuantizationType.F32).read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [*range(0, len(whole) - 768, 7), *range(len(whole) - 768, len(whole) - 32, 64)]:
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"cut\.gguf: (incomplete|the file is empty|not a GGUF file)"):
            GGUFFile(cut)


def test_a_file_with_a_changed_byte_is_read_or_refused_but_never_worse(tmp_path: Path) -> None:
    """Counts and lengths of a damaged file may be anything: no other exception, no endless reading."""
    whole = bytearray(write(tmp_path / "x.gguf", values(), GGMLQuantizationType.F32).read_bytes())
    damaged = tmp_path / "damaged.gguf"
    num_refused = 0
    for position in range(4, 400, 3):
        for value in (0, 255):
            changed = whole.copy()
            changed[position] = value
            damaged.write_bytes(changed)
            try:
                GGUFFile(damaged)
            except ModelError:
                num_refused += 1
    assert num_refused > 50


def test_other_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello, this is no model")
    with pytest.raises(ModelError, match=r"x\.txt: not a GGUF file \(it starts with b'hell'"):
        GGUFFile(tmp_path / "x.txt")
    with pytest.raises(ModelError, match="No such file"):
        GGUFFile(tmp_path / "missing.gguf")
