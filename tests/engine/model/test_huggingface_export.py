"""What is written for other engines is the model that was read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from kvscope.engine.model.config import config_from_huggingface
from kvscope.engine.model.huggingface import SafetensorsWeights
from kvscope.engine.model.huggingface_export import write_huggingface_folder
from kvscope.engine.model.loader import read_weights
from tests.engine.model.families import FAMILIES
from tests.engine.model.test_decoder import write_folder


@pytest.mark.parametrize("family", ["llama3", "smollm2", "qwen25_yarn", "qwen3"])
def test_a_written_folder_holds_the_same_shape_and_weights(family: str, tmp_path: Path) -> None:
    (tmp_path / "read").mkdir()
    (tmp_path / "written").mkdir()
    config, source = read_weights(str(write_folder(tmp_path / "read", FAMILIES[family])))
    write_huggingface_folder(config, source, tmp_path / "written", torch.bfloat16)

    settings = json.loads((tmp_path / "written" / "config.json").read_text())
    assert config_from_huggingface(settings, "written") == dataclasses.replace(config, dtype="bfloat16")
    written = SafetensorsWeights(tmp_path / "written")
    assert sorted(written.names()) == sorted(source.names())
    for name in written.names():
        assert torch.equal(written.tensor(name), source.tensor(name).bfloat16())
