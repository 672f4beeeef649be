"""The command `kvscope`: registers the subcommands and turns every error a user can cause into one line.

Each command lives in a module of its own with `register(app)`; heavy imports happen inside the commands, so that `kvscope
--help` and the reading commands stay quick and need no torch.
"""

from __future__ import annotations

import sys

import typer

from kvscope.errors import KvscopeError

app = typer.Typer(no_args_is_help=False, add_completion=False, pretty_exceptions_enable=False)


def main() -> None:
    """Runs the command line; exit codes are those of `kvscope.errors`."""
    try:
        app()
    except KvscopeError as error:
        print(f"kvscope: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)
