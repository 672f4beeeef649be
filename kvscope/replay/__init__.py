"""Reads recordings: any step, forwards and backwards, closed or growing."""

from kvscope.replay.memory import MemoryTimeline
from kvscope.replay.replay import Replay, open_recording

__all__ = ["MemoryTimeline", "Replay", "open_recording"]
