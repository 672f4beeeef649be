"""The process that an engine runs in: `python -m kvscope.session.engine_process OPTIONS SOCKET LOG FD`.

It loads the engine, answers clients, and ends when it is told to, or when nobody watches and nothing is left to run.
Started by `kvscope.session.spawn`, in a session of its own: the death of whoever started it does not touch it.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec

from kvscope.control import Shutdown
from kvscope.session import runtime_folder
from kvscope.session.build import build_engine
from kvscope.session.control_server import ControlServer
from kvscope.session.engine_loop import EngineLoop
from kvscope.session.options import EngineOptions
from kvscope.session.priority import yield_to_the_screen

LOOK_AROUND_S = 0.1
"""How often the process asks itself whether it is still needed."""


async def serve(options: EngineOptions, socket_path: Path, log_path: Path, listener: socket.socket) -> None:
    """Runs the engine until it is no longer needed. The socket and its card are gone afterwards."""
    loop = EngineLoop(
        lambda report: build_engine(options, report),
        on_change=lambda: server.status_changed(),
        recording=options.recording or "",
    )
    server = ControlServer(loop.handle, lambda: loop.status)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, loop.handle, Shutdown())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    runtime_folder.write_card(
        runtime_folder.EngineCard(
            pid=os.getpid(),
            model=options.model,
            recording=options.recording or "",
            log=str(log_path),
            socket=str(socket_path),
            started_at=datetime.datetime.now().isoformat(timespec="seconds"),
        )
    )
    try:
        async with server.listening(listener):
            loop.start()
            while not _is_done(loop, server, options.linger_s):
                await asyncio.sleep(LOOK_AROUND_S)
            await asyncio.to_thread(loop.join)
    finally:
        runtime_folder.remove(socket_path)


def _is_done(loop: EngineLoop, server: ControlServer, linger_s: float) -> bool:
    """Tells whether the process may end. One that nobody watches first finishes what it has to run."""
    if loop.is_closed and loop.is_told_to_end:
        return True
    if server.seconds_alone > linger_s:
        loop.run_unwatched()
        if loop.is_quiet:
            loop.handle(Shutdown())
    return False


def main() -> None:
    """Runs the engine that the command line describes."""
    yield_to_the_screen()
    options, socket_path, log_path, descriptor = sys.argv[1:]
    listener = socket.socket(fileno=int(descriptor))
    engine_options = msgspec.json.decode(options, type=EngineOptions)
    asyncio.run(serve(engine_options, Path(socket_path), Path(log_path), listener))
    log = Path(log_path)
    if log.exists() and not log.stat().st_size:
        log.unlink()


if __name__ == "__main__":
    main()
