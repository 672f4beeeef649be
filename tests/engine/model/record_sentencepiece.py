"""Records a small sentencepiece model and what it makes of some texts: the reference for "llama" GGUF tokenizers.

Run where sentencepiece is installed (made with 0.2.3):

    pip install sentencepiece
    python record_sentencepiece.py

Writes `sentencepiece.json`: pieces, scores and types as a GGUF file holds them, and the tokens of each text.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import sentencepiece  # type: ignore[import-not-found]

CORPUS = [
    "the scheduler decides which request gets which block of the cache",
    "a block that nobody holds lies in the free queue until somebody takes it",
    "the request waits because the head of the queue waits for blocks",
    "prefix caching finds blocks by the hash of what was computed before",
    "preempted requests come back and find their own blocks again",
    "Straße und Wörter, déjà vu, naïve café",
] * 4
TEXTS = [
    "the scheduler decides",
    "  two  spaces and a tab\tand\nlines\n",
    "Numbers 1234 and 5,6",
    "emoji 🎉 and 中文 fall back to bytes",
    "unbelievable reblocking of prefetched caches",
    "déjà vu",
    "",
]


def main() -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        model_type="bpe",
        vocab_size=420,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        hard_vocab_limit=False,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(processor.get_piece_size())
    types = [
        2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 6 if processor.is_byte(i) else 1
        for i in ids
    ]
    recorded = {
        "tokens": [processor.id_to_piece(i) for i in ids],
        "scores": [processor.get_score(i) for i in ids],
        "token_type": types,
        "texts": {text: processor.encode(text) for text in TEXTS},
    }
    path = Path(__file__).with_name("sentencepiece.json")
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in recorded.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
