"""The words on the prefix cache: what each admission hit, and why it was not more."""

from __future__ import annotations

from collections.abc import Iterator

from kvscope.analysis.spans import Part, block, count, dim, figure, listed, request, strong
from kvscope.analysis.spans import step as step_span
from kvscope.analysis.text import truncate, visible
from kvscope.analysis.why.layout import Line, sentence
from kvscope.analysis.why.missed_records import Admission, Difference, MissedAnswer
from kvscope.analysis.why.words import (
    MAX_NAMES,
)

_MAX_ADMISSIONS = 4
_MAX_TEXT_CELLS = 30
_TELLS_DIFFERENCE = ("rest_shorter_than_a_block", "shorter_than_a_block", "never_computed", "not_computed_yet")


def cache_sentences(request_id: str, answer: MissedAnswer) -> Iterator[Line]:
    """● ○ Each admission's hit, and why it was not longer."""
    for admission in answer.admissions[:_MAX_ADMISSIONS]:
        yield sentence("●" if admission.hit_tokens else "○", *_admission_words(request_id, admission))
        if admission.difference is not None and admission.reason in _TELLS_DIFFERENCE:
            yield sentence("", *_difference_words(admission.difference))
            if admission.difference.alike_blocks_behind:
                yield sentence("", *_alike_words(admission.difference))
    if len(answer.admissions) > _MAX_ADMISSIONS:
        yield sentence("", dim(f"… {count(len(answer.admissions) - _MAX_ADMISSIONS, 'more admission')}"))
    for duplicate in answer.duplicates[:_MAX_ADMISSIONS]:
        yield sentence(
            "",
            dim(
                f"its block {duplicate.block_index} was computed anew into block {duplicate.block_id}, "
                f"which doubles block {duplicate.duplicate_of} (step {duplicate.step})"
            ),
        )


def _admission_words(request_id: str, admission: Admission) -> list[Part]:
    verb = {"new": "Admitted", "resumed": "Resumed", "refused": "Looked up, refused,"}[admission.kind]
    hit = f"{admission.hit_tokens} of {count(admission.num_tokens, 'token')} hit"
    parts: list[Part] = [f"{verb} at step ", step_span(admission.step), ": ", figure(hit)]
    if admission.hit_tokens:
        owners = list(dict.fromkeys(publisher for publisher in admission.publishers if publisher))
        whose: list[Part] = ["its own" if owner == request_id else request(owner) for owner in owners]
        parts += [" in ", count(len(admission.hit_blocks), "block"), " of ", *listed(whose, MAX_NAMES)]
        if admission.own_hit_tokens and admission.others_hit_tokens:
            parts.append(
                dim(f" ({count(admission.own_hit_tokens, 'token')} its own, {admission.others_hit_tokens} others')")
            )
    if not admission.hits_hold_its_tokens:
        parts.append(strong("; THE HIT BLOCKS DO NOT HOLD ITS TOKENS"))
    return [*parts, "; ", *_miss_words(admission)]


def _miss_words(admission: Admission) -> list[Part]:
    match: list[Part] = [request(admission.best_match)] if admission.best_match is not None else ["no other"]
    shared = count(admission.shared_tokens, "token")
    lost = admission.lost
    match admission.reason:
        case "caching_off":
            return ["prefix caching is off"]
        case "nothing_shared":
            return [
                "nothing more is shared with any request"
                if admission.hit_tokens
                else "no request before it begins as it does"
            ]
        case "shorter_than_a_block":
            return ["it shares ", figure(shared), " with ", *match, ", less than one block"]
        case "all_shared_hit" if admission.hit_tokens >= admission.cap:
            return ["no more could be: its last token is always computed"]
        case "all_shared_hit":
            return ["all that it shares with ", *match, f" ({shared})"]
        case "rest_shorter_than_a_block":
            return ["all whole blocks of the ", figure(shared), " that it shares with ", *match]
        case "last_token_must_be_computed":
            return [f"no more than {admission.cap} could be: its last token is always computed"]
        case "other_salt":
            salt = "none" if admission.other_salt is None else f"“{visible(admission.other_salt)}”"
            return [
                "its next block is cached, by ",
                request(admission.other_salt_id or ""),
                f" under cache salt {salt}",
            ]
        case "other_adapter":
            adapter = "no adapter" if admission.other_lora_name is None else f"“{visible(admission.other_lora_name)}”"
            return [
                "its next block is cached, by ",
                request(admission.other_salt_id or ""),
                f", which ran with {adapter}" if admission.other_lora_name is None else f" under adapter {adapter}",
            ]
        case "evicted" | "taken_back" if lost is not None:
            how: list[Part] = ["evicted"] if admission.reason == "evicted" else ["taken back"]
            if lost.lost_for is not None:
                how += [" for ", request(lost.lost_for)]
            return [
                f"its block {lost.block_index}, computed by ",
                request(lost.computed_by),
                f" at step {lost.published_step} in block ",
                block(lost.block_id),
                ", was ",
                *how,
                " at step ",
                step_span(lost.lost_step),
                dim(f"; {count(len(admission.lost_blocks) - 1, 'block')} behind it too")
                if len(admission.lost_blocks) > 1
                else "",
            ]
        case "not_computed_yet":
            return ["its next block is shared with ", *match, f" ({shared}), which had not computed it yet"]
        case _:
            return ["its next block is shared with ", *match, f" ({shared}), which ended before it was full"]


def _alike_words(difference: Difference) -> list[Part]:
    blocks = count(difference.alike_blocks_behind, "block")
    return [
        strong(f"behind it {count(difference.alike_behind, 'token')} on end are alike"),
        f" ({blocks}), but no block hits behind a difference: what differs would have to stand behind them",
    ]


def _difference_words(difference: Difference) -> list[Part]:
    place = f"token {difference.token_position} (block {difference.block_index}, place {difference.position_in_block})"
    if difference.other_token_id is None:
        return [dim("there "), request(difference.other_id), dim(f" ends: {place}")]
    if difference.token_id is None:
        return []
    mine = truncate(visible(difference.text), _MAX_TEXT_CELLS)
    other = truncate(visible(difference.other_text), _MAX_TEXT_CELLS)
    return [
        f"first other token: {place}, {difference.token_id} against {difference.other_token_id}: ",
        f"“{mine}” against “{other}” of ",
        request(difference.other_id),
    ]
