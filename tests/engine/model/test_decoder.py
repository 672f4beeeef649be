"""Every family against transformers' logits, through a Hugging Face folder and through a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer as Backend
from tokenizers import models

from kvscope.engine.model.loader import Model, load_model
from kvscope.errors import ModelError
from tests.engine.model.families import FAMILIES, POSITIONS, token_ids, weights
from tests.engine.model.run_model import all_logits

EXPECTED: dict[str, list[list[float]]] = json.loads(Path(__file__).with_name("families.json").read_text())


def write_folder(folder: Path, config: Mapping[str, Any], num_shards: int = 1) -> Path:
    """A Hugging Face folder with a word-level tokenizer, its weights in one file or in shards."""
    (folder / "config.json").write_text(json.dumps(config))
    vocab = {f"t{i}": i for i in range(config["vocab_size"])}
    Backend(models.WordLevel(vocab, unk_token="t0")).save(str(folder / "tokenizer.json"))
    values = weights(config)
    if num_shards == 1:
        save_file(values, folder / "model.safetensors")
        return folder
    weight_map: dict[str, str] = {}
    for shard in range(num_shards):
        name = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        part = {key: value for i, (key, value) in enumerate(values.items()) if i % num_shards == shard}
        save_file(part, folder / name)
        weight_map |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def logits_at_positions(model: Model) -> NDArray[np.float32]:
    runner = model.new_runner(num_blocks=8, block_size=16)
    return all_logits(runner, token_ids())[list(POSITIONS)].numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_logits_that_transformers_has(family: str, tmp_path: Path) -> None:
    model = load_model(str(write_folder(tmp_path, FAMILIES[family])), dtype="float32")
    np.testing.assert_allclose(logits_at_positions(model), EXPECTED[family], atol=1e-4, rtol=0)


def test_a_sharded_folder_is_read_as_a_whole_one(tmp_path: Path) -> None:
    model = load_model(str(write_folder(tmp_path, FAMILIES["qwen2"], num_shards=3)), dtype="float32")
    np.testing.assert_allclose(logits_at_positions(model), EXPECTED["qwen2"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_shorter_numbers_are_near_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    """With bfloat16 come the packed products of `PackedLinear`: the same model, with two or three digits."""
    model = load_model(str(write_folder(tmp_path, FAMILIES["llama2"])), dtype=str(dtype).removeprefix("torch."))
    runner = model.new_runner(num_blocks=8, block_size=16)
    logits = all_logits(runner, token_ids())[list(POSITIONS)]
    assert logits.dtype == dtype
    expected = np.asarray(EXPECTED["llama2"])
    assert np.abs(logits.float().numpy() - expected).max() < 0.05 * np.abs(expected).max()


def permuted(values: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Rows as llama.cpp's converter of Llama models stores q and k: i and i + half of a head side by side."""
    rows = []
    head_dim = values.shape[0] // num_heads
    for head in range(num_heads):
        for i in range(head_dim // 2):
            rows += [head * head_dim + i, head * head_dim + head_dim // 2 + i]
    return values[rows]


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    name = name.replace("model.layers.", "blk.")
    for ours, theirs in GGUF_NAMES.items():
        name = name.replace(ours + ".", theirs + ".")
    return name


def write_gguf(
    path: Path,
    config: Mapping[str, Any],
    *,
    metadata: Mapping[str, Any] = {},
    extra_tensors: Mapping[str, NDArray[np.float32]] = {},
) -> Path:
    """A GGUF file of a family in F32, as llama.cpp's converter would write it."""
    arch = "llama" if config["model_type"] == "mistral" else config["model_type"]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
    for key, value in metadata.items():
        writer.add_string(key, value) if isinstance(value, str) else writer.add_float32(key, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*(chr(ord("A") + i) for i in range(config["vocab_size"] - 1)), "AB"])
    writer.add_token_merges(["A B"])
    for name, value in {**weights(config), **extra_tensors}.items():
        if arch == "llama" and ".q_proj." in name:
            value = permuted(value, config["num_attention_heads"])
        if arch == "llama" and ".k_proj." in name:
            value = permuted(value, config["num_key_value_heads"])
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("family", ["llama2", "smollm2", "mistral", "qwen2", "qwen3"])
def test_a_gguf_file_has_the_same_logits(family: str, tmp_path: Path) -> None:
    model = load_model(str(write_gguf(tmp_path / "m.gguf", FAMILIES[family])), dtype="float32")
    np.testing.assert_allclose(logits_at_positions(model), EXPECTED[family], atol=1e-4, rtol=0)


def test_a_gguf_file_stretches_rope_linearly(tmp_path: Path) -> None:
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    path = write_gguf(tmp_path / "m.gguf", FAMILIES["llama2_linear"], metadata=scaling)
    model = load_model(str(path), dtype="float32")
    np.testing.assert_allclose(logits_at_positions(model), EXPECTED["llama2_linear"], atol=1e-4, rtol=0)


def test_a_gguf_file_of_llama_3_stretches_rope_by_a_table(tmp_path: Path) -> None:
    """The converter writes the divisor of each frequency: 1 for fast ones, `factor` for slow ones, blended between."""
    rope = FAMILIES["llama3"]["rope_parameters"]
    divisors = []
    for i in range(6):  # head_dim is 12
        turns = rope["original_max_position_embeddings"] / (2 * np.pi * rope["rope_theta"] ** (2 * i / 12))
        if turns > rope["high_freq_factor"]:
            divisors.append(1.0)
        elif turns < rope["low_freq_factor"]:
            divisors.append(rope["factor"])
        else:
            kept = (turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
            divisors.append(1 / ((1 - kept) / rope["factor"] + kept))
    table = {"rope_freqs.weight": np.asarray(divisors, dtype=np.float32)}
    path = write_gguf(tmp_path / "m.gguf", FAMILIES["llama3"], extra_tensors=table)
    model = load_model(str(path), dtype="float32")
    np.testing.assert_allclose(logits_at_positions(model), EXPECTED["llama3"], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "architecture GemmaForCausalLM is not supported"),
        ({"architectures": ["MixtralForCausalLM"]}, "architecture MixtralForCausalLM is not supported"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization 'gptq' is not supported"),
        ({"hidden_act": "gelu"}, "activation 'gelu' is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope scaling 'longrope' is not supported"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope scaling 'linear' needs factor above 0"),
        ({"num_key_value_heads": 3}, "4 attention heads over 3 key/value heads"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"intermediate_size": 81}, "has shape [80, 48], the configuration says [81, 48]"),
        ({"num_hidden_layers": 3}, "the weight model.layers.2.input_layernorm.weight is missing"),
        ({"num_hidden_layers": 1}, "weights that this decoder does not know (model.layers.1.input_layernorm.weight"),
    ],
)
def test_what_is_not_supported_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_folder(tmp_path, FAMILIES["llama2"])
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["llama2"] | changes))
    with pytest.raises(ModelError) as caught:
        load_model(str(tmp_path))
    assert message in caught.value.message
    assert str(tmp_path) in caught.value.message or "head" in message


def test_a_sliding_window_limits_the_models_length(tmp_path: Path) -> None:
    """Within the window attention is exact: more is refused rather than computed wrongly."""
    config = FAMILIES["mistral"] | {"sliding_window": 64}
    assert load_model(str(write_folder(tmp_path, config))).max_model_len == 64


def test_settings_of_the_folder_are_taken_over(tmp_path: Path) -> None:
    write_folder(tmp_path, FAMILIES["llama2"])
    generation = {"eos_token_id": [2, 7], "temperature": 0.6, "top_p": 0.9, "do_sample": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    model = load_model(str(tmp_path), dtype="float32")
    assert model.eos_token_ids == (2, 7)
    assert model.default_sampling == {"temperature": 0.6, "top_p": 0.9}
    assert (model.dtype, model.device, model.kv_bytes_per_token) == ("float32", "cpu", 2 * 2 * 4 * 12 * 4)
