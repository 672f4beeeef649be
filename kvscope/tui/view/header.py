"""The first and the last line: what runs, why it stopped, where the cursor is; the keys that matter here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvscope.control import EngineStatus
from kvscope.events import EngineConfigured
from kvscope.tui.view.lines import Line, Span, cut_line, fit, line_width, pad_line, two_ends

MAX_NAME_CELLS = 24
"""Of a recording's name, where several are open."""

ChipKind = Literal["live", "idle", "paused", "held", "replay", "gone", "loading", "play"]


@dataclass(frozen=True, slots=True)
class Chip:
    """The state of engine and cursor in a word."""

    kind: ChipKind
    text: str


def chip(
    status: EngineStatus | None, *, is_growing: bool, is_playing: bool, step: int, last_step: int, is_following: bool
) -> Chip:
    """Returns the chip. `status` is None where there is no engine to talk to: a replay."""
    behind = max(last_step - step, 0)
    if status is None:
        if is_playing:
            return Chip("play", "▸ PLAYING")
        if is_growing:
            return Chip("live", "● FOLLOWING") if is_following else Chip("held", f"◀ HELD, {behind} behind")
        return Chip("replay", "■ REPLAY")
    match status.phase:
        case "failed" | "stopped":
            return Chip("gone", "✖ ENGINE GONE")
        case "loading":
            percent = "" if status.progress is None else f" {status.progress:.0%}"
            return Chip("loading", f"… LOADING{percent}")
        case "paused":
            return Chip("paused", f"‖ PAUSED, {behind} behind" if behind else "‖ PAUSED")
        case _:
            if not is_following and behind:
                return Chip("held", f"◀ HELD, {behind} behind")
            return Chip("idle", "○ IDLE") if status.phase == "idle" else Chip("live", "● LIVE")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFacts:
    """What the header shows."""

    config: EngineConfigured | None
    source: str
    """Name of the recording, shown while there is no config."""
    reason: str
    """Why it stopped, or what is being loaded, in one line of visible text."""
    chip: Chip
    step: int
    last_step: int
    places: Sequence[str] = ()
    """Names of the places above the main screen, the outermost first."""
    recording: str = ""
    """Which of several recordings is shown, by what they are aligned; empty where there is one."""
    recording_name: str = ""


def header_line(facts: HeaderFacts, width: int) -> Line:
    """Returns the header; the settings yield from the right, the reason after them, never the chip and the step."""
    step = str(facts.step) if facts.step >= 0 else "—"
    last = str(facts.last_step) if facts.last_step >= 0 else "—"
    right: Line = (
        Span(f" {facts.chip.text} ", "bold", f"chip-{facts.chip.kind}"),
        Span("  step ", "bold"),
        Span(step, "bold"),
        Span(f"/{last} ", "dim"),
    )
    room = width - line_width(right)
    reason: Line = (
        (Span(facts.reason, "evict" if facts.chip.kind != "gone" else "bad"), Span(" ")) if facts.reason else ()
    )
    if facts.places:
        left: Line = (Span(" kvscope", "bold"),)
        if facts.recording:
            left = (*left, Span(" › ", "dim"), Span(facts.recording.partition(" by ")[0], "dim"))
        for place in facts.places:
            left = (*left, Span(" › ", "dim"), Span(place, "bold" if place == facts.places[-1] else "dim"))
        return two_ends(cut_line(left, max(room - 1, 0)), _fitted(reason, room - line_width(left) - 1, right), width)
    name: Line = (Span(" kvscope  ", "bold"),)
    if facts.recording:
        name = (*name, Span(facts.recording, "bold"), Span(f": {fit(facts.recording_name, MAX_NAME_CELLS)}   "))
    reason_width = min(line_width(reason), max(room - line_width(name) - 8, 0))
    left = (*name, *_settings(facts, room - reason_width - line_width(name) - 1))
    return two_ends(left, _fitted(reason, room - line_width(left) - 1, right), width)


def _fitted(reason: Line, room: int, right: Line) -> Line:
    return (*cut_line(reason, room), *right) if room > 4 else right


def _settings(facts: HeaderFacts, room: int) -> Line:
    config = facts.config
    if config is None:
        name = "" if facts.recording else facts.source  # of several the name stands there already
        return cut_line((Span(name, "dim"),), max(room, 0))
    settings = config.settings
    parts = [
        f"{config.device} {config.kernels}" if config.kernels.startswith("triton") else config.device,
        str(settings.get("policy", "")),
        f"budget {settings.get('max_num_scheduled_tokens') or settings.get('max_num_batched_tokens', '?')}",
        f"seqs {settings.get('max_num_seqs', '?')}",
        f"{max(config.num_gpu_blocks - 1, 0):,} blocks × {config.block_size}",
    ]
    line: Line = (Span(config.model or "no model"),)
    for part in parts:
        if not part:
            continue
        longer: Line = (*line, Span(f" · {part}", "dim"))
        if line_width(longer) > room:
            break
        line = longer
    return cut_line(line, max(room, 0))


def footer_line(keys: Sequence[tuple[str, str]], width: int, yielding: Sequence[int] = ()) -> Line:
    """Returns the keys with what they do; those that do not fit are left out whole, the last one (help) stays.

    `yielding`: the numbers of those that are left out first, in this order; then those on the right.
    """
    pairs = {number: _key(key) for number, key in enumerate(keys)}
    for number in yielding:
        if line_width(span for pair in pairs.values() for span in pair) > width:
            del pairs[number]
    *others, last = pairs.values() if pairs else [[]]
    spans: list[Span] = []
    for pair in others:
        if line_width([*spans, *pair, *last]) <= width:
            spans += pair
    return pad_line((*spans, *last), width)


def _key(key: tuple[str, str]) -> list[Span]:
    return [Span(f"{key[0]} ", "bold"), Span(f"{key[1]} ", "dim")]
