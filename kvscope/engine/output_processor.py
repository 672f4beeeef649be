"""Follows every unfinished request for its caller: text, times, stop strings, and the result at the end.

Decides nothing of scheduling: it tells which requests a stop string has ended, the engine ends them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kvscope.engine.request_output import OnUpdate, RequestOutput, RequestUpdate
from kvscope.engine.scheduling.output import StepResult, TokenLogprobs
from kvscope.engine.scheduling.request import Request, RequestStatus
from kvscope.engine.text_codec import TextCodec
from kvscope.engine.text_stream import TextStream
from kvscope.events import FinishReason

_FINISH_REASONS: Mapping[RequestStatus, FinishReason] = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH: "length",
    RequestStatus.FINISHED_ABORTED: "abort",
}


@dataclass(slots=True)
class _Tracked:
    """One unfinished request, as its caller sees it."""

    request: Request
    on_update: OnUpdate | None
    text: TextStream | None
    ttft_ns: int | None = None
    last_token_ns: int = 0
    itl_ns: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)

    def add_token_times(self, num_tokens: int, now_ns: int) -> None:
        if self.ttft_ns is None:
            self.ttft_ns = now_ns - self.request.arrival_ns
            num_tokens -= 1
            self.last_token_ns = now_ns
        for _ in range(num_tokens):
            self.itl_ns.append(now_ns - self.last_token_ns)
            self.last_token_ns = now_ns

    def output(self) -> RequestOutput:
        """The result. A stop string that came with the last token allowed is why it ended, as in vLLM's outputs."""
        request = self.request
        stop = self.text.stop if self.text is not None else None
        return RequestOutput(
            request_id=request.request_id,
            prompt=request.prompt,
            prompt_token_ids=tuple(request.prompt_token_ids),
            output_token_ids=tuple(request.output_token_ids),
            text=self.text.text if self.text else "",
            finish_reason="stop" if stop is not None else _FINISH_REASONS.get(request.status, "error"),
            stop_reason=stop if stop is not None else request.stop_reason,
            num_hit_tokens=request.num_prompt_hit_tokens,
            num_preemptions=request.num_preemptions,
            ttft_ns=self.ttft_ns,
            itl_ns=tuple(self.itl_ns),
            logprobs=tuple(self.logprobs),
        )


class OutputProcessor:
    """`track` and the questions by id may come from any thread; everything else belongs to the engine's."""

    def __init__(self, codec: TextCodec | None) -> None:
        self._codec = codec
        self._tracked: dict[str, _Tracked] = {}
        self._updates: list[tuple[OnUpdate, RequestUpdate]] = []

    def track(self, request: Request, on_update: OnUpdate | None) -> None:
        """Begins to follow a request. Its text is only made where somebody wants it or a stop string needs it."""
        text = None
        if self._codec is not None and (on_update is not None or request.sampling.stop):
            text = TextStream(self._codec, request.sampling.stop, request.sampling.min_tokens)
        self._tracked[request.request_id] = _Tracked(request, on_update, text)

    def is_tracked(self, request_id: str) -> bool:
        """True for a request that was submitted and has not ended."""
        return request_id in self._tracked

    def tracked_ids(self) -> list[str]:
        """Every unfinished request, by submission."""
        return list(self._tracked)

    def add_tokens(
        self, result: StepResult, logprobs: Mapping[str, Sequence[TokenLogprobs]], now_ns: int
    ) -> list[tuple[Request, str]]:
        """Adds a step's tokens. Returns the requests that go on although a stop string has come, each with it."""
        stopped = []
        running = RequestStatus.RUNNING
        for request, token_ids in zip(result.requests, result.new_token_ids, strict=True):
            tracked = self._tracked[request.request_id]
            tracked.add_token_times(len(token_ids), now_ns)
            if request.request_id in logprobs:
                tracked.logprobs += logprobs[request.request_id][: len(token_ids)]
            stop = tracked.text.add(_answer(request, token_ids)) if tracked.text is not None else None
            if request.status is not running:
                continue  # `end` tells the caller
            if stop is not None:
                stopped.append((request, stop))
            else:
                self._note(tracked, None)
        return stopped

    def end(self, requests: Iterable[Request]) -> None:
        """Makes the results of requests that ended, and stops following them."""
        for request in requests:
            tracked = self._tracked.pop(request.request_id)
            if tracked.text is not None:
                tracked.text.finish()
            self._note(tracked, tracked.output())

    def fail_all(self) -> None:
        """Ends every request with the reason "error", and tells their callers."""
        self.end([tracked.request for tracked in list(self._tracked.values())])
        self.deliver()

    def deliver(self) -> None:
        """Calls the callers with what the step has brought."""
        updates, self._updates = self._updates, []
        for on_update, update in updates:
            on_update(update)

    def _note(self, tracked: _Tracked, output: RequestOutput | None) -> None:
        if tracked.on_update is not None:
            new_text = tracked.text.take() if tracked.text else ""
            update = RequestUpdate(request_id=tracked.request.request_id, new_text=new_text, output=output)
            self._updates.append((tracked.on_update, update))


def _answer(request: Request, token_ids: Sequence[int]) -> Sequence[int]:
    """Returns the new tokens less the one that stopped the request: it is in the output, not in its text (as vLLM)."""
    return token_ids[:-1] if request.status is RequestStatus.FINISHED_STOPPED else token_ids
