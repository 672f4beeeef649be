"""Hands steps through a pipe to a process that writes them, so that an engine which computes in Python need not wait.

In a thread the writer holds the interpreter's lock for a tenth of each short step, just when the engine wants it back
after its forward pass. So all that is left to the engine's process is to encode the steps.

Through the pipe go frames: what it is, its length, its bytes. If the pipe ends without the last frame, the engine is
gone.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import select
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import msgspec

from kvscope import events as ev
from kvscope.errors import RecordingError
from kvscope.recording.write_loop import SourceLost, StepSource, write_failure
from kvscope.recording.writer import CheckpointPolicy, Step

_FRAME = struct.Struct("<BQ")
"""What a frame holds, and its length in bytes."""

_ENCODED, _PICKLED, _END = range(3)
_END_FRAME = _FRAME.pack(_END, 0)

_PAUSE_S = 0.01
"""Between two looks for steps: what a crash of the engine's process loses."""

_WAIT_AFTER_S = 5.0

_READ_BYTES = _WRITE_BYTES = 1 << 20

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, list[ev.Event]]).decode


def write_steps_elsewhere(source: StepSource, path: Path, checkpoints: CheckpointPolicy | None) -> None:
    """As `write_steps`, in a process of its own, which it starts and waits for. Raises `RecordingError`."""
    policy = msgspec.json.encode(checkpoints or CheckpointPolicy()).decode()
    # -P: nothing is imported from the folder that the user stands in.
    command = [sys.executable, "-P", "-m", "kvscope.recording.writer_process", str(path.absolute()), policy]
    with subprocess.Popen(
        command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and says why
            _send_all(source, process.stdin)
        process.stdin.close()
        message = process.stdout.read().decode(errors="replace")
    if message:
        raise RecordingError(message)
    if process.returncode:
        raise write_failure(path, ChildProcessError(f"the process that writes it ended with {process.returncode}"))


def _send_all(source: StepSource, pipe: IO[bytes]) -> None:
    """Looks for steps now and then, and waits for one only once none came for long.

    An engine that hands a step over to a thread which waits for it has to wake it, and on a busy machine may lose its
    processor to it, without which it cannot go on: milliseconds, where a step takes one.
    """
    is_ended, last = False, time.monotonic()
    while not is_ended:
        is_waiting = time.monotonic() - last > _WAIT_AFTER_S
        frames = b""
        with contextlib.suppress(queue.Empty):
            frames, is_ended = next_frames(source, timeout=None if is_waiting else 0.0)
            _send(pipe, frames)
            last = time.monotonic()
        if not is_ended and len(frames) < _WRITE_BYTES:
            time.sleep(_PAUSE_S)


def next_frames(source: StepSource, timeout: float | None = None) -> tuple[bytes, bool]:
    """Waits for a step, and returns it with what else is there, as it goes through the pipe; and whether that is all.

    All of it in one go, for each write gives the interpreter's lock away, and getting it back from an engine that
    computes in Python takes 5 ms. Raises `queue.Empty`.
    """
    frames: list[bytes] = []
    num_bytes = 0
    item = source.get(timeout=timeout)
    while item is not None:
        frames.append(_frame_of(item))
        num_bytes += len(frames[-1])
        if num_bytes > _WRITE_BYTES:
            return b"".join(frames), False
        try:
            item = source.get(timeout=0.0)
        except queue.Empty:
            return b"".join(frames), False
    return b"".join([*frames, _END_FRAME]), True


def _send(pipe: IO[bytes], data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[pipe.write(rest) :]


def _frame_of(step: Step) -> bytes:
    try:
        kind, data = _ENCODED, _encode(step)
    except (OverflowError, UnicodeEncodeError, TypeError):  # a number of more than 64 bits, half a surrogate pair
        kind, data = _PICKLED, pickle.dumps(step)
    return _FRAME.pack(kind, len(data)) + data


class StepsFromPipe:
    """Implements `StepSource` over the reading end of a pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._unread = bytearray()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def get(self, *, timeout: float | None = None) -> Step | None:
        while True:
            if len(self._unread) >= _FRAME.size:
                kind, length = _FRAME.unpack_from(self._unread)
                end = _FRAME.size + length
                if len(self._unread) >= end:
                    data = bytes(self._unread[_FRAME.size : end])
                    del self._unread[:end]
                    return _step_of(kind, data)
            if not self._poll.poll(None if timeout is None else timeout * 1e3):
                raise queue.Empty
            data = os.read(self._fd, _READ_BYTES)
            if not data:
                raise SourceLost
            self._unread += data


def _step_of(kind: int, data: bytes) -> Step | None:
    if kind == _END:
        return None
    step: Step = pickle.loads(data) if kind == _PICKLED else _decode(data)
    return step
