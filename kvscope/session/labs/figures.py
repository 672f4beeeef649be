"""The figures of labs: each one a column, read from a recording by the functions of `analysis`.

Counts follow from the scheduler's decisions alone and are exact. Times depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kvscope.analysis.latencies import Unit, latencies
from kvscope.analysis.percentiles import Distribution
from kvscope.analysis.run_figures import RunFigures
from kvscope.analysis.slot_use import SlotUse, slot_use
from kvscope.analysis.stats import LatencySummary, RunStatistics, latency_summary, read_statistics
from kvscope.replay import open_recording

FigureUnit = Literal["count", "share", "ms", "tokens/s"]
Which = Literal["p50", "p90", "p99", "mean", "largest"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from one recording."""

    statistics: RunStatistics
    slots: SlotUse

    @property
    def run(self) -> RunFigures:
        return self.statistics.figures

    def latencies(self, unit: Unit, group: str) -> LatencySummary:
        """Returns the latencies of the requests whose ids begin so."""
        chosen = [request_id for request_id in self.run.requests if request_id.startswith(group)]
        return latency_summary(latencies(self.run, unit, chosen), unit)


def read_recording(path: Path) -> Reading:
    """Reads a closed recording."""
    with open_recording(path) as timeline:
        return Reading(read_statistics(timeline), slot_use(timeline))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A column of a lab's table."""

    key: str
    """Its name in JSON."""
    head: str
    meaning: str
    unit: FigureUnit
    read: Callable[[Reading], float | None]

    @property
    def is_exact(self) -> bool:
        """True for what does not depend on the machine."""
        return self.unit in ("count", "share")


# --- counts -----------------------------------------------------------------------------------------------------------

STEPS = Figure(
    key="num_steps",
    head="steps",
    meaning="steps of the whole run",
    unit="count",
    read=lambda reading: reading.run.num_steps,
)
BATCH_SIZE = Figure(
    key="mean_batch_size",
    head="batch",
    meaning="requests a step, mean",
    unit="count",
    read=lambda reading: _pick(reading.statistics.batch_sizes, "mean"),
)
LARGEST_STEP = Figure(
    key="largest_step_tokens",
    head="largest step",
    meaning="tokens of the step that computed most",
    unit="count",
    read=lambda reading: max(
        prefill + decode
        for prefill, decode in zip(
            reading.run.steps.num_prefill_tokens, reading.run.steps.num_decode_tokens, strict=True
        )
    ),
)
HIT_TOKENS = Figure(
    key="num_hit_tokens",
    head="hit tokens",
    meaning="prompt tokens that were found in the prefix cache",
    unit="count",
    read=lambda reading: reading.run.num_hit_tokens,
)
PREFILL_TOKENS = Figure(
    key="num_prefill_tokens",
    head="prefill tokens",
    meaning="tokens computed to catch up with a prompt or with what a preemption threw away",
    unit="count",
    read=lambda reading: sum(reading.run.steps.num_prefill_tokens),
)
DECODE_TOKENS = Figure(
    key="num_decode_tokens",
    head="decode tokens",
    meaning="tokens computed one a step",
    unit="count",
    read=lambda reading: sum(reading.run.steps.num_decode_tokens),
)
PREEMPTIONS = Figure(
    key="num_preemptions",
    head="preempted",
    meaning="preemptions",
    unit="count",
    read=lambda reading: len(reading.run.preemptions),
)
PREEMPTIONS_IN_PROMPT = Figure(
    key="num_preemptions_in_prompt",
    head="in the prompt",
    meaning="preemptions of requests that had no token yet",
    unit="count",
    read=lambda reading: _num_preemptions(reading.run, has_token=False),
)
PREEMPTIONS_AFTER = Figure(
    key="num_preemptions_after_first_token",
    head="later",
    meaning="preemptions of requests that had their first token",
    unit="count",
    read=lambda reading: _num_preemptions(reading.run, has_token=True),
)
RECOMPUTED_TOKENS = Figure(
    key="num_recomputed_tokens",
    head="computed twice",
    meaning="tokens that were computed, thrown away by a preemption, and computed again",
    unit="count",
    read=lambda reading: reading.run.num_recomputed_tokens,
)
UNUSED_SLOTS = Figure(
    key="unused_slot_share",
    head="unused slots",
    meaning="share of the slots in held blocks that hold no token, over all steps",
    unit="share",
    read=lambda reading: reading.slots.unused_share,
)
PEAK_SLOTS = Figure(
    key="peak_held_slots",
    head="peak slots",
    meaning="slots of the blocks that were held when most were",
    unit="count",
    read=lambda reading: reading.slots.peak_held_blocks * _block_size(reading.run),
)
PEAK_BLOCKS = Figure(
    key="peak_held_blocks",
    head="peak blocks",
    meaning="blocks that were held when most were",
    unit="count",
    read=lambda reading: reading.slots.peak_held_blocks,
)


