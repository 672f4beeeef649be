"""Writes recordings: one SQLite file a run."""

from kvscope.recording.recorder import Recorder

__all__ = ["Recorder"]
