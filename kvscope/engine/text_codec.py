"""What the engine needs of a model's tokenizer: the seam between the step loop and everything that knows texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """The text of one request's output as it grows."""

    def add(self, token_ids: Sequence[int]) -> str:
        """Returns the new text: whole characters only, without special tokens."""
        ...

    def finish(self) -> str:
        """Returns what was held back; bytes that never became a character are shown as U+FFFD."""
        ...


class TextCodec(Protocol):
    """A tokenizer with its chat template."""

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text as it is, with the tokens that the model expects in front of any text."""
        ...

    def render_chat(self, messages: Sequence[dict[str, str]]) -> str:
        """Returns the chat template's text. Raises `ModelError` where the model has no template."""
        ...

    def encode_rendered(self, text: str) -> list[int]:
        """Returns the tokens of a text that the chat template made: special tokens are read, none are added."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes that the token stands for; of a special token its name."""
        ...

    def detokenizer(self) -> Detokenizer: ...
