"""Reads a Hugging Face folder: config, safetensors (one file or sharded), tokenizer, generation settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import tokenizers
import torch

from kvscope.engine.model.chat_template import ChatTemplate
from kvscope.engine.model.tokenizer import Tokenizer
from kvscope.engine.model.vocabulary import byte_level_bytes, sentencepiece_bytes
from kvscope.errors import ModelError
from kvscope.json_text import decode_json

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_SAMPLING_NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class SafetensorsWeights:
    """The safetensors files of a folder as a `WeightSource`.

    Raises:
        ModelError: files are missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.description = str(folder)
        self._files: dict[Path, Any] = {}
        if (folder / _INDEX).exists():
            weight_map = read_json(folder / _INDEX).get("weight_map")
            if not isinstance(weight_map, dict):
                raise ModelError(f"{folder / _INDEX}: weight_map is missing; fetch the file again")
            self._paths = {name: folder / shard for name, shard in weight_map.items()}
        elif (folder / _SINGLE).exists():
            self._paths = dict.fromkeys(self._open(folder / _SINGLE).keys(), folder / _SINGLE)
        else:
            others = sorted(path.name for path in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pth"))
            hint = f"; {others[0]} is a pickle, which is not opened: convert it to safetensors" if others else ""
            raise ModelError(f"{folder}: no {_SINGLE} and no {_INDEX}{hint}")
        # A missing shard or one that was cut is noticed before anything is computed.
        for path in sorted(set(self._paths.values())):
            self._open(path)

    def names(self) -> Iterable[str]:
        return self._paths

    def tensor(self, name: str) -> torch.Tensor:
        path = self._paths[name]
        try:
            tensor: torch.Tensor = self._open(path).get_tensor(name)
        except safetensors.SafetensorError as error:
            raise ModelError(f"{path}: the weight {name} cannot be read ({error}); fetch the file again") from error
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise ModelError(f"{path}: the weight {name} is {tensor.dtype}: quantized weights are not supported")
        return tensor

    def _open(self, path: Path) -> Any:
        if path not in self._files:
            if not path.exists():
                raise ModelError(f"{path}: missing; the folder holds only a part of the model, fetch it again")
            try:
                self._files[path] = safetensors.safe_open(path, framework="pt")
            except (safetensors.SafetensorError, OSError) as error:
                raise ModelError(f"{path}: damaged or incomplete ({error}); fetch it again") from error
        return self._files[path]


def read_json(path: Path) -> dict[str, Any]:
    """Returns a JSON object. Raises `ModelError` where the file is missing or holds something else."""
    try:
        value = decode_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path}: missing; a model folder needs it") from None
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ModelError(f"{path}: not valid JSON ({error}); fetch the file again") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: a JSON object is expected, it holds a {type(value).__name__}")
    return value


def generation_settings(folder: Path) -> dict[str, Any]:
    """Returns generation_config.json, empty where there is none."""
    path = folder / "generation_config.json"
    return read_json(path) if path.exists() else {}


def default_sampling(generation: Mapping[str, Any]) -> dict[str, float | int]:
    """Returns the sampling settings that a generation_config.json recommends, by names of `SamplingParams`."""
    return {name: generation[name] for name in _SAMPLING_NAMES if isinstance(generation.get(name), int | float)}


def eos_token_ids(generation: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the tokens that end an answer: of the generation settings, else of the config."""
    value = generation.get("eos_token_id", config.get("eos_token_id"))
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def tokenizer_from_folder(folder: Path, eos_ids: tuple[int, ...]) -> Tokenizer:
    """Returns the folder's tokenizer with its chat template, if it has one.

    Raises:
        ModelError: tokenizer.json is missing or damaged.
    """
    path = folder / "tokenizer.json"
    description = read_json(path)
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        raise ModelError(f"{path}: not a tokenizer that can be read ({error}); fetch the file again") from error
    backend.no_truncation()
    backend.no_padding()
    tokens = [""] * (max(backend.get_vocab().values(), default=-1) + 1)
    for token, token_id in backend.get_vocab().items():
        tokens[token_id] = token
    added = {entry["id"]: bool(entry.get("special")) for entry in description.get("added_tokens", [])}
    spell = byte_level_bytes if _is_byte_level(description) else sentencepiece_bytes

    def encode(text: str, *, add_special_tokens: bool) -> list[int]:
        token_ids: list[int] = backend.encode(text, add_special_tokens=add_special_tokens).ids
        return token_ids

    return Tokenizer(
        encode,
        spell(tokens, added),
        special_token_ids=frozenset(token_id for token_id, is_special in added.items() if is_special),
        eos_token_ids=eos_ids,
        chat_template=_chat_template(folder),
    )


def _is_byte_level(description: Mapping[str, Any]) -> bool:
    """True where any part of the tokenizer speaks GPT-2's byte alphabet."""
    parts = json.dumps([description.get(name) for name in ("pre_tokenizer", "decoder", "normalizer")])
    return re.search(r'"type": "ByteLevel"', parts) is not None


def _chat_template(folder: Path) -> ChatTemplate | None:
    config_path = folder / "tokenizer_config.json"
    config = read_json(config_path) if config_path.exists() else {}
    source = config.get("chat_template")
    for name in ("chat_template.jinja", "chat_template.json"):
        if (folder / name).exists():
            path = folder / name
            is_plain = name.endswith(".jinja")
            source = path.read_text(encoding="utf-8") if is_plain else read_json(path).get("chat_template")
            break
    if isinstance(source, list):  # several, each with a name
        named = {entry.get("name"): entry.get("template") for entry in source}
        source = named.get("default")
    if not isinstance(source, str):
        return None
    return ChatTemplate(
        source, bos_token=_token_text(config.get("bos_token")), eos_token=_token_text(config.get("eos_token"))
    )


def _token_text(token: Any) -> str:
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else ""
