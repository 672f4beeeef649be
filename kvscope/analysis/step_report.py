"""One step as text in 80 columns and as data: title, decisions, queues with verdicts, pool. For `kvscope show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvscope.analysis.memory import remembered
from kvscope.analysis.pool_view import PoolView, next_out, pool_view
from kvscope.analysis.queue_view import RunningRow, running_rows
from kvscope.analysis.sentences import sentences, step_title
from kvscope.analysis.spans import hanging, plain
from kvscope.analysis.step_facts import StepShare
from kvscope.analysis.text import cell_width, fit, visible
from kvscope.analysis.verdicts import WaitingVerdict, verdicts
from kvscope.replay.timeline import Moment, Timeline

WIDTH = 80
_MAX_WAITING = 20
_MAX_RUNNING = 20
_NUM_NEXT_OUT = 12
_MAX_ID_CELLS = 24


def step_report(timeline: Timeline, step: int, width: int = WIDTH) -> list[str]:
    """Returns the step as plain lines of at most `width` cells.

    Raises `RecordingError` for a step that is not there.
    """
    moment = timeline.at(step)
    lines = [*hanging(f"STEP {step}  ", step_title(timeline, moment), width), ""]
    for sentence in sentences(timeline, moment):
        lines += hanging(f"{sentence.glyph} ", sentence.spans, width)
    lines += ["", *_waiting_lines(timeline, moment, width), "", *_running_lines(timeline, moment, width)]
    return [*lines, "", *_pool_lines(timeline, moment, width)]


def step_record(timeline: Timeline, step: int) -> dict[str, Any]:
    """Returns the same as plain data for JSON; every request of both queues is in it."""
    moment = timeline.at(step)
    facts = remembered(timeline).facts(moment)
    pool = pool_view(timeline, moment)
    finished = facts.finished
    return {
        "step": step,
        "title": plain(step_title(timeline, moment)),
        "token_budget": facts.token_budget,
        "num_scheduled_tokens": facts.num_scheduled_tokens,
        "scheduled": [_share_record(share) for share in facts.shares.values()],
        "duration_ns": None
        if finished is None
        else {
            "schedule": finished.schedule_ns,
            "forward": finished.forward_ns,
            "sample": finished.sample_ns,
            "update": finished.update_ns,
        },
        "decisions": [
            {"glyph": sentence.glyph, "about": sentence.tone, "text": sentence.text}
            for sentence in sentences(timeline, moment)
        ],
        "waiting": [_verdict_record(verdict) for verdict in verdicts(timeline, moment)],
        "running": [_running_record(row) for row in running_rows(timeline, moment)],
        "pool": {
            "num_usable_blocks": pool.num_usable_blocks,
            "num_live_blocks": pool.num_live + pool.num_shared,
            "num_shared_blocks": pool.num_shared,
            "num_cached_free_blocks": pool.num_cached,
            "num_free_blocks": pool.num_free + pool.num_cached,
            "num_new_blocks": pool.num_new + pool.num_evicting,
            "num_evicted_blocks": pool.num_evicting,
            "num_hit_blocks": pool.num_hit,
            "num_released_blocks": pool.num_released,
            "next_out": [block.block_id for block in next_out(moment, _NUM_NEXT_OUT)],
        },
    }


def _waiting_lines(timeline: Timeline, moment: Moment, width: int) -> Iterator[str]:
    num_waiting = len(moment.state.waiting)
    if not num_waiting:
        yield "WAITING 0"
        return
    yield _aligned(f"WAITING {num_waiting}", "steps waited", width)
    rows = verdicts(timeline, moment, count=_MAX_WAITING)
    id_cells = _id_cells([row.request_id for row in rows])
    for row in rows:
        mark = "▲" if row.was_preempted else " "
        left = f"{row.position + 1:>4}{mark} {fit(visible(row.request_id), id_cells)}  {row.text}"
        yield _aligned(left, str(row.num_waited_steps), width)
    if num_waiting > len(rows):
        yield f"      … {num_waiting - len(rows)} more"


def _running_lines(timeline: Timeline, moment: Moment, width: int) -> Iterator[str]:
    num_running = len(moment.state.running)
    if not num_running:
        yield "RUNNING 0"
        return
    yield _aligned(f"RUNNING {num_running}", "computed/total   tokens     blocks", width)
    rows = running_rows(timeline, moment, count=_MAX_RUNNING)
    id_cells = _id_cells([row.request_id for row in rows])
    for row in rows:
        new = f"+{row.num_new_blocks}" if row.num_new_blocks else ""
        figures = (
            f"{row.num_computed_tokens}/{row.num_prompt_tokens + row.max_tokens}   "
            f"{share_words(row.share):<11}{row.num_blocks:>5}{new:<4}"
        )
        yield _aligned(f"      {fit(visible(row.request_id), id_cells)}", figures, width)
    if num_running > len(rows):
        yield f"      … {num_running - len(rows)} more"


def share_words(share: StepShare | None) -> str:
    """Returns what a request got in a step: `+1 dec`, `+57 pre`, `+4 draft`, or — for nothing."""
    if share is None:
        return "—"
    kind = "pre" if share.is_prefill else "draft" if share.num_draft_tokens else "dec"
    return f"+{share.num_tokens} {kind}"


def _pool_lines(timeline: Timeline, moment: Moment, width: int) -> Iterator[str]:
    pool = pool_view(timeline, moment)
    yield f"POOL {pool.num_usable_blocks} blocks × {pool.block_size} tokens"
    for counts in (_status_counts(pool), _change_counts(pool)):
        yield "  " + "   ".join(f"{name} {number}" for name, number in counts.items())
    line = "  next out"
    for block in next_out(moment, _NUM_NEXT_OUT):
        word = f" {'◆' if block.is_cached else '·'}{block.block_id}"
        if cell_width(line + word) > width:
            break
        line += word
    yield line if moment.state.free_queue else "  no block is free"


def _status_counts(pool: PoolView) -> dict[str, int]:
    return {
        "■ live": pool.num_live,
        "2+ shared": pool.num_shared,
        "░ cached": pool.num_cached,
        "· free": pool.num_free,
    }


def _change_counts(pool: PoolView) -> dict[str, int]:
    return {
        "+ new": pool.num_new,
        "◆ evicting": pool.num_evicting,
        "● hit": pool.num_hit,
        "− released": pool.num_released,
    }


def _id_cells(request_ids: Sequence[str]) -> int:
    return min(max(cell_width(visible(request_id)) for request_id in request_ids), _MAX_ID_CELLS)


def _aligned(left: str, right: str, width: int) -> str:
    room = width - cell_width(right) - 1
    return f"{left}{' ' * max(room - cell_width(left), 0)} {right}".rstrip()


def _share_record(share: StepShare) -> dict[str, Any]:
    return {
        "request_id": share.request_id,
        "num_tokens": share.num_tokens,
        "num_draft_tokens": share.num_draft_tokens,
        "kind": "prefill" if share.is_prefill else "decode",
        "num_computed_before": share.num_computed_before,
    }


def _verdict_record(row: WaitingVerdict) -> dict[str, Any]:
    return {
        "request_id": row.request_id,
        "position": row.position,
        "num_waited_steps": row.num_waited_steps,
        "was_preempted": row.was_preempted,
        "is_head_verdict": row.is_refused,
        "failed_test": row.reason,
        "fits": row.fits,
        "need_blocks": row.need_blocks,
        "num_free_blocks": row.num_free_blocks,
        "watermark_blocks": row.watermark_blocks,
        "text": row.text,
    }


def _running_record(row: RunningRow) -> dict[str, Any]:
    return {
        "request_id": row.request_id,
        "num_computed_tokens": row.num_computed_tokens,
        "num_tokens": row.num_tokens,
        "num_prompt_tokens": row.num_prompt_tokens,
        "max_tokens": row.max_tokens,
        "num_scheduled_tokens": row.share.num_tokens if row.share is not None else 0,
        "num_blocks": row.num_blocks,
        "num_new_blocks": row.num_new_blocks,
    }