def queue_steps(which: Which) -> Figure:
    """How many steps requests waited before they were first admitted."""
    return Figure(
        key=f"queue_{which}_steps",
        head="queue, steps",
        meaning=f"steps that a request waited to be admitted, {_word(which)}",
        unit="count",
        read=lambda reading: _pick(reading.latencies("steps", "").queue, which),
    )


def longest_gap_steps(group: str) -> Figure:
    """The largest distance of two neighbouring tokens, in steps; 1 where none ever went away empty-handed."""
    return Figure(
        key=f"{group}_longest_gap_steps",
        head="longest gap",
        meaning=f"steps from one token of a {group} to its next, at most",
        unit="count",
        read=lambda reading: _pick(reading.latencies("steps", group).itl, "largest"),
    )


def ttft_steps(group: str) -> Figure:
    """The steps until the first token, of the slowest of a group."""
    return Figure(
        key=f"{group}_ttft_steps",
        head="TTFT, steps",
        meaning=f"steps from the arrival of a {group} to its first token, at most",
        unit="count",
        read=lambda reading: _pick(reading.latencies("steps", group).ttft, "largest"),
    )


# --- times ------------------------------------------------------------------------------------------------------------

DURATION = Figure(
    key="duration_ms",
    head="whole run",
    meaning="ms from the first step's start to the last one's end",
    unit="ms",
    read=lambda reading: _ms(reading.statistics.throughput.duration_ns),
)
OUTPUT_RATE = Figure(
    key="output_tokens_per_second",
    head="tokens/s",
    meaning="output tokens a second, of all requests together",
    unit="tokens/s",
    read=lambda reading: reading.statistics.throughput.per_second(reading.statistics.throughput.num_output_tokens),
)
SCHEDULE = Figure(
    key="schedule_ms_per_step",
    head="schedule",
    meaning="ms that the scheduler took for a step, mean",
    unit="ms",
    read=lambda reading: _schedule_ms(reading.statistics),
)


def ttft(which: Which, group: str = "", *, head: str = "", whose: str = "") -> Figure:
    """Time to the first token, queueing included. `head` and `whose` are for a lab with two such columns."""
    return Figure(
        key=_key(group, "ttft", which),
        head=head or f"TTFT {_short(which)}",
        meaning=f"ms from the submission of {whose or _one_of(group)} to its first token, {_word(which)}",
        unit="ms",
        read=lambda reading: _ms(_pick(reading.latencies("ns", group).ttft, which)),
    )


def itl(which: Which, group: str = "") -> Figure:
    """Time between neighbouring tokens of a request."""
    return Figure(
        key=_key(group, "itl", which),
        head=f"ITL {_short(which)}",
        meaning=f"ms from one token of {_one_of(group)} to its next, {_word(which)}",
        unit="ms",
        read=lambda reading: _ms(_pick(reading.latencies("ns", group).itl, which)),
    )


def end_to_end(which: Which, group: str = "") -> Figure:
    """Time to the last token."""
    return Figure(
        key=_key(group, "end_to_end", which),
        head=f"end {_short(which)}",
        meaning=f"ms from the submission of {_one_of(group)} to its last token, {_word(which)}",
        unit="ms",
        read=lambda reading: _ms(_pick(reading.latencies("ns", group).end_to_end, which)),
    )


def _key(group: str, what: str, which: Which) -> str:
    return f"{group}_{what}_{which}_ms" if group else f"{what}_{which}_ms"


def _one_of(group: str) -> str:
    return f"a {group or 'request'}"


def _word(which: Which) -> str:
    return "at most" if which == "largest" else which


def _short(which: Which) -> str:
    return "max" if which == "largest" else which


def _pick(values: Distribution | None, which: Which) -> float | None:
    return None if values is None else float(getattr(values, which))


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / 1e6


def _schedule_ms(found: RunStatistics) -> float | None:
    return None if found.times is None else found.times.schedule_ns / 1e6 / found.throughput.num_steps


def _num_preemptions(run: RunFigures, *, has_token: bool) -> int:
    """Returns how many preemptions took requests that had a token, or had none yet."""
    return sum(
        (request.first_token_step is not None and request.first_token_step < step) == has_token
        for request in run.requests.values()
        for step in request.preempted_steps
    )


def _block_size(run: RunFigures) -> int:
    assert run.config is not None, "a closed recording begins with the configuration"
    return run.config.block_size
