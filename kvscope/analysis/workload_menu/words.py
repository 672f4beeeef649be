"""A rehearsal in words."""

from __future__ import annotations

from kvscope.analysis.workload_menu.rehearsal import Rehearsal


def foretold(found: Rehearsal, *, is_idle: bool = True) -> str:
    """Returns the rehearsal in a sentence."""
    parts = [_count(found.num_steps, "step")]
    if found.num_hit_tokens:
        parts.append(f"{found.num_hit_tokens:,} of {found.num_prompt_tokens:,} prompt tokens hit")
    if found.num_chunked_prompts:
        parts.append(f"{_count(found.num_chunked_prompts, 'prompt')} in chunks")
    if found.num_mixed_steps:
        parts.append(f"{_count(found.num_mixed_steps, 'step')} with prefill beside decode")
    if found.num_preemptions:
        cost = f"throw{'s' if found.num_preemptions == 1 else ''} away {found.num_lost_tokens:,} computed tokens"
        parts.append(f"{_count(found.num_preemptions, 'preemption')} that {cost}")
    if found.num_evicted_blocks:
        parts.append(f"{_count(found.num_evicted_blocks, 'block')} evicted")
    if found.most_waiting:
        parts.append(f"up to {found.most_waiting} wait")
    start = "from an idle engine and an empty cache" + ("" if is_idle else " (this one is busy)")
    cut = ", and not at its end" if found.is_cut else ""
    return f"Rehearsed {start}: {', '.join(parts)}{cut}."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
