"""Folds a step's tokens into the writer's state, without a look at each request where only all their counts went up.

While the same requests decode one token each, step after step, the state's requests stay behind by a number of steps,
which is all that is counted; whatever reads or changes them calls `catch_up` first. What a step costs then follows
what changed in it, not how many requests run.
"""

from __future__ import annotations

from kvscope import events as ev
from kvscope.state import EngineState, RequestState

_LEAVE_TOKENS_ALONE = frozenset(
    {ev.BlockAllocated, ev.BlockCached, ev.BlockEvicted, ev.BlockTouched, ev.StepStarted, ev.RequestArrived}
)
"""Neither read nor change the number of a running request's tokens, nor who runs."""

_CHANGE_NOTHING = frozenset(
    {
        ev.StepFinished,
        ev.AdmissionEnded,
        ev.PrefixLookedUp,
        ev.AllocationFailed,
        ev.RequestBlocked,
        ev.TokenTextRecorded,
    }
)
"""Facts that the state passes over, after it has looked whether they are one of the others."""


class SteadyTokens:
    """Applies events to a state in place of `EngineState.apply`, in order, between its `begin_step`s."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._request_ids: tuple[str, ...] = ()
        """Who was scheduled last, where they were given a token each and none is in the middle of a prefill."""
        self._num_tokens: tuple[int, ...] = ()
        self._requests: list[RequestState] = []
        """The same, once each of them has sampled a token in such a step: from then on steps are only counted."""
        self._num_scheduled = 0
        self._num_sampled = 0

    def apply(self, event: ev.Event) -> None:
        """Folds one event. Raises `StateError` where it contradicts the state."""
        kind = type(event)
        if kind in _LEAVE_TOKENS_ALONE:
            self._state.apply(event)
        elif kind in _CHANGE_NOTHING:
            pass
        elif type(event) is ev.TokensScheduled:
            self._schedule(event)
        elif type(event) is ev.TokensSampled:
            self._sample(event)
        else:
            self._forget()
            self._state.apply(event)

    def catch_up(self) -> None:
        """Gives the requests the tokens that were only counted."""
        if self._num_scheduled or self._num_sampled:
            for request in self._requests:
                request.num_computed_tokens += self._num_scheduled
                request.num_tokens += self._num_sampled
            self._num_scheduled = self._num_sampled = 0

    def _forget(self) -> None:
        self.catch_up()
        self._request_ids, self._requests = (), []

    def _schedule(self, event: ev.TokensScheduled) -> None:
        is_same = event.request_ids == self._request_ids and event.num_tokens == self._num_tokens
        if self._requests and is_same and not event.draft_token_ids:
            self._num_scheduled += 1
            self._state.step_tokens.decode = len(self._requests)
            return
        self._forget()
        self._state.apply(event)
        if not event.draft_token_ids and event.num_tokens.count(1) == len(event.num_tokens):
            self._request_ids, self._num_tokens = event.request_ids, event.num_tokens

    def _sample(self, event: ev.TokensSampled) -> None:
        is_same = event.num_tokens is None and event.request_ids == self._request_ids
        if is_same and self._requests:
            self._num_sampled += 1
            return
        self._state.apply(event)
        if is_same:
            requests = [self._state.requests[request_id] for request_id in event.request_ids]
            if not any(request.is_prefilling for request in requests):
                self._requests = requests
