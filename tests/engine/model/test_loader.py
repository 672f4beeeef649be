"""Folders that are incomplete or damaged: each named, with what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kvscope.engine.model import hub
from kvscope.engine.model.loader import choose_dtype, load_model
from kvscope.errors import ModelError
from tests.engine.model.families import FAMILIES
from tests.engine.model.test_decoder import write_folder, write_gguf


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json: missing"),
        (lambda f: (f / "config.json").write_text("{"), "config.json: not valid JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json: a JSON object is expected, it holds a list"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json: missing"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json: not a tokenizer that can be read"),
        (lambda f: (f / "model-00002-of-00002.safetensors").unlink(), "model-00002-of-00002.safetensors: missing"),
        (
            lambda f: cut(f / "model-00002-of-00002.safetensors"),
            "model-00002-of-00002.safetensors: damaged or incomplete",
        ),
        (lambda f: (f / "model.safetensors.index.json").write_text("{}"), "weight_map is missing"),
        (
            lambda f: (f / "model.safetensors.index.json").unlink(),
            "no model.safetensors and no model.safetensors.index",
        ),
    ],
)
def test_a_broken_folder_names_the_file(damage: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    damage(write_folder(tmp_path, FAMILIES["llama2"], num_shards=2))
    with pytest.raises(ModelError) as caught:
        load_model(str(tmp_path))
    assert message in caught.value.message
    assert caught.value.message.startswith(str(tmp_path))
    assert "\n" not in caught.value.message


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    write_folder(tmp_path, FAMILIES["llama2"])
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle, which is not opened"):
        load_model(str(tmp_path))


def test_quantized_weights_without_a_note_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, FAMILIES["llama2"])
    save_file({"model.embed_tokens.weight": torch.zeros(32, 48, dtype=torch.int8)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"embed_tokens\.weight is torch\.int8: quantized weights are not supported"):
        load_model(str(tmp_path))


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "only.gguf", FAMILIES["qwen3"])
    model = load_model(str(tmp_path))
    assert (model.config.family, model.config.head_dim, model.max_model_len) == ("qwen3", 16, 128)


def test_progress_ends_at_one(tmp_path: Path) -> None:
    said: list[tuple[str, float | None]] = []
    load_model("toy", num_threads=1, progress=lambda what, fraction: said.append((what, fraction)))
    assert said[0] == ("opening toy", 0.0)
    assert said[-1] == ("reading the weights of toy (float64, 1 thread)", 1.0)


def test_a_hub_that_cannot_be_reached_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")

    def unreachable(*arguments: object, **options: object) -> str:
        raise OSError("no route\nto host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(
        ModelError, match="some/model: no such folder, and the hub has no such model or cannot be reached"
    ):
        load_model("some/model")
    assert [hub.is_hub_id(name) for name in ("a/b", "./a/b", "a/b/c", "a/b.gguf", "/a", "toy")] == [True] + [False] * 5


def test_auto_is_the_published_dtype_where_the_machine_can() -> None:
    half = torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
    assert choose_dtype("auto", "float32", "cpu") == torch.float32
    assert choose_dtype("auto", "bfloat16", "cpu") == half
    assert choose_dtype("auto", "float16", "cpu") == half
    assert choose_dtype("auto", "float16", "cuda") == torch.float16
    assert choose_dtype("bfloat16", "float32", "cpu") == torch.bfloat16


def test_json_settings_are_written_as_they_are_read(tmp_path: Path) -> None:
    """Configs from before transformers 5: rope_theta and rope_scaling in places of their own."""
    rope = FAMILIES["llama3"]["rope_parameters"]
    old = {key: value for key, value in FAMILIES["llama3"].items() if key != "rope_parameters"}
    old |= {"rope_theta": rope["rope_theta"], "rope_scaling": {k: v for k, v in rope.items() if k != "rope_theta"}}
    old |= {"torch_dtype": "float32"}
    write_folder(tmp_path, FAMILIES["llama3"])
    new_config = load_model(str(tmp_path)).config
    (tmp_path / "config.json").write_text(json.dumps(old))
    assert load_model(str(tmp_path)).config == new_config
