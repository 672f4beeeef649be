"""`kvscope dump`: every step as a line of JSON, with the field names of the golden runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(dump)


def dump(
    file: Annotated[Path, typer.Argument(help="A recording.", show_default=False)],
    first_step: Annotated[int | None, typer.Option("--from", help="First step.", show_default=False)] = None,
    last_step: Annotated[int | None, typer.Option("--to", help="Last step, included.", show_default=False)] = None,
) -> None:
    """Print one JSON object a step: queues, budget, blocks before and after, with vLLM's names."""
    from kvscope.cli.reading import json_text, step_range
    from kvscope.replay.dump import dump_steps
    from kvscope.replay.replay import open_recording
    from kvscope.state import EngineState

    with open_recording(file) as timeline:
        begin, end = step_range(timeline, first_step, last_step)
        state = EngineState() if begin == timeline.first_step else timeline.at(begin - 1).state.copy()
        for record in dump_steps(timeline.events(begin, end), state):
            print(json_text(record))
