"""One request after a step as plain text to take along: its figures, its prompt, what happened to it until then."""

from __future__ import annotations

from kvscope.analysis.happenings import happenings
from kvscope.analysis.request_view import RequestFacts, request_facts
from kvscope.analysis.spans import Span, count, hanging
from kvscope.analysis.text import truncate, visible
from kvscope.replay.timeline import Timeline

WIDTH = 80
_MAX_PROMPT_CELLS = 400


def request_report(timeline: Timeline, step: int, request_id: str, width: int = WIDTH) -> list[str]:
    """Returns the request in lines of at most `width` cells. Raises `RecordingError` where it is not there."""
    moment = timeline.at(step)
    facts = request_facts(timeline, moment, request_id)
    if facts is None:
        return [f"REQUEST {visible(request_id)}: there is none in {timeline.path.name}"]
    lines = [f"REQUEST {visible(request_id)}  {facts.phase} after step {step}"]
    lines += hanging("", [Span(_figures(facts))], width)
    if facts.prompt:
        lines += hanging("prompt: ", [Span(f"“{truncate(facts.prompt, _MAX_PROMPT_CELLS)}”")], width)
    lines.append("")
    told = happenings(timeline, moment, request_id)
    columns = len(str(step))
    for happening in told:
        sentence = happening.sentence
        lines += hanging(f"{happening.step:>{columns}} {sentence.glyph} ", sentence.spans, width)
    return lines


def _figures(facts: RequestFacts) -> str:
    parts = [
        f"{count(facts.num_prompt_tokens, 'prompt token')}, {facts.num_output_tokens} of at most {facts.max_tokens} "
        f"generated, {facts.num_computed_tokens} computed",
        count(facts.num_blocks, "block"),
        f"arrived at step {facts.arrival_step}",
    ]
    if facts.num_hit_tokens:
        parts.append(f"{count(facts.num_hit_tokens, 'token')} hit")
    if facts.num_preemptions:
        parts.append(f"{count(facts.num_preemptions, 'preemption')}, {count(facts.num_lost_tokens, 'token')} lost")
    parts += [f"priority {facts.priority}", f"sampling {visible(facts.sampling)}"]
    return "; ".join(parts)
