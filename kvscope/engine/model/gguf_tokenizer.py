"""Builds a tokenizer from GGUF metadata: byte-level BPE ("gpt2") and sentencepiece-like BPE ("llama").

A GGUF file holds the vocabulary and the merges, but names the way of cutting text into words only by a word
(`tokenizer.ggml.pre`). The patterns here are those of the models' own tokenizer.json files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from kvscope.engine.model.chat_template import ChatTemplate
from kvscope.engine.model.tokenizer import Tokenizer
from kvscope.engine.model.vocabulary import byte_level_bytes, sentencepiece_bytes
from kvscope.errors import ModelError

_CONTROL, _USER_DEFINED = 3, 4
"""Values of `tokenizer.ggml.token_type`: tokens that structure, and words added whole."""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3_WORDS = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_WORD_PATTERNS = {
    "llama-bpe": _LLAMA3_WORDS,
    "llama3": _LLAMA3_WORDS,
    "llama-v3": _LLAMA3_WORDS,
    "qwen2": _QWEN2_WORDS,
    "tekken": _TEKKEN_WORDS,
}
_LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3")
_GPT2_NAMES = ("gpt-2", "gpt2", "default")
_SMOLLM_NAMES = ("smollm",)


def tokenizer_from_gguf(metadata: Mapping[str, Any], source: str) -> Tokenizer:
    """Returns the tokenizer that a GGUF file describes.

    Raises:
        ModelError: the kind of tokenizer is not supported, or its metadata is incomplete.
    """
    tokens: list[str] = _required(metadata, "tokens", source)
    token_types: list[int] = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    special = [i for i, kind in enumerate(token_types) if kind == _CONTROL]
    added = [i for i, kind in enumerate(token_types) if kind == _USER_DEFINED]
    model = metadata.get("tokenizer.ggml.model")
    match model:
        case "gpt2":
            backend = _byte_level_backend(metadata, tokens, source)
            token_bytes = byte_level_bytes(tokens, [*special, *added])
            adds_bos = metadata.get("tokenizer.ggml.pre") in (*_LLAMA3_NAMES, "tekken")
        case "llama":
            backend = _sentencepiece_backend(metadata, tokens, source)
            token_bytes = sentencepiece_bytes(tokens, [*special, *added])
            adds_bos = True
        case _:
            raise ModelError(
                f"{source}: the tokenizer {model!r} is not supported; supported are 'gpt2' and 'llama'. A Hugging Face "
                "folder of the model, with its tokenizer.json, may work"
            )
    backend.add_special_tokens([AddedToken(tokens[i], normalized=False, special=True) for i in special])
    backend.add_tokens([AddedToken(tokens[i], normalized=False) for i in added])
    bos, eos = metadata.get("tokenizer.ggml.bos_token_id"), metadata.get("tokenizer.ggml.eos_token_id")
    has_prefix = metadata.get("tokenizer.ggml.add_bos_token", adds_bos)
    prefix: list[int] = [bos] if has_prefix and bos is not None else []

    def encode(text: str, *, add_special_tokens: bool) -> list[int]:
        token_ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        return prefix + token_ids if add_special_tokens else token_ids

    template = metadata.get("tokenizer.chat_template")
    return Tokenizer(
        encode,
        token_bytes,
        special_token_ids=frozenset(special),
        eos_token_ids=_eos_token_ids(metadata),
        chat_template=template and ChatTemplate(template, bos_token=_text(tokens, bos), eos_token=_text(tokens, eos)),
    )


def _eos_token_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """End of text, of turn, of message: any of them ends an answer."""
    names = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = [metadata.get(f"tokenizer.ggml.{name}") for name in names]
    return tuple(dict.fromkeys(token_id for token_id in ids if token_id is not None))


def _byte_level_backend(metadata: Mapping[str, Any], tokens: Sequence[str], source: str) -> tokenizers.Tokenizer:
    merges = [tuple(merge.split(" ", 1)) for merge in _required(metadata, "merges", source)]
    name = metadata.get("tokenizer.ggml.pre", "default")
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    try:
        # Llama 3 takes a word that is in the vocabulary whole, even where no merges lead to it.
        bpe = models.BPE(vocab=vocab, merges=merges, ignore_merges=name in _LLAMA3_NAMES)
    except Exception as error:
        raise ModelError(f"{source}: the tokenizer's vocabulary and merges do not fit together: {error}") from error
    backend = tokenizers.Tokenizer(bpe)
    backend.pre_tokenizer = _pre_tokenizer(name, source)
    backend.decoder = decoders.ByteLevel()
    if name == "qwen2":
        backend.normalizer = normalizers.NFC()
    return backend


def _pre_tokenizer(name: str, source: str) -> pre_tokenizers.PreTokenizer:
    if name in _GPT2_NAMES:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name in _SMOLLM_NAMES:
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if name in _WORD_PATTERNS:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_WORD_PATTERNS[name]), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    known = ", ".join(sorted({*_GPT2_NAMES, *_SMOLLM_NAMES, *_WORD_PATTERNS}))
    raise ModelError(
        f"{source}: the pre-tokenizer {name!r} is not supported; supported are {known}. A Hugging Face folder of the "
        "model, with its tokenizer.json, may work"
    )


def _sentencepiece_backend(metadata: Mapping[str, Any], tokens: Sequence[str], source: str) -> tokenizers.Tokenizer:
    scores = _required(metadata, "scores", source)
    if len(scores) != len(tokens):
        raise ModelError(f"{source}: {len(tokens)} tokens but {len(scores)} scores: the file is damaged")
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    unknown = _text(tokens, metadata.get("tokenizer.ggml.unknown_token_id", 0))
    bpe = models.BPE(
        vocab=vocab, merges=_merges_from_scores(vocab, scores), unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    backend = tokenizers.Tokenizer(bpe)
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))
    backend.normalizer = normalizers.Sequence(spaces)
    return backend


def _merges_from_scores(vocab: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every way to put a token together from two others, best token first: what sentencepiece tries in that order."""
    merges = []
    for token, token_id in vocab.items():
        parts = [
            (token[:cut], token[cut:]) for cut in range(1, len(token)) if token[:cut] in vocab and token[cut:] in vocab
        ]
        merges += [(-scores[token_id], token_id, vocab[left], vocab[right], left, right) for left, right in parts]
    merges.sort()
    return [(left, right) for *_, left, right in merges]


def _required(metadata: Mapping[str, Any], name: str, source: str) -> Any:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None:
        raise ModelError(f"{source}: tokenizer.ggml.{name} is missing; the file holds no whole tokenizer")
    return value


def _text(tokens: Sequence[str], token_id: int | None) -> str:
    return tokens[token_id] if token_id is not None and 0 <= token_id < len(tokens) else ""
