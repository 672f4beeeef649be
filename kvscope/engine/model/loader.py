"""Finds a model by what the user calls it, and makes everything an engine needs of it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from kvscope.engine.model import catalogue, huggingface
from kvscope.engine.model.config import ModelConfig, config_from_gguf, config_from_huggingface
from kvscope.engine.model.cpu.huge_pages import new_memory_on_huge_pages
from kvscope.engine.model.decoder import Decoder, WeightSource, build_decoder
from kvscope.engine.model.gguf_file import GGUFFile, GGUFWeights
from kvscope.engine.model.gguf_tokenizer import tokenizer_from_gguf
from kvscope.engine.model.hub import is_hub_id, snapshot_folder
from kvscope.engine.model.memory import check_fits, choose_num_gpu_blocks, choose_num_threads, free_memory_bytes
from kvscope.engine.model.model_runner import TorchModelRunner
from kvscope.engine.model.sampler import Sampler
from kvscope.engine.model.tokenizer import Tokenizer
from kvscope.engine.model.toy import TOY_NAME, ToyWeights, toy_config, toy_tokenizer
from kvscope.errors import ModelError, UsageError
from kvscope.paths import expanded

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}

Progress = Callable[[str, float | None], None]
"""Called with what is being loaded and how far it is, 0 to 1 where that is known."""


@dataclass(slots=True)
class Model:
    """A loaded model: weights, tokenizer, and what an engine has to know about it."""

    name: str
    config: ModelConfig
    decoder: Decoder
    tokenizer: Tokenizer
    default_sampling: Mapping[str, float | int] = field(default_factory=dict)
    """What the model's authors recommend, by names of `SamplingParams`."""
    num_threads: int = 1

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.tokenizer.eos_token_ids

    @property
    def dtype(self) -> str:
        return str(self.decoder.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        return str(self.decoder.device)

    @property
    def max_model_len(self) -> int:
        """The longest sequence that the model computes exactly."""
        return self.config.max_model_len

    @property
    def kv_bytes_per_token(self) -> int:
        return self.config.kv_bytes_per_token(self.decoder.dtype.itemsize)

    def choose_num_gpu_blocks(self, block_size: int, max_model_len: int, *, step_bytes: int = 0) -> int:
        """Returns a pool size from the memory that is free. Raises `ModelError` where one sequence would not fit.

        step_bytes: what a step takes on a GPU besides (`memory.gpu_step_bytes`).
        """
        device = self.decoder.device
        return choose_num_gpu_blocks(
            kv_bytes_per_token=self.kv_bytes_per_token,
            block_size=block_size,
            max_model_len=max_model_len,
            free_bytes=free_memory_bytes(device),
            is_shared=device.type == "cpu",
            step_bytes=step_bytes,
        )

    def new_runner(self, *, num_blocks: int, block_size: int, sampler: Sampler | None = None) -> TorchModelRunner:
        """Returns a runner over a new KV cache of `num_blocks` blocks (the scheduler's `num_gpu_blocks`).

        Raises:
            ModelError: there is not so much memory.
        """
        check_fits(
            num_blocks * block_size * self.kv_bytes_per_token, num_blocks, free_memory_bytes(self.decoder.device)
        )
        return TorchModelRunner(self.decoder, num_blocks=num_blocks, block_size=block_size, sampler=sampler)


@dataclass(slots=True)
class _Parts:
    """A model before its weights are read."""

    config: ModelConfig
    source: WeightSource
    tokenizer: Tokenizer
    default_sampling: Mapping[str, float | int] = field(default_factory=dict)


def load_model(
    name: str,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    num_threads: int | None = None,
    progress: Progress | None = None,
) -> Model:
    """Loads `toy`, a name of the catalogue, a Hugging Face folder, a GGUF file, or a hub id.

    Sets torch's number of threads for the whole process.

    Raises:
        ModelError: the model is missing, damaged or not supported, or its weights do not fit into memory.
        UsageError: an unknown dtype.
    """
    report = progress or (lambda what, fraction: None)
    _check_dtype(dtype)
    threads = num_threads or choose_num_threads()
    torch.set_num_threads(threads)
    report(f"opening {name}", 0.0)
    parts = _open(name)
    torch_dtype = choose_dtype(dtype, parts.config.dtype, device)
    on_threads = f"{threads} thread{'s' * (threads != 1)}"
    described = f"reading the weights of {name} ({str(torch_dtype).removeprefix('torch.')}, {on_threads})"
    report(described, 0.0)
    num_layers = parts.config.num_hidden_layers
    try:
        pages = new_memory_on_huge_pages() if device == "cpu" else contextlib.nullcontext()
        with torch.inference_mode(), pages:
            decoder = build_decoder(
                parts.config,
                parts.source,
                dtype=torch_dtype,
                device=torch.device(device),
                max_model_len=parts.config.max_model_len,
                on_layer=lambda num_done: report(described, num_done / num_layers),
            )
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise ModelError(f"{name}: the weights do not fit into the memory of {device}; take a smaller model") from error
    return Model(name, parts.config, decoder, parts.tokenizer, parts.default_sampling, threads)


def read_config(name: str) -> ModelConfig:
    """Returns a model's shape without reading its weights. Raises `ModelError` as `load_model`."""
    return _open(name).config


def read_weights(name: str) -> tuple[ModelConfig, WeightSource]:
    """Returns a model's shape and its weights, of which none is read yet. Raises `ModelError` as `load_model`."""
    parts = _open(name)
    return parts.config, parts.source


def choose_dtype(asked: str, published: str, device: str) -> torch.dtype:
    """Returns the dtype to compute in.

    "auto" is the one the weights were published in; on a CPU bfloat16 for float16 too (which it is slow in), and
    float32 where the CPU cannot multiply bfloat16.
    """
    if asked != "auto":
        return DTYPES[asked]
    dtype = DTYPES.get(published, torch.float32)
    if dtype in (torch.float32, torch.float64) or device != "cpu":
        return dtype
    return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


def _check_dtype(asked: str) -> None:
    if asked != "auto" and asked not in DTYPES:
        raise UsageError(f"dtype {asked!r} is unknown; take one of auto, {', '.join(DTYPES)}")


def _open(name: str) -> _Parts:
    """Finds out what kind of model `name` is, and opens it."""
    if name == TOY_NAME:
        return _Parts(toy_config(), ToyWeights(), toy_tokenizer())
    if name in catalogue.CATALOGUE:
        return _open_gguf(catalogue.ready_path(catalogue.CATALOGUE[name]))
    path = expanded(name)
    with contextlib.suppress(OSError):  # a name that is too long to be a path
        if path.is_dir():
            return _open_folder(path)
        if path.exists():
            return _open_gguf(path)
    if is_hub_id(name):
        return _open_folder(snapshot_folder(name))
    if re.search(r"[/\\]|\.gguf$", name):
        raise ModelError(f"{name}: no such file or folder")
    known = ", ".join([*catalogue.CATALOGUE, TOY_NAME])
    raise ModelError(f"no model {name!r}: there are {known}; or give a folder, a GGUF file or a hub id (owner/name)")


def _open_gguf(path: Path) -> _Parts:
    file = GGUFFile(path)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"{path}: no token_embd.weight: the file holds no language model")
    config = config_from_gguf(file.metadata, embedding.shape[0], str(path))
    config = replace(config, tie_word_embeddings="output.weight" not in file.tensors)
    return _Parts(config, GGUFWeights(file, config), tokenizer_from_gguf(file.metadata, str(path)))


def _open_folder(folder: Path) -> _Parts:
    if not (folder / "config.json").exists() and len(files := sorted(folder.glob("*.gguf"))) == 1:
        return _open_gguf(files[0])
    settings = huggingface.read_json(folder / "config.json")
    config = config_from_huggingface(settings, str(folder / "config.json"))
    generation = huggingface.generation_settings(folder)
    tokenizer = huggingface.tokenizer_from_folder(folder, huggingface.eos_token_ids(generation, settings))
    source = huggingface.SafetensorsWeights(folder)
    return _Parts(config, source, tokenizer, huggingface.default_sampling(generation))
