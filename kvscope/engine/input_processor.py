"""From a prompt as a caller gives it to token ids, or to a refusal that says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvscope import events as ev
from kvscope.engine.settings import MAX_NUMBER, SettingError, is_unicode
from kvscope.engine.text_codec import TextCodec
from kvscope.errors import KvscopeError, UsageError


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt's tokens, its text before any template, and what either took in ns."""

    token_ids: list[int]
    text: str | None = None
    template_ns: int = 0
    tokenize_ns: int = 0


def encode_prompt(
    codec: TextCodec | None,
    prompt: str | Sequence[int],
    *,
    is_chat: bool,
    system: str | None,
    clock_ns: Callable[[], int],
) -> EncodedPrompt:
    """Returns the tokens of the prompt. Raises `SettingError` where there is nothing to compute."""
    if not isinstance(prompt, str):
        return EncodedPrompt(_not_empty(list(prompt)))
    if codec is None:
        raise UsageError("this engine has no tokenizer: give the prompt as token ids")
    if not prompt or (is_chat and not prompt.strip()):
        raise _empty()
    if not is_unicode(prompt + (system or "")):
        raise SettingError("prompt", "the prompt has bytes that are no UTF-8 text: check the terminal's encoding")
    began = clock_ns()
    if not is_chat:
        token_ids = codec.encode(prompt)
        return EncodedPrompt(_not_empty(token_ids), prompt, tokenize_ns=clock_ns() - began)
    messages = [{"role": "system", "content": system}] if system is not None else []
    rendered = codec.render_chat([*messages, {"role": "user", "content": prompt}])
    rendered_ns = clock_ns()
    token_ids = codec.encode_rendered_chat(rendered)
    return EncodedPrompt(_not_empty(token_ids), prompt, rendered_ns - began, clock_ns() - rendered_ns)


def check_labels(*, priority: int, cache_salt: str | None) -> None:
    """Raises `SettingError` for what goes with a prompt and could not be recorded."""
    if abs(priority) > MAX_NUMBER:
        raise SettingError("priority", f"priority must be at most {MAX_NUMBER:,} either way, not {priority}")
    if not is_unicode(cache_salt or ""):
        raise SettingError("cache_salt", f"cache_salt has bytes that are no UTF-8 text: {cache_salt!r}")


def check_length(token_ids: Sequence[int], max_model_len: int) -> None:
    """Raises `SettingError` for a prompt that leaves no room for a token of output."""
    if len(token_ids) > max_model_len - 1:
        raise SettingError(
            "max_model_len",
            f"the prompt has {len(token_ids)} tokens, max_model_len ({max_model_len}) allows {max_model_len - 1} and "
            "one of output: shorten the prompt, or raise max_model_len if the model allows more",
            have=len(token_ids),
            limit=max_model_len - 1,
        )


def rejected(request_id: str, error: KvscopeError) -> ev.RequestRejected:
    """Returns the refusal as it is recorded. Fractions are cut off; the message has them."""
    if not isinstance(error, SettingError):
        return ev.RequestRejected(request_id=request_id, reason="request", have=0, limit=0, message=error.message)
    have, limit = (int(figure) if abs(figure) < 2**62 else 0 for figure in (error.have, error.limit))
    return ev.RequestRejected(
        request_id=request_id, reason=error.setting, have=have, limit=limit, message=error.message
    )


def _not_empty(token_ids: list[int]) -> list[int]:
    if not token_ids:
        raise _empty()
    return token_ids


def _empty() -> SettingError:
    return SettingError("prompt", "the prompt is empty: give at least one word", have=0, limit=1)
