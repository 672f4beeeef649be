"""A client of an engine process: sends commands over its Unix socket and keeps the last condition it heard of.

It works on a thread of its own, so that a screen's event loop never waits for it and the condition is current even
while nobody asks. Knows nothing of how the engine was started; it may be told where the engine writes its log, to say
why the engine is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kvscope.control import Answer, Call, Command, EngineStatus, Refused, Reply

T = TypeVar("T")

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Longest line either side takes: a prompt of a few million tokens."""
NUM_LOG_LINES = 12
"""How much of a dead engine's log is shown."""


class ControlClient:
    """An `EngineControl` over a Unix socket. `start` it once, then `send` (in a coroutine) or `call` (in a thread)."""

    def __init__(
        self,
        socket_path: Path,
        *,
        log_path: Path | None = None,
        on_status: Callable[[EngineStatus], None] | None = None,
    ) -> None:
        """`on_status` is called on the client's thread with every new condition."""
        self.socket_path = socket_path
        self._log_path = log_path
        self._on_status = on_status
        self._status = EngineStatus(phase="loading", detail="starting the engine process")
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._why_gone = "this client has left the engine"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kvscope-control", daemon=True)
        self._follower: Future[None] | None = None

    @property
    def status(self) -> EngineStatus:
        """The last condition heard of; "failed" with the end of the engine's log where it is gone."""
        return self._status

    def start(self) -> ControlClient:
        """Connects, and follows the engine's condition from now on. Returns itself; a failure shows in `status`."""
        self._thread.start()
        reader = self._submit(self._connect()).result(10)
        if reader is not None:
            self._follower = self._submit(self._follow(reader))
        return self

    async def send(self, command: Command) -> Reply:
        """Sends a command and returns the answer; `Refused` where the engine cannot be reached."""
        return await asyncio.wrap_future(self._submit(self._call(command)))

    def call(self, command: Command, *, timeout_s: float = 30.0) -> Reply:
        """As `send`, for a caller without an event loop. Raises `TimeoutError`."""
        return self._submit(self._call(command)).result(timeout_s)

    async def close(self) -> None:
        """Disconnects; the engine keeps running."""
        await asyncio.to_thread(self.disconnect)

    def disconnect(self) -> None:
        """As `close`, for a caller without an event loop. May be called twice."""
        if not self._thread.is_alive():
            return
        self._submit(self._hang_up()).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    # From here on everything runs on the client's own loop.

    async def _connect(self) -> asyncio.StreamReader | None:
        try:
            reader, self._writer = await asyncio.open_unix_connection(str(self.socket_path), limit=MAX_LINE_BYTES)
        except OSError as error:
            self._engine_is_gone(f"no engine answers at {self.socket_path} ({error.strerror or error})")
            return None
        return reader

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        decoder = msgspec.json.Decoder(Answer)
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                answer = decoder.decode(line)
                if isinstance(answer.reply, EngineStatus):
                    self._set_status(answer.reply)
                waiting = self._waiting.pop(answer.id, None) if answer.id is not None else None
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer.reply)
        self._engine_is_gone("the engine process has ended")

    async def _call(self, command: Command) -> Reply:
        if self._writer is None:
            return Refused(message=self._why_gone)
        call = Call(id=next(self._ids), command=command)
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[call.id] = answer
        self._writer.write(msgspec.json.encode(call) + b"\n")
        return await answer

    async def _hang_up(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _engine_is_gone(self, message: str) -> None:
        self._writer = None
        self._why_gone = message
        if self._status.phase not in ("stopped", "failed"):
            log = self._end_of_log()
            self._why_gone = f"{message}: {log[-1]}" if log else message
            error = "\n".join(log)
            self._set_status(msgspec.structs.replace(self._status, phase="failed", detail=self._why_gone, error=error))
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(Refused(message=self._why_gone))
        self._waiting.clear()

    def _end_of_log(self) -> list[str]:
        if self._log_path is None or not self._log_path.exists():
            return []
        return self._log_path.read_text(errors="replace").rstrip().splitlines()[-NUM_LOG_LINES:]

    def _set_status(self, status: EngineStatus) -> None:
        self._status = status
        if self._on_status is not None:
            self._on_status(status)
