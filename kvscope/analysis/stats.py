"""The statistics of a run: latencies, throughput, budget, batches, prefix hits, preemptions, occupancy, time shares.

From recorded facts alone. A run without a clock has its latencies in steps and no throughput in seconds. Percentiles
are exact, see `percentiles`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from kvscope.analysis.latencies import RequestLatency, Unit, all_gaps, latencies, unit_of
from kvscope.analysis.occupancy import Occupancy, occupancy_of
from kvscope.analysis.percentiles import Distribution, distribution
from kvscope.analysis.request_figures import RequestFigures
from kvscope.analysis.run_figures import FIGURE_KINDS, FigureCollector, RunFigures
from kvscope.analysis.speculation import Speculation, speculation
from kvscope.analysis.wrong_readings import Warning, budget_use, wrong_readings
from kvscope.errors import UsageError
from kvscope.replay.timeline import StepSummary, Timeline

Grouping = Literal["priority", "salt", "adapter", "length"]

SUMMARIES_AT_ONCE = 10_000

EARLY_STEPS, EARLY_GROWTH = 20_000, 1.6
"""After so many steps the figures so far are told for the first time, and after so many times as many again."""

LENGTH_CLASSES = (128, 512, 2048, 8192)
"""Prompts shorter than each of these form a class; the rest is the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """The latencies of some requests, in `unit`; None where no request has got so far."""

    unit: Unit
    queue: Distribution | None
    ttft: Distribution | None
    itl: Distribution | None
    end_to_end: Distribution | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HitSummary:
    """Prefix cache use in tokens, by whose blocks were hit."""

    num_queried_tokens: int
    """Tokens of all first admissions: what vLLM's hit rate is a share of."""
    num_first_hit_tokens: int
    """Hits of first admissions, all on others' blocks."""
    num_requeried_tokens: int
    """Tokens of requests that came back after a preemption."""
    num_other_hit_tokens: int
    """Hits on others' blocks, of all admissions."""
    num_own_hit_tokens: int
    """Hits on a request's own blocks, after it was preempted."""

    @property
    def hit_rate(self) -> float | None:
        """Of first admissions: hit tokens by asked tokens."""
        return self.num_first_hit_tokens / self.num_queried_tokens if self.num_queried_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """Where the time between the first step's start and the last step's end went, in ns."""

    total_ns: int
    schedule_ns: int
    forward_ns: int
    sample_ns: int
    update_ns: int
    record_ns: int

    @property
    def between_ns(self) -> int:
        """The rest: waiting for work, pauses, and the loop itself."""
        known = self.schedule_ns + self.forward_ns + self.sample_ns + self.update_ns + self.record_ns
        return max(self.total_ns - known, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Tokens and requests of a run, and how long it took."""

    num_prompt_tokens: int
    """Of requests that were admitted."""
    num_computed_prompt_tokens: int
    """Of these, those that were computed at least once: the rest were hits."""
    num_output_tokens: int
    duration_ns: int | None
    """From the first step's start to the last one's end; None without a clock."""
    num_steps: int

    def per_second(self, num_tokens: int) -> float | None:
        """Returns tokens a second, None without a clock."""
        return num_tokens * 1e9 / self.duration_ns if self.duration_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """The requests that have something in common."""

    name: str
    num_requests: int
    num_preemptions: int
    latencies: LatencySummary


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatistics:
    """All statistics of one run."""

    figures: RunFigures
    requests: list[RequestLatency]
    latencies: LatencySummary
    throughput: Throughput
    hits: HitSummary
    budget_use: float | None
    """Of the steps that scheduled anything."""
    batch_sizes: Distribution | None
    """Requests a step, of the same steps."""
    num_queued: Distribution | None
    """Requests that waited after the admissions, of all steps."""
    times: TimeShares | None
    occupancy: Occupancy | None
    occupancy_columns: tuple[float, ...]
    """The share of live blocks over time: the peaks of at most `OCCUPANCY_COLUMNS` stretches of equal length."""
    speculation: Speculation | None
    """None where nothing was drafted."""
    warnings: list[Warning]


def read_statistics(timeline: Timeline, early: Callable[[RunStatistics], None] | None = None) -> RunStatistics:
    """Reads a recording once and returns its statistics.

    `early` is told those of the steps so far, each time that there are `EARLY_GROWTH` times as many of them as the time
    before: all of it together costs less than the end.
    """
    collector = FigureCollector()
    next_early = EARLY_STEPS
    for step, events in timeline.select_events(FIGURE_KINDS, timeline.first_step, timeline.last_step):
        collector.note_step(step, events)
        num_steps = step - timeline.first_step + 1
        if early is not None and num_steps >= next_early:
            next_early = int(num_steps * EARLY_GROWTH)
            early(statistics(collector.figures, _summaries(timeline, num_steps)))
    return statistics(collector.figures, _summaries(timeline, timeline.last_step - timeline.first_step + 1))


def _summaries(timeline: Timeline, num_steps: int) -> Iterator[StepSummary]:
    """Yields the summaries of the first steps, some at a time: those of a million would not fit into memory."""
    for begin in range(0, num_steps, SUMMARIES_AT_ONCE):
        num_columns = min(SUMMARIES_AT_ONCE, num_steps - begin)
        yield from timeline.summaries(timeline.first_step + begin, num_columns, 1)


def statistics(figures: RunFigures, summaries: Iterable[StepSummary] = ()) -> RunStatistics:
    """Returns the statistics of figures; occupancy comes from `summaries`, one for each step."""
    unit = unit_of(figures)
    occupancy, occupancy_columns = occupancy_of(figures, summaries)
    requests = latencies(figures, unit)
    steps = figures.steps
    return RunStatistics(
        figures=figures,
        requests=requests,
        latencies=latency_summary(requests, unit),
        throughput=throughput(figures),
        hits=hit_summary(figures),
        budget_use=budget_use(figures),
        batch_sizes=distribution(size for size in steps.num_scheduled_requests if size),
        num_queued=distribution(steps.num_waiting),
        times=_time_shares(figures),
        occupancy=occupancy,
        occupancy_columns=occupancy_columns,
        speculation=speculation(figures),
        warnings=wrong_readings(figures, requests),
    )


def latency_summary(requests: Iterable[RequestLatency], unit: Unit) -> LatencySummary:
    """Returns the distributions of these requests' times."""
    requests = list(requests)
    return LatencySummary(
        unit=unit,
        queue=distribution(time.queue for time in requests if time.queue is not None),
        ttft=distribution(time.ttft for time in requests if time.ttft is not None),
        itl=distribution(all_gaps(requests)),
        end_to_end=distribution(time.end_to_end for time in requests if time.end_to_end is not None),
    )


def throughput(figures: RunFigures) -> Throughput:
    """Returns what the run has done in what time."""
    admitted = [request for request in figures.requests.values() if request.admissions]
    steps = figures.steps
    duration_ns = steps.end_ns[-1] - steps.start_ns[0] if figures.is_timed else None
    return Throughput(
        num_prompt_tokens=sum(request.num_prompt_tokens for request in admitted),
        num_computed_prompt_tokens=sum(
            request.num_prompt_tokens - min(request.admissions[0].num_hit_tokens, request.num_prompt_tokens)
            for request in admitted
        ),
        num_output_tokens=sum(request.num_output_tokens for request in figures.requests.values()),
        duration_ns=duration_ns,
        num_steps=figures.num_steps,
    )


def hit_summary(figures: RunFigures) -> HitSummary:
    """Returns the prefix hits, first admissions and those after a preemption apart."""
    first = [request.admissions[0] for request in figures.requests.values() if request.admissions]
    later = [admission for request in figures.requests.values() for admission in request.admissions[1:]]
    own = sum(admission.num_own_hit_tokens for admission in [*first, *later])
    return HitSummary(
        num_queried_tokens=sum(admission.num_tokens for admission in first),
        num_first_hit_tokens=sum(admission.num_hit_tokens for admission in first),
        num_requeried_tokens=sum(admission.num_tokens for admission in later),
        num_other_hit_tokens=sum(admission.num_hit_tokens for admission in [*first, *later]) - own,
        num_own_hit_tokens=own,
    )


def _time_shares(figures: RunFigures) -> TimeShares | None:
    steps = figures.steps
    if not figures.is_timed:
        return None
    return TimeShares(
        total_ns=steps.end_ns[-1] - steps.start_ns[0],
        schedule_ns=sum(steps.schedule_ns),
        forward_ns=sum(steps.forward_ns),
        sample_ns=sum(steps.sample_ns),
        update_ns=sum(steps.update_ns),
        record_ns=sum(steps.record_ns),
    )


# --- groups -----------------------------------------------------------------------------------------------------------


def group_summaries(found: RunStatistics, by: str) -> list[GroupSummary]:
    """Returns the requests grouped by priority, salt (tenants), adapter or length of the prompt.

    Raises `UsageError` for another grouping.
    """
    keys: dict[str, Callable[[RequestFigures], tuple[int, str]]] = {
        "priority": lambda request: (request.priority, f"priority {request.priority}"),
        "salt": lambda request: (request.cache_salt is not None, request.cache_salt or "(no salt)"),
        "adapter": lambda request: (request.lora_name is not None, request.lora_name or "(no adapter)"),
        "length": lambda request: _length_class(request.num_prompt_tokens),
    }
    if by not in keys:
        raise UsageError(f"--by {by}: group by {', '.join(keys)}")
    unit = found.latencies.unit
    groups: defaultdict[tuple[int, str], list[RequestLatency]] = defaultdict(list)
    for time in found.requests:
        groups[keys[by](found.figures.requests[time.request_id])].append(time)
    return [
        GroupSummary(
            name=name,
            num_requests=len(times),
            num_preemptions=sum(len(found.figures.requests[time.request_id].preempted_steps) for time in times),
            latencies=latency_summary(times, unit),
        )
        for (_, name), times in sorted(groups.items())
    ]


def _length_class(num_prompt_tokens: int) -> tuple[int, str]:
    low = 1
    for index, limit in enumerate(LENGTH_CLASSES):
        if num_prompt_tokens < limit:
            return index, f"prompt {low}–{limit - 1}"
        low = limit
    return len(LENGTH_CLASSES), f"prompt {low}+"
