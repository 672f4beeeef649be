"""Tokenizers of every kind: the same tokens as their originals, and the exact bytes of each token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from kvscope.engine.model.chat_template import ChatTemplate
from kvscope.engine.model.gguf_tokenizer import tokenizer_from_gguf
from kvscope.engine.model.huggingface import tokenizer_from_folder
from kvscope.engine.model.loader import Model
from kvscope.engine.model.tokenizer import byte_tokenizer
from kvscope.errors import ModelError

CORPUS = ["the scheduler gives blocks to requests", "don't you'll we've THE BLOCKS", "Grüße 12345 café 你好 🎉"] * 3
TEXTS = [
    "the scheduler's blocks, don't you KNOW",
    "  spaces   and\n\nlines\t\ttabs  ",
    "numbers 1 12 123 1234 12345",
    "你好，世界 🎉🎉 Grüße naïve",
    "special <|end|> inside",
    "",
]


def trained_backend(*, bos: bool = False) -> Backend:
    """A small byte-level BPE with one special token, as a tokenizer.json describes it."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens([AddedToken("<|end|>", normalized=False, special=True)])
    if bos:
        end = backend.token_to_id("<|end|>")
        backend.post_processor = processors.TemplateProcessing(single="<|end|> $A", special_tokens=[("<|end|>", end)])
    return backend


def metadata_of(backend: Backend, pre: str) -> dict[str, Any]:
    """What a GGUF file would hold of it."""
    tokens = [backend.id_to_token(i) for i in range(backend.get_vocab_size())]
    merges = json.loads(backend.to_str())["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.token_type": [3 if token == "<|end|>" else 1 for token in tokens],
        "tokenizer.ggml.eos_token_id": tokens.index("<|end|>"),
        "tokenizer.ggml.bos_token_id": tokens.index("<|end|>"),
    }


def write_folder(folder: Path, backend: Backend, **config: Any) -> Path:
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_a_gguf_vocabulary_encodes_as_its_tokenizer_json(tmp_path: Path) -> None:
    backend = trained_backend()
    ours = tokenizer_from_gguf(metadata_of(backend, "gpt-2"), "x.gguf")
    folder = tokenizer_from_folder(write_folder(tmp_path, backend), eos_ids=())
    for text in TEXTS:
        assert ours.encode(text) == folder.encode(text) == backend.encode(text).ids
        assert b"".join(map(ours.token_bytes, ours.encode(text))) == text.encode()
        assert b"".join(map(folder.token_bytes, folder.encode(text))) == text.encode()
    assert ours.special_token_ids == folder.special_token_ids == {backend.token_to_id("<|end|>")}
    assert ours.decode(ours.encode("a <|end|> b")) == "a  b"
    assert ours.eos_token_ids == (backend.token_to_id("<|end|>"),)


CUT_AS = {
    "smollm": ["It", "'s", " ", "1", "2", "3", "4", " DON", "'", "T", "  ", " x", "\n", "\n", "y"],
    "gpt-2": ["It", "'s", " 1234", " DON", "'", "T", "  ", " x", "\n", "\n", "y"],
    "llama-bpe": ["It", "'s", " ", "123", "4", " DON", "'T", "  ", " x", "\n\n", "y"],
    "qwen2": ["It", "'s", " ", "1", "2", "3", "4", " DON", "'T", "  ", " x", "\n\n", "y"],
    "tekken": ["It", "'s", " ", "1", "2", "3", "4", " DON", "'T", "  ", " x", "\n\n", "y"],
}


@pytest.mark.parametrize("pre", CUT_AS)
def test_text_is_cut_into_words_as_the_model_was_trained(pre: str) -> None:
    """A vocabulary that has the words of all ways of cutting: so each word comes out as one token."""
    backend = trained_backend()
    alphabet = {byte: char for char, byte in _alphabet().items()}
    metadata = metadata_of(backend, pre)
    merges: list[str] = []
    tokens: list[str] = [alphabet[i] for i in range(256)]
    for word in dict.fromkeys([*CUT_AS["gpt-2"], "1234", *(word for words in CUT_AS.values() for word in words)]):
        spelled = "".join(alphabet[byte] for byte in word.encode())
        for end in range(2, len(spelled) + 1):
            if spelled[:end] not in tokens:
                tokens.append(spelled[:end])
                merges.append(f"{spelled[: end - 1]} {spelled[end - 1]}")
    metadata |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges, "tokenizer.ggml.token_type": None}
    metadata |= {"tokenizer.ggml.bos_token_id": None, "tokenizer.ggml.eos_token_id": None}
    tokenizer = tokenizer_from_gguf(metadata, "x.gguf")
    got = [tokenizer.token_bytes(token_id).decode() for token_id in tokenizer.encode("It's 1234 DON'T   x\n\ny")]
    assert got == CUT_AS[pre]


