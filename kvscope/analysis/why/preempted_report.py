"""The words on preemptions: for whom, why this victim, what coming back cost."""

from __future__ import annotations

from collections.abc import Iterator

from kvscope.analysis.spans import Part, count, dim, figure, request, strong
from kvscope.analysis.spans import step as step_span
from kvscope.analysis.why.layout import Line, sentence, table
from kvscope.analysis.why.preempted import PreemptedAnswer, PreemptionStory, Resumption
from kvscope.analysis.why.words import (
    names,
)

_MAX_STORIES = 3
_VICTIM_WORDS = {
    "last_admitted": "it was the last admitted (fcfs)",
    "least_urgent": "it was the least urgent (priority)",
    "least_urgent_first_admitted": "of the least urgent it was admitted first (priority)",
    "itself": "it was itself the next victim in line",
}


def cycle_sentence(answer: PreemptedAnswer) -> Iterator[Line]:
    """▲ Whether it came back only to be preempted again, and whether it goes round in a circle: more than once."""
    if answer.resume_preempt_cycles:
        cycles = [r for r in answer.resumptions if r.resumed_step is not None and r.next_preempted_step is not None]
        gained = answer.output_tokens_gained_in_cycles
        again = sum(resumption.recomputed_tokens for resumption in cycles)
        in_all = answer.recomputed_tokens
        how: list[Part] = [strong("Preempted again"), " after it was resumed; that run"]
        if answer.is_in_a_cycle:
            times = figure(f"{count(answer.resume_preempt_cycles, 'time')} resumed and preempted again")
            how = [strong("In a cycle: "), times, "; these runs"]
        yield sentence(
            "▲",
            *how,
            f" computed {count(again, 'token')} a second time and gained {count(gained, 'token')}",
            dim(f"; with the last resumption {in_all} were computed twice") if in_all != again else "",
        )


def preemption_sentences(answer: PreemptedAnswer) -> Iterator[Line]:
    """▲ The first preemptions: for whom, why this victim, what was lost, how much of it was computed again."""
    for story, resumption in zip(answer.preemptions[:_MAX_STORIES], answer.resumptions, strict=False):
        yield sentence("▲", *_story_words(story, resumption))
    if len(answer.preemptions) > _MAX_STORIES:
        yield sentence("", dim(f"… {count(len(answer.preemptions) - _MAX_STORIES, 'more preemption')}"))


def _story_words(story: PreemptionStory, resumption: Resumption) -> list[Part]:
    parts: list[Part] = [strong("Preempted"), " at step ", step_span(story.step), " "]
    if story.why_this_victim == "itself":
        parts.append("by its own need")
    else:
        parts += ["for ", request(story.by)]
    if story.by_needed_blocks is not None:
        verb = "which needed" if story.why_this_victim != "itself" else "it needed"
        parts += [f", {verb} ", figure(count(story.by_needed_blocks, "block")), f" with {story.free_blocks} free"]
    parts += [
        f"; {_VICTIM_WORDS[story.why_this_victim]} of {len(story.running)} running: ",
        figure(f"{story.blocks_freed} of {count(story.blocks_held, 'block')}"),
        " freed, ",
        figure(count(story.tokens_thrown_away, "token")),
        " thrown away",
    ]
    if resumption.resumed_step is not None:  # blocks that it gave back may have been hit then
        parts += [", ", figure(resumption.recomputed_tokens), " computed again"]
    if story.tokens_returned:
        parts.append(dim(f"; {count(story.tokens_returned, 'token')} of the step went back to the budget"))
    if story.other_victims:
        parts += [dim("; in the same step also "), *names(story.other_victims)]
    return parts


def resumption_table(answer: PreemptedAnswer) -> Iterator[Line]:
    """What each way back cost and brought."""
    rows: list[list[Part]] = []
    for resumption in answer.resumptions:
        back = "never" if resumption.resumed_step is None else str(resumption.resumed_step)
        again = "-" if resumption.next_preempted_step is None else str(resumption.next_preempted_step)
        rows.append(
            [
                str(resumption.preempted_step),
                str(resumption.steps_waited),
                back,
                str(resumption.hit_tokens),
                str(resumption.recomputed_tokens),
                str(resumption.steps_run),
                str(resumption.output_tokens_gained),
                again,
            ]
        )
    header = ("preempted", "waited", "resumed", "hit", "again", "ran", "gained", "preempted next")
    yield from table(header, rows, right=tuple(range(8)))
    yield sentence(
        "",
        dim("steps; hit, again (computed a second time) and gained in tokens; "),
        f"{answer.recomputed_tokens} again",
    )
