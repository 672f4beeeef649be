"""Finds a model by what the user calls it, and makes everything an engine needs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from kvscope.engine.model.config import ModelConfig
from kvscope.engine.model.decoder import Decoder, WeightSource, build_decoder
from kvscope.engine.model.memory import choose_num_gpu_blocks, choose_num_threads, free_memory_bytes
from kvscope.engine.model.model_runner import TorchModelRunner
from kvscope.engine.model.sampler import Sampler
from kvscope.engine.model.tokenizer import Tokenizer
from kvscope.engine.model.toy import TOY_NAME, ToyWeights, toy_config, toy_tokenizer
from kvscope.errors import ModelError, UsageError

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
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
    eos_token_ids: tuple[int, ...]
    default_sampling: Mapping[str, float | int] = field(default_factory=dict)
    """What the model's authors recommend, by names of `SamplingParams`."""
    num_threads: int = 1

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

    def choose_num_gpu_blocks(self, block_size: int, max_model_len: int) -> int:
        """Returns a pool size from the memory that is free. Raises `ModelError` where one sequence would not fit."""
        device = self.decoder.device
        return choose_num_gpu_blocks(
            kv_bytes_per_token=self.kv_bytes_per_token,
            block_size=block_size,
            max_model_len=max_model_len,
            free_bytes=free_memory_bytes(device),
            is_shared=device.type == "cpu",
        )

    def new_runner(self, *, num_blocks: int, block_size: int, sampler: Sampler | None = None) -> TorchModelRunner:
        """Returns a runner over a new KV cache of `num_blocks` blocks (the scheduler's `num_gpu_blocks`)."""
        return TorchModelRunner(self.decoder, num_blocks=num_blocks, block_size=block_size, sampler=sampler)


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
        ModelError: the model is missing, damaged or not supported.
        UsageError: an unknown dtype.
    """
    threads = num_threads or choose_num_threads()
    torch.set_num_threads(threads)
    report = progress or (lambda text, fraction: None)
    report(f"loading {name}", None)
    if name == TOY_NAME:
        return _make_model(name, toy_config(), ToyWeights(), toy_tokenizer(), dtype, device, threads)
    raise ModelError(f"no model {name!r}")


def _make_model(
    name: str,
    config: ModelConfig,
    source: WeightSource,
    tokenizer: Tokenizer,
    dtype: str,
    device: str,
    num_threads: int,
) -> Model:
    torch_dtype = choose_dtype(dtype, config.dtype)
    with torch.inference_mode():
        decoder = build_decoder(
            config, source, dtype=torch_dtype, device=torch.device(device), max_model_len=config.max_model_len
        )
    return Model(
        name=name,
        config=config,
        decoder=decoder,
        tokenizer=tokenizer,
        eos_token_ids=tokenizer.eos_token_ids,
        num_threads=num_threads,
    )


def choose_dtype(asked: str, published: str) -> torch.dtype:
    """Returns the dtype to compute in; "auto" is the one the weights were published in."""
    name = published if asked == "auto" else asked
    if name not in DTYPES:
        raise UsageError(f"dtype {asked!r} is unknown; take one of auto, {', '.join(DTYPES)}")
    return DTYPES[name]
