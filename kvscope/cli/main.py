"""The command `kvscope`: registers the subcommands and turns every error a user can cause into one line.

Each command lives in a module of its own with `register(app)`; heavy imports happen inside the commands, so that
`kvscope --help` and the reading commands stay quick and need no torch.
"""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from kvscope.analysis.text import visible
from kvscope.cli import (
    attach,
    bench,
    check,
    config,
    diff,
    doctor,
    dump,
    events,
    find,
    lab,
    live,
    models,
    replay,
    run,
    show,
    simulate,
    stats,
    whatif,
    why,
)
from kvscope.errors import KvscopeError, UsageError, bounded
from kvscope.session.options import EngineOptions

INTERRUPTED_EXIT_CODE = 130
BROKEN_PIPE_EXIT_CODE = 1
"""What a shell reports for a command that was interrupted; what the option parser ends with when its reader is gone."""

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of options at 80 columns
)

COMMANDS = (
    live,
    attach,
    run,
    simulate,
    replay,
    show,
    dump,
    events,
    find,
    why,
    stats,
    check,
    config,
    diff,
    whatif,
    models,
    lab,
    bench,
    config,
    doctor,
)
for command in COMMANDS:
    command.register(app)


@app.callback(invoke_without_command=True)
def alone(
    context: typer.Context,
    wants_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """A debugger for LLM serving: every scheduler decision, block and queue of every step.

    Without a command: `live`.
    """
    if wants_version:
        print(f"kvscope {version('kvscope')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        live.live(EngineOptions())


def main() -> None:
    """Runs the command line; exit codes are those of `kvscope.errors`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal's encoding lacks is written out
    try:
        exit_code = app(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(exit_code if isinstance(exit_code, int) else 0)
    except KvscopeError as error:
        _fail(error.message, error.exit_code)
    except typer.TyperException as error:
        _fail(f"{_as_clause(error.format_message())} (see --help)", UsageError.exit_code)
    except BrokenPipeError:  # whoever read has seen enough, as `kvscope dump … | head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKEN_PIPE_EXIT_CODE)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED_EXIT_CODE)


def _fail(message: str, exit_code: int) -> NoReturn:
    print(f"kvscope: {visible(bounded(message))}", file=sys.stderr)
    sys.exit(exit_code)


def _as_clause(message: str) -> str:
    """Returns a message of the option parser without its full stop."""
    return message.strip().removesuffix(".")
