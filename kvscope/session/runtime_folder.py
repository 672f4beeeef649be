"""The private folder in which running engines can be found: a Unix socket and a card for each.

The card says which process, model and recording belong to the socket. Cards and sockets of processes that died are
removed when somebody looks.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import tempfile
import warnings
from pathlib import Path

import msgspec
import platformdirs

from kvscope.errors import EngineError

RUNTIME_FOLDER_VARIABLE = "KVSCOPE_RUNTIME_DIR"
MAX_SOCKET_PATH_BYTES = 103
"""`sun_path` holds 104 bytes with the closing zero on macOS, 108 on Linux."""


class EngineCard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a running engine without asking it."""

    pid: int
    model: str
    recording: str
    log: str
    socket: str
    started_at: str
    """Local wall clock, ISO 8601."""


def runtime_folder() -> Path:
    """Returns the folder, made if need be: the user's own, mode 0700. `KVSCOPE_RUNTIME_DIR` moves it.

    Raises `EngineError` where the folder cannot be made, belongs to somebody else, or others may enter it.
    """
    if chosen := os.environ.get(RUNTIME_FOLDER_VARIABLE):
        return _made(Path(chosen))
    with warnings.catch_warnings():  # platformdirs warns where XDG_RUNTIME_DIR is not set; its choice is fine
        warnings.simplefilter("ignore")
        folder = platformdirs.user_runtime_path("kvscope")
    if len(os.fsencode(folder / "12345678.sock")) <= MAX_SOCKET_PATH_BYTES:
        with contextlib.suppress(OSError):
            return _private(folder)
    return _made(Path(tempfile.gettempdir()) / f"kvscope-{os.getuid()}")


def _made(folder: Path) -> Path:
    """As `_private`; raises `EngineError` also where the folder cannot be made."""
    try:
        return _private(folder)
    except OSError as error:
        raise EngineError(
            f"cannot make the folder {folder} for engine sockets: {error.strerror}; "
            f"set {RUNTIME_FOLDER_VARIABLE} to another folder"
        ) from error


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = folder.stat()
    if info.st_uid != os.getuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise EngineError(
            f"{folder} must be yours alone (mode 0700) to hold engine sockets: "
            f"chmod 700 it, or set {RUNTIME_FOLDER_VARIABLE} to another folder"
        )
    return folder


def listen() -> tuple[socket.socket, Path]:
    """Returns a listening socket under a new name, and its path. Raises `EngineError` where the path is too long."""
    path = runtime_folder() / f"{secrets.token_hex(4)}.sock"
    num_bytes = len(os.fsencode(path))
    if num_bytes > MAX_SOCKET_PATH_BYTES:
        raise EngineError(
            f"socket path {path} has {num_bytes} bytes, the system allows {MAX_SOCKET_PATH_BYTES}: "
            f"set {RUNTIME_FOLDER_VARIABLE} to a shorter folder"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    return listener, path


def card_path(socket_path: Path) -> Path:
    return socket_path.with_suffix(".json")


def write_card(card: EngineCard) -> None:
    """Makes the engine known, in one move."""
    path = card_path(Path(card.socket))
    half = path.with_suffix(".part")
    half.write_bytes(msgspec.json.encode(card))
    half.replace(path)


def remove(socket_path: Path) -> None:
    """Takes the socket and its card away; neither needs to exist."""
    socket_path.unlink(missing_ok=True)
    card_path(socket_path).unlink(missing_ok=True)


def running_engines() -> list[EngineCard]:
    """Returns the engines that answer, oldest first, and clears away what dead ones left behind."""
    cards = []
    for path in sorted(runtime_folder().glob("*.json")):
        try:
            card = msgspec.json.decode(path.read_bytes(), type=EngineCard)
        except (OSError, msgspec.MsgspecError):
            continue  # just removed, or not ours
        if _answers(Path(card.socket)):
            cards.append(card)
        else:
            remove(path.with_suffix(".sock"))
    return sorted(cards, key=lambda card: card.started_at)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
