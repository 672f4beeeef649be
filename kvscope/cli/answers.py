"""How answers are written to standard output: text for people, lines of JSON for programs.

Both take a request's updates as they come and keep the order in which the requests were submitted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from kvscope.analysis.text import visible
from kvscope.engine.request_output import RequestOutput, RequestUpdate
from kvscope.engine.scheduling.output import TokenLogprobs


class AnswerPrinter(Protocol):
    """Takes a batch's updates and writes answers to standard output."""

    def expect(self, request_id: str) -> None:
        """Gives the request its place behind those before it."""
        ...

    def update(self, update: RequestUpdate) -> None: ...


class StreamPrinter:
    """Writes the only request's text while it grows."""

    def __init__(self, before_writing: Callable[[], None]) -> None:
        self._before_writing = before_writing

    def expect(self, request_id: str) -> None:
        pass

    def update(self, update: RequestUpdate) -> None:
        text = update.new_text + ("\n" if update.output else "")
        if text:
            self._before_writing()
            sys.stdout.write(for_output(text))
            sys.stdout.flush()


class InOrderPrinter:
    """Writes each finished request as one piece, after those that were submitted before it."""

    def __init__(self, form: Callable[[RequestOutput], str], before_writing: Callable[[], None]) -> None:
        self._form = form
        self._before_writing = before_writing
        self._order: list[str] = []
        self._outputs: dict[str, RequestOutput] = {}

    def expect(self, request_id: str) -> None:
        self._order.append(request_id)

    def update(self, update: RequestUpdate) -> None:
        if update.output is None:
            return
        self._outputs[update.request_id] = update.output
        while self._order and self._order[0] in self._outputs:
            self._before_writing()
            sys.stdout.write(self._form(self._outputs.pop(self._order.pop(0))))
            sys.stdout.flush()


def labelled(output: RequestOutput) -> str:
    """Returns an answer under a line with its request's id and prompt."""
    ended = "" if output.finish_reason in ("stop", "length") else f" ({output.finish_reason})"
    return f"[{output.request_id}] {visible(output.prompt or '')}{ended}\n{for_output(output.text)}\n\n"


def json_line(output: RequestOutput) -> str:
    """Returns the request as a line of JSON. Times are in milliseconds."""
    record: dict[str, Any] = {
        "id": output.request_id,
        "prompt_token_ids": output.prompt_token_ids,
        "output_token_ids": output.output_token_ids,
        "text": output.text,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
        "num_hit_tokens": output.num_hit_tokens,
        "num_preemptions": output.num_preemptions,
        "ttft_ms": None if output.ttft_ns is None else output.ttft_ns / 1e6,
        "itl_ms": [itl / 1e6 for itl in output.itl_ns],
    }
    if output.logprobs:
        record["logprobs"] = _logprobs(output.logprobs)
    return msgspec.json.encode(record).decode() + "\n"


def for_output(text: str) -> str:
    """Returns a model's text: as it is for a file or pipe, harmless for a terminal."""
    if not sys.stdout.isatty():
        return text
    return "".join(character if character in "\n\t" else visible(character) for character in text)


def _logprobs(logprobs: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
    return [{"logprob": token.logprob, "rank": token.rank, "top": token.top} for token in logprobs]
