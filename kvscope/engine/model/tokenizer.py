"""Text to tokens and tokens to bytes, the same for every kind of model.

What differs is behind `Encoder` (the `tokenizers` library, or plain bytes) and in the table of each token's bytes.

Special tokens in text are special tokens, as in transformers' defaults: a raw prompt that holds `<|im_end|>` encodes it
as that one token, and so does the text of a chat message. A raw prompt gets what the model puts around every text (a
BOS token, for those that have it); a chat prompt gets only what its template writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvscope.engine.model.chat_template import ChatTemplate, Message
from kvscope.errors import ModelError


class Encoder(Protocol):
    """Text to token ids."""

    def __call__(self, text: str, *, add_special_tokens: bool) -> list[int]: ...


class Tokenizer:
    """A model's vocabulary, both ways, and its chat template.

    Args:
        encoder: encodes text.
        token_bytes: the bytes of each token id, the literal text for special ones.
        special_token_ids: tokens that structure a text and are no part of an answer's text.
        eos_token_ids: tokens that end an answer.
        chat_template: None where the model has none.
    """

    def __init__(
        self,
        encoder: Encoder,
        token_bytes: Sequence[bytes],
        *,
        special_token_ids: frozenset[int] = frozenset(),
        eos_token_ids: tuple[int, ...] = (),
        chat_template: ChatTemplate | None = None,
    ) -> None:
        self._encoder = encoder
        self._token_bytes = token_bytes
        self.special_token_ids = special_token_ids
        self.eos_token_ids = eos_token_ids
        self.chat_template = chat_template

    @property
    def vocab_size(self) -> int:
        return len(self._token_bytes)

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a raw prompt."""
        return self._encoder(text, add_special_tokens=True)

    def render_chat(self, messages: Sequence[Message]) -> str:
        """Returns a conversation as the model's text. Raises `ModelError` where there is no template."""
        if self.chat_template is None:
            raise ModelError("this model has no chat template; use --raw")
        return self.chat_template.render(messages)

    def encode_rendered_chat(self, text: str) -> list[int]:
        """Returns the tokens of a rendered conversation; a BOS token, if any, was written by the template."""
        return self._encoder(text, add_special_tokens=False)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Returns the tokens of a conversation."""
        return self.encode_rendered_chat(self.render_chat(messages))

    def token_bytes(self, token_id: int) -> bytes:
        """Returns exactly the bytes that the token stands for: maybe half a character, nothing for an unknown id."""
        return self._token_bytes[token_id] if 0 <= token_id < len(self._token_bytes) else b""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of tokens, without special ones; bytes that are no UTF-8 become U+FFFD."""
        data = b"".join(self.token_bytes(t) for t in token_ids if t not in self.special_token_ids)
        return data.decode("utf-8", errors="replace")


_BYTE_SPECIALS = ("<|bos|>", "<|eos|>", "<|system|>", "<|user|>", "<|assistant|>")

_BYTE_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def byte_tokenizer() -> Tokenizer:
    """Returns the toy model's tokenizer: token i is byte i, and five special tokens follow."""
    specials = {text: 256 + i for i, text in enumerate(_BYTE_SPECIALS)}

    def encode(text: str, *, add_special_tokens: bool) -> list[int]:
        token_ids = [specials["<|bos|>"]] if add_special_tokens else []
        position = 0
        while position < len(text):
            special = next((s for s in _BYTE_SPECIALS if text.startswith(s, position)), None)
            if special is not None:
                token_ids.append(specials[special])
                position += len(special)
            else:
                # A lone surrogate (a terminal's broken byte) has no UTF-8: it becomes a question mark.
                token_ids.extend(text[position].encode("utf-8", errors="replace"))
                position += 1
        return token_ids

    return Tokenizer(
        encode,
        [bytes([i]) for i in range(256)] + [text.encode() for text in _BYTE_SPECIALS],
        special_token_ids=frozenset(specials.values()),
        eos_token_ids=(specials["<|eos|>"],),
        chat_template=ChatTemplate(_BYTE_CHAT_TEMPLATE),
    )
