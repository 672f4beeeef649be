"""A model runner without a model: each request's tokens and drafts are given beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.engine.scheduling.output import ModelRunnerOutput, SchedulerOutput
from kvscope.engine.scheduling.request import Request


@dataclass(slots=True)
class Script:
    """What a request's model and drafter will say."""

    output_token_ids: Sequence[int]
    """The k-th output token is the k-th of these; at least as many as the request can get."""
    drafts: Sequence[Sequence[int]] = ()
    """What is proposed after the request's j-th sampling, preemptions or not; nothing beyond the last."""
    num_samplings: int = 0


class ScriptedRunner:
    """Samples the given tokens, verifying drafts greedily. The caller adds a script for each request."""

    def __init__(self, num_spec_tokens: int = 0) -> None:
        self.scripts: dict[str, Script] = {}
        self._num_spec_tokens = num_spec_tokens

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Returns a token of each request whose tokens are all computed; with drafts, also those that come true."""
        for request_id in output.finished_request_ids:
            self.scripts.pop(request_id, None)
        result = ModelRunnerOutput(sampled_token_ids=[])
        for request in output.requests:
            if request.num_computed_tokens < request.num_tokens:
                result.sampled_token_ids.append([])
                continue
            script = self.scripts[request.request_id]
            drafts = output.scheduled_spec_tokens.get(request.request_id, ())
            result.sampled_token_ids.append(_sample(request, script.output_token_ids, drafts))
            if self._num_spec_tokens and script.num_samplings < len(script.drafts):
                proposed = script.drafts[script.num_samplings][: self._num_spec_tokens]
                result.draft_token_ids[request.request_id] = list(proposed)
            script.num_samplings += 1
        return result


def _sample(request: Request, output_token_ids: Sequence[int], drafts: Sequence[int]) -> list[int]:
    """Returns the drafts that equal the true continuation, and the true token after them."""
    start = request.num_output_tokens
    end = start + 1
    for draft in drafts:
        if end >= len(output_token_ids) or draft != output_token_ids[end - 1]:
            break
        end += 1
    return list(output_token_ids[start:end])
