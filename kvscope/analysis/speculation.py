"""What speculation brought in a run: drafts proposed, accepted at each position, taken back, and tokens a verification.

A verification is one step of one request that had drafts scheduled: it computes the newest token and the drafts, and
emits one token more than it accepts. Without drafts it would have emitted one: every accepted draft is a step that the
request did not need, every rejected one a token of the budget that was computed for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.analysis.run_figures import RunFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The drafts at one place of their sequence, 1 being the token after the newest."""

    position: int
    num_drafted: int
    num_accepted: int

    @property
    def rate(self) -> float:
        """Accepted of those drafted at this position, as vLLM's per-position acceptance rate is of all drafts."""
        return self.num_accepted / self.num_drafted


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """All verifications of a run."""

    num_verifications: int
    num_drafted: int
    num_accepted: int
    """Also those behind a stop: the model agreed, the request had ended."""
    num_rolled_back: int
    """Computed tokens that were taken back."""
    positions: tuple[Position, ...]

    @property
    def acceptance_rate(self) -> float:
        """Of the drafted tokens, from 0 to 1."""
        return self.num_accepted / self.num_drafted

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens that a verification emits in the mean, the one that needs no draft included: vLLM's figure."""
        return 1 + self.num_accepted / self.num_verifications

    @property
    def tokens_computed_per_emitted(self) -> float:
        """1 where every draft was accepted; without speculation it is 1 by definition."""
        return (self.num_verifications + self.num_drafted) / (self.num_verifications + self.num_accepted)


def speculation(figures: RunFigures) -> Speculation | None:
    """Returns what the verifications of a run come to; None where no draft was verified."""
    counts = figures.verifications
    num_drafted = sum(drafts * times for (drafts, _), times in counts.items())
    if not num_drafted:
        return None
    longest = max(drafts for drafts, _ in counts)
    return Speculation(
        num_verifications=counts.total(),
        num_drafted=num_drafted,
        num_accepted=sum(accepted * times for (_, accepted), times in counts.items()),
        num_rolled_back=figures.num_rolled_back_tokens,
        positions=tuple(
            Position(
                position=position,
                num_drafted=sum(times for (drafts, _), times in counts.items() if drafts >= position),
                num_accepted=sum(times for (_, accepted), times in counts.items() if accepted >= position),
            )
            for position in range(1, longest + 1)
        ),
    )
