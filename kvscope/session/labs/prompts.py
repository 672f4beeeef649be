"""Prompts of an exact number of tokens, readable, for every tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.engine.text_codec import TextCodec
from kvscope.session.labs.lab import Arrival

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


def prompt_tokens(codec: TextCodec, arrivals: Sequence[Arrival]) -> list[list[int]]:
    """Returns the tokens of each request's prompt; own parts differ from their first few tokens on."""
    longest = max(arrival.num_shared_tokens for arrival in arrivals)
    shared = _tokens(codec, _SHARED, longest)
    return [
        shared[: arrival.num_shared_tokens] + _tokens(codec, f"{number}. page of the notebook.", arrival.num_own_tokens)
        for number, arrival in enumerate(arrivals, start=1)
    ]


def _tokens(codec: TextCodec, opening: str, num_tokens: int) -> list[int]:
    """Returns so many tokens of a text with this opening."""
    text, number = opening, 0
    while len(token_ids := codec.encode(text)) < num_tokens:
        text += "".join(f" {number + offset}: {sentence}" for offset, sentence in enumerate(_SENTENCES, start=1))
        number += len(_SENTENCES)
    return token_ids[:num_tokens]
