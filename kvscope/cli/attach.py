"""`kvscope attach`: the screen over an engine that runs elsewhere on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from kvscope.cli.config import ASCII_HELP, THEME_HELP, screen_config
from kvscope.cli.live import require_terminal, run_screen
from kvscope.control_client import ControlClient
from kvscope.errors import EngineError, UsageError
from kvscope.paths import expanded
from kvscope.session.runtime_folder import EngineCard, running_engines


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(attach)


def attach(
    target: Annotated[
        str | None,
        typer.Argument(help="The engine's recording, socket or process id; not needed if only one runs."),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Only list the engines that run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: one JSON object a line.")] = False,
    is_ascii: Annotated[bool | None, typer.Option("--ascii/--no-ascii", help=ASCII_HELP)] = None,
    theme: Annotated[str | None, typer.Option(help=THEME_HELP)] = None,
) -> None:
    """Show an engine that runs elsewhere on this machine; leaving the screen leaves it running."""
    engines = running_engines()
    if list_only:
        for card in engines:
            print(msgspec.json.encode(card).decode() if as_json else _line(card))
        if not engines and not as_json:
            print("no engine runs", file=sys.stderr)
        return
    card = _choose(engines, target)
    require_terminal("kvscope attach --list works without one")
    config = screen_config(theme, is_ascii)
    client = ControlClient(Path(card.socket), log_path=Path(card.log)).start()
    try:
        run_screen(client, config, is_chat=True, owns_engine=False)
        if client.status.phase == "failed":
            raise EngineError(f"the engine failed: {client.status.detail}")
    finally:
        client.disconnect()


def _choose(engines: list[EngineCard], target: str | None) -> EngineCard:
    """Returns the engine that is meant. Raises `UsageError` where that is none or not clear."""
    if not engines:
        raise UsageError("no engine runs on this machine: kvscope live starts one, kvscope replay shows a recording")
    meant = engines if target is None else [card for card in engines if _is_meant(card, target)]
    if len(meant) == 1:
        return meant[0]
    which = "several engines run" if target is None else f"{target} is none of the engines that run"
    raise UsageError(f"{which}: name one by its recording or process id: " + "; ".join(map(_line, engines)))


def _is_meant(card: EngineCard, target: str) -> bool:
    path = str(expanded(target).absolute())
    return target == str(card.pid) or path in (card.recording, card.socket) or target == Path(card.recording).name


def _line(card: EngineCard) -> str:
    return f"{card.pid}  {card.model}  since {card.started_at}  {card.recording}"
