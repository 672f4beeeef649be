"""What the engine needs of a model's tokenizer: the seam between the step loop and everything that knows texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class TextCodec(Protocol):
    """A tokenizer with its chat template."""

    @property
    def special_token_ids(self) -> frozenset[int]:
        """Tokens that structure a text and are no part of an answer."""
        ...

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text as it is, with the tokens that the model expects in front of any text."""
        ...

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Returns the chat template's text. Raises `ModelError` where the model has no template."""
        ...

    def encode_rendered_chat(self, text: str) -> list[int]:
        """Returns the tokens of a text that the chat template made: special tokens are read, none are added."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes that the token stands for: maybe half a character; of a special token its name."""
        ...
