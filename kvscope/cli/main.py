"""The command `kvscope`: registers the subcommands and turns every error a user can cause into one line.

Each command lives in a module of its own with `register(app)`; heavy imports happen inside the commands, so that
`kvscope --help` and the reading commands stay quick and need no torch.
"""

from __future__ import annotations

import sys

import typer

from kvscope.cli import attach, check, doctor, live, models, replay, run, simulate, stats, whatif, why
from kvscope.errors import KvscopeError, UsageError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of options at 80 columns
)

for command in (live, attach, run, simulate, check, replay, why, stats, whatif, models, doctor):
    command.register(app)


def main() -> None:
    """Runs the command line; exit codes are those of `kvscope.errors`."""
    try:
        exit_code = app(standalone_mode=False)
        sys.exit(exit_code if isinstance(exit_code, int) else 0)
    except KvscopeError as error:
        print(f"kvscope: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)
    except typer.TyperException as error:
        print(f"kvscope: {error.format_message()} (see --help)", file=sys.stderr)
        sys.exit(UsageError.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