def _alphabet() -> dict[str, int]:
    """GPT-2's table by the library's own encoder: the character of every byte that occurs in some text."""
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    table: dict[str, int] = {}
    for code in [*range(0x80), *range(0x80, 0x800, 0x3F), *range(0x800, 0x110000, 0x7FF)]:
        if 0xD800 <= code < 0xE000:
            continue
        ((spelled, _),) = splitter.pre_tokenize_str(chr(code))
        table |= dict(zip(spelled, chr(code).encode(), strict=True))
    unused = [byte for byte in range(256) if byte not in table.values()]
    return table | {chr(0xF0000 + byte): byte for byte in unused}


def test_sentencepiece_vocabularies_encode_as_sentencepiece_does() -> None:
    """Against tokens that the sentencepiece library itself made (record_sentencepiece.py)."""
    recorded = json.loads(Path(__file__).with_name("sentencepiece.json").read_text(encoding="utf-8"))
    metadata = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
    metadata |= {f"tokenizer.ggml.{name}": recorded[name] for name in ("tokens", "scores", "token_type")}
    tokenizer = tokenizer_from_gguf(metadata, "x.gguf")
    for text, expected in recorded["texts"].items():
        assert tokenizer.encode_rendered_chat(text) == expected
        assert tokenizer.encode(text) == [1, *expected]
        # sentencepiece puts a space in front of every text.
        assert b"".join(map(tokenizer.token_bytes, expected)) == (b" " if text else b"") + text.encode()
    assert tokenizer.token_bytes(recorded["tokens"].index("<0x0A>")) == b"\n"


def test_a_chat_prompt_gets_one_bos_and_a_raw_prompt_too(tmp_path: Path) -> None:
    """The template writes BOS itself: the post-processor must not add a second one."""
    template = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}{% endfor %}"
    folder = write_folder(tmp_path, trained_backend(bos=True), chat_template=template, bos_token={"content": "<|end|>"})
    tokenizer = tokenizer_from_folder(folder, eos_ids=())
    bos = next(iter(tokenizer.special_token_ids))
    chat = tokenizer.encode_chat([{"role": "user", "content": "hi"}])
    assert b"".join(map(tokenizer.token_bytes, chat)) == b"<|end|>[user] hi"
    assert chat.count(bos) == 1
    assert tokenizer.encode("hi")[0] == bos
    assert tokenizer.encode("hi").count(bos) == 1


def test_templates_of_other_places_are_found(tmp_path: Path) -> None:
    write_folder(tmp_path, trained_backend(), chat_template=[{"name": "default", "template": "list"}, {"name": "t"}])
    assert tokenizer_from_folder(tmp_path, ()).render_chat([]) == "list"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert tokenizer_from_folder(tmp_path, ()).render_chat([]) == "file"


def test_a_template_has_what_published_templates_use() -> None:
    source = (
        "{%- for m in messages %}\n"
        "    {%- if m.role == 'system' %}{% continue %}{% endif %}\n"
        "    {% generation %}{{ m.content | tojson }}{% endgeneration %}\n"
        "{%- endfor %}{{ eos_token }}{{ strftime_now('%Y') | length }}"
    )
    template = ChatTemplate(source, eos_token="</s>")
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "<é & 'q'>"}]
    assert template.render(messages) == "\"<é & 'q'>\"</s>4"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% if %}", "cannot be read: .* \\(line 1\\)"),
        ("{{ raise_exception('no system\n messages') }}", "refuses this conversation: no system messages"),
        ("{{ messages[7]['role'] }}", "failed: UndefinedError"),
        ("{{ 1 // 0 }}", "failed: ZeroDivisionError"),
        ("{{ ''.__class__.__mro__ }}", "failed: SecurityError"),
        ("{% for i in range(10**12) %}{% endfor %}", "failed: OverflowError"),
    ],
)
def test_a_template_that_fails_says_why_in_one_line(source: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        ChatTemplate(source).render([{"role": "user", "content": "hi"}])
    assert "\n" not in caught.value.message


def test_a_template_cannot_change_the_conversation() -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(ModelError, match="SecurityError"):
        ChatTemplate("{{ messages.append(1) }}").render(messages)
    assert messages == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.model": "t5"}, "the tokenizer 't5' is not supported"),
        ({"tokenizer.ggml.pre": "mystery"}, "the pre-tokenizer 'mystery' is not supported"),
        ({"tokenizer.ggml.merges": None}, "tokenizer.ggml.merges is missing"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"tokenizer.ggml.merges": ["no such"]}, "do not fit together"),
    ],
)
def test_tokenizers_that_cannot_be_built_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        tokenizer_from_gguf(metadata_of(trained_backend(), "gpt-2") | changes, "x.gguf")
    assert caught.value.message.startswith("x.gguf: ")
    assert message in caught.value.message


def test_the_toy_speaks_bytes(toy: Model) -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.encode("é<|eos|>") == [256, 0xC3, 0xA9, 257]
    assert tokenizer.encode_chat([{"role": "user", "content": "a"}]) == [259, 97, 260]
    assert tokenizer.decode([256, 0xC3, 0xA9, 257, 0xC3]) == "é�"
    assert tokenizer.token_bytes(257) == b"<|eos|>"
    assert tokenizer.token_bytes(300) == b""
    assert tokenizer.vocab_size == toy.config.vocab_size
    assert toy.eos_token_ids == (257,)
