"""Prompts of an exact number of tokens, readable, for every tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvscope.engine.text_codec import TextCodec


class PromptLengths(Protocol):
    """How long a prompt is to be, in tokens."""

    @property
    def num_shared_tokens(self) -> int:
        """Leading tokens, the same for all."""

    @property
    def num_own_tokens(self) -> int:
        """After those."""


_SENTENCES = (
    "The ferry left the island a little after nine and the harbour was quiet again.",
    "Two boxes of lemons were carried up to the kitchen, and one was sent back.",
    "In the afternoon the wind turned, so the nets stayed where they were.",
    "Nobody asked for the key to the tower, but it was not on its nail.",
    "The teacher counted the lamps twice and wrote down a different number each time.",
    "A letter came for the carpenter, with a stamp that the children wanted to have.",
    "Before supper the clock in the hall was set right by the radio.",
)
_SHARED = "You keep the notebook of a small harbour and answer questions about it from what is written there."


def prompt_tokens(codec: TextCodec, lengths: Sequence[PromptLengths], *, seed: int = 0) -> list[list[int]]:
    """Returns the tokens of each prompt; own parts differ from their first few tokens on. Another seed, other words."""
    longest = max(one.num_shared_tokens for one in lengths)
    salt = f"{seed}. " if seed else ""
    shared = _tokens(codec, salt + _SHARED, longest)
    return [
        shared[: one.num_shared_tokens] + _tokens(codec, f"{number}. {salt}page of the notebook.", one.num_own_tokens)
        for number, one in enumerate(lengths, start=1)
    ]


def _tokens(codec: TextCodec, opening: str, num_tokens: int) -> list[int]:
    """Returns so many tokens of a text with this opening."""
    num_sentences = len(_SENTENCES)
    while True:
        sentences = (f" {number + 1}: {_SENTENCES[number % len(_SENTENCES)]}" for number in range(num_sentences))
        token_ids = codec.encode(opening + "".join(sentences))
        if len(token_ids) >= num_tokens:
            return token_ids[:num_tokens]
        num_sentences *= 2
