"""Answers the clients of an engine process on its Unix socket, and tells them when the engine's condition changes.

Knows the lines of the channel, not what the commands do.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import msgspec

from kvscope.control import Answer, Call, Command, EngineStatus, Refused, Reply
from kvscope.control_client import MAX_LINE_BYTES

STATUS_INTERVAL_S = 0.02
"""A condition that changes with every step is told at most this often."""
MAX_UNREAD_BYTES = 1 << 20
"""A client that does not read gets no more conditions until it does."""


class ControlServer:
    """Serves any number of clients on the running event loop."""

    def __init__(self, handle: Callable[[Command], Reply], status: Callable[[], EngineStatus]) -> None:
        self._handle = handle
        self._status = status
        self._clients: set[asyncio.StreamWriter] = set()
        self._status_changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._last_seen = self._loop.time()

    @property
    def seconds_alone(self) -> float:
        """How long there has been no client; 0 while there is one."""
        return 0.0 if self._clients else self._loop.time() - self._last_seen

    def status_changed(self) -> None:
        """Says, from any thread, that the condition may have changed."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended, nobody is left to be told
            self._loop.call_soon_threadsafe(self._status_changed.set)

    @contextlib.asynccontextmanager
    async def listening(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serves until the block ends; then tells the last condition and hangs up."""
        server = await asyncio.start_unix_server(self._serve_client, sock=listener, limit=MAX_LINE_BYTES)
        teller = asyncio.create_task(self._tell_status())
        try:
            yield
        finally:
            teller.cancel()
            server.close()
            self._tell(self._status())
            for client in tuple(self._clients):
                client.close()
                with contextlib.suppress(OSError):
                    await client.wait_closed()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        _write(writer, Answer(id=None, reply=self._status()))
        try:
            while line := await reader.readline():
                _write(writer, self._answer(line))
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the client is gone, or sent a line beyond all measure: it is hung up on
        finally:
            self._clients.discard(writer)
            self._last_seen = self._loop.time()
            writer.close()

    def _answer(self, line: bytes) -> Answer:
        try:
            call = msgspec.json.decode(line, type=Call)
        except msgspec.MsgspecError as error:
            return Answer(id=None, reply=Refused(message=f"this is no command: {error}"))
        return Answer(id=call.id, reply=self._handle(call.command))

    async def _tell_status(self) -> None:
        told: EngineStatus | None = None
        while True:
            await self._status_changed.wait()
            self._status_changed.clear()
            if (status := self._status()) != told:
                told = status
                self._tell(status)
            await asyncio.sleep(STATUS_INTERVAL_S)

    def _tell(self, status: EngineStatus) -> None:
        for client in self._clients:
            if client.transport.get_write_buffer_size() < MAX_UNREAD_BYTES:
                _write(client, Answer(id=None, reply=status))


def _write(writer: asyncio.StreamWriter, answer: Answer) -> None:
    if not writer.is_closing():
        writer.write(msgspec.json.encode(answer) + b"\n")
