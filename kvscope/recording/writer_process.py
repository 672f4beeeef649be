"""The process that writes a recording for another one, which feeds it through a pipe (see `step_pipe`).

It obeys no signal of the engine's group and ends with the pipe; where the engine is gone without a last word, it writes
what had come before.

    python -m kvscope.recording.writer_process RECORDING CHECKPOINT_POLICY
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import msgspec

from kvscope.recording.step_pipe import StepsFromPipe
from kvscope.recording.write_loop import SourceLost, write_failure, write_steps
from kvscope.recording.writer import CheckpointPolicy


def main() -> None:
    """Writes what comes through standard input. Says on standard output why it could not."""
    path, policy = Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=CheckpointPolicy)
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # events and rows are many short tuples without cycles
    try:
        write_steps(StepsFromPipe(sys.stdin.fileno()), path, policy)
    except SourceLost:
        pass
    except Exception as error:
        sys.stdout.buffer.write(write_failure(path, error).message.encode(errors="backslashreplace"))


if __name__ == "__main__":
    main()
