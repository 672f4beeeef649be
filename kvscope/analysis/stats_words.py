"""The statistics of a run in words: throughput, budget, batches, hits, preemptions, pool, time; also for the screen."""

from __future__ import annotations

from kvscope.analysis.number_text import number, share
from kvscope.analysis.speculation import Speculation
from kvscope.analysis.stats import RunStatistics


def figure_words(found: RunStatistics) -> list[tuple[str, str]]:
    """Returns labels and what is to be said of each; a label is empty where the text goes on with the one before."""
    figures, hits = found.figures, found.hits
    said: list[tuple[str, str]] = [("throughput", _throughput_text(found))]
    if found.budget_use is not None:
        said.append(("budget", f"{share(found.budget_use)} used, of the steps that scheduled anything"))
    if found.batch_sizes is not None and found.num_queued is not None:
        sizes, queued = found.batch_sizes, found.num_queued
        said.append(
            (
                "batch",
                f"{number(sizes.mean)} requests a step in the mean, p50 {number(sizes.p50)}, at most "
                f"{number(sizes.largest)}; waiting {number(queued.mean)}, at most {number(queued.largest)}",
            )
        )
    asked = f"{number(hits.num_first_hit_tokens)} of {number(hits.num_queried_tokens)} tokens at first admissions"
    said.append(("prefix hits", f"{share(hits.hit_rate)}: {asked}, on others' blocks"))
    if hits.num_requeried_tokens:
        later = hits.num_other_hit_tokens - hits.num_first_hit_tokens
        said.append(
            (
                "",
                f"after preemptions {number(later + hits.num_own_hit_tokens)} of {number(hits.num_requeried_tokens)}: "
                f"{number(hits.num_own_hit_tokens)} on own blocks, {number(later)} on others'",
            )
        )
    victims = len({request_id for _, request_id in figures.preemptions})
    said.append(
        (
            "preemptions",
            f"{len(figures.preemptions)}, of {victims} request{'s' if victims > 1 else ''}: "
            f"{number(figures.num_lost_tokens)} tokens thrown away, "
            f"{number(figures.num_recomputed_tokens)} computed twice"
            if figures.preemptions
            else "none",
        )
    )
    if found.speculation is not None:
        said += _speculation_words(found.speculation)
    if found.occupancy is not None:
        pool = found.occupancy
        said.append(
            (
                "pool",
                f"{share(pool.mean_live)} live in the mean, {share(pool.peak_live)} at the peak in step "
                f"{pool.peak_step}; {share(pool.mean_cached)} free and cached; {number(pool.num_evicted_blocks)} "
                "cached blocks evicted",
            )
        )
    if figures.stops_with_waiting:
        stops = ", ".join(f"{reason} {count}" for reason, count in figures.stops_with_waiting.most_common())
        said.append(("waiting for", f"{stops} (steps after which somebody waited)"))
    if figures.num_empty_steps:
        said.append(("empty steps", f"{figures.num_empty_steps} while something waited"))
    if found.times is not None:
        said.append(("time", _times_text(found)))
    return said


def _speculation_words(found: Speculation) -> list[tuple[str, str]]:
    """Says how many drafts were accepted, at which position, and what each verification gave for what it computed."""
    positions = ", ".join(
        f"{position.position}: {number(position.num_accepted)} of {number(position.num_drafted)}"
        for position in found.positions
    )
    emitted = found.num_verifications + found.num_accepted
    return [
        ("drafts", f"{share(found.acceptance_rate)} of {number(found.num_drafted)} accepted; by position {positions}"),
        (
            "",
            f"{number(found.num_verifications)} verifications computed "
            f"{number(found.num_verifications + found.num_drafted)} tokens and emitted {number(emitted)}: "
            f"{number(found.mean_acceptance_length, 2)} a verification for "
            f"{number(found.tokens_computed_per_emitted, 2)} computed each; {number(found.num_rolled_back)} computed "
            f"tokens taken back, {number(found.num_accepted)} steps of a request saved",
        ),
    ]


def _throughput_text(found: RunStatistics) -> str:
    speed = found.throughput
    if speed.duration_ns is None:
        steps = max(speed.num_steps, 1)
        return (
            f"{number(speed.num_prompt_tokens / steps, 2)} prompt and {number(speed.num_output_tokens / steps, 2)} "
            f"output tokens a step"
        )
    return (
        f"{number(speed.per_second(speed.num_prompt_tokens))} prompt tokens/s "
        f"({number(speed.per_second(speed.num_computed_prompt_tokens))} without hits), "
        f"{number(speed.per_second(speed.num_output_tokens))} output tokens/s"
    )


def _times_text(found: RunStatistics) -> str:
    times = found.times
    if times is None or not times.total_ns:
        return "–"
    parts = ("schedule", "forward", "sample", "update", "record", "between")
    shares = [f"{part} {getattr(times, f'{part}_ns') / times.total_ns:.1%}" for part in parts]
    return ", ".join(shares).replace("between", "between steps")
